"""The door of the roster: one rejected record per check, D1 to D8."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from keel import codec
from keel.errors import BadSignature, BadValue, KeelError, Refused
from keel.mesh import keys, wire
from keel.mesh.entry import MAX_BYTES, read, read_genesis, record_id
from keel.mesh.firewallrules import invite_range
from keel.mesh.identity import address_of, mesh_id_of, prefix_of
from keel.mesh.records import AdoptedMember
from keel.types import MeshId, SigningKey
from tests.factories_mesh import Mesh, genesis, key, pair, respelled, seal, spoilt

MESH = Mesh()
FOREIGN = Mesh(genesis("g"))
GOOD = MESH.admission("f", "a")


def rule_of(error: KeelError) -> str:
    return error.rule if isinstance(error, Refused) else error.code


def resigned(raw: bytes, payload: bytes, by: str) -> bytes:
    """The record with another payload, signed well."""
    envelope = replace(respelled(raw), payload=payload, signatures=())
    signature = keys.sign(pair(by), wire.message(envelope))
    return wire.encode(wire.with_signature(envelope, key(by), signature))


def with_field(raw: bytes, by: str, **changes: object) -> bytes:
    fields = json.loads(respelled(raw).payload) | changes
    return resigned(raw, json.dumps(fields).encode(), by)


def with_root_signature(raw: bytes) -> bytes:
    return wire.encode(wire.with_signature(respelled(raw), "root:" + "ab" * 32, b"0"))


REFUSED = [
    pytest.param(b"", "bad-value", id="D2-empty"),
    pytest.param(b"{}", "bad-value", id="D2-no-envelope"),
    pytest.param(GOOD.replace(b'":"', b'": "', 1), "bad-value", id="D2-another-spelling"),
    pytest.param(GOOD + b" " * MAX_BYTES["vote"], "bad-value", id="D1-larger-than-any"),
    pytest.param(with_field(GOOD, "f", name="a" * 4000), "record-too-large", id="D1-of-its-kind"),
    pytest.param(
        resigned(seal("new", MESH.self_body("a"), "a"), b"x" * 20000, "a"),
        "record-too-large",
        id="D1-of-an-unknown-kind",
    ),
    pytest.param(spoilt(GOOD), "bad-signature", id="D3-forged"),
    pytest.param(
        spoilt(seal("new", MESH.self_body("a"), "a")), "bad-signature", id="D3-forged-unknown-kind"
    ),
    pytest.param(
        wire.encode(
            wire.with_signature(replace(respelled(GOOD), signatures=()), "root:" + "ab" * 32, b"0")
        ),
        "bad-signature",
        id="D3-no-member-signed",
    ),
    pytest.param(
        wire.encode(wire.with_signature(respelled(GOOD), key("a"), bytes(64))),
        "bad-signature",
        id="D3-one-of-two-forged",
    ),
    pytest.param(
        spoilt(MESH.succession("a", "b")), "bad-signature", id="D3-one-of-those-who-have-to"
    ),
    pytest.param(resigned(GOOD, b"{", "f"), "bad-value", id="D4-not-json"),
    pytest.param(with_field(GOOD, "f", more=1), "bad-value", id="D4-unknown-field"),
    pytest.param(
        resigned(GOOD, respelled(GOOD).payload[:-1] + b',"name":"b"}', "f"),
        "bad-value",
        id="D4-duplicate-key",
    ),
    pytest.param(with_field(GOOD, "f", name="A"), "bad-value", id="D4-bad-name"),
    pytest.param(FOREIGN.said("f"), "foreign-mesh", id="D5-another-mesh"),
    pytest.param(FOREIGN.genesis_raw, "foreign-mesh", id="D5-another-genesis"),
    pytest.param(
        seal("admission", MESH.admission_body("f", "a"), "b"),
        "bad-signature",
        id="D6-admitted-by-another",
    ),
    pytest.param(
        seal("self", MESH.self_body("a"), "a", "b"), "bad-signature", id="D6-one-signature-too-many"
    ),
    pytest.param(seal("self", MESH.self_body("a"), "b"), "bad-signature", id="D6-self-by-another"),
    pytest.param(
        seal("removal", MESH.removal_body("a", "b"), "c"), "bad-signature", id="D6-removal"
    ),
    pytest.param(
        wire.encode(
            replace(
                respelled(MESH.succession("a", "b")),
                signatures=respelled(MESH.succession("a", "b")).signatures[:1],
            )
        ),
        "bad-signature",
        id="D6-succession-by-one",
    ),
    pytest.param(
        wire.encode(
            replace(
                respelled(MESH.holder("a")), signatures=respelled(MESH.holder("a")).signatures[:1]
            )
        ),
        "bad-signature",
        id="D6-holder-without-the-root",
    ),
    pytest.param(
        with_root_signature(MESH.said("a")), "bad-signature", id="D6-root-where-it-has-no-say"
    ),
    pytest.param(
        seal(
            "admission",
            replace(MESH.admission_body("f", "a"), address=IPv6Address("fd00::1")),
            "f",
        ),
        "address-not-of-key",
        id="D7-chosen-address",
    ),
    pytest.param(MESH.admission("a", "a"), "self-admission", id="D7-admits-itself"),
    pytest.param(
        seal("removal", MESH.removal_body("a", "b", grounds=(b"1", b"2")), "a"),
        "bad-value",
        id="D8-no-records",
    ),
]


@pytest.mark.parametrize(("raw", "rule"), REFUSED)
def test_the_door_refuses_each_flaw_by_its_own_rule(raw: bytes, rule: str) -> None:
    with pytest.raises(KeelError) as refused:
        read(raw, MESH.empty.founding)
    assert rule_of(refused.value) == rule
    assert refused.value.remedy()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(MESH.said("a"), MESH.said("b", roots=["a"]), id="remover-lists-not"),
        pytest.param(MESH.said("a", roots=["b"]), MESH.said("b"), id="subject-lists-not"),
        pytest.param(
            MESH.said("b", roots=["a"]), MESH.said("a", roots=["b"]), id="in-the-wrong-order"
        ),
        pytest.param(
            MESH.said("c", roots=["b"]), MESH.said("b", roots=["a"]), id="another-s-for-the-remover"
        ),
        pytest.param(
            MESH.said("a", roots=["b"]), MESH.said("c", roots=["a"]), id="another-s-for-the-subject"
        ),
        pytest.param(
            MESH.said("a", roots=["b"]), FOREIGN.said("b", roots=["a"]), id="of-another-mesh"
        ),
    ],
)
def test_grounds_that_do_not_hold_are_refused(first: bytes, second: bytes) -> None:
    raw = seal("removal", MESH.removal_body("a", "b", grounds=(first, second)), "a")
    with pytest.raises(Refused) as refused:
        read(raw, MESH.empty.founding)
    assert refused.value.rule == "grounds-do-not-hold"


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(spoilt(MESH.said("b", roots=["a"])), id="forged"),
        pytest.param(
            seal("self", MESH.self_body("b", roots=["a"]), "c"), id="signed-by-somebody-else"
        ),
    ],
)
def test_grounds_are_verified_like_any_record(second: bytes) -> None:
    grounds = (MESH.said("a", roots=["b"]), second)
    raw = seal("removal", MESH.removal_body("a", "b", grounds=grounds), "a")
    with pytest.raises(BadSignature):
        read(raw, MESH.empty.founding)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(GOOD, id="admission"),
        pytest.param(MESH.said("a"), id="self"),
        pytest.param(MESH.removal("a", "b", mutual=True), id="removal"),
        pytest.param(MESH.vote("a", "b", [GOOD]), id="vote"),
        pytest.param(MESH.succession("a", "b"), id="succession"),
        pytest.param(MESH.crl("a"), id="crl"),
        pytest.param(MESH.holder("a"), id="holder"),
        pytest.param(MESH.genesis_raw, id="genesis"),
    ],
)
def test_every_kind_has_a_form_and_keeps_the_received_bytes(raw: bytes) -> None:
    entry = read(raw, MESH.empty.founding)
    assert (entry.raw, entry.kind) == (raw, wire.kind_of(respelled(raw)))
    assert entry.body is not None


def test_a_later_version_of_a_known_kind_is_kept_unread() -> None:
    later = replace(
        respelled(MESH.said("a")),
        payload_type="application/vnd.keel.self.v2+json",
        payload=b"whatever",
        signatures=(),
    )
    signature = keys.sign(pair("a"), wire.message(later))
    raw = wire.encode(wire.with_signature(later, key("a"), signature))
    entry = read(raw, MESH.empty.founding)
    assert (entry.kind, entry.signer, entry.body) == ("self.v2", key("a"), None)


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        pytest.param(MESH.self_body("a"), {"counter": -1}, id="counter-negative"),
        pytest.param(MESH.self_body("a"), {"lived": 2**53}, id="lived-too-large"),
        pytest.param(MESH.self_body("a"), {"versions": ("x",) * 65}, id="too-many-versions"),
        pytest.param(MESH.self_body("a"), {"roots": ("x",)}, id="root-not-a-key"),
        pytest.param(
            MESH.self_body("a"), {"next_wireguard": "x"}, id="next-key-not-a-wireguard-key"
        ),
        pytest.param(
            MESH.removal_body("a", "b"), {"standing": ("ab" * 32,) * 2}, id="listed-twice"
        ),
        pytest.param(MESH.removal_body("a", "b"), {"grounds": (b"",)}, id="half-a-ground"),
    ],
)
def test_a_record_has_limits_of_its_own(body: object, changes: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the codec gives it path and code
        replace(body, **changes)  # type: ignore[type-var]


def test_a_key_does_not_succeed_itself() -> None:
    with pytest.raises(ValueError, match="succeed itself"):
        MESH.succession("a", "a")


def adopted(name: str, address: str) -> AdoptedMember:
    return AdoptedMember(ed25519=key(name), address=IPv6Address(address))


def test_an_adopted_mesh_keeps_the_addresses_it_lists() -> None:
    mesh = Mesh(genesis(adopted=(adopted("a", "fd00:1::a"), adopted("f", "fd00:1::f"))))
    founding = mesh.empty.founding
    found = [founding.address_of(key(name)) for name in ("f", "a", "b")]
    assert found == [IPv6Address("fd00:1::f"), IPv6Address("fd00:1::a"), mesh.address("b")]
    with pytest.raises(Refused, match="which its key does not give"):
        mesh.entry(mesh.admission("f", "a"))


def test_an_address_once_found_is_never_another_keys() -> None:
    mesh = Mesh()
    founding = mesh.empty.founding
    taken = replace(
        founding.genesis,
        adopted=(AdoptedMember(ed25519=key("x"), address=mesh.address("a")),),
    )
    with pytest.raises(Refused) as refused:
        replace(founding, genesis=taken).address_of(key("a"))
    assert refused.value.rule == "address-taken"


@pytest.mark.parametrize(
    "members",
    [
        pytest.param((adopted("a", "fd00::1"), adopted("a", "fd00::2")), id="key"),
        pytest.param((adopted("a", "fd00::1"), adopted("b", "fd00::1")), id="address"),
    ],
)
def test_an_adopted_mesh_lists_each_key_and_address_once(
    members: tuple[AdoptedMember, ...],
) -> None:
    with pytest.raises(ValueError, match="stand twice"):
        genesis(adopted=members)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        pytest.param(GOOD, BadSignature, id="another-kind"),
        pytest.param(spoilt(MESH.genesis_raw), BadSignature, id="forged"),
        pytest.param(with_root_signature(MESH.genesis_raw), BadSignature, id="signed-besides"),
        pytest.param(b"", BadValue, id="empty"),
    ],
)
def test_a_genesis_is_verified(raw: bytes, error: type[KeelError]) -> None:
    with pytest.raises(error):
        read_genesis(raw)


def test_the_genesis_gives_the_mesh_its_id_and_prefix() -> None:
    mesh = mesh_id_of(genesis())
    assert len(bytes.fromhex(mesh)) == 16
    assert prefix_of(mesh).prefixlen == 64
    assert prefix_of(mesh).network_address.packed[:1] == b"\xfd"
    assert prefix_of(mesh).network_address.packed[6:] == bytes(10)


def test_an_address_is_never_one_that_invites_use() -> None:
    # found by search: this key's first hash starts with ffff
    mesh, member = MeshId("00" * 16), SigningKey(f"{75098:064x}")
    address = address_of(mesh, member)
    assert address in prefix_of(mesh)
    assert address not in invite_range(prefix_of(mesh))


def test_the_payload_is_what_the_codec_makes() -> None:
    assert codec.dumps(MESH.self_body("a")) == respelled(MESH.said("a")).payload


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(GOOD, id="known"),
        pytest.param(seal("new", MESH.self_body("a"), "a"), id="unknown"),
    ],
)
def test_a_record_is_kept_under_the_name_that_follows_from_its_bytes(raw: bytes) -> None:
    assert read(raw, MESH.empty.founding).record == record_id(raw)
