"""The listener for brokers, by requests that are made by hand: what comes before the authentication, and hostile
peers."""

import contextlib
import socket
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.broker.peers import inter_broker_listener
from barnabas.broker.peers.inter_broker_listener import InterBrokerListener
from barnabas.broker.peers.session import USERNAME
from barnabas.config.broker import BrokerConfig
from barnabas.connection.broker.sasl import ScramSha256
from barnabas.errors import UsageError
from barnabas.metadata.refused_broker import RefusedBroker
from barnabas.protocol.apis import SERVED, SERVED_TO_BROKERS, ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.peer_messages.peer_hello import PeerHelloRequest
from barnabas.protocol.schema import Request
from barnabas.testing import Broker
from broker.peers.conftest import Peer, member, member_of, peer_of
from broker.wire import Wire, on_loop, server_of

HANDSHAKE = SaslHandshakeRequest(mechanism="SCRAM-SHA-256")
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
ALTER_PARTITION = 56


@pytest.fixture
def wire(peer: Peer) -> Iterator[Wire]:
    """A connection to the listener for brokers."""
    forget_lines(peer.broker)
    with Wire(peer.address) as wire:
        yield wire


def forget_lines(broker: Broker) -> None:
    """The next line about a subject is logged, whenever the last one was."""
    failures = server_of(broker).failures
    on_loop(broker, failures._reported_at.clear)
    on_loop(broker, failures._unsaid.clear)


