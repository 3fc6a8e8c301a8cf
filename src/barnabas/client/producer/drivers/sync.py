"""The driver of the synchronous producer, which waits in the calling thread."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.client.producer.kafka_producer import KafkaProducer
from barnabas.client.producer.producer_batch import ProducerBatch, RecordHandle
from barnabas.client.settings import ProducerSettings
from barnabas.connection.drivers.signals import HELD
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.promise import Promise
from barnabas.errors import OperationTimedOut

__all__ = ["SyncProducerDriver"]

T = TypeVar("T")


class SyncProducerDriver:
    """Drives a producer by a SyncDriver."""

    def __init__(
        self,
        driver: SyncDriver,
        settings: ProducerSettings,
        send_slowly: Callable[..., RecordHandle],
        check_reentry: Callable[[], None],
    ) -> None:
        """Takes a function `check_reentry`, which raises UsageError if the calling thread would wait for itself."""
        self.send_slowly = send_slowly
        self.now: Callable[[], float] = time.monotonic
        self.turn: Callable[[], None] = driver.turn
        self.lock = driver.lock
        self.through = HELD.through
        self._check_reentry = check_reentry
        self._driver = driver
        self._lingers = settings.linger_ms > 0
        self.producer = KafkaProducer(driver.client, settings, self, driver.lock)

    def batch_opened(self) -> None:
        if self._lingers:  # otherwise `send` itself makes a turn
            self._driver.deadline_added()

    # --- handles ----------------------------------------------------------------------------------------------------

    def wait_for_batch(self, batch: ProducerBatch, timeout: float | None) -> None:
        accumulator = self.producer.accumulator
        done = lambda: batch.done or batch.parts is not None  # noqa: E731
        has_turned = batch.in_flight and accumulator.has_queued_all and not self._driver.background_turn_due
        if not self._driver.wait(done, timeout, may_leave=lambda: not accumulator.queued, has_turned=has_turned):
            raise OperationTimedOut(f"the record was not acknowledged within {timeout:g} s")

    def wait_for_promise(self, promise: Promise[Any], timeout: float | None) -> None:
        if not self._driver.wait(lambda: promise.done, timeout):
            raise OperationTimedOut(f"not all records were acknowledged within {timeout:g} s")

    def await_call(self, add_listener: Callable[[Callable[[], None]], None]) -> Any:
        raise TypeError("what barnabas.Producer returns cannot be awaited: use result(), or barnabas.aio.Producer")

    def add_callback(self, add: Callable[[Callable[[Callable[[], None]], None]], None]) -> None:
        with self.lock:
            add(self._driver.client.completions.append)
        self._driver.turn()

    # --- calls ------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._driver.closed

    def run(self, action: Callable[[], T]) -> T:
        self._check_reentry()
        return self._driver.run(action)

    async def wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        return self._driver.wait(done, timeout_s)

    async def pause(self) -> None: ...

    def close(self) -> None:
        self._driver.close()
