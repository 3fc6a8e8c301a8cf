"""Holds delayed operations until a partition that they watch changes, or until their timeout passes.

Changes are gathered: an operation is tried once for all partitions that change in one turn of the event loop, after the
requests of that turn are handled.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final, Protocol

from barnabas.network.after_requests import AfterRequests
from barnabas.network.connection import PendingReply
from barnabas.out_of_memory import end_if_out_of_memory
from barnabas.replication.partition import Partition

__all__ = ["DelayedOperation", "DelayedOperationPurgatory"]

_log = logging.getLogger("barnabas.broker")

_IDLE_TIMERS_MAX: Final = 64
"""The number of timers that go on without operations."""


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

    __slots__ = ("_changed", "_completion", "_partitions", "_purgatory", "_reply", "done", "timeout_s")

    def __init__(
        self,
        purgatory: "DelayedOperationPurgatory",
        completion: DelayedCompletion,
        reply: PendingReply | None,
        partitions: Collection[Partition],
        timeout_s: float,
    ) -> None:
        self._purgatory = purgatory
        self._reply = reply
        if reply is not None:
            reply.on_abandoned = self.cancel
        self._completion: DelayedCompletion | None = completion
        """None once the operation is done. A completion may know its operation, and a cycle of the two would live until
        a garbage collection, which stops the event loop for tens of milliseconds when there are many."""
        self._partitions = partitions
        self._changed: dict[Partition, None] = {}
        self.timeout_s = timeout_s
        self.done = False
        for partition in partitions:
            partition.watchers[self] = None

    def partition_changed(self, partition: Partition) -> None:
        if self.done:
            return
        if not self._changed:
            self._purgatory.try_soon(self)
        self._changed[partition] = None

    def try_complete(self) -> None:
        """Completes the operation if the changes since the last call allow it."""
        completion = self._completion
        if completion is None:
            return
        changed, self._changed = self._changed, {}
        try:
            is_complete = completion.try_complete(changed)
        except Exception as error:
            self._fail(error)
            is_complete = True
        if is_complete:
            self.cancel()

    def expire(self) -> None:
        """Completes the operation with what there is, because its time is over."""
        completion = self._completion
        assert completion is not None, "an operation that is done does not expire"
        self.cancel()
        try:
            completion.expire()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        end_if_out_of_memory(error)
        # A bug of ours: the client must not wait for a response that never comes.
        _log.error("a delayed request failed", exc_info=error)
        if self._reply is not None:
            self._reply.fail(f"{type(error).__name__}: {error}")

    def cancel(self) -> None:
        """Ends the operation without a response."""
        if self.done:
            return
        self.done = True
        self._completion = None
        for partition in self._partitions:
            partition.watchers.pop(self, None)
        self._purgatory.remove(self)


class _Deadlines:
    """The operations with one timeout, in the order of their deadlines, and the timer of the first."""

    __slots__ = ("by_operation", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.by_operation: dict[DelayedOperation, float] = {}
        self.timer = timer


class DelayedOperationPurgatory:
    """Makes delayed operations and counts them. The connections' bound on pending replies bounds them.

    Most operations have one of a few timeouts, and are complete long before. So those with the same timeout share a
    timer, which goes on when they are gone.
    """

    __slots__ = ("_after_requests", "_changed", "_deadlines", "_sweep_at", "loop", "size")

    def __init__(self, loop: asyncio.AbstractEventLoop, after_requests: AfterRequests | None = None) -> None:
        self.loop = loop
        self._after_requests = after_requests or AfterRequests(loop)
        self.size = 0
        self._changed: list[DelayedOperation] = []
        """The operations that are tried after the requests of this turn of the loop."""
        self._deadlines: dict[float, _Deadlines] = {}
        """The operations by their timeout in seconds."""
        self._sweep_at = _IDLE_TIMERS_MAX

    def delay(
        self,
        completion: DelayedCompletion,
        reply: PendingReply | None,
        partitions: Collection[Partition],
        timeout_s: float,
    ) -> DelayedOperation:
        """Delays the operation. `reply` is the place of its response, or None if no connection waits for it."""
        operation = DelayedOperation(self, completion, reply, partitions, timeout_s)
        deadlines = self._deadlines.get(timeout_s)
        if deadlines is None:
            if len(self._deadlines) >= self._sweep_at:
                self._sweep()
            timer = self.loop.call_later(timeout_s, self._expire, timeout_s)
            deadlines = self._deadlines[timeout_s] = _Deadlines(timer)
        deadlines.by_operation[operation] = self.loop.time() + timeout_s
        self.size += 1
        return operation

    def remove(self, operation: DelayedOperation) -> None:
        """Called by an operation that is done."""
        del self._deadlines[operation.timeout_s].by_operation[operation]
        self.size -= 1

    def try_soon(self, operation: DelayedOperation) -> None:
        """Tries an operation after the requests of this turn of the loop."""
        if not self._changed:
            self._after_requests.add(self._try_changed)
        self._changed.append(operation)

    def _try_changed(self) -> None:
        changed, self._changed = self._changed, []
        for operation in changed:
            operation.try_complete()

    def _expire(self, timeout_s: float) -> None:
        """Expires the operations with this timeout whose time is over, and waits for the next one."""
        deadlines = self._deadlines[timeout_s]
        waiting, now = deadlines.by_operation, self.loop.time()
        while waiting:
            operation, deadline = next(iter(waiting.items()))
            if deadline > now:
                deadlines.timer = self.loop.call_at(deadline, self._expire, timeout_s)
                return
            operation.expire()
        del self._deadlines[timeout_s]

    def _sweep(self) -> None:
        """Cancels the timers without operations: a client may ask for any number of timeouts."""
        for timeout_s, deadlines in list(self._deadlines.items()):
            if not deadlines.by_operation:
                deadlines.timer.cancel()
                del self._deadlines[timeout_s]
        self._sweep_at = 2 * len(self._deadlines) + _IDLE_TIMERS_MAX
