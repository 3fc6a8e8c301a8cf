"""Requests for a partition that is being read: they wait for the end of it and are then served, in order of arrival.

Kafka answers them with COORDINATOR_LOAD_IN_PROGRESS. Not every client tries again upon that: KafkaJS gives up its
commit, and with it the transaction. Here only those get the error that would wait too long, or in too large a crowd.

Who has hung up is served all the same, as Kafka serves what stands in its request queue: the request was sent, an
answer can get lost at any time, and a client that tries again finds its second request behind its first.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from barnabas.coordinator.timers import Scheduler, TimerHandle
from barnabas.errors import KafkaError, as_kafka_error

__all__ = ["LoadWaiters"]

LOAD_WAIT_MAX_S: Final = 5.0
"""Less than any client gives a request; whoever tries again after that has a place further back."""
LOAD_WAITERS_MAX: Final = 1_000
"""Requests that wait for one partition: they are all served in one turn of the loop."""

Answer = Callable[[Any], None]


class _Waiter:
    """A request; only its first answer counts."""

    __slots__ = ("handle", "reply", "serve")

    def __init__(self, serve: Callable[[Answer], None], reply: Answer) -> None:
        self.serve = serve
        self.reply: Answer | None = reply
        self.handle: TimerHandle | None = None

    def answer(self, response: Any) -> None:
        reply, self.reply = self.reply, None
        if reply is not None:
            reply(response)


class LoadWaiters:
    """Those of one partition."""

    __slots__ = ("_scheduler", "_waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[_Waiter] = deque()

    def add(self, serve: Callable[[Answer], None], reply: Answer, refusal: KafkaError) -> None:
        """`serve` is called with the way to answer when the partition is loaded; `reply` gets the refusal if that takes
        too long, or at once if too many wait."""
        if len(self._waiting) >= LOAD_WAITERS_MAX:
            reply(refusal)
            return
        waiter = _Waiter(serve, reply)
        waiter.handle = self._scheduler.call_later(LOAD_WAIT_MAX_S, lambda: self._give_up(waiter, refusal))
        self._waiting.append(waiter)

    def _give_up(self, waiter: _Waiter, refusal: KafkaError) -> None:
        self._waiting.remove(waiter)
        waiter.answer(refusal)

    def serve(self, logger: logging.Logger) -> None:
        """The partition is loaded."""
        for waiter in self._taken():
            try:
                waiter.serve(waiter.answer)
            except Exception as error:
                # A bug of ours: it must not be the end of those behind, and its client not wait for ever.
                logger.exception("a request that waited for its partition to be read failed")
                waiter.answer(as_kafka_error(error))

    def fail(self, error: KafkaError) -> None:
        """The partition will not be loaded here."""
        for waiter in self._taken():
            waiter.answer(error)

    def _taken(self) -> "deque[_Waiter]":
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            assert waiter.handle is not None
            waiter.handle.cancel()
        return waiting
