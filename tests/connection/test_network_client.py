import tracemalloc
from typing import Any

import pytest

from barnabas.connection.broker.client_request import ClientRequest
from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.connection.broker.frame_buffer import FrameBuffer
from barnabas.connection.network_client import ANY, CONTROLLER, Coordinator, Node
from barnabas.connection.promise import Promise
from barnabas.connection.retry import ask
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
from simulation.world import SILENT, Asked, World


def sent(world: World, request: Any, to: Any, **options: Any) -> Promise[Any]:
    promise: Promise[Any] = Promise()

    def done(response: Any, error: Any) -> None:
        promise.fail(error) if error is not None else promise.resolve(response)

    world.network_client.send(ClientRequest(request, done, **options), to)
    return promise


def groups(world: World) -> None:
    world.handlers[ApiKey.LIST_GROUPS] = lambda asked: ListGroupsResponse()


def test_sockets_are_looked_at_as_long_as_they_may_have_something_to_tell() -> None:
    """Who sends without a pause sees that a connection is open, and that a full socket has room again."""
    world = World()
    groups(world)
    assert not world.network_client.awaits_answers
    promise = sent(world, ListGroupsRequest(), ANY)
    world.network_client.advance(world.network_client.now)
    assert world.network_client.awaits_answers  # the connection opens
    world.result(promise)
    world.run(seconds=1)
    assert not world.network_client.awaits_answers
    number = next(iter(world.network_client._peers._by_number))
    world.network_client.congested(number, True)
    assert world.network_client.awaits_answers
    world.network_client.congested(number, False)
    assert not world.network_client.awaits_answers


# --- versions and SASL ------------------------------------------------------------------------------------------------


def test_a_request_waits_for_the_versions() -> None:
    world = World()
    groups(world)
    promise = sent(world, ListGroupsRequest(), ANY)
    assert world.result(promise) == ListGroupsResponse()
    assert (world.asked[0].api_key, world.asked[0].version) == (ApiKey.API_VERSIONS, 4)


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_a_broker_that_knows_older_versions_only(newest: int) -> None:
    world = World()
    groups(world)
    world.versions = {18: (0, newest), 3: (0, 8), 16: (0, 2)}
    world.result(sent(world, ListGroupsRequest(), ANY))
    assert [asked.version for asked in world.asked if asked.api_key == 18] == [4, newest]
    assert {asked.version for asked in world.asked if asked.api_key == 16} == {2}


def test_what_the_broker_does_not_serve_is_refused_by_name() -> None:
    world = World()
    del world.versions[ApiKey.HEARTBEAT]
    world.versions[ApiKey.CREATE_TOPICS] = (0, 1)
    with pytest.raises(UnsupportedVersion, match="does not serve Heartbeat"):
        world.result(sent(world, HeartbeatRequest(), ANY))
    with pytest.raises(UnsupportedVersion, match="CreateTopics v0 to v1"):
        world.result(sent(world, CreateTopicsRequest(), ANY))


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


def sasl_world(mechanism: Any, answer: Any, **options: Any) -> World:
    world = World(connection=ConnectionSettings(mechanism=mechanism), **options)
    world.versions |= {17: (0, 1), 36: (0, 2)}

    def handshake(asked: Asked) -> Any:
        known = asked.request.mechanism in ("PLAIN", "TALK")
        return SaslHandshakeResponse(error_code=0 if known else 33, mechanisms=["PLAIN", "TALK"])

    world.handlers[17] = handshake
    world.handlers[36] = lambda asked: answer(asked.request.auth_bytes)
    groups(world)
    return world


def test_sasl_comes_before_all_requests() -> None:
    said = []

    def answer(data: bytes) -> Any:
        said.append(data)
        return SaslAuthenticateResponse(auth_bytes=b"proof" if data == b"step2" else b"")

    world = sasl_world(Talkative, answer)
    world.result(sent(world, ListGroupsRequest(), ANY))
    assert said[:2] == [b"step1", b"step2"]
    kinds = [asked.api_key for asked in world.asked]
    assert kinds.index(16) > kinds.index(36) > kinds.index(17) > kinds.index(18)


