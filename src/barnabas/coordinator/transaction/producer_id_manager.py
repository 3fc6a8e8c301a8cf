"""Hands out producer ids from blocks that the controller allocates.

Source: KIP-730.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from barnabas.errors import CoordinatorLoadInProgress, KafkaError
from barnabas.out_of_memory import end_if_out_of_memory
from barnabas.types import ProducerId

__all__ = ["ProducerIdManager"]

PREFETCH_BELOW: Final = 100
"""The number of ids left at which the next block is requested, so that no producer waits for it."""


class ProducerIdManager:
    """The producer ids of one broker. Used on the event loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        allocate: Callable[[], Coroutine[Any, Any, range]],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`allocate` returns ids that were never used before, or raises KafkaError. `start` runs a coroutine up
        to its first wait, and the event loop runs the rest."""
        self._loop = loop
        self._allocate = allocate
        self._start = start
        self._ids = range(0)
        self._next_ids = range(0)
        self._allocation: asyncio.Future[Exception | None] | None = None
        """The request for a block that is under way; its result is the error."""

    @property
    def is_empty(self) -> bool:
        """Whether the next call of `next` fails."""
        return not self._ids and not self._next_ids

    async def wait(self) -> None:
        """Waits for a block of ids. Raises the controller's KafkaError."""
        allocation = self._allocation
        if allocation is not None:
            error = await allocation
        else:
            allocation = self._allocation = self._loop.create_future()
            error = None
            try:
                self._next_ids = await self._allocate()
            except Exception as failure:
                end_if_out_of_memory(failure)
                error = failure
            self._allocation = None
            allocation.set_result(error)
        if error is not None:
            raise error

    def next(self) -> ProducerId:
        """Returns a producer id that was never used before. Raises CoordinatorLoadInProgress if there is none now:
        clients ask again."""
        if not self._ids:
            self._ids, self._next_ids = self._next_ids, self._ids
        if len(self._ids) <= PREFETCH_BELOW and not self._next_ids and self._allocation is None:
            self._start(self._prefetch())
        if not self._ids:
            self._ids, self._next_ids = self._next_ids, self._ids  # the block may have come at once
        if not self._ids:
            raise CoordinatorLoadInProgress("the controller has not allocated producer ids yet")
        producer_id, self._ids = self._ids[0], self._ids[1:]
        return ProducerId(producer_id)

    async def _prefetch(self) -> None:
        with contextlib.suppress(KafkaError):  # a later call tries again
            await self.wait()
