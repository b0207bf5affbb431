"""`keel spec show|check|apply` and `keel diff`."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path

from keel.cli.verb import Group, Report, Verb, no_arguments
from keel.ports import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    def run(self, host: Host) -> Report:
        from keel.spec import apply, parse

        spec = apply.load(host)
        return Report(
            text=parse.render_spec(spec),
            document={"schema": "keel.spec/1", "spec": parse.as_document(spec)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    file: Path | None

    def run(self, host: Host) -> Report:
        from keel.spec import apply

        path = self.file or host.paths.spec
        apply.load(host, path, needed=True)
        return Report(text=f"{path} is valid", document={"schema": "keel.check/1", "valid": True})


def _check_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="instead of the spec")


SPEC = Group(
    name="spec",
    summary="what the operator wants of this node",
    description="Show or check /etc/keel/spec.yaml, which keel.spec(5) describes.",
    children=(
        Verb(
            name="show",
            summary="print the spec with every default filled in",
            description="Prints the spec as keel understands it, with every default filled in.",
            example="keel spec show",
            add_arguments=no_arguments,
            options=lambda _: Show(),
            reads=True,
        ),
        Verb(
            name="check",
            summary="say whether the spec is valid",
            description="Reads the spec, or FILE, and names the first fault by its dotted path. "
            "Exit status 2 when there is one.",
            example="keel spec check spec-new.yaml",
            add_arguments=_check_arguments,
            options=lambda found: Check(file=found.file),
            reads=True,
            needs_root=False,
        ),
    ),
)
