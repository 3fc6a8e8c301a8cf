"""Where operations wait: each for one of the partitions that it watches to change, or for its deadline.

Wake-ups are gathered: an operation that several partitions touch in one turn of the loop looks once, after the requests
of that turn are answered.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from barnabas.network.connection import PendingReply
from barnabas.replication.partition import Partition

__all__ = ["DelayedOperation", "DelayedOperationPurgatory"]

_log = logging.getLogger("barnabas.broker")


class Completion(Protocol):
    """What is asked of a parked operation."""

    def try_complete(self, changed: Collection[Partition]) -> bool:
        """Answer if what was waited for is there; True when answered. Only these partitions changed since the last
        look."""

    def expire(self) -> None:
        """The deadline has come: answer with what there is."""


class DelayedOperation:
    """A parked operation, registered with its partitions until it is answered, expired or cancelled.

    It is cancelled when the connection ends that waits for its reply. If it raises, the connection is ended.
    """

    __slots__ = ("_changed", "_completion", "_loop", "_partitions", "_purgatory", "_reply", "_timer", "done")

    def __init__(
        self,
        purgatory: "DelayedOperationPurgatory",
        completion: Completion,
        reply: PendingReply | None,
        partitions: Iterable[Partition],
        timeout_s: float,
    ) -> None:
        self._purgatory = purgatory
        self._reply = reply
        if reply is not None:
            reply.on_abandoned = self.cancel
        self._loop = purgatory.loop
        self._completion = completion
        self._partitions = tuple(partitions)
        self._changed: set[Partition] = set()
        self.done = False
        for partition in self._partitions:
            partition.watchers.add(self)
        self._timer = self._loop.call_later(timeout_s, self._expired)
        purgatory.size += 1

    def partition_changed(self, partition: Partition) -> None:
        if self.done:
            return
        if not self._changed:
            self._loop.call_soon(self._look)
        self._changed.add(partition)

    def _look(self) -> None:
        changed, self._changed = self._changed, set()
        if not self.done and self._guarded(lambda: self._completion.try_complete(changed)):
            self.cancel()

    def _expired(self) -> None:
        if not self.done:
            self.cancel()
            self._guarded(self._completion.expire)

    def _guarded(self, step: Callable[[], bool | None]) -> bool | None:
        try:
            return step()
        except Exception as error:
            # A bug of ours: the client must not wait for an answer that will never come.
            _log.exception("a parked request failed")
            if self._reply is not None:
                self._reply.fail(f"{type(error).__name__}: {error}")
            return True

    def cancel(self) -> None:
        """Forget the operation without an answer."""
        if self.done:
            return
        self.done = True
        self._timer.cancel()
        for partition in self._partitions:
            partition.watchers.discard(self)
        self._purgatory.size -= 1


class DelayedOperationPurgatory:
    """Counts what is parked; the bound is the connections' bound on pending replies."""

    __slots__ = ("loop", "size")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.size = 0

    def park(
        self, completion: Completion, reply: PendingReply | None, partitions: Iterable[Partition], timeout_s: float
    ) -> DelayedOperation:
        """`reply` is the place of the answer, if it goes to a connection."""
        return DelayedOperation(self, completion, reply, partitions, timeout_s)
