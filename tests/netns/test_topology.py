import pytest

from netns.topology import (
    BadLink,
    Family,
    Mode,
    Name,
    Quality,
    names,
    node,
    pairs,
    parse_quality,
    spec,
)

A, B, C = names(3)


@pytest.mark.parametrize(
    ("text", "quality"),
    [
        pytest.param(
            "125ms,12.5ms,1%",
            Quality(delay_ms=125, jitter_ms=12.5, loss_percent=1),
            id="the bad link",
        ),
        pytest.param(" 0ms,0ms,0%\n", Quality(), id="a perfect link, with blanks around"),
        pytest.param(
            "1ms,1ms,100%",
            Quality(delay_ms=1, jitter_ms=1, loss_percent=100),
            id="as much jitter as delay",
        ),
    ],
)
def test_a_link_is_read(text: str, quality: Quality) -> None:
    assert parse_quality(text) == quality


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("125,12.5,1", id="without units"),
        pytest.param("125ms,12.5ms", id="without loss"),
        pytest.param("125ms,12.5ms,1%,", id="one part too many"),
        pytest.param("10ms,11ms,0%", id="more jitter than delay"),
        pytest.param("10ms,1ms,101%", id="more loss than everything"),
        pytest.param("-1ms,0ms,0%", id="negative"),
        pytest.param("1e3ms,0ms,0%", id="an exponent"),
    ],
)
def test_what_is_no_link_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadLink, match="125ms,12.5ms,1%"):
        parse_quality(text)


def test_a_quality_is_written_as_it_is_read() -> None:
    assert str(parse_quality("125ms,12.5ms,1%")) == "125ms,12.5ms,1%"
    assert str(Quality(cut=True, mtu=1280)) == "0ms,0ms,0%, mtu 1280, cut"


def test_appliances_are_named_and_numbered_by_the_alphabet() -> None:
    assert (A, B, C) == ("a", "b", "c")
    assert node(C).addresses == ("198.51.100.3/24", "2001:db8:64::3/64")
    assert node(C).hosts == ("198.51.100.3", "2001:db8:64::3")
    assert node(C).mac == "02:00:00:00:00:03"


@pytest.mark.parametrize(
    ("family", "hosts"),
    [
        (Family.IPV4, ("198.51.100.1",)),
        (Family.IPV6, ("2001:db8:64::1",)),
        (Family.DUAL, ("198.51.100.1", "2001:db8:64::1")),
    ],
)
def test_an_underlay_has_the_addresses_of_its_family(
    family: Family, hosts: tuple[str, ...]
) -> None:
    assert node(A, family).hosts == hosts


def test_an_appliance_given_another_address_stays_itself() -> None:
    moved = node(A, host=77)
    assert (moved.name, moved.index, moved.hosts[0]) == ("a", 1, "198.51.100.77")


def test_pairs_are_both_directions_to_every_other() -> None:
    assert pairs([A, B, C], B) == [(B, A), (A, B), (B, C), (C, B)]


@pytest.mark.parametrize(
    ("family", "endpoint"),
    [
        (Family.DUAL, '["198.51.100.2:51820"]'),
        (Family.IPV6, '["[2001:db8:64::2]:51820"]'),
    ],
)
def test_the_spec_names_the_node_its_mode_and_its_endpoint(family: Family, endpoint: str) -> None:
    text = spec(node(Name("b"), family), Mode.LOCAL)
    assert "mode: local\n" in text
    assert "name: b\n" in text
    assert f"endpoints: {endpoint}\n" in text
    assert "etcd: disabled\n" in text
