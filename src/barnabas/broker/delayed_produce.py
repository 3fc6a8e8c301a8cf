"""Waits until appended batches are committed, for acks=all, for end markers and for durability=fsync.

With acks=1 and durability=fsync a batch only has to be on the leader's disk.
"""

from collections.abc import Callable, Collection
from typing import Generic, NamedTuple, TypeVar

from barnabas.errors import KafkaError, NotEnoughReplicasAfterAppend, NotLeaderOrFollower, RequestTimedOut
from barnabas.replication.partition import Partition
from barnabas.types import Offset

__all__ = ["DelayedProduce", "Uncommitted"]

K = TypeVar("K")


class Uncommitted(NamedTuple, Generic[K]):
    """An appended batch with its last offset. `key` is the caller's name for it."""

    partition: Partition
    last_offset: Offset
    key: K


class DelayedProduce(Generic[K]):
    """A delayed operation that is complete when all of its batches are committed or have failed.

    A batch fails if its partition changes the leader or is deleted, if the disk fails, if too few replicas are in sync
    when it is committed, or if the timeout passes.
    `failed` is called for each failed batch, then `finished` once.
    """

    __slots__ = ("_epochs", "_failed", "_finished", "_required_acks", "_waiting")

    def __init__(
        self,
        waiting: list[Uncommitted[K]],
        failed: Callable[[K, KafkaError], None],
        finished: Callable[[], None],
        required_acks: int = -1,
    ) -> None:
        self._waiting = waiting
        self._epochs = {id(entry.partition): entry.partition.leader_epoch for entry in waiting}
        self._failed = failed
        self._finished = finished
        self._required_acks = required_acks

    @property
    def partitions(self) -> set[Partition]:
        """The partitions whose changes may complete the operation."""
        return {entry.partition for entry in self._waiting}

    def try_complete(self, changed: Collection[Partition]) -> bool:
        still = []
        for entry in self._waiting:
            partition = entry.partition
            if partition.leader_epoch != self._epochs[id(partition)] or not partition.is_leader:
                self._failed(entry.key, NotLeaderOrFollower("the leader changed before the commit"))
            elif self._is_acknowledged(entry):
                if self._required_acks == -1 and not partition.has_enough_replicas:
                    message = "committed, but too few replicas are in sync by now"
                    self._failed(entry.key, NotEnoughReplicasAfterAppend(message))
            elif partition.flush_error is not None:
                self._failed(entry.key, partition.flush_error)
            else:
                still.append(entry)
        self._waiting = still
        if still:
            return False
        self._finished()
        return True

    def _is_acknowledged(self, entry: Uncommitted[K]) -> bool:
        if self._required_acks == -1:
            return entry.partition.is_committed(entry.last_offset)
        return entry.partition.is_flushed(entry.last_offset)

    def expire(self) -> None:
        for entry in self._waiting:
            self._failed(entry.key, RequestTimedOut("not committed within the request's timeout"))
        self._finished()
