import pytest

from netns.appliance import only_waits


@pytest.mark.parametrize(
    ("jobs", "only"),
    [
        pytest.param(
            "9 etcd.service start running\n2 multi-user.target start waiting\n", True, id="etcd"
        ),
        pytest.param(
            "9 etcd.service start running\n4 keel-mesh-etcd.service start running\n",
            True,
            id="etcd, and a timer's pass",
        ),
        pytest.param("4 keel-mesh-etcd.service start running\n", False, id="a pass alone"),
        pytest.param(
            "9 etcd.service start running\n3 ssh.service start running\n", False, id="ssh too"
        ),
        pytest.param("2 multi-user.target start waiting\n", False, id="nothing yet"),
        pytest.param("", False, id="no jobs"),
    ],
)
def test_an_appliance_has_booted_when_only_etcd_still_waits_for_others(
    jobs: str, only: bool
) -> None:
    assert only_waits(jobs) is only
