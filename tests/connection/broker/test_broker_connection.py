"""One connection to a broker of a simulated cluster: versions, SASL, answers in pieces and rubbish."""

from typing import Any

import pytest

from barnabas.connection.broker.broker_connection import BrokerConnection, Completed
from barnabas.connection.broker.client_request import ClientRequest
from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.connection.network_client import ANY, Node
from barnabas.connection.retry import send_with_retries
from barnabas.errors import (
    ConnectionLost,
    OperationTimedOut,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from barnabas.protocol.apis import ApiKey, response_header_version
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.protocol.schema import Request, Response
from connection.rig import groups, sent
from simulation.cluster import SILENT, SingleClientCluster
from simulation.requests import ReceivedRequest


def test_a_request_waits_for_the_versions() -> None:
    cluster = SingleClientCluster()
    groups(cluster)
    promise = sent(cluster, ListGroupsRequest(), ANY)
    assert cluster.result(promise) == ListGroupsResponse()
    assert (cluster.requests[0].api_key, cluster.requests[0].version) == (ApiKey.API_VERSIONS, 4)


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_a_broker_that_knows_older_versions_only(newest: int) -> None:
    cluster = SingleClientCluster()
    groups(cluster)
    cluster.versions = {18: (0, newest), 3: (0, 8), 16: (0, 2)}
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    assert [received.version for received in cluster.requests if received.api_key == 18] == [4, newest]
    assert {received.version for received in cluster.requests if received.api_key == 16} == {2}


def test_what_the_broker_does_not_serve_is_refused_by_name() -> None:
    cluster = SingleClientCluster()
    del cluster.versions[ApiKey.HEARTBEAT]
    cluster.versions[ApiKey.CREATE_TOPICS] = (0, 1)
    with pytest.raises(UnsupportedVersion, match="does not serve Heartbeat"):
        cluster.result(sent(cluster, HeartbeatRequest(), ANY))
    with pytest.raises(UnsupportedVersion, match="CreateTopics v0 to v1"):
        cluster.result(sent(cluster, CreateTopicsRequest(), ANY))


class Plain:
    name = "PLAIN"

    def next(self, challenge: bytes | None) -> bytes | None:
        return b"\0user\0secret" if challenge is None else None


class Talkative:
    """Three steps, and a check of the last challenge."""

    name = "TALK"

    def __init__(self) -> None:
        self.steps = 0

    def next(self, challenge: bytes | None) -> bytes | None:
        self.steps += 1
        if self.steps == 3:
            if challenge != b"proof":
                raise ValueError("the broker does not know the password either")
            return None
        return b"step%d" % self.steps


def sasl_cluster(mechanism: Any, answer: Any, **options: Any) -> SingleClientCluster:
    cluster = SingleClientCluster(connection=ConnectionSettings(mechanism=mechanism), **options)
    cluster.versions |= {17: (0, 1), 36: (0, 2)}

    def handshake(received: ReceivedRequest) -> Any:
        known = received.request.mechanism in ("PLAIN", "TALK")
        return SaslHandshakeResponse(error_code=0 if known else 33, mechanisms=["PLAIN", "TALK"])

    cluster.handlers[17] = handshake
    cluster.handlers[36] = lambda received: answer(received.request.auth_bytes)
    groups(cluster)
    return cluster


def test_sasl_comes_before_all_requests() -> None:
    said = []

    def answer(data: bytes) -> Any:
        said.append(data)
        return SaslAuthenticateResponse(auth_bytes=b"proof" if data == b"step2" else b"")

    cluster = sasl_cluster(Talkative, answer)
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    assert said[:2] == [b"step1", b"step2"]
    kinds = [received.api_key for received in cluster.requests]
    assert kinds.index(16) > kinds.index(36) > kinds.index(17) > kinds.index(18)


def test_wrong_credentials_are_told_at_once() -> None:
    cluster = sasl_cluster(Plain, lambda data: SaslAuthenticateResponse(error_code=58, error_message="no such user"))
    with pytest.raises(SaslAuthenticationFailed, match=r"n1|boot.*no such user"):
        cluster.result(send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=30))
    assert cluster.now < 1001


