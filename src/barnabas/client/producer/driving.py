"""What the synchronous producer does for its core: waiting and turning."""

import time
from collections.abc import Callable
from typing import Any

from barnabas.client.producer.producer_batch import ProducerBatch, RecordHandle
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.promise import Promise
from barnabas.errors import OperationTimedOut

__all__ = ["ProducerFront"]


class ProducerFront:
    """See the module, and `core.producer.core.Front`."""

    accumulator: RecordAccumulator
    """The core's, which is made with this."""

    def __init__(self, driver: SyncDriver, send_slowly: Callable[..., RecordHandle], *, lingers: bool) -> None:
        self.send_slowly = send_slowly
        self.now: Callable[[], float] = time.monotonic
        self.turn: Callable[[], None] = driver.turn
        self._driver = driver
        self._lingers = lingers

    def opened(self) -> None:
        if self._lingers:  # else whoever sends turns the network client right away
            self._driver.nudge()

    def wait_for_batch(self, batch: ProducerBatch, timeout: float | None) -> None:
        accumulator = self.accumulator
        done = lambda: batch.done or batch.parts is not None  # noqa: E731
        has_turned = batch.in_flight and accumulator.has_taken_all and not self._driver.owes_turn
        if not self._driver.wait(done, timeout, may_leave=lambda: not accumulator.waiting, has_turned=has_turned):
            raise OperationTimedOut(f"the record was not acknowledged within {timeout:g} s")

    def await_batch(self, batch: ProducerBatch) -> Any:
        raise TypeError("this handle is of barnabas.Producer: use result(); barnabas.aio.Producer's can be awaited")

    def call_when_done(
        self, batch: ProducerBatch, handle: RecordHandle, callback: Callable[[RecordHandle], object]
    ) -> None:
        with self._driver.lock:
            handle.when_done(callback, self._driver.client.completions)
        self._driver.turn()

    def wait_for_promise(self, promise: Promise[Any], timeout: float | None) -> None:
        if not self._driver.wait(lambda: promise.done, timeout):
            raise OperationTimedOut(f"not all records were acknowledged within {timeout:g} s")

    def await_promise(self, promise: Promise[Any]) -> Any:
        raise TypeError("this delivery is of barnabas.Producer: use result(); barnabas.aio.Producer's can be awaited")

    def call_when_settled(self, promise: Promise[Any], callback: Callable[[], None]) -> None:
        with self._driver.lock:
            promise.on_done(lambda _: self._driver.client.completions.append(callback))
        self._driver.turn()