def test_wrong_credentials_are_told_at_once() -> None:
    world = sasl_world(Plain, lambda data: SaslAuthenticateResponse(error_code=58, error_message="no such user"))
    with pytest.raises(SaslAuthenticationFailed, match=r"n1|boot.*no such user"):
        world.result(ask(world.network_client, ListGroupsRequest(), ANY, timeout_s=30))
    assert world.now < 1001


def test_a_broker_that_cannot_prove_itself_is_refused() -> None:
    world = sasl_world(Talkative, lambda data: SaslAuthenticateResponse(auth_bytes=b"guess"))
    with pytest.raises(SaslAuthenticationFailed, match="does not know the password"):
        world.result(ask(world.network_client, ListGroupsRequest(), ANY, timeout_s=30))


def test_a_mechanism_that_is_not_offered() -> None:
    class Other(Plain):
        name = "OTHER"

    world = sasl_world(Other, lambda data: SaslAuthenticateResponse())
    with pytest.raises(UnsupportedSaslMechanism, match="OTHER; it offers: PLAIN, TALK"):
        world.result(ask(world.network_client, ListGroupsRequest(), ANY, timeout_s=30))


def test_a_session_is_renewed_before_it_ends() -> None:
    world = sasl_world(Plain, lambda data: SaslAuthenticateResponse(session_lifetime_ms=60_000))
    world.result(sent(world, ListGroupsRequest(), ANY))
    before = world.count(36)
    world.run(seconds=55)
    assert world.count(36) > before
    assert world.count(18) == before, "no connection was opened for it"
    world.result(sent(world, ListGroupsRequest(), ANY))


# --- no broker is reachable ------------------------------------------------------------------------------------------


