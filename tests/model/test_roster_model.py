"""The roster over several nodes: any order, any split, the same view everywhere (M5).

Worlds are drawn with honest and dishonest records: admissions in chains and circles, removals by
every right and none, mutual and backdated ones, votes, clones, contested WireGuard keys, forgeries.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import cache

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keel.mesh import members, roster
from keel.mesh.records import Removal
from keel.mesh.roster import Roster
from tests.factories_mesh import Mesh, genesis, key, seal, spoilt, wg

MESH = Mesh()
FOREIGN = Mesh(genesis("g"))
NAMES = "fabcde"
NODES = 5

SITUATIONS = {
    "several live",
    "removed",
    "founder removed",
    "void removal by a removed signer",
    "mutual removal",
    "votes",
    "orphans",
    "fallen with its admitter",
    members.CLONE,
    members.WIREGUARD_KEY_TWICE,
}

BOUNDED = settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


@cache
def pool() -> tuple[bytes, ...]:
    """Every record the worlds are drawn from; made once, for signing is what takes time."""
    admissions = [
        MESH.admission(by, who, minutes=minutes, wireguard=wg(key_of))
        for by in NAMES
        for who in NAMES
        if by != who
        for minutes, key_of in ((1, who), (2, "shared"))
    ]
    chains = (("f", "a"), ("f", "b"), ("a", "c"), ("b", "d"), ("c", "e"), ("d", "b"), ("e", "d"))
    plain = [MESH.admission(by, who) for by, who in chains]
    removals = []
    for by in NAMES:
        for who in NAMES:
            own = [raw for raw in plain if MESH.entry(raw).signer == key(who)]
            removals += [
                MESH.removal(by, who),
                MESH.removal(by, who, standing=own, n=1),
                MESH.removal(by, who, standing=own, mutual=by != who, n=2),
            ]
    counting = [MESH.removal("a", "c"), MESH.removal("b", "d"), MESH.removal("c", "e")]
    listing = [MESH.removal("f", who, standing=[*plain, *counting], n=9) for who in ("a", "b", "c")]
    votes = [
        MESH.vote(by, who, plain[:size], standing=plain)
        for by in NAMES
        for who in "fab"
        for size in (2, 3, 5)
    ]
    selves = [
        MESH.said(who, counter=counter, wireguard=wg(key_of), since=since)
        for who in NAMES
        for counter in (1, 2)
        for key_of, since in ((who, 1), ("shared", 3), ("shared", -5))
    ]
    others = [MESH.crl("a", number=n) for n in range(3)]
    others += [MESH.holder("b", epoch=n) for n in range(2)]
    others += [MESH.succession("a", "z"), seal("new", MESH.self_body("c"), "c")]
    return tuple(
        dict.fromkeys(plain + admissions + removals + counting + listing + votes + selves + others)
    )


@dataclass(frozen=True)
class World:
    """Records, and the nodes that hold each of them at first."""

    records: tuple[bytes, ...]
    seed: int

    def split(self) -> list[Roster]:
        """Each record is held by at least one of the nodes, merged in an order of its own."""
        chance = random.Random(self.seed)
        held: list[list[bytes]] = [[] for _ in range(NODES)]
        for raw in self.records:
            for node in chance.sample(range(NODES), chance.randint(1, NODES)):
                held[node].append(raw)
        found = []
        for raws in held:
            chance.shuffle(raws)
            made = MESH.empty
            while raws:
                some = chance.randint(1, len(raws))
                made = roster.merge(made, raws[:some]).roster
                raws = raws[some:]
            found.append(made)
        return found


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A mesh of a few members, and some of everything on top."""
    records = pool()
    base = records[: draw(st.integers(0, 7))]
    some = draw(st.lists(st.sampled_from(records), max_size=25))
    return World(records=tuple(dict.fromkeys((*base, *some))), seed=draw(st.integers(0, 2**32 - 1)))


def gossiped(nodes: list[Roster], seed: int) -> list[Roster]:
    """Random pairs exchange what the other lacks until nothing moves any more."""
    chance = random.Random(seed)
    found = list(nodes)
    for _ in range(NODES + 1):
        pairs = [(a, b) for a in range(NODES) for b in range(NODES) if a != b]
        chance.shuffle(pairs)
        for giver, taker in pairs:
            sent = roster.missing(found[giver], roster.offered(found[taker]))
            found[taker] = roster.merge(found[taker], sent).roster
    return found


