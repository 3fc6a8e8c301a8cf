"""Waits until all live replicas have deleted the records that a DeleteRecords request names."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from barnabas.errors import NotLeaderOrFollower, RequestTimedOut
from barnabas.protocol.messages.delete_records import DeleteRecordsPartitionResult
from barnabas.replication.partition import Partition
from barnabas.types import Offset

__all__ = ["DelayedDeleteRecords", "Undeleted"]


class Undeleted(NamedTuple):
    """A partition whose leader has moved its log start to `offset` and waits for the followers to do the same."""

    partition: Partition
    offset: Offset
    result: DeleteRecordsPartitionResult


class DelayedDeleteRecords:
    """A delayed operation that is complete when the low watermark of each partition has reached its offset.

    A partition fails if it changes the leader or is deleted, or if the timeout passes. The leader's records are deleted
    even then. `finished` is called once, when all results are filled in.
    """

    __slots__ = ("_finished", "_waiting")

    def __init__(self, waiting: list[Undeleted], finished: Callable[[], None]) -> None:
        self._waiting = waiting
        self._finished = finished

    @property
    def partitions(self) -> set[Partition]:
        """The partitions whose changes may complete the operation."""
        return {entry.partition for entry in self._waiting}

    def try_complete(self, changed: Collection[Partition]) -> bool:
        still = []
        for entry in self._waiting:
            if not entry.partition.is_leader:
                entry.result.error_code = NotLeaderOrFollower.code
            elif (low_watermark := entry.partition.low_watermark()) >= entry.offset:
                entry.result.low_watermark = low_watermark
            else:
                still.append(entry)
        self._waiting = still
        if still:
            return False
        self._finished()
        return True

    def expire(self) -> None:
        for entry in self._waiting:
            entry.result.error_code = RequestTimedOut.code
        self._finished()
