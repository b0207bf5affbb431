"""A node's own state of the mesh on disk: loads it whole, writes it piece by piece.

Owns the files below /var/lib/keel/mesh and what their absence means. Decides nothing.

Rules:
(S1) `genesis` says that this node is in a mesh. It is written last of what a membership needs, so
     a node is in a mesh with all of its state, or not at all.
(S2) A file that must be there and is not, is empty or does not parse is StateCorrupt with its path;
     never an empty default. A roster without its genesis is corrupt, unless a join is under way.
(S3) Keys are created, never overwritten: an interrupted flow goes on with the keys it made.
(S4) A record goes from disk only when a newer one of the same kind and signer has replaced it.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

from keel import codec
from keel.errors import BadSignature, BadValue, DiskTrouble, Refused, StateCorrupt
from keel.mesh import entry, keys, members, roster, window
from keel.mesh.identity import address_of
from keel.mesh.invite import InviteState, parse_invite
from keel.mesh.keys import SigningPair, WgPair
from keel.mesh.members import View
from keel.mesh.nonces import MAX_FILE_BYTES, NonceLedger, parse_nonces
from keel.mesh.roster import Merged, Roster
from keel.mesh.trust import TrustStore
from keel.mesh.window import Window
from keel.paths import Paths
from keel.ports import Host
from keel.types import InviteId, MeshId, Secret, SigningKey, parse_wg_key

LOCK_WAIT_SECONDS = 20.0
"""Longer than any flow holds the lock: none holds it across a remote call."""

LOOKS = 10
"""At a directory that changes; what then still is listed and cannot be read is damaged."""

BELOW = Paths(Path())
"""Where the files are below any root."""

REMEMBERED = 8
"""Rosters whose meaning is kept in memory: a command meets one, and a new one per message."""
REMEMBERED_BYTES = 2 << 20
"""Of a roster of which so many are kept; 200 members make a fifth of it. Of larger ones, which take
somebody's flood, one: eight would be more than the channel's service may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The two key pairs of a node."""

    signing: SigningPair
    wireguard: WgPair


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that is in a mesh, as its disk has it; `view` is what the roster comes to."""

    identity: Identity
    mesh: MeshId
    prefix: IPv6Network
    address: IPv6Address
    roster: Roster
    view: View
    trust: TrustStore
    suspended: frozenset[SigningKey] = frozenset()
    """Whose removal waits for its confirmation."""

    @property
    def key(self) -> SigningKey:
        return self.identity.signing.public

    @property
    def blocked(self) -> frozenset[SigningKey]:
        """The keys that this node alone has done with, for good or while a window is open."""
        return frozenset(block.key for block in self.trust.blocks) | self.suspended


def locked(host: Host, what: str) -> AbstractContextManager[None]:
    """The one lock for mutation on this host; never hold it across a remote call."""
    return host.locks.hold(host.paths.lock, what=what, wait_seconds=LOCK_WAIT_SECONDS)


def load(host: Host) -> Node | None:
    """This node's state; None when it is in no mesh (S1, S2)."""
    genesis = host.files.read(host.paths.genesis)
    if genesis is None:
        if host.files.names(host.paths.roster) and not host.files.names(host.paths.pending_joins):
            raise StateCorrupt(host.paths.genesis, "missing, though this node is in a mesh")
        return None
    identity = _load_identity(host, host.paths.signing_key, host.paths.wireguard_key)
    held, view = _load_roster(host, genesis)
    return _node(
        identity,
        held,
        view,
        trust=_load_trust(host),
        suspended=window.suspended(load_window(host)),
    )


def assemble(
    identity: Identity,
    *,
    held: Roster,
    trust: TrustStore,
    suspended: frozenset[SigningKey] = frozenset(),
) -> Node:
    """A node of these parts; what it is follows from them."""
    return _node(identity, held, members.view(held), trust=trust, suspended=suspended)


def _node(
    identity: Identity,
    held: Roster,
    view: View,
    *,
    trust: TrustStore,
    suspended: frozenset[SigningKey],
) -> Node:
    me = view.by_key(identity.signing.public)
    return Node(
        identity=identity,
        mesh=held.mesh,
        prefix=view.prefix,
        address=me.address if me else address_of(held.mesh, identity.signing.public),
        roster=held,
        view=view,
        trust=trust,
        suspended=suspended,
    )


def with_roster(node: Node, held: Roster) -> Node:
    """The same node with other records."""
    return assemble(node.identity, held=held, trust=node.trust, suspended=node.suspended)


