"""Answers that would take long or be large: what is named twice is answered once, and others are served in between."""

import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.requests import sliced_responses as sliced_responses
from barnabas.broker.requests.sliced_responses import UNDER_WAY_MAX, LazySequence, SlicedResponses
from barnabas.controller.requests import ResourceType
from barnabas.coordinator.responses import each
from barnabas.network.time_slicing import TimeSlicer
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.schema import Request
from barnabas.testing import Broker
from broker.wire import Wire, frame, on_loop, server_of

pytestmark = pytest.mark.source

TOPIC = ResourceType.TOPIC
INVALID_REQUEST, POLICY_VIOLATION, LOAD_IN_PROGRESS = 42, 44, 14


# --- bounds -----------------------------------------------------------------------------------------------------------


def configs_of(*names: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in names
        ]
    )


def test_an_answer_has_no_more_settings_than_it_may(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        broker.create_topic(name)
    monkeypatch.setattr(sliced_responses, "RESPONSE_ELEMENTS_MAX", 40)
    first, second, third = wire.ask(configs_of("a", "b", "c"), 4).results
    assert first.configs
    assert second.configs == first.configs
    assert (third.resource_name, third.configs, third.error_code) == ("c", [], INVALID_REQUEST)
    assert "ask for fewer resources" in third.error_message


def test_created_topics_come_without_settings_where_there_would_be_too_many(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sliced_responses, "RESPONSE_ELEMENTS_MAX", 1)
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in "ab"]
    first, second = wire.ask(CreateTopicsRequest(topics=topics), 7).topics
    assert (first.error_code, bool(first.configs), first.topic_config_error_code) == (0, True, 0)
    assert (second.error_code, second.configs, second.topic_config_error_code) == (0, [], INVALID_REQUEST)
    assert second.num_partitions == 1
    assert broker.topics() == ["a", "b"]


def test_groups_behind_too_many_offsets_are_to_be_asked_for_again(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t")
    wire.ask(FindCoordinatorRequest(coordinator_keys=["a"]), 4)
    for group_id, offset in zip("abc", (3, 4, 5), strict=True):
        partitions = [OffsetCommitRequestPartition(committed_offset=offset)]
        topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
        wire.ask(OffsetCommitRequest(group_id=group_id, topics=topics), 8)
    monkeypatch.setattr("barnabas.coordinator.group.group_coordinator.OFFSETS_MAX", 2)
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in "abc"]
    answers = wire.ask(OffsetFetchRequest(groups=groups), 8).groups
    assert [(group.error_code, len(group.topics)) for group in answers] == [(0, 1), (0, 1), (LOAD_IN_PROGRESS, 0)]
    (again,) = wire.ask(OffsetFetchRequest(groups=groups[2:]), 8).groups
    assert [partition.committed_offset for topic in again.topics for partition in topic.partitions] == [5]


def test_a_request_that_wants_to_change_too_much_changes_nothing(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.controller.requests.WISHES_MAX", 2)
    broker.create_topic("a")
    names = ["a", "b", "c"]
    created = wire.ask(CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in names]), 7).topics
    more = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names]
    extended = wire.ask(CreatePartitionsRequest(topics=more), 3).results
    deleted = wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names]), 6).responses
    resources = [AlterConfigsResource(resource_type=TOPIC, resource_name=name) for name in names]
    altered = wire.ask(IncrementalAlterConfigsRequest(resources=resources), 1).responses
    for answers in (created, extended, deleted, altered):
        assert [answer.error_code for answer in answers] == [POLICY_VIOLATION] * 3
        assert answers[0].error_message == "3 topics or resources in one request, 2 is the most; send several"
    assert broker.topics() == ["a"]
    assert broker.end_offsets("a") == [0]