def test_a_broker_that_cannot_prove_itself_is_refused() -> None:
    cluster = sasl_cluster(Talkative, lambda data: SaslAuthenticateResponse(auth_bytes=b"guess"))
    with pytest.raises(SaslAuthenticationFailed, match="does not know the password"):
        cluster.result(send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=30))


def test_a_mechanism_that_is_not_offered() -> None:
    class Other(Plain):
        name = "OTHER"

    cluster = sasl_cluster(Other, lambda data: SaslAuthenticateResponse())
    with pytest.raises(UnsupportedSaslMechanism, match="OTHER; it offers: PLAIN, TALK"):
        cluster.result(send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=30))


def test_a_session_is_renewed_before_it_ends() -> None:
    cluster = sasl_cluster(Plain, lambda data: SaslAuthenticateResponse(session_lifetime_ms=60_000))
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    before = cluster.count(36)
    cluster.run(seconds=55)
    assert cluster.count(36) > before
    assert cluster.count(18) == before, "no connection was opened for it"
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))


def test_an_answer_that_never_comes_ends_the_connection() -> None:
    cluster = SingleClientCluster(connection=ConnectionSettings(request_timeout_s=5))
    cluster.handlers[16] = lambda received: SILENT
    with pytest.raises(ConnectionLost, match="no answer to ListGroups in time"):
        cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    assert 1004.9 < cluster.now < 1006


def test_what_is_not_kafka_is_named() -> None:
    cluster = SingleClientCluster()
    cluster.handlers[18] = lambda received: b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(OperationTimedOut, match="the port answers HTTP"):
        cluster.result(cluster.network_client.topic("t", 1))


def test_rubbish_instead_of_an_answer_ends_the_connection() -> None:
    for rubbish in (b"\0\0\0\x05\0\0\0\x63\0", b"\0\0\0\x04\0\0\0\x02", b"\0\0\0\0", b"\xff\xff\xff\xff"):
        cluster = SingleClientCluster()
        cluster.handlers[16] = lambda received, rubbish=rubbish: rubbish
        cluster.topics["t"] = {0: 1}
        cluster.result(cluster.network_client.topic("t", 5))
        with pytest.raises(ConnectionLost):
            cluster.result(sent(cluster, ListGroupsRequest(), Node(1)))


def arrive(cluster: SingleClientCluster, number: int, data: bytes, piece: int, *, in_room: bool) -> None:
    """As a driver hands it over that gets so many bytes from its socket at a time."""
    while data:
        room = cluster.network_client.connections.receive_buffer(number) if in_room else None
        if room is None:
            cluster.network_client.connections.received(number, data[:piece], 0, cluster.now)
            data = data[piece:]
        else:
            count = min(piece, len(room), len(data))
            room[:count] = data[:count]
            cluster.network_client.connections.received(number, None, count, cluster.now)
            data = data[count:]


@pytest.mark.parametrize("in_room", [False, True])
@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 1000])
def test_answers_in_pieces(piece: int, in_room: bool) -> None:
    cluster = SingleClientCluster()
    groups(cluster)
    promises = [sent(cluster, ListGroupsRequest(), ANY) for _ in range(3)]
    while not all(promise.done for promise in promises):
        cluster.turn()
        for link in list(cluster.links.values()):
            answers = [cluster.handle(link) for _ in range(len(link.pending))]
            data = b"".join(answer for answer in answers if answer is not None)
            arrive(cluster, link.number, data, piece, in_room=in_room)
    assert [promise.result() for promise in promises] == [ListGroupsResponse()] * 3
    assert all(cluster.network_client.connections.receive_buffer(number) is None for number in cluster.links), (
        "nothing is left over"
    )


@pytest.mark.parametrize("in_room", [False, True])
def test_a_connection_may_end_within_an_answer(in_room: bool) -> None:
    cluster = SingleClientCluster()
    groups(cluster)
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    promise = sent(cluster, ListGroupsRequest(), ANY)
    cluster.turn()
    (link,) = (link for link in cluster.links.values() if link.pending)
    data = cluster.handle(link)
    assert data is not None
    arrive(cluster, link.number, data[:-1], 3, in_room=in_room)
    assert not promise.done
    cluster.network_client.connections.lost(link.number, (), cluster.now)
    with pytest.raises(ConnectionLost):
        promise.result()
    assert cluster.network_client.connections.receive_buffer(link.number) is None
    cluster.network_client.connections.received(
        link.number, None, 1, cluster.now
    )  # of a read that had begun: it is nobody's
    assert cluster.result(sent(cluster, ListGroupsRequest(), ANY)) == ListGroupsResponse()