def require(host: Host) -> Node:
    """This node's state; Refused when it is in no mesh."""
    node = load(host)
    if node is None:
        raise Refused(
            "not-in-mesh",
            "this node is in no mesh",
            "finish the join that was begun: `keel mesh join` with the same token, or with a new"
            " one of that mesh; or give it up: `keel mesh join --discard-pending`"
            if host.files.names(host.paths.pending_joins)
            else "make one with `keel mesh create`, or join one with `keel mesh join`",
        )
    return node


def make_identity(host: Host, signing: Path, wireguard: Path) -> Identity:
    """The keys in these files, made first where there are none (S3)."""
    for path in (signing, wireguard):
        host.files.make_dir(path.parent)
        if host.files.read(path) is None:
            made = Secret(host.chance.bytes(keys.KEY_BYTES))
            # clamped, so that the file holds what WireGuard shows
            kept = keys.wg_pair(made).private if path == wireguard else made
            host.files.create(path, _key_text(kept))
    return _load_identity(host, signing, wireguard)


def save_identity(host: Host, identity: Identity) -> None:
    """A joiner's keys become the node's."""
    host.files.make_dir(host.paths.mesh)
    host.files.write(host.paths.signing_key, _key_text(identity.signing.seed))
    host.files.write(host.paths.wireguard_key, _key_text(identity.wireguard.private))


def keep_for_etcd(host: Host, mesh: MeshId) -> None:
    """So do the key of its certificate request and the root's fingerprint, if it has them."""
    paths = host.paths
    for source, target in (
        (paths.pending_etcd_key(mesh), paths.intermediate(1) / "key.pem"),
        (paths.pending_etcd_root(mesh), paths.etcd_pinned),
    ):
        raw = host.files.read(source)
        if raw is not None:
            host.files.make_dir(paths.etcd)
            host.files.make_dir(target.parent)
            host.files.create(target, raw)


def save_roster(host: Host, held: Roster) -> None:
    """Make the directory hold exactly these records: new ones first, then the replaced go (S4)."""
    host.files.make_dir(host.paths.roster)
    present = set(host.files.names(host.paths.roster))
    for record, raw in sorted(held.raws.items()):
        if record not in present:
            host.files.write(host.paths.roster / record, raw)
    for name in sorted(present - held.raws.keys()):
        host.files.remove(host.paths.roster / name)


def save_genesis(host: Host, genesis: bytes) -> None:
    """From here on this node is in the mesh (S1)."""
    host.files.write(host.paths.genesis, genesis)


def save_trust(host: Host, trust: TrustStore) -> None:
    host.files.write(host.paths.trust, codec.dumps(trust))


def load_invites(host: Host) -> tuple[InviteState, ...]:
    """Every invite that is remembered, oldest first."""
    place = host.paths.invites
    found = [_load_invite(place / name, raw) for name, raw in _read_all(host, place)]
    return tuple(sorted(found, key=lambda invite: (invite.made, invite.invite)))


def save_invite(host: Host, invite: InviteState) -> None:
    host.files.make_dir(host.paths.invites)
    host.files.write(host.paths.invite(invite.invite), codec.dumps(invite))


def forget_invite(host: Host, invite: InviteId) -> None:
    host.files.remove(host.paths.invite(invite))


def load_nonces(host: Host) -> NonceLedger:
    """The ledger of messages seen. A node that has seen none yet has no file."""
    raw = host.files.read(host.paths.nonces, max_bytes=MAX_FILE_BYTES)
    if raw is None:
        return NonceLedger()
    try:
        return parse_nonces(raw)
    except BadValue as error:
        raise StateCorrupt(host.paths.nonces, error.summary()) from error


def save_nonce(host: Host, ledger: NonceLedger, line: bytes | None) -> NonceLedger:
    """Keep one more nonce before its message has an effect; rewrites the file when it is due."""
    if line is not None:
        host.files.append(host.paths.nonces, line)
    if not ledger.rewrite_due():
        return ledger
    rewritten, raw = ledger.dump()
    host.files.write(host.paths.nonces, raw)
    return rewritten


def merge_into(host: Host, node: Node, raws: Iterable[bytes]) -> tuple[Node, Merged]:
    """Merge records into what the disk holds and write what is new; hold the lock. A node that
    was read before the lock was taken may be behind the disk: what came meanwhile stays."""
    on_disk = load(host)
    if on_disk is not None and on_disk.roster is not node.roster:
        node = with_roster(node, on_disk.roster)
    return merge_held(host, node, raws)


def merge_held(host: Host, node: Node, raws: Iterable[bytes]) -> tuple[Node, Merged]:
    """The same with a node that was read under the lock, which is held still."""
    merged = roster.merge(node.roster, raws)
    if merged.roster is node.roster:
        return node, merged
    save_roster(host, merged.roster)
    return with_roster(node, merged.roster), merged


