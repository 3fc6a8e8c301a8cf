"""TxnOffsetCommit: which partition is asked for, which errors each version knows."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.coordinators.transaction_markers import Outcomes, write_markers
from barnabas.broker.handlers.transactions.txn_offset_commit import handle
from barnabas.broker.requests.request_context import RequestContext
from barnabas.connection.flow import result_of
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.errors import (
    CoordinatorLoadInProgress,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    NotCoordinator,
    TransactionAbortable,
    error_for,
)
from barnabas.protocol.apis import SERVED, ApiKey
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages.offset_fetch import (
    ZERO_UUID,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.types import TopicPartition
from broker.produce_rig import ProduceRig, produce_rig

VERSIONS = range(SERVED[ApiKey.TXN_OFFSET_COMMIT].first, SERVED[ApiKey.TXN_OFFSET_COMMIT].last + 1)
OFFSETS = "__consumer_offsets"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ProduceRig]:
    with produce_rig(tmp_path, offsets_topic_num_partitions=5) as rig:
        result_of(rig.broker.controller.call(lambda controller: controller.auto_create_topics([OFFSETS])))
        yield rig


class Sent:
    def __init__(self, rig: ProduceRig, answer: Any, version: int) -> None:
        self._rig = rig
        self._answer = answer
        self._version = version

    @property
    def waits(self) -> bool:
        return isinstance(self._answer, asyncio.Future) and not self._answer.done()

    @property
    def errors(self) -> dict[tuple[str, int], str]:
        assert not self.waits
        answer = self._answer.result() if isinstance(self._answer, asyncio.Future) else self._answer
        response, _ = decode(TxnOffsetCommitResponse, self._version, bytes(encode(answer, self._version)))
        names = [topic.name or name_of(self._rig, topic.topic_id) for topic in response.topics]
        assert len(set(names)) == len(names), "a topic stands once"
        return {
            (name, p.partition_index): type(error_for(p.error_code)).__name__ if p.error_code else ""
            for name, topic in zip(names, response.topics, strict=True)
            for p in topic.partitions
        }


def id_of(rig: ProduceRig, name: str) -> UUID:
    topic = rig.broker.image.topics.get(name)
    return UUID(int=77) if topic is None else topic.topic_id


def name_of(rig: ProduceRig, topic_id: UUID) -> str:
    topic = rig.broker.image.topic_by_id(topic_id)
    return "gone" if topic is None else topic.name


def send(rig: ProduceRig, version: int = 5, *, topics: dict[str, dict[int, int]] | None = None, **fields: Any) -> Sent:
    wanted = [
        TxnOffsetCommitRequestTopic(
            name=name,
            topic_id=id_of(rig, name),
            partitions=[
                TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                for index, offset in offsets.items()
            ],
        )
        for name, offsets in (topics or {"t": {0: 5}}).items()
    ]
    defaults: dict[str, Any] = {
        "transactional_id": "mine", "group_id": "g", "producer_id": 7, "producer_epoch": 0, "topics": wanted
    }  # fmt: skip
    request = TxnOffsetCommitRequest(**(defaults | fields))
    received, _ = decode(TxnOffsetCommitRequest, version, bytes(encode(request, version)))
    context = RequestContext(ApiKey.TXN_OFFSET_COMMIT, version, 1, b"test", rig.client)  # type: ignore[arg-type]
    return Sent(rig, handle(rig.broker, received, context), version)


def fetched(rig: ProduceRig, *indexes: int, topic_id: UUID = ZERO_UUID) -> list[int]:
    """-2 stands for what is not decided."""
    answers: list[list[OffsetFetchResponseGroup]] = []
    wanted = [OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=indexes)]
    group = OffsetFetchRequestGroup(group_id="g", topics=wanted)
    rig.broker.groups.fetch_offsets([group], require_stable=True, reply=answers.append)
    return [-2 if p.error_code else p.committed_offset for p in answers[0][0].topics[0].partitions]


def home(rig: ProduceRig) -> TopicPartition:
    return TopicPartition(OFFSETS, rig.broker.groups.partition_for("g"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
def test_from_the_commit_to_the_marker(rig: ProduceRig, version: int, commit: bool) -> None:
    sent = send(rig, version, topics={"t": {0: 5, 1: 6}})
    assert sent.waits
    ask = rig.coordinator.last
    assert (ask.transactional_id, ask.producer, ask.partitions) == ("mine", (7, 0), [home(rig)])
    assert ask.verify_only == (version < 5)
    ask.grant()
    assert sent.errors == {("t", 0): "", ("t", 1): ""}
    assert fetched(rig, 0, 1, 2) == [-2, -2, -1]
    assert send(rig, version, topics={"t": {1: 7}}).errors == {("t", 1): ""}
    assert len(rig.coordinator.asks) == 1, "the transaction has records there now"
    replies: list[Outcomes] = []
    write_markers(rig.broker, EndMarkers(7, 1, commit, 0, 2, [home(rig)]), replies.append)
    assert replies == [{home(rig): None}]
    assert fetched(rig, 0, 1) == ([5, 7] if commit else [-1, -1])


def test_an_answer_that_is_there_at_once(rig: ProduceRig) -> None:
    rig.coordinator.at_once = None
    assert send(rig).errors == {("t", 0): ""}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("error", "known"),
    [
        (TransactionAbortable("x"), {0: "InvalidTxnState", 4: "TransactionAbortable"}),
        (InvalidProducerIdMapping("x"), {0: "InvalidProducerIdMapping"}),
        (InvalidProducerEpoch("x"), {0: "InvalidProducerEpoch"}),
        (NotCoordinator("x"), {0: "NotCoordinator"}),
        (CoordinatorLoadInProgress("x"), {0: "CoordinatorNotAvailable", 2: "CoordinatorLoadInProgress"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_as_each_version_knows_them(
    rig: ProduceRig, version: int, error: KafkaError, known: dict[int, str]
) -> None:
    rig.coordinator.at_once = error
    expected = known[max(first for first in known if first <= version)]
    assert send(rig, version).errors == {("t", 0): expected}
    assert fetched(rig, 0) == [-1]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_does_not_exist_is_refused_alone(rig: ProduceRig, version: int) -> None:
    rig.coordinator.at_once = None
    sent = send(rig, version, topics={"t": {0: 5, 9: 6, -1: 7}, "gone": {0: 8}})
    unknown = "UnknownTopicOrPartition"
    gone = unknown if version < 6 else "UnknownTopicId"
    assert sent.errors == {("t", 0): "", ("t", 9): unknown, ("t", -1): unknown, ("gone", 0): gone}


def test_offsets_of_a_topic_that_is_gone_are_not_those_of_one_with_its_name(rig: ProduceRig) -> None:
    rig.coordinator.at_once = None
    assert send(rig, 6, topics={"t": {0: 5}}).errors == {("t", 0): ""}
    write_markers(rig.broker, EndMarkers(7, 1, True, 0, 2, [home(rig)]), lambda _: None)
    assert fetched(rig, 0) == [5]
    assert fetched(rig, 0, topic_id=id_of(rig, "t")) == [5]
    assert fetched(rig, 0, topic_id=UUID(int=78)) == [-1]


def test_nothing_that_exists_asks_nobody(rig: ProduceRig) -> None:
    assert send(rig, topics={"gone": {0: 8}}).errors == {("gone", 0): "UnknownTopicOrPartition"}
    assert rig.coordinator.asks == []


def test_a_group_needs_a_name(rig: ProduceRig) -> None:
    assert send(rig, group_id="").errors == {("t", 0): "InvalidGroupId"}
    assert rig.coordinator.asks == []


@pytest.mark.parametrize("version", VERSIONS[3:])
def test_members_that_are_not_there(rig: ProduceRig, version: int) -> None:
    """As Kafka 4.4.0 answers."""
    rig.coordinator.at_once = None
    error = "IllegalGeneration" if version < 6 else "GroupIdNotFound"
    assert send(rig, version, generation_id=3, member_id="m").errors == {("t", 0): error}


def test_an_end_marker_overtakes_the_answer(rig: ProduceRig) -> None:
    sent = send(rig, 4)
    replies: list[Outcomes] = []
    write_markers(rig.broker, EndMarkers(7, 0, False, 0, 1, [home(rig)]), replies.append)
    rig.coordinator.last.grant()
    assert sent.errors == {("t", 0): "InvalidTxnState"}
    assert fetched(rig, 0) == [-1]


def test_before_the_offsets_topic_is_there(tmp_path: Path) -> None:
    with produce_rig(tmp_path) as rig:
        assert send(rig).errors == {("t", 0): "CoordinatorNotAvailable"}


def test_where_the_coordinator_is_elsewhere(rig: ProduceRig) -> None:
    rig.coordinator.at_once = None
    rig.broker.groups.on_resigned(home(rig).partition)
    assert send(rig).errors == {("t", 0): "NotCoordinator"}
