"""The driver of the producer for asyncio, which waits on the event loop."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator
from typing import Any

from librt.threading import Lock

from barnabas.client.producer.kafka_producer import KafkaProducer
from barnabas.client.producer.producer_batch import ProducerBatch, RecordHandle
from barnabas.client.settings import ProducerSettings
from barnabas.connection.drivers.aio import AioDriver
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise

__all__ = ["AioProducerDriver"]


class AioProducerDriver:
    """Drives the producer of an event loop, and waits on the loop."""

    def __init__(self, driver: AioDriver, client: NetworkClient, settings: ProducerSettings, front: object) -> None:
        self.now: Callable[[], float] = time.monotonic
        self.batch_opened: Callable[[], None] = driver.turn_soon
        self.run = driver.run
        self.wait = driver.wait
        self.close = driver.close
        self.through: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        self.lock: contextlib.AbstractContextManager[None] = self.through
        self._driver = driver
        self._front = front
        """The front, kept alive as long as the loop works for it, even if the application has dropped it."""
        self.producer = KafkaProducer(client, settings, self, Lock())

    @property
    def closed(self) -> bool:
        return self._driver.closed

    def turn(self) -> None:
        self._driver.run(_nothing)

    async def pause(self) -> None:
        await asyncio.sleep(0)  # a task that sends all the time must let responses come in

    # --- handles ----------------------------------------------------------------------------------------------------

    def send_slowly(self, *record: Any) -> RecordHandle:
        raise AssertionError("the appender's own send is the synchronous producer's")

    def wait_for_batch(self, batch: ProducerBatch, timeout: float | None) -> None:
        raise TypeError("this handle is of barnabas.aio.Producer: await it; its result() is there once it is done()")

    def wait_for_promise(self, promise: Promise[Any], timeout: float | None) -> None:
        raise TypeError("this delivery is of barnabas.aio.Producer: await it; its result() is there once it is done()")

    def await_call(self, add_listener: Callable[[Callable[[], None]], None]) -> Generator[Any, None, None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        add_listener(lambda: None if future.done() else future.set_result(None))
        yield from future

    def add_callback(self, add: Callable[[Callable[[Callable[[], None]], None]], None]) -> None:
        add(self._driver.client.completions.append)
        if not self._driver.closed:
            self._driver.turn_soon()  # the callback may be due now


def _nothing() -> None:
    """Does nothing, for a turn of the driver without an action."""