def keep_hint(host: Host, path: Path, raw: bytes) -> None:
    """Write what is of use to this boot alone, below /run. Where there is no room it is told and
    costs no more than the hint."""
    try:
        host.files.make_dir(host.paths.run)
        host.files.write(path, raw)
    except DiskTrouble as trouble:
        host.console.say(f"not kept: {trouble.summary()}: {trouble.remedy()}")


def window_is_open(host: Host) -> bool:
    """Whether a change to the network waits here, or what follows from one is not done yet."""
    return host.files.exists(host.paths.window)


def load_window(host: Host) -> Window | None:
    """The change that waits for its confirmation; None when there is none."""
    path = host.paths.window
    return codec.read_state(Window, path, host.files.read(path))


def save_window(host: Host, found: Window) -> None:
    host.files.write(host.paths.window, codec.dumps(found))


def end_window(host: Host) -> None:
    host.files.remove(host.paths.window)


def _load_identity(host: Host, signing: Path, wireguard: Path) -> Identity:
    return Identity(
        signing=keys.signing_pair(_load_key(host, signing)),
        wireguard=keys.wg_pair(_load_key(host, wireguard)),
    )


def _load_key(host: Host, path: Path) -> Secret:
    raw = host.files.read(path, max_bytes=4096)
    if raw is None:
        raise StateCorrupt(path, "missing, though this node has keys")
    try:
        return Secret(base64.b64decode(parse_wg_key(raw.decode("ascii").strip())))
    except ValueError as error:
        raise StateCorrupt(path, "not a key") from error


def _key_text(secret: Secret) -> bytes:
    return base64.b64encode(secret.reveal()) + b"\n"


def _load_roster(host: Host, genesis: bytes) -> tuple[Roster, View]:
    return _read_roster(host.paths, genesis, _read_all(host, host.paths.roster))


Raws = tuple[tuple[str, bytes], ...]


def _read_all(host: Host, place: Path) -> Raws:
    """What a directory holds, by name. Who reads holds no lock: a file that goes between its
    listing and its reading was replaced, and the new one may not be in that listing yet (S4)."""
    found: dict[str, bytes | None] = {}
    for _ in range(LOOKS):
        found = {name: host.files.read(place / name) for name in host.files.names(place)}
        if None not in found.values():
            break
    return tuple((name, raw or b"") for name, raw in found.items())


def _read_roster(paths: Paths, genesis: bytes, raws: Raws) -> tuple[Roster, View]:
    """What these bytes come to; a flow reads them again and again, and they seldom change."""
    small = sum(len(raw) for _, raw in raws) <= REMEMBERED_BYTES
    try:
        return (_of_many if small else _the_last)(genesis, raws)
    except StateCorrupt as error:
        raise StateCorrupt(paths.root / error.path, error.problem) from error


def _made_of(genesis: bytes, raws: Raws) -> tuple[Roster, View]:
    """The same wherever they lie; StateCorrupt names the file below the root."""
    try:
        held = roster.founded(genesis)
    except (BadValue, BadSignature) as error:
        raise StateCorrupt(BELOW.genesis, error.summary()) from error
    merged = roster.merge(held, [raw for _, raw in raws])
    taken = {raw: record for record, raw in merged.roster.raws.items()}
    for name, raw in raws:
        if taken.get(raw) != name:  # nothing is decoded twice to tell the name that it has
            _check_name(BELOW.roster / name, raw)
    for refused in merged.refused:
        raise StateCorrupt(BELOW.roster / refused.record, refused.text)
    return merged.roster, members.view(merged.roster)


_of_many = functools.lru_cache(maxsize=REMEMBERED)(_made_of)
_the_last = functools.lru_cache(maxsize=1)(_made_of)


def _check_name(path: Path, raw: bytes) -> None:
    """A record's file is named by its hash, so that damage shows before anything is believed."""
    try:
        found = entry.record_id(raw)
    except BadValue as error:
        raise StateCorrupt(path, error.summary()) from error
    if found != path.name:
        raise StateCorrupt(path, "not the record that its name says")


def _load_trust(host: Host) -> TrustStore:
    path = host.paths.trust
    found = codec.read_state(TrustStore, path, host.files.read(path))
    if found is None:
        raise StateCorrupt(path, "missing, though this node is in a mesh")
    return found


def _load_invite(path: Path, raw: bytes) -> InviteState:
    try:
        invite = parse_invite(raw)
    except BadValue as error:
        raise StateCorrupt(path, error.summary()) from error
    if path.name != f"{invite.invite}.json":
        raise StateCorrupt(path, "not the invite that its name says")
    return invite
