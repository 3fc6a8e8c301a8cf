import tracemalloc
from typing import Any

import pytest

from barnabas.connection.broker.client_request import ClientRequest
from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.connection.broker.frame_buffer import FrameBuffer
from barnabas.connection.network_client import ANY, CONTROLLER, Coordinator, Node
from barnabas.connection.promise import Promise
from barnabas.connection.retry import send_with_retries
from barnabas.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    InvalidTopic,
    OperationTimedOut,
    SaslAuthenticationFailed,
    TopicNotFound,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from simulation.cluster import SILENT, SingleClientCluster
from simulation.requests import ReceivedRequest


def sent(cluster: SingleClientCluster, request: Any, to: Any, **options: Any) -> Promise[Any]:
    promise: Promise[Any] = Promise()

    def done(response: Any, error: Any) -> None:
        promise.fail(error) if error is not None else promise.resolve(response)

    cluster.network_client.send(ClientRequest(request, done, **options), to)
    return promise


def groups(cluster: SingleClientCluster) -> None:
    cluster.handlers[ApiKey.LIST_GROUPS] = lambda received: ListGroupsResponse()


def test_sockets_are_looked_at_as_long_as_they_may_have_something_to_tell() -> None:
    """Who sends without a pause sees that a connection is open, and that a full socket has room again."""
    cluster = SingleClientCluster()
    groups(cluster)
    assert not cluster.network_client.has_in_flight_requests
    promise = sent(cluster, ListGroupsRequest(), ANY)
    cluster.network_client.advance(cluster.network_client.now)
    assert cluster.network_client.has_in_flight_requests  # the connection opens
    cluster.result(promise)
    cluster.run(seconds=1)
    assert not cluster.network_client.has_in_flight_requests
    number = next(iter(cluster.links))
    cluster.network_client.connections.congested(number, True)
    assert cluster.network_client.has_in_flight_requests
    cluster.network_client.connections.congested(number, False)
    assert not cluster.network_client.has_in_flight_requests


# --- versions and SASL ------------------------------------------------------------------------------------------------


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


# --- no broker is reachable ------------------------------------------------------------------------------------------