def test_a_throttled_connection_pauses() -> None:
    cluster = SingleClientCluster()
    cluster.topics["t"] = {0: 1}
    cluster.result(cluster.network_client.topic("t", 5))
    cluster.handlers[16] = lambda received: ListGroupsResponse(throttle_time_ms=2000)
    cluster.result(sent(cluster, ListGroupsRequest(), Node(1)))
    before = cluster.now
    cluster.result(sent(cluster, ListGroupsRequest(), Node(1)))
    assert 1.9 < cluster.now - before < 2.1


# --- two brokers introduce themselves to each other ------------------------------------------------------------------

SPOKEN = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=ApiKey.LIST_GROUPS, min_version=0, max_version=5),
        ApiVersion(api_key=ApiKey.LIST_TRANSACTIONS, min_version=0, max_version=1),
    ]
)


class Introduction:
    """Uses ListTransactions, and refuses a response with an error."""

    def request(self) -> Request:
        return ListTransactionsRequest()

    def check(self, response: ListTransactionsResponse) -> str:
        return f"error {response.error_code}" if response.error_code else ""


def written(connection: BrokerConnection) -> list[tuple[int, int, int]]:
    """Returns API key, version and correlation id of the requests that were written."""
    data = b"".join(map(bytes, connection.take_output()))
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        head = data[4:12]
        found.append(
            (int.from_bytes(head[:2], "big"), int.from_bytes(head[2:4], "big"), int.from_bytes(head[4:], "big"))
        )
        data = data[4 + size :]
    return found


def respond(connection: BrokerConnection, asked: tuple[int, int, int], response: Response) -> list[Completed]:
    key, version, correlation_id = asked
    body = correlation_id.to_bytes(4, "big") + b"\0" * response_header_version(key, version)
    body += encode(response, version)
    return connection.received(len(body).to_bytes(4, "big") + body, 0.0)


def begun(introduction: Introduction | None, results: list[Any], served: Response = SPOKEN) -> BrokerConnection:
    connection = BrokerConnection("b:1", client_id="c", request_timeout_s=30, introduction=introduction)
    connection.start(0.0)
    connection.send(ClientRequest(ListGroupsRequest(), lambda _, error: results.append(error)), 0.0)
    (versions,) = written(connection)
    respond(connection, versions, served)
    return connection


def test_no_request_comes_before_the_introduction_is_over() -> None:
    connection = begun(Introduction(), [])
    (asked,) = written(connection)
    assert asked[:2] == (ApiKey.LIST_TRANSACTIONS, 1), "the newest version that both know"
    assert not connection.ready
    assert connection.stage == "introduction"
    assert respond(connection, asked, ListTransactionsResponse()) == []
    assert connection.ready
    (request,) = written(connection)
    assert request[0] == ApiKey.LIST_GROUPS
    assert len(respond(connection, request, ListGroupsResponse())) == 1


def test_without_an_introduction_requests_follow_the_versions() -> None:
    connection = begun(None, [])
    assert connection.ready
    assert [request[0] for request in written(connection)] == [ApiKey.LIST_GROUPS]


def test_a_refused_introduction_breaks_the_connection() -> None:
    results: list[Any] = []
    connection = begun(Introduction(), results)
    respond(connection, written(connection)[0], ListTransactionsResponse(error_code=7))
    assert not connection.ready
    assert connection.broken is not None
    assert str(connection.broken) == "b:1: introduction: error 7"
    assert connection.broken.attempts[0].stage == "introduction"
    connection.fail(connection.broken)
    assert results == [connection.broken]
    assert written(connection) == []


def test_a_broker_that_cannot_introduce_itself_is_of_another_release() -> None:
    connection = begun(Introduction(), [], ApiVersionsResponse(api_keys=SPOKEN.api_keys[:1]))
    assert written(connection) == []
    assert connection.broken is not None
    assert str(connection.broken).startswith("b:1: introduction: broker b:1 does not serve ListTransactions")
