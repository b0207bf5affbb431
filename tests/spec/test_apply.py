from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from keel.cli.spec import Check, Show
from keel.errors import DiskTrouble, KeelError, Refused, SpecError
from keel.mesh import create, store, up
from keel.spec import apply, specfile
from keel.spec.diff import UNITS, Action, Fixed, fixed_differences
from keel.spec.model import Overlay, Spec
from tests.fakes import FakeNet, FakeNode, crash_points
from tests.flow.world import World


def write_spec(node: FakeNode, text: str) -> None:
    node.paths.spec.parent.mkdir(parents=True, exist_ok=True)
    node.paths.spec.write_text(text)


def make_member(root: Path) -> FakeNode:
    """A mesh of one whose spec then changed, and whose sync timer somebody stopped."""
    node = FakeNet(root).node("a")
    create.create(node.host, specfile.load(node.host))
    node.units.disable("keel-mesh-sync.timer")
    node.units.stop("keel-mesh-sync.timer")
    node.paths.channel_drop_in.unlink()
    write_spec(node, "network: {wireguard: {port: 51999, mtu: 1300}}\n")
    node.new_life()
    return node


def test_a_node_in_no_mesh_is_left_alone(tmp_path: Path) -> None:
    node = FakeNet(tmp_path).node("a")
    assert apply.differences(node.host) == ()
    assert not apply.plan(node.host)
    assert apply.apply(node.host).changed == ()


def test_apply_makes_it_so_and_says_what_it_changed(tmp_path: Path) -> None:
    node = make_member(tmp_path)
    done = apply.apply(node.host)
    assert [line.split()[0] for line in done.changed] == [
        Action.RESET,
        Action.RESET,
        Action.WRITE_CHANNEL,
        Action.ENABLE,
    ]
    assert apply.differences(node.host) == ()
    assert all(node.units.unit(name).active for name in UNITS)
    device = node.wireguard.show("keel0")
    assert device is not None
    assert (device.port, device.mtu) == (51999, 1300)


def test_a_second_apply_changes_nothing(tmp_path: Path) -> None:
    node = make_member(tmp_path)
    apply.apply(node.host)
    node.new_life()
    assert apply.apply(node.host).changed == ()
    assert not [text for text in node.effects.done if not text.startswith("lock")]


def test_a_dry_run_shows_the_steps_and_has_no_effect(tmp_path: Path) -> None:
    node = make_member(tmp_path)
    assert apply.plan(node.host).steps
    assert not node.effects.done


def test_apply_killed_anywhere_goes_on(tmp_path: Path) -> None:
    clean = make_member(tmp_path / "clean")
    apply.apply(clean.host)
    points = list(crash_points(clean.effects))
    for point in points:
        node = make_member(tmp_path / str(point.number))
        node.effects.crash_at = point.number
        assert node.dies(lambda host=node.host: apply.apply(host))  # type: ignore[misc]
        assert node.effects.crashed_before == point.text
        node.new_life()
        apply.apply(node.host)
        assert apply.differences(node.host) == ()
    assert len(points) > 5


def test_tcp_is_bound_and_unbound_as_the_spec_says(tmp_path: Path) -> None:
    node = FakeNet(tmp_path).node("a")
    node.overlay_etcd_installed = True
    write_spec(node, "installation: {mode: cloud_advanced}\n")
    create.create(node.host, specfile.load(node.host))
    assert apply.differences(node.host) == ()
    write_spec(node, "installation: {mode: cloud_advanced}\nnetwork: {tcp_bound: off}\n")
    assert [item.name for item in apply.differences(node.host)] == ["tcp_bound"]
    apply.apply(node.host)
    assert node.machine.tcp_bound_now() == "off"


def test_enabling_etcd_keeps_the_operators_words(tmp_path: Path) -> None:
    node = FakeNet(tmp_path).node("a")
    write_spec(node, "# mine\noverlays: {etcd: disabled}   # not yet\n")
    specfile.enable_etcd(node.host)
    assert node.paths.spec.read_text() == "# mine\noverlays: {etcd: enabled}   # not yet\n"
    node.new_life()
    assert not specfile.set_etcd(node.host, Overlay.ENABLED)
    assert not node.effects.done


def test_enabling_etcd_without_a_spec_begins_one(tmp_path: Path) -> None:
    node = FakeNet(tmp_path).node("a")
    specfile.enable_etcd(node.host)
    assert specfile.load(node.host).etcd_enabled
    assert node.paths.spec.stat().st_mode & 0o777 == 0o640


def test_a_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    node = FakeNet(tmp_path).node("a")
    with pytest.raises(SpecError, match="no such file"):
        specfile.wanted(node.host, tmp_path / "nowhere.yaml", needed=True)


