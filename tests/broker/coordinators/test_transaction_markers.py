"""`write_markers`: end markers in the partitions that this broker leads."""

import struct
from typing import Any

import pytest

from barnabas.broker.coordinators.transaction_markers import Outcomes, write_markers
from barnabas.broker.purgatory import DelayedOperation, DelayedOperationPurgatory
from barnabas.broker.server import Broker
from barnabas.config.broker import BrokerConfig
from barnabas.connection.flow import result_of
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.errors import (
    InvalidProducerEpoch,
    KafkaError,
    NotLeaderOrFollower,
    RequestTimedOut,
    TransactionCoordinatorFenced,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.records.reader import read_records
from barnabas.replication.partition import Partition
from barnabas.types import TopicPartition
from broker.followers import add_follower, follower_has
from broker.marker_rig import begin, log_of
from broker.marker_rig import broker as broker


def write(broker: Broker, *places: tuple[str, int], epoch: int = 0, **fields: Any) -> Outcomes:
    marker = EndMarkers(
        producer_id=fields.get("producer_id", 7),
        producer_epoch=epoch,
        commit=fields.get("commit", True),
        coordinator_epoch=fields.get("coordinator_epoch", 0),
        transaction_version=fields.get("transaction_version", 0),
        partitions=[TopicPartition(*place) for place in places],
    )
    replies: list[Outcomes] = []
    write_markers(broker, marker, replies.append)
    (reply,) = replies
    return reply


def kind(error: KafkaError | None) -> type[KafkaError] | None:
    return None if error is None else type(error)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_the_transaction(broker: Broker, commit: bool) -> None:
    begin(broker, 7)
    log = log_of(broker)
    assert log.last_stable_offset == 0
    assert write(broker, ("t", 0), commit=commit, coordinator_epoch=5) == {("t", 0): None}
    assert (log.last_stable_offset, log.log_end_offset) == (2, 2)
    read = log.read(1, 1 << 20, upper_bound=2, min_one_message=True).file_slice
    assert read is not None
    (record,) = read_records(read.read())
    assert record.key == b"\0\0" + struct.pack(">h", commit)
    assert record.value == b"\0\0" + struct.pack(">i", 5)
    assert len(log.aborted_transactions(0, 2)) == (not commit)


def test_each_partition_has_its_own_outcome(broker: Broker) -> None:
    begin(broker, 7, index=1)
    outcomes = write(broker, ("t", 1), ("t", 9), ("gone", 0), ("t", 1))
    assert {place: kind(error) for place, error in outcomes.items()} == {
        ("t", 1): None,
        ("t", 9): UnknownTopicOrPartition,
        ("gone", 0): UnknownTopicOrPartition,
    }
    assert log_of(broker, 1).log_end_offset == 2


def test_no_partitions_is_done_at_once(broker: Broker) -> None:
    assert write(broker) == {}


def test_a_partition_that_nothing_was_written_to_gets_its_marker(broker: Broker) -> None:
    assert write(broker, ("t", 0)) == {("t", 0): None}
    assert log_of(broker).last_stable_offset == 1


def test_markers_of_a_deposed_coordinator_are_fenced(broker: Broker) -> None:
    begin(broker, 7)
    write(broker, ("t", 0), coordinator_epoch=3)
    assert kind(write(broker, ("t", 0), coordinator_epoch=2)["t", 0]) is TransactionCoordinatorFenced
    assert kind(write(broker, ("t", 0), coordinator_epoch=3)["t", 0]) is None


@pytest.mark.parametrize(
    ("transaction_version", "epoch", "ongoing", "error"),
    [
        (0, 4, True, InvalidProducerEpoch),
        (0, 5, True, None),
        (0, 5, False, None),
        (1, 6, True, None),
        (2, 4, True, InvalidProducerEpoch),
        (2, 4, False, InvalidProducerEpoch),
        (2, 5, True, InvalidProducerEpoch),
        (2, 5, False, None),
        (2, 6, True, None),
    ],
)
def test_epochs_of_markers(
    broker: Broker, transaction_version: int, epoch: int, ongoing: bool, error: type[KafkaError] | None
) -> None:
    begin(broker, 7, epoch=5)
    if not ongoing:
        assert write(broker, ("t", 0), epoch=5) == {("t", 0): None}
    before = log_of(broker).log_end_offset
    outcome = write(broker, ("t", 0), epoch=epoch, transaction_version=transaction_version)["t", 0]
    assert kind(outcome) is error
    assert log_of(broker).log_end_offset == before + (error is None)


def test_the_last_epoch_ends_its_own_transaction(broker: Broker) -> None:
    begin(broker, 7, epoch=32767)
    assert write(broker, ("t", 0), epoch=32767, transaction_version=2) == {("t", 0): None}


def test_the_reply_waits_for_the_commit(broker: Broker) -> None:
    partitions = [broker.replica_manager.leader_of("t", index) for index in (0, 1)]
    for partition in partitions:
        add_follower(partition)
    replies: list[Outcomes] = []
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]
    write_markers(broker, EndMarkers(7, 0, True, 0, 2, places), replies.append)
    assert (replies, broker.purgatory.size) == ([], 1)
    for partition in partitions:
        follower_has(partition, 1)
        broker.loop.run_until_complete(_turn())
    assert replies == [dict.fromkeys(places)]
    assert broker.purgatory.size == 0