class Told:
    """A world whose client tells the user, with the times and texts of that."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.texts: list[str] = []
        self.world = World(on_unreachable=self._hear)
        groups(self.world)

    def _hear(self, error: BrokerUnreachable) -> None:
        self.at.append(self.world.now)
        self.texts.append(str(error))

    def run(self, seconds: float) -> None:
        self.world.run(self._call_back, seconds=seconds)

    def _call_back(self) -> bool:
        while self.world.network_client.completions:
            self.world.network_client.completions.popleft()()
        return False


def test_an_outage_is_told_within_seconds_and_once() -> None:
    told = Told()
    world = told.world
    world.result(sent(world, ListGroupsRequest(), ANY))
    for outages in (1, 2):
        begin = world.now
        world.stop(1)
        told.run(seconds=300)
        assert len(told.at) == outages
        assert told.at[-1] - begin < 5
        assert "no broker reachable: " in told.texts[-1]
        assert "boot:9092: tcp: connection refused" in told.texts[-1]
        world.up.add(1)
        world.result(ask(world.network_client, ListGroupsRequest(), ANY, timeout_s=60))
    told.run(seconds=300)
    assert len(told.at) == 2


def test_an_outage_of_a_second_is_not_told() -> None:
    told = Told()
    world = told.world
    world.result(sent(world, ListGroupsRequest(), ANY))
    world.stop(1)
    told.run(seconds=1)
    world.up.add(1)
    told.run(seconds=300)
    assert told.texts == []


def test_a_broker_that_accepts_and_does_not_answer_is_told_with_the_stage() -> None:
    told = Told()
    told.world.handlers[18] = lambda asked: SILENT
    sent(told.world, ListGroupsRequest(), ANY)
    told.run(seconds=5)
    assert told.texts == ["no broker reachable: boot:9092: version: no answer yet"]


# --- connections ------------------------------------------------------------------------------------------------------


def test_reconnects_slow_down() -> None:
    world = World(connection=ConnectionSettings(backoff_s=0.05, backoff_max_s=1.0))
    world.up.clear()
    world.network_client.want_topics(["t"])
    world.run(seconds=10)
    assert 10 <= len(world.connected) <= 20


def test_wrong_addresses_are_tried_for_as_long_as_is_allowed() -> None:
    world = World(bootstrap_timeout_s=0)
    world.up.clear()
    for _ in range(2):  # a later request tries again
        before = world.now
        promises = [sent(world, ListGroupsRequest(), ANY), world.network_client.topic("t", 60)]
        for promise in promises:
            with pytest.raises(BrokerUnreachable, match=r"boot:9092: tcp: connection refused \(is it run") as raised:
                world.result(promise)
            assert raised.value.attempts[0].stage == "tcp"
        assert world.now < before + 1
    world = World(bootstrap_timeout_s=7)
    world.up.clear()
    with pytest.raises(BrokerUnreachable):
        world.result(sent(world, ListGroupsRequest(), ANY))
    assert 1006.9 < world.now < 1009


def test_a_broker_that_was_met_is_waited_for() -> None:
    world = World(bootstrap_timeout_s=0)
    groups(world)
    assert world.result(sent(world, ListGroupsRequest(), ANY)) == ListGroupsResponse()
    world.stop(1)
    promise = ask(world.network_client, ListGroupsRequest(), ANY, timeout_s=60)
    world.run(seconds=20)
    assert not promise.done
    world.up.add(1)
    assert world.result(promise) == ListGroupsResponse()


def test_requests_wait_for_a_broker() -> None:
    world = World()
    groups(world)
    world.up.clear()
    promise = ask(world.network_client, ListGroupsRequest(), ANY, timeout_s=60)
    world.run(seconds=20)
    assert not promise.done
    world.up.add(1)
    assert world.result(promise) == ListGroupsResponse()


def test_an_answer_that_never_comes_ends_the_connection() -> None:
    world = World(connection=ConnectionSettings(request_timeout_s=5))
    world.handlers[16] = lambda asked: SILENT
    with pytest.raises(ConnectionLost, match="no answer to ListGroups in time"):
        world.result(sent(world, ListGroupsRequest(), ANY))
    assert 1004.9 < world.now < 1006


def test_a_silent_handshake_is_given_up() -> None:
    world = World(connection=ConnectionSettings(setup_timeout_s=3))
    world.handlers[18] = lambda asked: SILENT
    with pytest.raises(OperationTimedOut, match="not a Kafka broker, or a TLS listener"):
        world.result(world.network_client.topic("t", 10))


def test_what_is_not_kafka_is_named() -> None:
    world = World()
    world.handlers[18] = lambda asked: b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(OperationTimedOut, match="the port answers HTTP"):
        world.result(world.network_client.topic("t", 1))


def test_rubbish_instead_of_an_answer_ends_the_connection() -> None:
    for rubbish in (b"\0\0\0\x05\0\0\0\x63\0", b"\0\0\0\x04\0\0\0\x02", b"\0\0\0\0", b"\xff\xff\xff\xff"):
        world = World()
        world.handlers[16] = lambda asked, rubbish=rubbish: rubbish
        world.topics["t"] = {0: 1}
        world.result(world.network_client.topic("t", 5))
        with pytest.raises(ConnectionLost):
            world.result(sent(world, ListGroupsRequest(), Node(1)))


def arrive(world: World, number: int, data: bytes, piece: int, *, in_room: bool) -> None:
    """As a driver hands it over that gets so many bytes from its socket at a time."""
    while data:
        room = world.network_client.room(number) if in_room else None
        if room is None:
            world.network_client.received(number, data[:piece], world.now)
            data = data[piece:]
        else:
            count = min(piece, len(room), len(data))
            room[:count] = data[:count]
            world.network_client.filled(number, count, world.now)
            data = data[count:]


@pytest.mark.parametrize("in_room", [False, True])
@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 1000])
def test_answers_in_pieces(piece: int, in_room: bool) -> None:
    world = World()
    groups(world)
    promises = [sent(world, ListGroupsRequest(), ANY) for _ in range(3)]
    while not all(promise.done for promise in promises):
        world.turn()
        for link in list(world.links.values()):
            answers = [world.handle(link) for _ in range(len(link.pending))]
            data = b"".join(answer for answer in answers if answer is not None)
            arrive(world, link.number, data, piece, in_room=in_room)
    assert [promise.result() for promise in promises] == [ListGroupsResponse()] * 3
    assert all(world.network_client.room(number) is None for number in world.links), "nothing is left over"


@pytest.mark.parametrize("in_room", [False, True])
def test_a_connection_may_end_within_an_answer(in_room: bool) -> None:
    world = World()
    groups(world)
    world.result(sent(world, ListGroupsRequest(), ANY))
    promise = sent(world, ListGroupsRequest(), ANY)
    world.turn()
    (link,) = (link for link in world.links.values() if link.pending)
    data = world.handle(link)
    assert data is not None
    arrive(world, link.number, data[:-1], 3, in_room=in_room)
    assert not promise.done
    world.network_client.lost(link.number, (), world.now)
    with pytest.raises(ConnectionLost):
        promise.result()
    assert world.network_client.room(link.number) is None
    world.network_client.filled(link.number, 1, world.now)  # of a read that had begun: it is nobody's
    assert world.result(sent(world, ListGroupsRequest(), ANY)) == ListGroupsResponse()


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
    world = World(connection=ConnectionSettings(idle_max_s=60), metadata_max_age_s=1e9)
    groups(world)
    world.result(sent(world, ListGroupsRequest(), ANY))
    world.run(seconds=200)
    assert not world.links
    assert world.result(sent(world, ListGroupsRequest(), ANY)) == ListGroupsResponse()


def test_a_throttled_connection_pauses() -> None:
    world = World()
    world.topics["t"] = {0: 1}
    world.result(world.network_client.topic("t", 5))
    world.handlers[16] = lambda asked: ListGroupsResponse(throttle_time_ms=2000)
    world.result(sent(world, ListGroupsRequest(), Node(1)))
    before = world.now
    world.result(sent(world, ListGroupsRequest(), Node(1)))
    assert 1.9 < world.now - before < 2.1


def test_close_fails_what_is_in_flight() -> None:
    world = World()
    promise = sent(world, ListGroupsRequest(), ANY)
    topic = world.network_client.topic("t", 60)
    world.network_client.close()
    for waiting in (promise, topic, sent(world, ListGroupsRequest(), ANY)):
        with pytest.raises(ClientClosed):
            waiting.result()


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_a_topic_is_known_after_one_answer() -> None:
    world = World(nodes=3)
    world.topics["t"] = {0: 1, 1: 2, 2: 3}
    topic = world.result(world.network_client.topic("t", 5))
    assert {p.leader for p in topic.partitions.values()} == {1, 2, 3}
    assert world.count(3) == 1
    assert world.network_client.topic("t", 5).done, "the second time nothing is asked"


def test_a_topic_that_appears_late() -> None:
    world = World()
    promise = world.network_client.topic("t", 60)
    world.run(seconds=5)
    assert 5 <= world.count(3) <= 30
    world.topics["t"] = {0: 1}
    assert world.result(promise).name == "t"


def test_a_topic_that_does_not_appear() -> None:
    world = World()
    with pytest.raises(TopicNotFound, match="topic 't' does not exist"):
        world.result(world.network_client.topic("t", 3))
    assert 1003 <= world.now < 1003.1


def test_a_topic_that_cannot_exist() -> None:
    world = World()
    world.topic_errors["a b"] = InvalidTopic.code
    with pytest.raises(InvalidTopic, match="'a b'"):
        world.result(world.network_client.topic("a b", 60))
    assert world.now < 1001


def test_metadata_is_renewed_with_age_and_when_it_was_wrong() -> None:
    world = World(metadata_max_age_s=100)
    world.topics["t"] = {0: 1}
    world.result(world.network_client.topic("t", 5))
    world.run(seconds=350)
    assert world.count(3) == 4
    world.topics["t"] = {0: 1, 1: 1}
    world.result(world.network_client.refresh_metadata())
    assert len(world.network_client.metadata.view.topics["t"].partitions) == 2


def test_an_older_leader_epoch_does_not_win() -> None:
    world = World(nodes=2)
    world.topics["t"], world.epochs["t", 0] = {0: 2}, 5
    world.result(world.network_client.topic("t", 5))
    world.topics["t"], world.epochs["t", 0] = {0: 1}, 4
    world.result(world.network_client.refresh_metadata())
    assert world.network_client.metadata.view.topics["t"].partitions[0].leader == 2
    world.topics["t"], world.epochs["t", 0] = {0: 1}, 6
    world.result(world.network_client.refresh_metadata())
    assert world.network_client.metadata.view.topics["t"].partitions[0].leader == 1


@pytest.mark.parametrize("rebootstrap", [True, False])
def test_brokers_that_give_no_metadata_are_left_for_the_first_addresses(rebootstrap: bool) -> None:
    world = World(nodes=2, rebootstrap=rebootstrap, rebootstrap_trigger_s=60)
    refreshed = world.network_client.refresh_metadata()
    assert world.run(lambda: refreshed.done)
    answers, world.handlers[3] = world.handlers[3], lambda asked: SILENT
    world.connected.clear()
    refreshed = world.network_client.refresh_metadata()
    began = world.now
    assert world.run(lambda: "boot" in world.connected, seconds=200) is rebootstrap
    if rebootstrap:
        assert 60 <= world.now - began < 60 + 31
    world.handlers[3] = answers
    refreshed = world.network_client.refresh_metadata()
    assert world.run(lambda: refreshed.done and refreshed.error is None)


def test_another_broker_is_asked_when_one_dies() -> None:
    world = World(nodes=3)
    groups(world)
    world.topics["t"] = {0: 1}
    world.result(world.network_client.topic("t", 5))
    world.stop(1)
    assert world.result(ask(world.network_client, ListGroupsRequest(), ANY, timeout_s=30)) == ListGroupsResponse()
    assert world.asked[-1].node_id != 1


# --- coordinators, controller, retries --------------------------------------------------------------------------------


def heartbeat(world: World) -> Any:
    return ask(
        world.network_client,
        HeartbeatRequest(group_id="g"),
        Coordinator("g"),
        timeout_s=30,
        check=lambda response: response.error_code,
    )


@pytest.mark.parametrize("newest", [3, 6])
def test_the_coordinator_is_found_once(newest: int) -> None:
    world = World(nodes=2)
    world.versions[10] = (0, newest)
    world.coordinator = 2
    world.handlers[12] = lambda asked: HeartbeatResponse()
    first, second = heartbeat(world), heartbeat(world)
    assert world.result(first) == world.result(second) == HeartbeatResponse()
    world.result(heartbeat(world))
    assert world.count(10) == 1
    assert {asked.node_id for asked in world.asked if asked.api_key == 12} == {2}


def test_a_coordinator_that_moved_is_found_again() -> None:
    world = World(nodes=2)
    world.handlers[12] = lambda asked: HeartbeatResponse(error_code=0 if asked.node_id == 2 else 16)
    promise = heartbeat(world)
    world.run(seconds=0.5)
    assert not promise.done
    world.coordinator = 2
    assert world.result(promise).error_code == 0


def test_the_controller_is_asked() -> None:
    world = World(nodes=3)
    groups(world)
    world.result(world.network_client.refresh_metadata())
    world.result(sent(world, ListGroupsRequest(), CONTROLLER))
    assert world.asked[-1].node_id == 1


def test_retries_end_with_the_reasons() -> None:
    world = World()
    world.handlers[16] = lambda asked: ListGroupsResponse(error_code=15)
    promise = ask(
        world.network_client, ListGroupsRequest(), ANY, timeout_s=5, check=lambda response: response.error_code
    )
    with pytest.raises(Exception, match="COORDINATOR_NOT_AVAILABLE"):
        world.result(promise)
    assert 5 <= world.count(16) <= 20
    world = World()
    world.up.clear()
    with pytest.raises(OperationTimedOut, match=r"gave up after 5 s.*connection refused") as raised:
        world.result(ask(world.network_client, ListGroupsRequest(), ANY, timeout_s=5))
    assert raised.value.attempts
