"""The kinds of /v1/etcd."""

from __future__ import annotations

from keel.mesh import etcddoors


def test_no_two_modules_take_one_kind_of_message() -> None:
    names = [name for name, _ in etcddoors.served()]
    assert sorted(names) == sorted(set(names))
    assert set(etcddoors.kinds()) == set(names)
