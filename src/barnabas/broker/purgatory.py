"""Holds delayed operations until a partition that they watch changes, or until their timeout passes.

Changes are gathered: an operation is tried once for all partitions that change in one turn of the event loop, after the
requests of that turn are handled.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from barnabas.network.connection import PendingReply
from barnabas.replication.partition import Partition

__all__ = ["DelayedOperation", "DelayedOperationPurgatory"]

_log = logging.getLogger("barnabas.broker")


class DelayedCompletion(Protocol):
    """The work of a delayed operation: Fetch, Produce and others implement it."""

    def try_complete(self, changed: Collection[Partition]) -> bool:
        """Completes the operation if possible and returns whether it did. Only the partitions in `changed` have changed
        since the last call."""

    def expire(self) -> None:
        """Completes the operation after its timeout with what there is."""


class DelayedOperation:
    """A delayed operation, which watches its partitions until it is completed, expired or cancelled.

    It is cancelled when the connection of its reply ends. If it raises, the connection is closed.
    """

    __slots__ = ("_changed", "_completion", "_loop", "_partitions", "_purgatory", "_reply", "_timer", "done")

    def __init__(
        self,
        purgatory: "DelayedOperationPurgatory",
        completion: DelayedCompletion,
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
        self._changed: dict[Partition, None] = {}
        self.done = False
        for partition in self._partitions:
            partition.watchers[self] = None
        self._timer = self._loop.call_later(timeout_s, self._on_timeout)
        purgatory.size += 1

    def partition_changed(self, partition: Partition) -> None:
        if self.done:
            return
        if not self._changed:
            self._loop.call_soon(self._try_complete)
        self._changed[partition] = None

    def _try_complete(self) -> None:
        changed, self._changed = self._changed, {}
        if not self.done and self._guarded(lambda: self._completion.try_complete(changed)):
            self.cancel()

    def _on_timeout(self) -> None:
        if not self.done:
            self.cancel()
            self._guarded(self._completion.expire)

    def _guarded(self, step: Callable[[], bool | None]) -> bool | None:
        try:
            return step()
        except Exception as error:
            # A bug of ours: the client must not wait for a response that never comes.
            _log.exception("a delayed request failed")
            if self._reply is not None:
                self._reply.fail(f"{type(error).__name__}: {error}")
            return True

    def cancel(self) -> None:
        """Ends the operation without a response."""
        if self.done:
            return
        self.done = True
        self._timer.cancel()
        for partition in self._partitions:
            partition.watchers.pop(self, None)
        self._purgatory.size -= 1


class DelayedOperationPurgatory:
    """Makes delayed operations and counts them. The connections' bound on pending replies bounds them."""

    __slots__ = ("loop", "size")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.size = 0

    def delay(
        self,
        completion: DelayedCompletion,
        reply: PendingReply | None,
        partitions: Iterable[Partition],
        timeout_s: float,
    ) -> DelayedOperation:
        """Delays the operation. `reply` is the place of its response, or None if no connection waits for it."""
        return DelayedOperation(self, completion, reply, partitions, timeout_s)
