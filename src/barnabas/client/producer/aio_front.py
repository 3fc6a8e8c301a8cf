"""The asyncio producer, `barnabas.aio.Producer`."""

import asyncio
import contextlib
import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from barnabas.client.arguments import seconds_or_none
from barnabas.client.producer.bulk.rows import HeadersArgument
from barnabas.client.producer.calls import ProducerBase, ProducerCalls
from barnabas.client.producer.drivers.aio import AioProducerDriver
from barnabas.client.producer.producer_batch import OnDelivery, ProducerBatch, RecordHandle
from barnabas.client.producer.unclosed import close_at_exit, warn_of_lost
from barnabas.client.settings.network import network_client_settings
from barnabas.connection.drivers.aio import AioDriver
from barnabas.connection.network_client import NetworkClient
from barnabas.errors import BarnabasError, ClientClosed, TransactionFailed

if TYPE_CHECKING:
    from barnabas.client.settings.keywords import ProducerKeywords

__all__ = ["Producer"]

P = ParamSpec("P")
T = TypeVar("T")

_producers: "weakref.WeakSet[Producer]" = weakref.WeakSet()


def _awaited(
    call: Callable[Concatenate[ProducerCalls, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Producer", P], Coroutine[Any, Any, T]]:
    """Makes a method of a call. The method is to be awaited."""

    @wraps(call)
    async def method(self: "Producer", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await call(self._opened(), *args, **kwargs)

    return method


class Producer(ProducerBase):
    """Sends records to topics, from an event loop.

        async with barnabas.aio.Producer(bootstrap_servers="localhost:9092") as producer:
            await producer.send("orders", b"value", key=b"key")

    Settings and names are those of `barnabas.Producer`; methods that may wait are to be awaited.
    `await producer.send(...)` ends when the record is in the buffer, and returns its handle, a future of the record's
    metadata that may be awaited in turn or dropped: `metadata = await (await producer.send(...))`. A cancelled send may
    have appended its record; cancelling the wait for a handle has no effect on the record. A cancelled `send_many` or
    `send_table` leaves out the records that were not appended yet. A cancelled transactional call goes on, and the same
    call waits for its end.

    Close the producer before its loop ends: afterwards no record can be sent, and a warning with the number of records
    that are lost is logged. After a fork the child has a producer of its own, for its own loop, without the records
    that the parent has not sent yet.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **named: "Unpack[ProducerKeywords]") -> None:
        """Checks the settings. Raises UsageError for a setting that does not exist or does not fit. The producer
        belongs to the event loop of its first call, and connects then."""
        super().__init__(settings, named)
        self._driver: AioDriver | None = None
        self._calls: ProducerCalls
        self._closed = False
        _producers.add(self)

    def _opened(self) -> ProducerCalls:
        if self._driver is None:
            if self._closed:
                raise ClientClosed("the producer is closed")
            client = NetworkClient(network_client_settings(self.settings), time.monotonic())
            self._driver = AioDriver(client, ssl_context=self._tls, name="producer")
            self._calls = ProducerCalls(AioProducerDriver(self._driver, client, self.settings, self))
            self._appender = self._calls.producer.appender
            close_at_exit(self)
        return self._calls

    def _left_behind(self) -> None:
        """Drops loop, connections and records in a forked child: they belong to the parent."""
        if self._driver is not None:
            self._calls.producer.accumulator.abandon()
            self._driver.closed = True  # so that callbacks of the parent's records cause no turn
            self._driver = None

    # --- records ----------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: HeadersArgument | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordHandle:
        """Adds a record to a batch, which is sent when it is full or `linger.ms` old.

        Waits like `send` of `barnabas.Producer`, for `max.block.ms` at most, while the topic is unknown or the buffer
        is full, and raises the same errors. `on_delivery` is called on the loop.
        """
        if self._driver is None:
            self._opened()
        appender = self._appender
        if not appender.has_plugins:
            handle = appender.append(topic, value, key, partition, timestamp, headers, on_delivery)
            if handle is not None:
                if appender.turn_due:
                    self._calls.turn()
                    await asyncio.sleep(0)  # a task that sends all the time must let responses come in
                return handle
        return await self._calls.send(topic, value, key, partition, timestamp, headers, on_delivery)

    send_many = _awaited(ProducerCalls.send_many)
    send_table = _awaited(ProducerCalls.send_table)
    flush = _awaited(ProducerCalls.flush)
    partitions_for = _awaited(ProducerCalls.partitions_for)

    # --- transactions -----------------------------------------------------------------------------------------------

    init_transactions = _awaited(ProducerCalls.init_transactions)
    send_offsets_to_transaction = _awaited(ProducerCalls.send_offsets_to_transaction)
    commit_transaction = _awaited(ProducerCalls.commit_transaction)
    abort_transaction = _awaited(ProducerCalls.abort_transaction)
    prepare_transaction = _awaited(ProducerCalls.prepare_transaction)
    release_transaction = _awaited(ProducerCalls.release_transaction)
    complete_transaction = _awaited(ProducerCalls.complete_transaction)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begins a transaction for an `async with` block, commits it at the end, and aborts it on an exception."""
        self.begin_transaction()
        try:
            yield
        except BaseException as error:
            await self._abort_after(error)
            raise
        try:
            await self.commit_transaction()
        except TransactionFailed as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Aborts the transaction after an exception of its block. The next call raises an error of the abort. A
        cancelled task does not wait for the broker."""
        with contextlib.suppress(BarnabasError):
            await self.abort_transaction(None if isinstance(error, Exception) else 0)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None) -> None:
        """Flushes for `timeout` seconds at most (None: without a limit; a cancellation ends it), then closes the
        producer. Records that are not acknowledged fail with ClientClosed. An open transaction is aborted if there is
        time; a prepared one stays. A second call does nothing."""
        seconds_or_none("timeout", timeout)
        try:
            if not self._closed and self._driver is not None and not self._driver.closed:
                await self._calls.close(timeout)
        finally:
            self._closed = True

    def _close_at_exit(self, timeout_s: float) -> None:
        """Closes the producer if its loop still runs, in a daemon thread. Without the loop no record can be sent."""
        driver = self._driver
        if driver is None or driver.closed:
            return
        batches = list(self._calls.producer.accumulator.all_batches())
        if driver.loop.is_running():
            ending = asyncio.run_coroutine_threadsafe(self.close(timeout_s), driver.loop)
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                ending.result(timeout_s)
        self._warn_of_lost(batches)

    def __del__(self) -> None:
        """Warns of lost records. The loop, which keeps the driver and with it the producer alive, has ended."""
        driver: AioDriver | None = getattr(self, "_driver", None)
        if driver is not None and not driver.closed:
            self._warn_of_lost(self._calls.producer.accumulator.all_batches())

    def _warn_of_lost(self, batches: Iterable[ProducerBatch]) -> None:
        self._closed, self._driver = True, None
        warn_of_lost(
            batches,
            self._calls.producer.client,
            "when the event loop ended",
            "close the producer, or use it as a context manager: async with barnabas.aio.Producer(...) as producer",
        )

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Flushes and closes. Does not flush if a cancellation or Ctrl-C ends the block."""
        await self.close(0 if kind is not None and not issubclass(kind, Exception) else None)


def _after_fork_in_child() -> None:
    for producer in list(_producers):
        producer._left_behind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
