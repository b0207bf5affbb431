"""Writes good and deliberately wrong certificates and CRLs for other people's linters.

    python -m tests.pki.linters --out DIRECTORY [--need openssl zlint pkilint [--pkilint ENV]]

A directory per case, and a manifest of what each linter must say about it; with --need,
lintcheck.py runs those linters. Every good certificate and CRL must be clean in all three. A wrong
one must displease the linters that its defect names; those it doesn't name may say what they like.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from keel.mesh import etcdcert, etcdcrl
from keel.mesh.etcdcert import Authority
from keel.mesh.etcdcrl import Reason, Revoked
from keel.mesh.etcdprofile import Kind
from tests.pki import lintcheck, make
from tests.pki.crldefects import CRLS
from tests.pki.defects import CERTIFICATES, OPENSSL, PKILINT, PKILINT_CHAIN, ZLINT, Chain

Run = dict[str, Any]
ALL = frozenset({OPENSSL, ZLINT, PKILINT, PKILINT_CHAIN})
CRL_LINTERS = frozenset({OPENSSL, ZLINT, PKILINT})


def good_chains() -> Iterator[tuple[str, Chain]]:
    """Each kind, a renewed intermediate of a second generation, and one clipped by its issuer."""
    one, two = make.root(), make.root(generation=2)
    late = one.certificate.not_valid_after_utc - timedelta(days=5)
    members = {
        "first": (one, make.intermediate(one), make.NOW),
        "second generation": (two, make.intermediate(two, number=2), make.NOW),
        "clipped": (one, make.intermediate(one, number=9, now=late), late),
    }
    for name, (root, under, now) in members.items():
        for kind, factory in ((Kind.MEMBER, make.member), (Kind.CLIENT, make.client)):
            leaf = factory(under, now=now).leaf
            yield (
                f"good {name} {kind}",
                Chain(
                    root=root.certificate,
                    intermediate=under.certificate,
                    leaf=leaf,
                    leaf_kind=kind,
                ),
            )


def good_crls() -> Iterator[tuple[str, Authority, bytes]]:
    root, two = make.root(), make.root(generation=2)
    entries = [
        Revoked(
            serial=etcdcert.format_serial(int.from_bytes(make.serial(reason), "big") >> 1),
            reason=reason,
            at=make.NOW - timedelta(days=1),
        )
        for reason in Reason
    ]
    for name, signer, revoked in (
        ("empty", root, []),
        ("every reason", root, entries),
        ("second generation", two, entries),
    ):
        yield (
            f"good crl {name}",
            signer,
            etcdcrl.new_crl(signer, revoked, number=7, now=make.NOW),
        )


def write_chain(out: Path, case: str, chain: Chain, linters: frozenset[str]) -> list[Run]:
    """Files of one chain, and the runs over them for these linters."""
    place = _place(out, case)
    for name in ("root", "intermediate", "leaf"):
        (out / place / f"{name}.pem").write_bytes(etcdcert.pem(getattr(chain, name)))
    when = int(chain.leaf.not_valid_before_utc.timestamp()) + 7200
    purposes = ["sslclient"] if chain.leaf_kind is Kind.CLIENT else ["sslserver", "sslclient"]
    return [
        *(
            _run(case, OPENSSL, *_verify(place, when, purpose))
            for purpose in purposes
            if OPENSSL in linters
        ),
        *(
            _run(case, ZLINT, f"{place}/{name}.pem")
            for name in ("root", "intermediate", "leaf")
            if ZLINT in linters
        ),
        *(
            _run(case, PKILINT, "cert", f"{place}/{name}.pem")
            for name in ("root", "intermediate", "leaf")
            if PKILINT in linters
        ),
        *(
            _run(case, PKILINT_CHAIN, "chain", f"{place}/{issuer}.pem", f"{place}/{subject}.pem")
            for issuer, subject in (("root", "intermediate"), ("intermediate", "leaf"))
            if PKILINT_CHAIN in linters
        ),
    ]


def write_crl(
    out: Path, case: str, root: Authority, raw: bytes, linters: frozenset[str]
) -> list[Run]:
    """Files of one CRL beside its root and an intermediate that it does not revoke."""
    place = _place(out, case)
    under = make.intermediate(root).certificate
    pem = x509.load_der_x509_crl(raw).public_bytes(serialization.Encoding.PEM)
    (out / place / "crl.pem").write_bytes(pem)
    (out / place / "root.pem").write_bytes(etcdcert.pem(root.certificate))
    (out / place / "intermediate.pem").write_bytes(etcdcert.pem(under))
    runs = {
        OPENSSL: _run(case, OPENSSL, *_verify_revocation(place)),
        ZLINT: _run(case, ZLINT, f"{place}/crl.pem"),
        PKILINT: _run(case, PKILINT, "crl", "-t", "ARL", "-p", "PKIX", f"{place}/crl.pem"),
    }
    return [run for linter, run in runs.items() if linter in linters]


def write_all(out: Path) -> list[Run]:
    """Every case and the manifest."""
    runs: list[Run] = []
    for case, chain in good_chains():
        runs += write_chain(out, case, chain, ALL)
    for case, signer, raw in good_crls():
        runs += write_crl(out, case, signer, raw, CRL_LINTERS)
    for defect in CERTIFICATES:
        made = write_chain(out, defect.name, defect.chain(), defect.linters)
        runs += _displeased(made, defect.kind)
    for wrong in CRLS:
        if wrong.linters:
            made = write_crl(out, f"crl {wrong.name}", make.root(), wrong.make(), wrong.linters)
            runs += [run | {"complains": True} for run in made]
    revoked = make.intermediate().certificate
    entry = Revoked(serial=etcdcert.serial_of(revoked), reason=Reason.CESSATION, at=make.NOW)
    raw = etcdcrl.new_crl(make.root(), [entry], number=7, now=make.NOW)
    made = write_crl(out, "crl that revokes", make.root(), raw, frozenset({OPENSSL}))
    runs += [run | {"complains": True} for run in made]
    (out / "manifest.json").write_text(json.dumps({"runs": runs}, indent=1))
    return runs


def _displeased(runs: list[Run], kind: Kind) -> list[Run]:
    """Only the runs that look at the one wrong certificate: of openssl's the server's (the
    client's when it is a client leaf), of a linter's the one over its file."""
    file = {Kind.ROOT: "root", Kind.INTERMEDIATE: "intermediate"}.get(kind, "leaf")
    return [
        run | {"complains": True}
        for run in runs
        if (
            run["arguments"][-1].endswith(f"/{file}.pem")
            if run["linter"] != OPENSSL
            else "sslserver" in run["arguments"] or kind is Kind.CLIENT
        )
    ]


def _verify(place: str, when: int, purpose: str) -> list[str]:
    files = ["-CAfile", f"{place}/root.pem", "-untrusted", f"{place}/intermediate.pem"]
    rest = ["-purpose", purpose, f"{place}/leaf.pem"]
    return ["verify", "-x509_strict", "-attime", str(when), *files, *rest]


def _verify_revocation(place: str) -> list[str]:
    when = str(int(make.NOW.timestamp()) + 60)
    files = ["-CAfile", f"{place}/root.pem", "-CRLfile", f"{place}/crl.pem"]
    return [
        "verify",
        "-x509_strict",
        "-attime",
        when,
        "-crl_check",
        *files,
        f"{place}/intermediate.pem",
    ]


def _run(case: str, linter: str, *arguments: str) -> Run:
    return {"case": case, "linter": linter, "arguments": list(arguments), "complains": False}


def _place(out: Path, case: str) -> str:
    place = re.sub(r"[^a-z0-9]+", "-", case.lower())
    (out / place).mkdir(parents=True)
    return place


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="linters", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="an empty or absent directory")
    parser.add_argument("--need", nargs="+", choices=["openssl", "zlint", "pkilint"], default=[])
    parser.add_argument("--pkilint", type=Path, metavar="ENVIRONMENT")
    options = parser.parse_args(argv)
    runs = write_all(options.out)
    print(f"{len(runs)} runs over {len({run['case'] for run in runs})} cases in {options.out}")
    if not options.need:
        return 0
    return lintcheck.check(options.out, options.need, options.pkilint)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
