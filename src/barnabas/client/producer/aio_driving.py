"""What the asyncio producer does for its core: waiting and turning."""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Any

from barnabas.client.producer.producer_batch import ProducerBatch, RecordHandle
from barnabas.connection.drivers.aio import AioDriver
from barnabas.connection.promise import Promise

__all__ = ["AioProducerFront"]


class AioProducerFront:
    """See the module, and `core.producer.core.Front`."""

    def __init__(self, driver: AioDriver, producer: object) -> None:
        self._driver = driver
        self.producer = producer
        """Lives as long as the loop works for it, whether the application still has it or not."""

    def now(self) -> float:
        return time.monotonic()

    def opened(self) -> None:
        self._driver.nudge()

    def turn(self) -> None:
        self._driver.run(_nothing)

    def send_slowly(
        self, topic: str, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any, on_delivery: Any
    ) -> RecordHandle:
        raise AssertionError("the intake's own send is the synchronous producer's")

    def wait_for_batch(self, batch: ProducerBatch, timeout: float | None) -> None:
        raise TypeError("this handle is of barnabas.aio.Producer: await it; its result() is there once it is done()")

    def await_batch(self, batch: ProducerBatch) -> Generator[Any, None, None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if batch.listeners is None:
            batch.listeners = []
        batch.listeners.append(lambda: _ring(future))
        yield from future

    def wait_for_promise(self, promise: Promise[Any], timeout: float | None) -> None:
        raise TypeError("this delivery is of barnabas.aio.Producer: await it; its result() is there once it is done()")

    def await_promise(self, promise: Promise[Any]) -> Generator[Any, None, None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        promise.on_done(lambda _: _ring(future))
        yield from future

    def call_when_settled(self, promise: Promise[Any], callback: Callable[[], None]) -> None:
        promise.on_done(lambda _: self._driver.client.completions.append(callback))
        self._nudge()

    def call_when_done(
        self, batch: ProducerBatch, handle: RecordHandle, callback: Callable[[RecordHandle], object]
    ) -> None:
        handle.when_done(callback, self._driver.client.completions)
        self._nudge()

    def _nudge(self) -> None:
        """For a callback that may be due already."""
        if not self._driver.closed:
            self._driver.nudge()


def _ring(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _nothing() -> None:
    """For a turn of the driver without anything else."""
