"""Offsets of partitions, asked from their leaders: earliest, latest, by time, by leader epoch; and deleting records."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.client.admin_base import AdminBase
from barnabas.client.deadline import Deadline
from barnabas.errors import KafkaError, error_for
from barnabas.protocol.schema import Request
from barnabas.types import TopicPartition

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "OffsetsAdmin", "PartitionOffset"]

P = TypeVar("P")
T = TypeVar("T")

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3


class PartitionOffset(NamedTuple):
    """An offset with the timestamp and leader epoch that belong to it; -1 for none."""

    offset: int
    timestamp: int
    leader_epoch: int


def _answers(response: Any) -> Iterable[tuple[TopicPartition, int, Any]]:
    """(partition, error code, answer) as most responses have them."""
    for topic in response.topics:
        for p in topic.partitions:
            yield TopicPartition(topic.name, p.partition_index), p.error_code, p


class OffsetsAdmin(AdminBase):
    """Calls that go to the leaders of partitions, one request for each leader."""

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, PartitionOffset]:
        """The first offset at or after each timestamp (ms), or of EARLIEST, LATEST, MAX_TIMESTAMP; offset -1: none."""
        from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

        def request(partitions: Collection[TopicPartition]) -> Request:
            topics = grouped(
                partitions,
                lambda tp: ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamps[tp]),
                lambda name, asked: ListOffsetsTopic(name=name, partitions=asked),
            )
            return ListOffsetsRequest(
                replica_id=-1, isolation_level=int(read_committed), topics=topics, timeout_ms=self._timeout_ms
            )

        found = self._by_leader(timestamps, request)
        return {tp: PartitionOffset(p.offset, p.timestamp, p.leader_epoch) for tp, p in found.items()}

    def watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """(earliest, end) offsets; the end is exclusive."""
        low = self.list_offsets(dict.fromkeys(partitions, EARLIEST))
        high = self.list_offsets(dict.fromkeys(partitions, LATEST))
        return {tp: (low[tp].offset, high[tp].offset) for tp in partitions}

    def offsets_for_leader_epoch(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """(epoch, end offset) of the largest epoch that is not above the asked one."""
        from barnabas.protocol.messages.offset_for_leader_epoch import (
            OffsetForLeaderEpochRequest,
            OffsetForLeaderPartition,
            OffsetForLeaderTopic,
        )

        def request(partitions: Collection[TopicPartition]) -> Request:
            topics = grouped(
                partitions,
                lambda tp: OffsetForLeaderPartition(partition=tp.partition, leader_epoch=epochs[tp]),
                lambda name, asked: OffsetForLeaderTopic(topic=name, partitions=asked),
            )
            return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)

        def answers(response: Any) -> Iterable[tuple[TopicPartition, int, Any]]:
            for topic in response.topics:
                for p in topic.partitions:
                    yield TopicPartition(topic.topic, p.partition), p.error_code, p

        found = self._by_leader(epochs, request, answers)
        return {tp: (p.leader_epoch, p.end_offset) for tp, p in found.items()}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Drop what lies before each offset (-1: all there is); the new first offsets. Raises OffsetOutOfRange."""
        from barnabas.protocol.messages.delete_records import (
            DeleteRecordsPartition,
            DeleteRecordsRequest,
            DeleteRecordsTopic,
        )

        def request(partitions: Collection[TopicPartition]) -> Request:
            topics = grouped(
                partitions,
                lambda tp: DeleteRecordsPartition(partition_index=tp.partition, offset=before[tp]),
                lambda name, asked: DeleteRecordsTopic(name=name, partitions=asked),
            )
            return DeleteRecordsRequest(topics=topics, timeout_ms=self._timeout_ms)

        found = self._by_leader(before, request)
        return {tp: p.low_watermark for tp, p in found.items()}

    def _by_leader(
        self,
        partitions: Collection[TopicPartition],
        request: Callable[[Collection[TopicPartition]], Request],
        answers: Callable[[Any], Iterable[tuple[TopicPartition, int, Any]]] = _answers,
    ) -> dict[TopicPartition, Any]:
        """Ask each partition's leader; what fails with a retriable error is asked again from the new leader."""
        done: dict[TopicPartition, Any] = {}

        def once(deadline: Deadline) -> None:
            groups: dict[int, list[TopicPartition]] = {}
            for tp in partitions:
                if tp not in done:
                    groups.setdefault(self.cluster.leader(*tp, deadline=deadline), []).append(tp)
            failed: KafkaError | None = None
            for node_id, asked in groups.items():
                for tp, code, answer in answers(self.cluster.call(request(asked), deadline=deadline, node_id=node_id)):
                    if not code:
                        done[tp] = answer
                        continue
                    error = error_for(code, f"{tp}: {error_for(code)}")
                    if not error.retriable:
                        raise error
                    failed = error
            if failed is not None:
                raise failed

        self._retrying(once, stale=[*{tp.topic for tp in partitions}])
        return done


def grouped(
    partitions: Iterable[TopicPartition],
    partition: Callable[[TopicPartition], P],
    topic: Callable[[str, list[P]], T],
) -> list[T]:
    """A request's topics, each made of its name and of what `partition` makes of its partitions."""
    return [
        topic(name, [partition(TopicPartition(name, index)) for index in indexes])
        for name, indexes in by_topic(partitions).items()
    ]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers under their topics, as most requests want them."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found
