"""Which brokers fit together. Each side decides the same, whoever connects."""

import pytest

from barnabas.broker.peers.identity import FIRST_LEVEL, LAST_LEVEL, PeerIdentity, mismatch
from barnabas.errors import InconsistentClusterId, KafkaError, UnsupportedVersion
from barnabas.protocol.peer_messages.peer_hello import PeerHelloRequest

ONE = PeerIdentity("c", 1, 10, "1.0", 2, 4)


def test_the_release_says_what_it_speaks() -> None:
    identity = PeerIdentity("c", 1, 10, "1.0")
    assert (identity.first_level, identity.last_level) == (FIRST_LEVEL, LAST_LEVEL)
    assert 1 <= FIRST_LEVEL <= LAST_LEVEL
    assert PeerIdentity.of(PeerHelloRequest(**ONE._asdict())) == ONE


@pytest.mark.parametrize("levels", [(2, 4), (1, 2), (4, 4), (4, 9), (1, 9), (3, 3)])
def test_brokers_with_a_level_in_common_fit(levels: tuple[int, int]) -> None:
    two = PeerIdentity("c", 2, 11, "2.0", *levels)
    assert mismatch(ONE, two) is None
    assert mismatch(two, ONE) is None


@pytest.mark.parametrize(
    ("two", "error", "text"),
    [
        (PeerIdentity("c", 2, 1, "0.9", 1, 1), UnsupportedVersion, "upgrade broker 2 to release 1.0"),
        (PeerIdentity("c", 2, 1, "9.0", 5, 9), UnsupportedVersion, "upgrade broker 1 to release 9.0"),
        (PeerIdentity("d", 2, 1, "1.0", 2, 4), InconsistentClusterId, "the registry of one cluster"),
        (PeerIdentity("c", 1, 1, "1.0", 2, 4), InconsistentClusterId, "have one node.id"),
    ],
)
def test_others_are_told_why_they_do_not_fit(two: PeerIdentity, error: type[KafkaError], text: str) -> None:
    for ours, theirs in ((ONE, two), (two, ONE)):
        found = mismatch(ours, theirs)
        assert type(found) is error
        assert text in str(found)
        assert f"release {ONE.release}" in str(found)
        assert f"release {two.release}" in str(found)


def test_the_broker_of_a_copy_does_not_fit() -> None:
    one, two = ONE._replace(incarnation="a"), ONE._replace(node_id=2, incarnation="b")
    for ours, theirs in ((one, two), (two, one)):
        assert "has a copy of this cluster's registry" in str(mismatch(ours, theirs))
    for other in ("a", ""):  # releases before say none
        assert mismatch(one, two._replace(incarnation=other)) is None
        assert mismatch(two._replace(incarnation=other), one) is None
    assert PeerIdentity.of(PeerHelloRequest(**two._asdict())) == two