# --- giving way -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_of", "version", "count"),
    [
        (lambda names: configs_of(*names), 4, lambda response: len(response.results)),
        (lambda names: DescribeGroupsRequest(groups=names), 5, lambda response: len(response.groups)),
        (
            lambda names: DescribeTransactionsRequest(transactional_ids=names),
            0,
            lambda response: len(response.transaction_states),
        ),
        (
            lambda names: MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
            ),
            9,
            lambda response: len(response.topics),
        ),
    ],
    ids=["DescribeConfigs", "DescribeGroups", "DescribeTransactions", "Metadata"],
)
def test_others_are_served_while_a_long_answer_is_made(
    request_of: Callable[[list[str]], Request],
    version: int,
    count: Callable[[Any], int],
    broker: Broker,
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    wire.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
    turns = Loop()
    monkeypatch.setattr("barnabas.network.time_slicing.SLICE_S", 0.0)
    monkeypatch.setattr("barnabas.network.time_slicing.TURN_S", 0.0)
    monkeypatch.setattr(server_of(broker).sliced_responses, "_time_slicer", TimeSlicer(turns))  # type: ignore[arg-type]
    names = [f"n{number}" for number in range(300)]
    wire.send(request_of(names), version)
    broker.wait_for(lambda: turns.due, what="the first slice of the answer")
    with Wire(broker) as other:
        for _ in range(5):
            on_loop(broker, turns.turn)
            other.ask(ApiVersionsRequest(), 0)
            assert wire.is_silent(0.001)
    on_loop(broker, turns.all)
    assert count(wire.receive()) == 300


def test_a_connection_begins_no_other_answer_before_its_long_one_is_made(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a bound a client that pipelines hundreds of such requests would make the broker hold a piece of each
    response."""
    turns = Loop()
    monkeypatch.setattr("barnabas.network.time_slicing.SLICE_S", 0.0)
    monkeypatch.setattr("barnabas.network.time_slicing.TURN_S", 0.0)
    server = server_of(broker)
    monkeypatch.setattr(server.sliced_responses, "_time_slicer", TimeSlicer(turns))  # type: ignore[arg-type]
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=f"n{number}") for number in range(50)]
    )
    handled = handled_requests(broker, ApiKey.DESCRIBE_CONFIGS, monkeypatch)
    wire.socket.sendall(b"".join(frame(request, 1, number) for number in range(1, 6)))
    with Wire(broker) as other:
        for number in range(1, 6):
            broker.wait_for(lambda: turns.due, what="the first slice of the answer")
            other.ask(ApiVersionsRequest(), 0)
            assert handled == [*range(1, number + 1)]
            on_loop(broker, turns.all)
            assert wire.receive_frame()[:4] == number.to_bytes(4, "big")


def test_a_connection_has_one_request_about_many_groups_in_work(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a bound a client that pipelines hundreds of them would make the broker hold all results until the last
    piece of each."""
    wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    server = server_of(broker)
    pieces: list[Callable[[], None]] = []
    monkeypatch.setattr(server.groups, "_later", pieces.append)
    handled = handled_requests(broker, ApiKey.DESCRIBE_GROUPS, monkeypatch)
    request = DescribeGroupsRequest(groups=[f"n{number}" for number in range(150)])
    wire.socket.sendall(b"".join(frame(request, 5, number) for number in (1, 2)))
    with Wire(broker) as other:
        for number in (1, 2):
            broker.wait_for(lambda: pieces, what="the second piece of the request")
            other.ask(ApiVersionsRequest(), 0)
            assert handled == [*range(1, number + 1)]
            on_loop(broker, pieces.pop())
            assert wire.receive_frame()[:4] == number.to_bytes(4, "big")
    assert not pieces


def test_the_pieces_of_many_requests_take_turns(loop: "Loop", broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of the loop is no longer for a hundred requests about many groups than for one."""
    monkeypatch.setattr("barnabas.network.time_slicing.TURN_S", 0.0)
    turns = TimeSlicer(loop)  # type: ignore[arg-type]
    started: list[int] = []
    finished: list[int] = []

    def begin(number: int) -> None:
        def start(item: int, done: Callable[[int], None]) -> None:
            started.append(number)
            done(item)

        each(range(30), start, lambda answers: finished.append(len(answers)), turns.call_soon, at_once=10)

    for number in range(5):
        begin(number)
    begun = len(started)
    for number in range(5):
        loop.turn()
        assert started[begun:] == [number] * 10
        begun = len(started)
    loop.all()
    assert finished == [30] * 5
    server = server_of(broker)
    assert server.groups._later == server.time_slicer.call_soon
    assert server.transactions._later == server.time_slicer.call_soon


def handled_requests(broker: Broker, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The correlation ids of the requests that are handled from now on."""
    dispatcher = server_of(broker).dispatcher
    handle = dispatcher.handle
    handled: list[int] = []

    def counted(context: Any, frame: memoryview, position: int) -> Any:
        if context.api_key == api_key:
            handled.append(context.correlation_id)
        return handle(context, frame, position)

    monkeypatch.setattr(dispatcher, "handle", counted)
    return handled


class Loop:
    """Runs what is due when a test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def time(self) -> float:
        return time.monotonic()

    def turn(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()

    def all(self) -> None:
        while self.due:
            self.turn()


class Connection:
    """Gives out places in the order of replies."""

    def __init__(self) -> None:
        self.closed = False
        self.replies: list[Any] = []

    def close(self, reason: str) -> None:
        self.closed = True
        self.reason = reason

    def mute(self) -> None:
        pass

    def unmute(self) -> None:
        pass

    def context(self) -> Any:
        reply = SimpleNamespace(parts=None)
        reply.resolve = lambda parts: setattr(reply, "parts", parts)
        self.replies.append(reply)
        return SimpleNamespace(
            api_key=ApiKey.LIST_GROUPS, api_version=4, correlation_id=7, connection=self, pending_reply=lambda: reply
        )


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def answers(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> SlicedResponses:
    monkeypatch.setattr("barnabas.network.time_slicing.SLICE_S", 0.0)
    monkeypatch.setattr("barnabas.network.time_slicing.TURN_S", 0.0)
    return SlicedResponses(TimeSlicer(loop), logging.getLogger("test"))  # type: ignore[arg-type]


def listing(count: int, make: Callable[[int], ListedGroup] | None = None) -> ListGroupsResponse:
    return ListGroupsResponse(
        groups=LazySequence(range(count), make or (lambda number: ListedGroup(group_id=str(number))))
    )


def test_a_short_answer_is_ready_at_once(loop: Loop, answers: SlicedResponses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.network.time_slicing.SLICE_S", 60.0)
    parts = answers.encode(Connection().context(), listing(100))
    assert isinstance(parts, tuple)
    (frame,) = parts
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4:8] == b"\0\0\0\7"
    assert loop.due == []


def test_long_answers_take_turns_and_later_ones_wait(loop: Loop, answers: SlicedResponses) -> None:
    made: list[int] = []

    def maker(answer: int) -> Callable[[int], ListedGroup]:
        def make(_: int) -> ListedGroup:
            made.append(answer)
            return ListedGroup()

        return make

    connection = Connection()
    count = UNDER_WAY_MAX + 1
    for answer in range(count):
        answers.encode(connection.context(), listing(3, maker(answer)))
    assert made == [*range(count)]
    for _ in range(UNDER_WAY_MAX):
        loop.turn()
    assert made[count:] == [*range(UNDER_WAY_MAX)]
    loop.all()
    assert sorted(made) == sorted([*range(count)] * 3)
    assert all(reply.parts for reply in connection.replies)


def test_an_answer_that_nobody_waits_for_is_given_up(loop: Loop, answers: SlicedResponses) -> None:
    made: list[int] = []
    connection, other = Connection(), Connection()
    answers.encode(connection.context(), listing(1000, lambda number: made.append(number) or ListedGroup()))
    answers.encode(other.context(), listing(3))
    connection.closed = True
    loop.all()
    assert len(made) == 1
    assert other.replies[0].parts


def test_a_failure_in_the_middle_ends_the_connection(
    loop: Loop, answers: SlicedResponses, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(number: int) -> ListedGroup:
        if number == 2:
            raise RuntimeError("a bug")
        return ListedGroup()

    connection, other = Connection(), Connection()
    answers.encode(connection.context(), listing(5, broken))
    answers.encode(other.context(), listing(5))
    loop.all()
    assert connection.closed
    assert connection.reason == "RuntimeError: a bug"
    assert "LIST_GROUPS failed" in caplog.text
    assert other.replies[0].parts


def test_elements_are_made_as_they_are_read() -> None:
    made: list[int] = []
    elements = LazySequence(range(5), lambda number: made.append(number) or number * 2)
    assert len(elements) == 5
    assert made == []
    assert next(iter(elements)) == 0
    assert (elements[3], list(elements[1:3])) == (6, [2, 4])
    assert made == [0, 3, 1, 2]