def test_a_bug_at_one_partition_leaves_none_of_the_others_undecided(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_at_first(self: Partition, *arguments: Any, **options: Any) -> Any:
        if self.topic_partition.partition == 0:
            raise RuntimeError("a bug")
        return append(self, *arguments, **options)

    begin(broker, 7, index=0)
    begin(broker, 7, index=1)
    append = Partition.append_as_leader
    monkeypatch.setattr(Partition, "append_as_leader", broken_at_first)
    outcomes = write(broker, ("t", 0), ("t", 1))
    assert [kind(outcomes[TopicPartition("t", index)]) for index in (0, 1)] == [UnknownServerError, None]
    assert log_of(broker, 1).last_stable_offset == log_of(broker, 1).log_end_offset == 2


async def _turn() -> None:
    """Lets the callbacks run that are due."""


def test_a_marker_that_is_not_committed_in_time_is_told_so(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = broker.replica_manager.leader_of("t", 0)
    add_follower(partition)
    monkeypatch.setattr(broker, "config", BrokerConfig.of({"request.timeout.ms": 4000}))
    waits: list[float] = []
    delay = DelayedOperationPurgatory.delay

    def noted(purgatory: DelayedOperationPurgatory, *arguments: Any) -> None:
        waits.append(arguments[-1])
        delay(purgatory, *arguments)

    monkeypatch.setattr(DelayedOperationPurgatory, "delay", noted)
    replies: list[Outcomes] = []
    write_markers(broker, EndMarkers(7, 0, True, 0, 2, [TopicPartition("t", 0)]), replies.append)
    assert waits == [4]
    (operation,) = [watcher for watcher in partition.watchers if isinstance(watcher, DelayedOperation)]
    operation.expire()
    ((outcome,),) = [reply.values() for reply in replies]
    assert kind(outcome) is RequestTimedOut


def test_a_partition_that_gets_another_leader(broker: Broker) -> None:
    partition = broker.replica_manager.leader_of("t", 0)
    add_follower(partition)
    replies: list[Outcomes] = []
    write_markers(broker, EndMarkers(7, 0, True, 0, 2, [TopicPartition("t", 0)]), replies.append)
    partition.retire()
    broker.loop.run_until_complete(_turn())
    ((outcome,),) = [reply.values() for reply in replies]
    assert kind(outcome) is NotLeaderOrFollower


def test_group_offsets_are_ended_by_the_group_coordinator(broker: Broker) -> None:
    assert kind(write(broker, ("__consumer_offsets", 0))["__consumer_offsets", 0]) is UnknownTopicOrPartition
    result_of(broker.controller.call(lambda controller: controller.auto_create_topics(["__consumer_offsets"])))
    assert write(broker, ("__consumer_offsets", 0), ("t", 0)) == {("__consumer_offsets", 0): None, ("t", 0): None}
    assert broker.replica_manager.leader_of("__consumer_offsets", 0).log.log_end_offset == 1
    broker.groups.on_resigned(0)
    assert kind(write(broker, ("__consumer_offsets", 0))["__consumer_offsets", 0]) is NotLeaderOrFollower


def test_a_group_coordinator_that_is_loading_holds_up_no_other_marker(broker: Broker) -> None:
    result_of(broker.controller.call(lambda controller: controller.auto_create_topics(["__consumer_offsets"])))
    places = ("__consumer_offsets", 0), ("t", 0)
    assert write(broker, *places) == dict.fromkeys(places)
    broker.groups.on_resigned(0)
    broker.groups.on_elected(0, broker.replica_manager.leader_of("__consumer_offsets", 0).leader_epoch)
    outcomes = write(broker, *places)
    assert [kind(outcomes[TopicPartition(*place)]) for place in places] == [NotLeaderOrFollower, None]
    broker.groups.runtime._load_chunk()
    assert write(broker, *places) == dict.fromkeys(places)