class Told:
    """A cluster whose client tells the user, with the times and texts of that."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.texts: list[str] = []
        self.cluster = SingleClientCluster(on_unreachable=self._hear)
        groups(self.cluster)

    def _hear(self, error: BrokerUnreachable) -> None:
        self.at.append(self.cluster.now)
        self.texts.append(str(error))

    def run(self, seconds: float) -> None:
        self.cluster.run(self._call_back, seconds=seconds)

    def _call_back(self) -> bool:
        while self.cluster.network_client.completions:
            self.cluster.network_client.completions.popleft()()
        return False


def test_an_outage_is_told_within_seconds_and_once() -> None:
    told = Told()
    cluster = told.cluster
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    for outages in (1, 2):
        begin = cluster.now
        cluster.stop(1)
        told.run(seconds=300)
        assert len(told.at) == outages
        assert told.at[-1] - begin < 5
        assert "no broker reachable: " in told.texts[-1]
        assert "boot:9092: tcp: connection refused" in told.texts[-1]
        cluster.up.add(1)
        cluster.result(send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=60))
    told.run(seconds=300)
    assert len(told.at) == 2


def test_an_outage_of_a_second_is_not_told() -> None:
    told = Told()
    cluster = told.cluster
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    cluster.stop(1)
    told.run(seconds=1)
    cluster.up.add(1)
    told.run(seconds=300)
    assert told.texts == []


def test_a_broker_that_accepts_and_does_not_answer_is_told_with_the_stage() -> None:
    told = Told()
    told.cluster.handlers[18] = lambda received: SILENT
    sent(told.cluster, ListGroupsRequest(), ANY)
    told.run(seconds=5)
    assert told.texts == ["no broker reachable: boot:9092: version: no answer yet"]


# --- connections ------------------------------------------------------------------------------------------------------


def test_reconnects_slow_down() -> None:
    cluster = SingleClientCluster(connection=ConnectionSettings(backoff_s=0.05, backoff_max_s=1.0))
    cluster.up.clear()
    cluster.network_client.add_topics(["t"])
    cluster.run(seconds=10)
    assert 10 <= len(cluster.connected) <= 20


def test_wrong_addresses_are_tried_for_as_long_as_is_allowed() -> None:
    cluster = SingleClientCluster(bootstrap_timeout_s=0)
    cluster.up.clear()
    for _ in range(2):  # a later request tries again
        before = cluster.now
        promises = [sent(cluster, ListGroupsRequest(), ANY), cluster.network_client.topic("t", 60)]
        for promise in promises:
            with pytest.raises(BrokerUnreachable, match=r"boot:9092: tcp: connection refused \(is it run") as raised:
                cluster.result(promise)
            assert raised.value.attempts[0].stage == "tcp"
        assert cluster.now < before + 1
    cluster = SingleClientCluster(bootstrap_timeout_s=7)
    cluster.up.clear()
    with pytest.raises(BrokerUnreachable):
        cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    assert 1006.9 < cluster.now < 1009


def test_a_broker_that_was_met_is_waited_for() -> None:
    cluster = SingleClientCluster(bootstrap_timeout_s=0)
    groups(cluster)
    assert cluster.result(sent(cluster, ListGroupsRequest(), ANY)) == ListGroupsResponse()
    cluster.stop(1)
    promise = send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=60)
    cluster.run(seconds=20)
    assert not promise.done
    cluster.up.add(1)
    assert cluster.result(promise) == ListGroupsResponse()


def test_requests_wait_for_a_broker() -> None:
    cluster = SingleClientCluster()
    groups(cluster)
    cluster.up.clear()
    promise = send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=60)
    cluster.run(seconds=20)
    assert not promise.done
    cluster.up.add(1)
    assert cluster.result(promise) == ListGroupsResponse()


def test_an_answer_that_never_comes_ends_the_connection() -> None:
    cluster = SingleClientCluster(connection=ConnectionSettings(request_timeout_s=5))
    cluster.handlers[16] = lambda received: SILENT
    with pytest.raises(ConnectionLost, match="no answer to ListGroups in time"):
        cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    assert 1004.9 < cluster.now < 1006


def test_a_silent_handshake_is_given_up() -> None:
    cluster = SingleClientCluster(connection=ConnectionSettings(setup_timeout_s=3))
    cluster.handlers[18] = lambda received: SILENT
    with pytest.raises(OperationTimedOut, match="not a Kafka broker, or a TLS listener"):
        cluster.result(cluster.network_client.topic("t", 10))


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


def test_a_frame_is_received_where_it_stays() -> None:
    """No copy is made of what was received into the room."""
    tracemalloc.start()
    try:
        room = FrameBuffer(8_000_000)
        filled = 0
        while room.left:
            borrowed = room.left  # as a driver does
            count = min(300_000, len(borrowed))
            borrowed[:count] = bytes([filled % 251]) * count
            room.filled(count)
            filled += count
        frame = room.take()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert frame == b"".join(bytes([at % 251]) * min(300_000, 8_000_000 - at) for at in range(0, 8_000_000, 300_000))
    assert peak < 9_000_000


def test_idle_connections_are_closed_and_opened_again() -> None:
    cluster = SingleClientCluster(connection=ConnectionSettings(idle_max_s=60), metadata_max_age_s=1e9)
    groups(cluster)
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    cluster.run(seconds=200)
    assert not cluster.links
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


def test_close_fails_what_is_in_flight() -> None:
    cluster = SingleClientCluster()
    promise = sent(cluster, ListGroupsRequest(), ANY)
    topic = cluster.network_client.topic("t", 60)
    cluster.network_client.close()
    for waiting in (promise, topic, sent(cluster, ListGroupsRequest(), ANY)):
        with pytest.raises(ClientClosed):
            waiting.result()


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_a_topic_is_known_after_one_answer() -> None:
    cluster = SingleClientCluster(nodes=3)
    cluster.topics["t"] = {0: 1, 1: 2, 2: 3}
    topic = cluster.result(cluster.network_client.topic("t", 5))
    assert {p.leader for p in topic.partitions.values()} == {1, 2, 3}
    assert cluster.count(3) == 1
    assert cluster.network_client.topic("t", 5).done, "the second time nothing is asked"


def test_a_topic_that_appears_late() -> None:
    cluster = SingleClientCluster()
    promise = cluster.network_client.topic("t", 60)
    cluster.run(seconds=5)
    assert 5 <= cluster.count(3) <= 30
    cluster.topics["t"] = {0: 1}
    assert cluster.result(promise).name == "t"


def test_a_topic_that_does_not_appear() -> None:
    cluster = SingleClientCluster()
    with pytest.raises(TopicNotFound, match="topic 't' does not exist"):
        cluster.result(cluster.network_client.topic("t", 3))
    assert 1003 <= cluster.now < 1003.1


def test_a_topic_that_cannot_exist() -> None:
    cluster = SingleClientCluster()
    cluster.topic_errors["a b"] = InvalidTopic.code
    with pytest.raises(InvalidTopic, match="'a b'"):
        cluster.result(cluster.network_client.topic("a b", 60))
    assert cluster.now < 1001


def test_metadata_is_renewed_with_age_and_when_it_was_wrong() -> None:
    cluster = SingleClientCluster(metadata_max_age_s=100)
    cluster.topics["t"] = {0: 1}
    cluster.result(cluster.network_client.topic("t", 5))
    cluster.run(seconds=350)
    assert cluster.count(3) == 4
    cluster.topics["t"] = {0: 1, 1: 1}
    cluster.result(cluster.network_client.refresh_metadata())
    assert len(cluster.network_client.metadata.cluster.topics["t"].partitions) == 2


def test_an_older_leader_epoch_does_not_win() -> None:
    cluster = SingleClientCluster(nodes=2)
    cluster.topics["t"], cluster.log("t", 0).leader_epoch = {0: 2}, 5
    cluster.result(cluster.network_client.topic("t", 5))
    cluster.topics["t"], cluster.log("t", 0).leader_epoch = {0: 1}, 4
    cluster.result(cluster.network_client.refresh_metadata())
    assert cluster.network_client.metadata.cluster.topics["t"].partitions[0].leader == 2
    cluster.topics["t"], cluster.log("t", 0).leader_epoch = {0: 1}, 6
    cluster.result(cluster.network_client.refresh_metadata())
    assert cluster.network_client.metadata.cluster.topics["t"].partitions[0].leader == 1


@pytest.mark.parametrize("rebootstrap", [True, False])
def test_brokers_that_give_no_metadata_are_left_for_the_first_addresses(rebootstrap: bool) -> None:
    cluster = SingleClientCluster(nodes=2, rebootstrap=rebootstrap, rebootstrap_trigger_s=60)
    refreshed = cluster.network_client.refresh_metadata()
    assert cluster.run(lambda: refreshed.done)
    answers, cluster.handlers[3] = cluster.handlers[3], lambda received: SILENT
    cluster.connected.clear()
    refreshed = cluster.network_client.refresh_metadata()
    began = cluster.now
    assert cluster.run(lambda: "boot" in cluster.connected, seconds=200) is rebootstrap
    if rebootstrap:
        assert 60 <= cluster.now - began < 60 + 31
    cluster.handlers[3] = answers
    refreshed = cluster.network_client.refresh_metadata()
    assert cluster.run(lambda: refreshed.done and refreshed.error is None)


def test_another_broker_is_asked_when_one_dies() -> None:
    cluster = SingleClientCluster(nodes=3)
    groups(cluster)
    cluster.topics["t"] = {0: 1}
    cluster.result(cluster.network_client.topic("t", 5))
    cluster.stop(1)
    assert (
        cluster.result(send_with_retries(cluster.network_client, ListGroupsRequest(), ANY, timeout_s=30))
        == ListGroupsResponse()
    )
    assert cluster.requests[-1].node_id != 1


# --- coordinators, controller, retries --------------------------------------------------------------------------------


def heartbeat(cluster: SingleClientCluster) -> Any:
    return send_with_retries(
        cluster.network_client,
        HeartbeatRequest(group_id="g"),
        Coordinator("g"),
        timeout_s=30,
        check=lambda response: response.error_code,
    )


@pytest.mark.parametrize("newest", [3, 6])
def test_the_coordinator_is_found_once(newest: int) -> None:
    cluster = SingleClientCluster(nodes=2)
    cluster.versions[10] = (0, newest)
    cluster.coordinator = 2
    cluster.handlers[12] = lambda received: HeartbeatResponse()
    first, second = heartbeat(cluster), heartbeat(cluster)
    assert cluster.result(first) == cluster.result(second) == HeartbeatResponse()
    cluster.result(heartbeat(cluster))
    assert cluster.count(10) == 1
    assert {received.node_id for received in cluster.requests if received.api_key == 12} == {2}


def test_a_coordinator_that_moved_is_found_again() -> None:
    cluster = SingleClientCluster(nodes=2)
    cluster.handlers[12] = lambda received: HeartbeatResponse(error_code=0 if received.node_id == 2 else 16)
    promise = heartbeat(cluster)
    cluster.run(seconds=0.5)
    assert not promise.done
    cluster.coordinator = 2
    assert cluster.result(promise).error_code == 0


def test_the_controller_is_asked() -> None:
    cluster = SingleClientCluster(nodes=3)
    groups(cluster)
    cluster.result(cluster.network_client.refresh_metadata())
    cluster.result(sent(cluster, ListGroupsRequest(), CONTROLLER))
    assert cluster.requests[-1].node_id == 1
