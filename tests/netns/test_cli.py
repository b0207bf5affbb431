from pathlib import Path

import pytest

from netns.cli import command_of, parser
from netns.mesh import has_registry, is_whole
from netns.state import State, decode, encode
from netns.topology import Family, Mode, Quality, names, parse_quality

A, B = names(2)


def test_up_by_default_joins_three_over_a_perfect_link() -> None:
    options = parser().parse_args(["up"])
    assert (options.members, options.link, options.no_join) == (3, Quality(), False)
    assert (options.mode, options.family, options.image) == ("cloud_advanced", "dual", "appliance")


def test_a_link_is_given_per_direction() -> None:
    options = parser().parse_args(["up", "--link", "125ms,12.5ms,1%"])
    assert options.link == parse_quality("125ms,12.5ms,1%")


def test_a_commands_own_options_are_the_commands() -> None:
    options = parser().parse_args(["exec", "b", "--", "ls", "--help", "--", "-x"])
    assert (options.name, command_of(options.command)) == ("b", ["ls", "--help", "--", "-x"])


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        pytest.param([], "required: VERB", id="no verb"),
        pytest.param(["up", "--members", "0"], "1 to 15", id="no members"),
        pytest.param(["up", "--members", "16"], "1 to 15", id="too many members"),
        pytest.param(["up", "--link", "fast"], "not a link: 'fast'", id="not a link"),
        pytest.param(["link", "a"], "one of the arguments --cut --heal --set", id="link what"),
        pytest.param(["link", "a", "--cut", "--heal"], "not allowed with", id="cut and heal"),
        pytest.param(["frob"], "invalid choice", id="another verb"),
    ],
)
def test_what_can_not_be_read_is_refused_with_the_reason(
    argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parser().parse_args(argv)
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_labs_state_survives_being_written_and_read() -> None:
    state = State(
        anchor_pid=7,
        anchor_started="99",
        members=[A, B],
        layers=[Path("/x"), Path("/y")],
        backend="userspace",
        seed=3,
        mode=Mode.LOCAL,
        family=Family.IPV6,
        hosts={A: 77},
        qualities={(A, B): Quality(delay_ms=1, cut=True)},
    )
    assert decode(encode(state)) == state


@pytest.mark.parametrize(
    ("members", "whole"),
    [
        pytest.param({"b": "up"}, True, id="all up"),
        pytest.param({"b": "suspect"}, False, id="one suspect"),
        pytest.param({}, False, id="one missing"),
        pytest.param({"b": "up", "c": "up"}, False, id="one too many"),
    ],
)
def test_a_mesh_is_whole_when_exactly_its_members_are_up(
    members: dict[str, str], whole: bool
) -> None:
    others = [{"name": name, "state": state} for name, state in members.items()]
    found = {"self": {"name": "a"}, "members": others}
    assert is_whole(found, [A, B]) is whole


@pytest.mark.parametrize(
    ("etcd", "born"),
    [
        pytest.param({"phase": "voter", "leader": "a"}, True, id="a voter with a leader"),
        pytest.param({"phase": "voter", "leader": None}, False, id="no leader"),
        pytest.param({"phase": "forming", "leader": "a"}, False, id="still forming"),
    ],
)
def test_a_registry_is_there_when_a_voter_knows_a_leader(
    etcd: dict[str, str | None], born: bool
) -> None:
    assert has_registry({"etcd": etcd}) is born