def situations(held: Roster) -> set[str]:
    """What is the matter in a world, by the names of SITUATIONS."""
    seen = members.view(held)
    removals = [one for one in held.entries.values() if isinstance(one.body, Removal)]
    pairs = {(one.signer, getattr(one.body, "subject", None)) for one in removals}
    counting = {record for by in seen.removed.values() for record in by}
    void = [one for one in removals if one.record not in counting]
    holds = {
        "several live": len(seen.members) > 2,
        "removed": bool(seen.removed),
        "founder removed": seen.founder in seen.removed,
        "void removal by a removed signer": any(one.signer in seen.removed for one in void),
        "mutual removal": any((two, one) in pairs for one, two in pairs if one != two),
        "votes": bool(seen.tallies),
        "orphans": bool(held.orphans),
        "fallen with its admitter": len(seen.members) + len(seen.removed) < len(held.distance),
    }
    return {name for name, so in holds.items() if so} | {one.code for one in seen.warnings}


def test_the_worlds_hold_what_they_promise() -> None:
    chance = random.Random(1)
    shown: Counter[str] = Counter()
    for _ in range(60):
        base = pool()[: chance.randint(1, 7)]
        shown.update(situations(MESH.roster(*base, *chance.sample(pool(), 30))))
    assert {name: shown[name] >= 2 for name in SITUATIONS} == dict.fromkeys(SITUATIONS, True)


@given(worlds())
@BOUNDED
def test_any_order_and_any_split_end_in_one_view_and_one_digest(world: World) -> None:
    expected = MESH.roster(*world.records)
    ended = gossiped(world.split(), world.seed)
    assert {roster.digest(one) for one in ended} == {roster.digest(expected)}
    assert all(members.view(one) == members.view(expected) for one in ended)


@given(worlds())
@BOUNDED
def test_a_merge_is_idempotent_and_loses_nothing_it_did_not_replace(world: World) -> None:
    first, second, *_ = world.split()
    once = roster.merge(first, second.raws.values()).roster
    assert roster.merge(once, second.raws.values()).roster == once
    assert roster.merge(second, first.raws.values()).roster == once


@given(worlds())
@BOUNDED
def test_what_always_holds_of_a_view(world: World) -> None:
    held = MESH.roster(*world.records)
    seen = members.view(held)
    live = {one.key for one in seen.members}
    assert not live & seen.removed.keys()
    assert len({one.address for one in seen.members}) == len(live)
    owned = [one.wireguard for one in seen.members if one.wireguard]
    assert len(set(owned)) == len(owned)
    assert len({one.display for one in seen.members}) == len(live)
    for one in seen.members:
        proof = members.chain(held, one.key)
        alone = roster.merge(roster.founded(proof[0], MESH.id), proof[1:]).roster
        assert members.view(alone).by_key(one.key) is not None


@given(worlds(), st.lists(st.sampled_from(range(6)), max_size=6))
@BOUNDED
def test_empty_short_older_foreign_and_forged_answers_remove_nobody(
    world: World, kinds: list[int]
) -> None:
    held = MESH.roster(*world.records)
    forged = [spoilt(MESH.removal("f", who)) for who in "ab"]
    answers = (
        (),
        world.records[:2],
        tuple(held.raws.values())[1:],
        (FOREIGN.genesis_raw, FOREIGN.admission("g", "a"), FOREIGN.removal("g", "a")),
        tuple(forged),
        (seal("removal", MESH.removal_body("f", "a"), "e"), b"", b"{}"),
    )
    after = held
    for kind in kinds:
        after = roster.merge(after, answers[kind]).roster
    assert members.view(after) == members.view(held)
    assert roster.digest(after) == roster.digest(held)


@given(worlds(), st.sampled_from("abcde"))
@BOUNDED
def test_who_left_is_never_live_again(world: World, who: str) -> None:
    """Whatever else is known or comes: a nearer removal may void this one, by removing too."""
    left = MESH.roster(*world.records, MESH.removal(who, who, n=5))
    assert key(who) not in {one.key for one in members.view(left).members}
