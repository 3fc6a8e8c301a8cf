"""Holds the requests for a partition that is being loaded, and serves them afterwards in the order of arrival.

Kafka answers such requests with COORDINATOR_LOAD_IN_PROGRESS, but not every client retries: KafkaJS gives up its
commit, and with it the transaction. Here only requests that would wait too long, or that are too many, get the error.

The request of a client that has disconnected is served, too, as in Kafka's request queue: it was sent, and a client
that retries finds its second request after its first one.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from barnabas.coordinator.timers import Scheduler, TimerHandle
from barnabas.errors import KafkaError, as_kafka_error
from barnabas.out_of_memory import end_if_out_of_memory

__all__ = ["LoadWaiters"]

LOAD_WAIT_MAX_S: Final = 5.0
"""Less than the request timeout of any client."""
LOAD_WAITERS_MAX: Final = 1_000
"""The bound on the requests for one partition, which are all served in one turn of the event loop. The broker's own
work may be as much again."""

ReplyCallback = Callable[[Any], None]


class _Waiter:
    """A waiting request. Only its first reply counts."""

    __slots__ = ("handle", "reply", "serve")

    def __init__(self, serve: Callable[[ReplyCallback], None], reply: ReplyCallback) -> None:
        self.serve = serve
        self.reply: ReplyCallback | None = reply
        self.handle: TimerHandle | None = None

    def answer(self, response: Any) -> None:
        reply, self.reply = self.reply, None
        if reply is not None:
            reply(response)


class LoadWaiters:
    """The requests that wait for one partition to be loaded."""

    __slots__ = ("_scheduler", "_waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[_Waiter] = deque()

    def add(
        self,
        serve: Callable[[ReplyCallback], None],
        reply: ReplyCallback,
        refusal: KafkaError,
        *,
        is_own: bool = False,
    ) -> None:
        """Calls `serve` with a reply callback when the partition is loaded.

        `reply` gets `refusal` if that takes too long, or at once if too many requests wait. The broker's own work has
        no client that would try again: it keeps its place however long the load takes, and requests leave room for it.
        """
        if len(self._waiting) >= (2 * LOAD_WAITERS_MAX if is_own else LOAD_WAITERS_MAX):
            reply(refusal)
            return
        waiter = _Waiter(serve, reply)
        if not is_own:
            waiter.handle = self._scheduler.call_later(LOAD_WAIT_MAX_S, lambda: self._refuse(waiter, refusal))
        self._waiting.append(waiter)

    def _refuse(self, waiter: _Waiter, refusal: KafkaError) -> None:
        self._waiting.remove(waiter)
        waiter.answer(refusal)

    def serve(self, logger: logging.Logger) -> None:
        """Serves all waiting requests, because the partition is loaded."""
        for waiter in self._take_all():
            try:
                waiter.serve(waiter.answer)
            except Exception as error:
                end_if_out_of_memory(error)
                # A bug of ours: the other requests must be served, and its client must not wait for ever.
                logger.exception("a request that waited for its partition to be read failed")
                waiter.answer(as_kafka_error(error))

    def fail(self, error: KafkaError, *, keeps_own_work: bool = False) -> None:
        """Fails all waiting requests, because the partition will not be loaded here. The broker's own work may go on
        waiting, where it is loaded later."""
        for waiter in self._take_all():
            if keeps_own_work and waiter.handle is None:
                self._waiting.append(waiter)
            else:
                waiter.answer(error)

    def _take_all(self) -> "deque[_Waiter]":
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if waiter.handle is not None:
                waiter.handle.cancel()
        return waiting
