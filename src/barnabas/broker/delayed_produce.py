"""Waiting until appended batches are committed: what acks=all, an end marker and durability=fsync have in common."""

from collections.abc import Callable, Collection
from typing import Generic, NamedTuple, TypeVar

from barnabas.errors import KafkaError, NotLeaderOrFollower, RequestTimedOut
from barnabas.replication.partition import Partition

__all__ = ["DelayedProduce", "Uncommitted"]

K = TypeVar("K")


class Uncommitted(NamedTuple, Generic[K]):
    """A batch that was appended: `end_offset` is the one behind it, `key` the caller's name for it."""

    partition: Partition
    end_offset: int
    key: K


class DelayedProduce(Generic[K]):
    """Ends when

    A. all batches are committed, B. a partition is led elsewhere or gone, or its disk fails (that batch fails), C. the
    timeout comes (those open fail).

    `failed` is told of each batch that did not make it, then `finished` is called, once. The purgatory drives it.
    """

    __slots__ = ("_epochs", "_failed", "_finished", "_waiting")

    def __init__(
        self,
        waiting: list[Uncommitted[K]],
        failed: Callable[[K, KafkaError], None],
        finished: Callable[[], None],
    ) -> None:
        self._waiting = waiting
        self._epochs = {id(entry.partition): entry.partition.leader_epoch for entry in waiting}
        self._failed = failed
        self._finished = finished

    @property
    def partitions(self) -> set[Partition]:
        """Whose changes end the wait."""
        return {entry.partition for entry in self._waiting}

    def try_complete(self, changed: Collection[Partition]) -> bool:
        still = []
        for entry in self._waiting:
            partition = entry.partition
            if partition.leader_epoch != self._epochs[id(partition)] or not partition.is_leader:
                self._failed(entry.key, NotLeaderOrFollower("the leader changed before the commit"))
            elif partition.is_committed(entry.end_offset):
                continue
            elif partition.flush_error is not None:
                self._failed(entry.key, partition.flush_error)
            else:
                still.append(entry)
        self._waiting = still
        if still:
            return False
        self._finished()
        return True

    def expire(self) -> None:
        for entry in self._waiting:
            self._failed(entry.key, RequestTimedOut("not committed within the request's timeout"))
        self._finished()
