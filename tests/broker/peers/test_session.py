"""The stages of a connection from another broker, and the requests that may come at each."""

import pytest

from barnabas.broker.peers.identity import PeerIdentity
from barnabas.broker.peers.session import USERNAME, PeerSession, RequestOutOfOrder, Stage
from barnabas.connection.broker.sasl import ScramSha256
from barnabas.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from barnabas.network.sasl.scram import make_verifier
from barnabas.protocol.apis import SERVED_TO_BROKERS, ApiKey

SECRET = bytes(32).hex()
VERIFIER = make_verifier(USERNAME, SECRET)
ONE, TWO = PeerIdentity("c", 1, 5, "1.0"), PeerIdentity("c", 2, 6, "1.1")


def session_at(stage: Stage) -> PeerSession:
    session = PeerSession(VERIFIER, lambda: ONE)
    client = ScramSha256(USERNAME, SECRET)
    if stage >= Stage.MECHANISM_CHOSEN:
        session.choose("SCRAM-SHA-256")
    if stage >= Stage.CHALLENGED:
        challenge = session.authenticate(client.next(None) or b"")
    if stage >= Stage.AUTHENTICATED:
        assert client.next(session.authenticate(client.next(challenge) or b"")) is None
    if stage >= Stage.READY:
        assert session.introduce(TWO) is None
    assert session.stage is stage
    return session


def admitted(session: PeerSession) -> set[int]:
    found = set()
    for key in SERVED_TO_BROKERS:
        try:
            session.check(key)
        except RequestOutOfOrder:
            continue
        found.add(key)
    return found


def test_each_stage_admits_the_next_step_only() -> None:
    hello, authenticate, handshake = ApiKey.PEER_HELLO, ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE
    assert admitted(session_at(Stage.CONNECTED)) == {ApiKey.API_VERSIONS, handshake}
    assert admitted(session_at(Stage.MECHANISM_CHOSEN)) == {authenticate}
    assert admitted(session_at(Stage.CHALLENGED)) == {authenticate}
    assert admitted(session_at(Stage.AUTHENTICATED)) == {hello}
    assert admitted(session_at(Stage.READY)) == SERVED_TO_BROKERS.keys() - {hello, authenticate, handshake}


def test_only_the_last_stage_is_ready() -> None:
    assert [session_at(stage).is_ready for stage in Stage] == [False, False, False, False, True]
    assert session_at(Stage.READY).identity == TWO


def test_a_refused_peer_stays_where_it_is() -> None:
    session = session_at(Stage.AUTHENTICATED)
    assert session.introduce(TWO._replace(cluster_id="d")) is not None
    assert not session.is_ready
    session = session_at(Stage.CONNECTED)
    with pytest.raises(UnsupportedSaslMechanism):
        session.choose("PLAIN")
    assert session.stage is Stage.CONNECTED


def test_a_failed_proof_ends_the_attempt() -> None:
    session = session_at(Stage.CHALLENGED)
    for _ in range(2):
        with pytest.raises(SaslAuthenticationFailed):
            session.authenticate(b"c=biws,r=x,p=AAAA")
    assert session.stage is Stage.CHALLENGED


def test_a_request_out_of_order_is_named() -> None:
    with pytest.raises(RequestOutOfOrder, match="FETCH comes before the authentication"):
        session_at(Stage.CONNECTED).check(ApiKey.FETCH)
    with pytest.raises(RequestOutOfOrder, match="FETCH comes before the introduction"):
        session_at(Stage.AUTHENTICATED).check(ApiKey.FETCH)
    with pytest.raises(RequestOutOfOrder, match="PEER_HELLO comes again"):
        session_at(Stage.READY).check(ApiKey.PEER_HELLO)