def test_a_member_keeps_its_interface_and_nothing_changes(tmp_path: Path) -> None:
    node = FakeNet(tmp_path).node("a")
    create.create(node.host, specfile.load(node.host))
    write_spec(node, "network: {wireguard: {interface: keel7, mtu: 1300}}\n")
    node.new_life()
    for command in (apply.apply, apply.plan):
        with pytest.raises(Refused) as caught:
            command(node.host)
        assert caught.value.rule == "interface-fixed"
    assert not [text for text in node.effects.done if not text.startswith("lock")]
    up.bring_up(node.host, specfile.load(node.host), store.require(node.host), ())
    assert list(node.wireguard.devices) == ["keel0"]
    assert [one.name for one in apply.differences(node.host)] == ["wireguard.mtu"]


def test_what_a_member_cannot_become_any_more_is_a_difference(tmp_path: Path) -> None:
    node = FakeNet(tmp_path).node("a")
    write_spec(node, "node: {name: a}\n")
    create.create(node.host, specfile.load(node.host))
    assert apply.fixed(node.host, specfile.wanted(node.host)) == ()
    write_spec(node, "node: {name: z}\nnetwork: {wireguard: {interface: keel7}}\n")
    found = apply.fixed(node.host, specfile.wanted(node.host))
    assert [(one.name, one.now, one.wanted) for one in found] == [
        ("network.wireguard.interface", "keel0", "keel7"),
        ("node.name", "a", "z"),
    ]


@pytest.mark.parametrize(
    ("in_cluster", "names"), [(True, ["installation.mode", "overlays.etcd"]), (False, [])]
)
def test_a_member_of_the_cluster_stays_one(in_cluster: bool, names: list[str]) -> None:
    member = Fixed(name="a", interface=None, in_cluster=in_cluster)
    assert [one.name for one in fixed_differences(Spec(), member)] == names


@pytest.mark.parametrize(("root", "code"), [(False, "not-root"), (True, "disk-trouble")])
def test_a_spec_that_only_root_may_read_is_said_so(tmp_path: Path, root: bool, code: str) -> None:
    node = FakeNet(tmp_path).node("a")
    node.machine.root = root

    class Closed:
        def read(self, path: Path, **_: object) -> bytes:
            raise DiskTrouble(path, errno.EACCES)

    host = replace(node.host, files=Closed())  # type: ignore[arg-type]
    with pytest.raises(KeelError) as caught:
        Check(file=None).run(host)
    assert caught.value.code == code


@pytest.mark.parametrize("what", ["a directory", "far too large"])
def test_a_spec_that_is_no_spec_is_the_operators_to_mend_and_not_a_lost_state(
    tmp_path: Path, what: str
) -> None:
    """The words for a lost state would have the operator give the membership up."""
    node = FakeNet(tmp_path).node("a")
    if what == "a directory":
        node.paths.spec.mkdir(parents=True)
    else:
        write_spec(node, "#" * (2 * 1024 * 1024))
    with pytest.raises(SpecError) as caught:
        specfile.load(node.host)
    assert str(node.paths.spec) in caught.value.summary()


CHANNELS = "monitor: {channels: [{type: mail, to: a@b.example}]}\n"


def test_a_change_of_the_channels_alone_is_a_change(tmp_path: Path) -> None:
    node = make_member(tmp_path)
    apply.apply(node.host)
    write_spec(node, node.paths.spec.read_text() + CHANNELS)
    (found,) = apply.differences(node.host)
    assert (found.name, found.wanted) == ("monitor.channels", "1 by the spec")
    assert [step.action for step in apply.plan(node.host).steps] == [Action.KEEP_CHANNELS]
    (said,) = apply.apply(node.host).changed
    assert said.startswith("keep-channels monitor.channels")
    assert b"a@b.example" in node.paths.channels.read_bytes()
    assert "a@b.example" not in said
    assert apply.differences(node.host) == ()
    assert apply.apply(node.host).changed == ()


@pytest.mark.parametrize("root", [True, False])
def test_whoever_may_read_the_spec_is_shown_it(tmp_path: Path, root: bool) -> None:
    node = make_member(tmp_path)
    node.machine.root = root
    assert "51999" in Show().run(node.host).text


def test_a_capable_member_s_spec_is_shown_to_others_as_it_stands(tmp_path: Path) -> None:
    """What this node is only root may hold it against."""
    world = World(tmp_path)
    world.mesh("a")
    node = world.net.nodes["a"]
    node.paths.spec.write_text("")
    with pytest.raises(SpecError):
        Show().run(node.host)
    node.machine.root = False
    assert "mode: cloud" in Show().run(node.host).text