def lines(peer: Peer, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the warnings, without the port of the connection."""
    on_loop(peer.broker, lambda: None)  # a line is written after the socket is closed
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [line.split(": ", 1)[1] for line in found if line.startswith("the listener for brokers closes")]


def authenticate(wire: Wire, secret: bytes) -> Any:
    """Returns the last response of the authentication."""
    client = ScramSha256(USERNAME, secret.hex())
    assert wire.ask(HANDSHAKE, 1).error_code == 0
    challenge: bytes | None = None
    while True:
        message = client.next(challenge)
        if message is None:
            return None
        response = wire.ask(SaslAuthenticateRequest(auth_bytes=message), 2)
        if response.error_code:
            return response
        challenge = response.auth_bytes


def hello(peer: Peer, **changes: Any) -> PeerHelloRequest:
    return PeerHelloRequest(**peer.identity(**changes)._asdict())


def test_a_broker_authenticates_and_introduces_itself(peer: Peer, wire: Wire) -> None:
    keys = {api.api_key: (api.min_version, api.max_version) for api in wire.ask(VERSIONS, 4).api_keys}
    assert keys.keys() == SERVED_TO_BROKERS.keys()
    assert keys[ApiKey.SASL_HANDSHAKE] == (1, 1)
    assert not keys.keys() & {ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.FIND_COORDINATOR}
    assert authenticate(wire, peer.secret) is None
    answer = wire.ask(hello(peer), 0)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.cluster_id, answer.node_id, answer.first_level, answer.last_level) == (peer.cluster_id, 1, 1, 1)
    image = server_of(peer.broker).image
    assert answer.broker_epoch == next(iter(image.brokers.values())).epoch
    assert wire.ask(ListGroupsRequest(), 4).error_code == 0
    assert wire.ask(VERSIONS, 4).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_all_versions_of_sasl_authenticate(peer: Peer, wire: Wire, version: int) -> None:
    client = ScramSha256(USERNAME, peer.secret.hex())
    wire.ask(HANDSHAKE, 1)
    first = wire.ask(SaslAuthenticateRequest(auth_bytes=client.next(None) or b""), version)
    final = wire.ask(SaslAuthenticateRequest(auth_bytes=client.next(first.auth_bytes) or b""), version)
    assert client.next(final.auth_bytes) is None
    assert (final.error_code, final.error_message, final.session_lifetime_ms) == (0, None, 0)


def test_the_end_of_a_connection_that_was_ready_is_told(peer: Peer) -> None:
    told: SimpleQueue[int] = SimpleQueue()
    listener = member_of(peer.broker)._listener
    before, listener._on_peer_lost = listener._on_peer_lost, told.put
    try:
        with Wire(peer.address) as wire:
            wire.ask(VERSIONS, 4)
        with Wire(peer.address) as wire:
            assert authenticate(wire, peer.secret) is None
            wire.ask(hello(peer, node_id=7), 0)
        assert told.get(timeout=60) == 7
        assert told.empty(), "the first one was nobody's"
    finally:
        listener._on_peer_lost = before


REQUESTS: list[tuple[Request, int]] = [
    (MetadataRequest(topics=[]), 12),
    (FetchRequest(), 12),
    (ListGroupsRequest(), 4),
    (EnvelopeRequest(), 0),
    (PeerHelloRequest(), 0),
    (SaslAuthenticateRequest(auth_bytes=b"n,,n=broker,r=abc"), 2),
    (SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0),
]


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda value: type(value).__name__)
def test_nothing_is_served_before_the_authentication(
    peer: Peer, wire: Wire, caplog: pytest.LogCaptureFixture, request_: Request, version: int
) -> None:
    wire.ask(VERSIONS, 4)
    wire.send(request_, version)
    assert wire.is_closed()
    assert len(lines(peer, caplog)) == 1
    assert "comes before the authentication" in lines(peer, caplog)[0] or "is not served" in lines(peer, caplog)[0]


@pytest.mark.parametrize(
    ("request_", "version"),
    [(ListGroupsRequest(), 4), (EnvelopeRequest(), 0), (VERSIONS, 4), (HANDSHAKE, 1), (MetadataRequest(topics=[]), 12)],
    ids=lambda value: type(value).__name__,
)
def test_nothing_is_served_before_the_introduction(
    peer: Peer, wire: Wire, caplog: pytest.LogCaptureFixture, request_: Request, version: int
) -> None:
    authenticate(wire, peer.secret)
    wire.send(request_, version)
    assert wire.is_closed()
    assert len(lines(peer, caplog)) == 1


@pytest.mark.parametrize("again", [hello, lambda peer: HANDSHAKE, lambda peer: SaslAuthenticateRequest()])
def test_the_way_is_gone_once(peer: Peer, wire: Wire, again: Any) -> None:
    authenticate(wire, peer.secret)
    wire.ask(hello(peer), 0)
    wire.send(again(peer), 0 if again is hello else 1)
    assert wire.is_closed()


def test_addresses_of_clients_are_not_told_to_brokers(peer: Peer, wire: Wire) -> None:
    authenticate(wire, peer.secret)
    wire.ask(hello(peer), 0)
    wire.send(MetadataRequest(topics=[]), 12)
    assert wire.is_closed()


def test_another_mechanism(peer: Peer, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    answer = wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert (answer.error_code, answer.mechanisms) == (33, ["SCRAM-SHA-256"])
    assert wire.is_closed()
    assert lines(peer, caplog) == ["brokers authenticate with SCRAM-SHA-256 only"]


def test_the_wrong_secret_ends_the_connection(peer: Peer, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    answer = authenticate(wire, bytes(32))
    error = "authentication failed: SCRAM-SHA-256 with wrong credentials"
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (58, error, b"")
    assert wire.is_closed()
    assert lines(peer, caplog) == [f"{error}; brokers of this cluster know the secret in its registry"]
    for _ in range(3):
        with Wire(peer.address) as other:
            authenticate(other, bytes(32))
            assert other.is_closed()
    assert len(lines(peer, caplog)) == 1, "at intervals only"


def refused(peer: Peer) -> list[RefusedBroker]:
    return on_loop(peer.broker, member_of(peer.broker).refused_brokers)


def test_a_broker_of_another_cluster_is_told_why(peer: Peer, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    authenticate(wire, peer.secret)
    answer = wire.ask(hello(peer, cluster_id="another", place="/copy"), 0)
    assert answer.error_code == 104
    assert "broker 2 of release 0.0.9 is of cluster another, broker 1 of release" in answer.error_message
    assert wire.is_closed()
    (kept,) = refused(peer)
    assert (kept.broker, kept.host, kept.place, kept.problem) == (2, "127.0.0.1", "/copy", answer.error_message)
    assert caplog.messages == [f"refused broker 2 from 127.0.0.1 (/copy): {answer.error_message}"]


def test_who_does_not_know_the_secret_is_not_remembered(peer: Peer, wire: Wire) -> None:
    before = refused(peer)
    authenticate(wire, bytes(32))
    assert wire.is_closed()
    with Wire(peer.address) as other:
        other.send(hello(peer, cluster_id="another"), 0)
        assert other.is_closed()
    assert refused(peer) == before


@pytest.mark.parametrize("changes", [{"node_id": 1}, {"incarnation": "another"}])
def test_copies_are_remembered(peer: Peer, wire: Wire, changes: dict[str, Any]) -> None:
    authenticate(wire, peer.secret)
    answer = wire.ask(hello(peer, place=str(changes), **changes), 0)
    assert wire.is_closed()
    assert "copy" in answer.error_message
    assert (refused(peer)[-1].place, refused(peer)[-1].problem) == (str(changes), answer.error_message)


def test_an_incompatible_release_is_told_why(peer: Peer, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    authenticate(wire, peer.secret)
    answer = wire.ask(hello(peer, release="9.0.0", first_level=8, last_level=9), 0)
    assert answer.error_code == 35
    assert "upgrade broker 1 to release 9.0.0" in answer.error_message
    assert wire.is_closed()
    assert lines(peer, caplog) == [answer.error_message]


def test_large_frames_come_after_the_introduction(peer: Peer, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    authenticate(wire, peer.secret)
    wire.ask(hello(peer), 0)
    large = ListGroupsRequest(states_filter=["x" * 10_000])
    assert wire.ask(large, 4).error_code == 0
    with Wire(peer.address) as other:
        other.send(large, 4)
        assert other.is_closed()
    assert lines(peer, caplog) == ["a frame claims 10019 bytes; the limit is 4096 (socket.request.max.bytes)"]


def test_other_protocols_are_closed(peer: Peer, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    wire.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert wire.is_closed()
    assert len(lines(peer, caplog)) == 1


def test_who_only_looks_whether_the_port_is_open_is_not_reported(
    peer: Peer, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.close()
    acceptor = member_of(peer.broker)._listener._acceptor
    peer.broker.wait_for(lambda: not on_loop(peer.broker, lambda: set(acceptor.connections)))
    assert lines(peer, caplog) == []


def test_a_connection_that_never_authenticates_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(inter_broker_listener, "SETUP_S", 3.0)  # enough for the one that does authenticate
    with member(tmp_path) as broker:
        peer = peer_of(broker)
        with Wire(peer.address) as silent, Wire(peer.address) as ready:
            authenticate(ready, peer.secret)
            ready.ask(hello(peer), 0)
            assert silent.is_closed()
            assert ready.ask(ListGroupsRequest(), 4).error_code == 0
        assert lines(peer, caplog) == ["it has not authenticated in time"]


def test_silent_connections_keep_no_broker_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with member(tmp_path) as broker, contextlib.ExitStack() as stack:
        peer = peer_of(broker)
        silent = [stack.enter_context(Wire(peer.address)) for _ in range(120)]
        ready = [stack.enter_context(Wire(peer.address)) for _ in range(inter_broker_listener.READY_MAX + 1)]
        for wire in ready:
            authenticate(wire, peer.secret)
            wire.ask(hello(peer), 0)
        assert silent[0].is_closed()
        told = f"{inter_broker_listener.UNREADY_MAX} others have come before it has authenticated"
        assert lines(peer, caplog)[0].startswith(told)
        assert ready[0].is_closed(), "its broker has made others since"
        assert ready[1].ask(ListGroupsRequest(), 4).error_code == 0


HOSTILE = [
    b"",
    struct.pack(">hhih", ApiKey.SASL_HANDSHAKE, 1, 7, -1),
    struct.pack(">hhih", ApiKey.SASL_AUTHENTICATE, 2, 7, -1) + b"\0",
    struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 7, 1),
    struct.pack(">hhih", ApiKey.PEER_HELLO, 0, 7, -1) + b"\0\xff",
]


@given(st.sampled_from(HOSTILE), st.binary(max_size=60))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hostile_bytes_cost_only_their_own_connection(peer: Peer, head: bytes, rest: bytes) -> None:
    with Wire(peer.address) as hostile:
        body = head + rest
        hostile.socket.sendall(len(body).to_bytes(4, "big") + body)
        hostile.socket.shutdown(socket.SHUT_WR)
        while hostile.socket.recv(1000):
            pass
    with Wire(peer.address) as good:
        assert authenticate(good, peer.secret) is None


@given(st.binary(max_size=300))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hostile_bytes_within_the_mechanism(peer: Peer, message: bytes) -> None:
    with Wire(peer.address) as hostile:
        hostile.ask(HANDSHAKE, 1)
        answer = hostile.ask(SaslAuthenticateRequest(auth_bytes=message), 2)
        assert answer.error_code == 58
        assert hostile.is_closed()


# --- clients see nothing of it ---------------------------------------------------------------------------------------


def test_clients_are_served_as_before(peer: Peer) -> None:
    with Wire(peer.broker) as client:
        keys = {api.api_key for api in client.ask(VERSIONS, 4).api_keys}
        assert keys == SERVED.keys()
        assert not keys & {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.ENVELOPE, ApiKey.PEER_HELLO}
        brokers = client.ask(MetadataRequest(topics=[]), 12).brokers
        found = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators
        ports = {each.port for each in (*brokers, *found)}
        assert ports == {int(peer.broker.bootstrap_servers.rpartition(":")[2])}
        assert peer.address[1] not in ports


@pytest.mark.parametrize(
    ("key", "version"),
    [
        *((ApiKey.SASL_HANDSHAKE, version) for version in (0, 1)),
        *((ApiKey.SASL_AUTHENTICATE, version) for version in (0, 2)),
        (ApiKey.ENVELOPE, 0),
        (ApiKey.PEER_HELLO, 0),
        (ALTER_PARTITION, 3),
    ],
)
def test_clients_do_not_reach_the_apis_of_brokers(peer: Peer, key: int, version: int) -> None:
    with Wire(peer.broker) as client:
        body = struct.pack(">hhih", key, version, 7, -1) + b"\0" * 20
        client.socket.sendall(len(body).to_bytes(4, "big") + body)
        assert client.is_closed()


def test_a_broker_without_peers_opens_and_imports_nothing() -> None:
    code = """
        import socket, sys
        from barnabas.testing import Broker
        with Broker() as broker:
            host, _, port = broker.bootstrap_servers.rpartition(":")
            socket.create_connection((host, int(port))).close()
            assert len(broker._broker._acceptor._listeners) == 1
            assert (broker._broker.cluster, broker._broker.peers) == (None, None)
            names = "broker.cluster", "broker.peers", "broker.handlers.peers", "network.sasl", "protocol.peer_messages"
            loaded = [name for name in sys.modules if name.startswith(tuple(f"barnabas.{name}" for name in names))]
            assert not loaded, loaded
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_the_listener_is_closed_with_the_broker(tmp_path: Path) -> None:
    with member(tmp_path) as broker:
        host, port = address = peer_of(broker).address
        assert host == "127.0.0.1"
        assert port not in (0, int(broker.bootstrap_servers.rpartition(":")[2]))
        with Wire(address) as wire:
            wire.ask(VERSIONS, 4)
            broker.stop()
            assert wire.is_closed()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_a_port_in_use_is_reported(peer: Peer) -> None:
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:{peer.address[1]}",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
    }
    server = server_of(peer.broker)
    broker = SimpleNamespace(config=BrokerConfig.of(settings), node_id=1, loop=server.loop)
    with pytest.raises(UsageError, match="the port is in use by another process"):
        InterBrokerListener(broker, peer.secret, peer.identity, log=server.log, on_peer_lost=print)  # type: ignore[arg-type]
