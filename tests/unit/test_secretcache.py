"""What is reckoned from a secret is remembered, and forgotten when it is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keel import codec, secretcache
from keel.errors import BadValue
from keel.mesh import etcdcert, etcdpki, keys
from keel.mesh.invite import parse_invite
from keel.types import Secret
from tests.channelkit import claimed
from tests.pki import make

SEED = Secret(bytes(range(32)))
KEY = make.root().key


@pytest.mark.parametrize(
    "reckon",
    [
        pytest.param(lambda: keys.signing_pair(SEED).public, id="signing"),
        pytest.param(lambda: keys.wg_pair(SEED).public, id="WireGuard"),
        pytest.param(lambda: etcdcert.load_key(KEY), id="certificates"),
    ],
)
def test_what_a_key_gives_is_reckoned_once_until_it_is_forgotten(
    reckon: Callable[[], object],
) -> None:
    secretcache.forget()
    found = reckon()
    assert (reckon() is found, secretcache.count()) == (True, 1)
    secretcache.forget()
    assert (reckon() is found, secretcache.count()) == (False, 1)


CREDENTIAL = etcdpki.encode_credential(make.member())
INVITE = codec.dumps(claimed())


@pytest.mark.parametrize(
    "parse",
    [
        pytest.param(lambda: etcdpki.parse_credential(CREDENTIAL), id="a credential"),
        pytest.param(lambda: parse_invite(INVITE), id="an invite"),
    ],
)
def test_a_file_with_a_secret_is_parsed_once_until_it_is_forgotten(
    parse: Callable[[], object],
) -> None:
    secretcache.forget()
    found = parse()
    assert parse() is found
    secretcache.forget()
    assert secretcache.count() == 0
    again = parse()
    assert (again is found, again) == (False, found)


def test_so_many_secrets_are_remembered_and_no_more() -> None:
    secretcache.forget()
    for number in range(secretcache.MOST + 5):
        keys.signing_pair(Secret(number.to_bytes(32, "big")))
    assert secretcache.count() == secretcache.MOST


def test_what_fails_is_not_remembered() -> None:
    secretcache.forget()
    with pytest.raises(BadValue):
        keys.signing_pair(Secret(b"short"))
    assert secretcache.count() == 0
