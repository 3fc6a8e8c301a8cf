"""The asyncio producer, `barnabas.aio.Producer`."""

import asyncio
import contextlib
import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from librt.threading import Lock

from barnabas.client.arguments import seconds_or_none
from barnabas.client.offset_messages import GroupMetadata, OffsetsOfPartitions
from barnabas.client.producer.aio_driving import AioProducerFront
from barnabas.client.producer.bulk.delivery import Delivery
from barnabas.client.producer.bulk.send import AHEAD, BulkSend, bulk_of_lists, bulk_of_table
from barnabas.client.producer.front_base import (
    OnDelivery,
    ProducerBase,
    all_done,
    nothing,
    offsets_sending,
)
from barnabas.client.producer.interceptors import ProducerRecord
from barnabas.client.producer.producer_batch import ProducerBatch, RecordHandle
from barnabas.client.producer.producer_core import Headers, ProducerCore
from barnabas.client.producer.record_appender import CLOSED, NO_PARTITION, NO_ROOM, NO_TOPIC
from barnabas.client.producer.transactions.requests import PreparedTransaction
from barnabas.client.producer.transactions.transaction_manager import TransactionManager
from barnabas.client.producer.unclosed import close_at_exit, warn_of_lost
from barnabas.client.settings.network import network_client_settings
from barnabas.connection.cluster import PartitionView
from barnabas.connection.drivers.aio import AioDriver
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import BarnabasError, ClientClosed, OperationTimedOut, TransactionFailed

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.settings.keywords import ProducerKeywords

__all__ = ["Producer"]

T = TypeVar("T")

_producers: "weakref.WeakSet[Producer]" = weakref.WeakSet()


class Producer(ProducerBase):
    """Sends records to topics, from an event loop.

        async with barnabas.aio.Producer(bootstrap_servers="localhost:9092") as producer:
            await producer.send("orders", b"value", key=b"key")

    Settings and names are those of `barnabas.Producer`; what may wait is to be awaited. `await producer.send(...)` ends
    when the record is in the buffer and gives its handle, a future of the record's place that can be awaited in turn
    or forgotten: `metadata = await (await producer.send(...))`. A cancelled send may have taken its record all the
    same; cancelling the wait for a handle changes nothing about the record. Close it before its loop ends: nothing can
    be sent afterwards, and a warning with the number of records that are lost is logged. After a fork the child has a
    producer of its own, for its own loop, without the records that the parent has not sent yet.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **named: "Unpack[ProducerKeywords]") -> None:
        """Belongs to the loop of its first call, and connects then. Raises UsageError for a setting that does not exist
        or does not fit."""
        self._set_up(settings, named)
        self._driver: AioDriver | None = None
        self._closed = False
        _producers.add(self)

    def _opened(self) -> AioDriver:
        driver = self._driver
        if driver is not None:
            return driver
        if self._closed:
            raise ClientClosed("the producer is closed")
        client = NetworkClient(network_client_settings(self.settings), time.monotonic())
        self._driver = AioDriver(client, ssl_context=self._tls, name="producer")
        self._core = ProducerCore(client, self.settings, AioProducerFront(self._driver, self), Lock())
        self._intake = self._core.intake
        close_at_exit(self)
        return self._driver

    def _check_process(self) -> None:
        self._opened()

    def _run(self, action: Callable[[], T]) -> T:
        return self._opened().run(action)

    # --- records ----------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordHandle:
        """Add a record to a batch, which leaves when it is full or `linger.ms` old.

        As `send` of `barnabas.Producer`: waits, for `max.block.ms` at most, while the topic is not known or the buffer
        is full, and raises the same errors. `on_delivery` is called on the loop.
        """
        driver = self._driver or self._opened()
        intake = self._intake
        if intake.plain:
            handle = intake.append(topic, value, key, partition, timestamp, headers, on_delivery)
            if handle is not None:
                if intake.wants_turn:
                    driver.run(nothing)
                    await asyncio.sleep(0)  # who sends all the time must let answers come in
                return handle
        return await self._send_slowly(topic, value, key, partition, timestamp, headers, on_delivery)

    async def _send_slowly(
        self, topic: str, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any, on_delivery: Any
    ) -> RecordHandle:
        """`send` for whatever its fast way does not do: wait, call interceptors and serializers, choose by the caller's
        rules."""
        interceptors = self._core.interceptors
        if interceptors is None:
            return await self._send(topic, value, key, partition, timestamp, headers, on_delivery)
        record = interceptors.on_send(ProducerRecord(topic, value, key, partition, timestamp, headers))
        try:
            return await self._send(*record, interceptors.watching(on_delivery))
        except Exception as error:
            interceptors.not_taken(record, error)
            raise

    async def _send(
        self, topic: str, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any, on_delivery: Any
    ) -> RecordHandle:
        driver = self._opened()
        deadline = self._block_until()
        if not self._intake.plain:
            if topic not in self._intake.lanes:
                await self._wait_for_room(NO_TOPIC, topic, partition, deadline)
            value, key, partition = self._core.prepared(topic, value, key, partition)
        while True:
            handle = self._intake.append(topic, value, key, partition, timestamp, headers, on_delivery)
            if handle is not None:
                if self._intake.wants_turn:
                    driver.run(nothing)
                return handle
            await self._wait_for_room(self._intake.why, topic, partition, deadline)

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: Headers | Iterable[Headers | None] | None = None,
        timestamps: Iterable[int] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """As of `barnabas.Producer`: ends when all records are in the buffer, and gives a future of where all stand. A
        cancelled call leaves out the records that were not taken yet."""
        return await self._send_bulk(
            topic, lambda: bulk_of_lists(self._core, topic, values, keys, headers, timestamps, partition)
        )

    async def send_table(
        self, topic: str, table: "pyarrow.Table | pyarrow.RecordBatch", *, partition: int | None = None
    ) -> Delivery:
        """As of `barnabas.Producer`, and as `send_many`."""
        return await self._send_bulk(topic, lambda: bulk_of_table(self._core, topic, table, partition))

    async def _send_bulk(self, topic: str, make: Callable[[], BulkSend]) -> Delivery:
        driver = self._opened()
        self._check_bulk(topic)
        deadline = self._block_until()
        if topic not in self._intake.lanes or self._intake.closed:
            await self._wait_for_room(CLOSED if self._intake.closed else NO_TOPIC, topic, None, deadline)
        bulk = make()
        while not bulk.is_over:
            before = bulk.taken
            why = bulk.take()
            if self._intake.wants_turn:
                driver.run(nothing)
                await asyncio.sleep(0)
            if bulk.taken > before:
                deadline = self._block_until()
            if why:
                await self._wait_for_bulk(bulk, why, deadline)
        return bulk.delivery

    async def _wait_for_bulk(self, bulk: BulkSend, why: int, deadline: float) -> None:
        """Until more of it can be taken. What cannot be taken in time has failed; what a cancellation leaves out
        is in no delivery."""
        try:
            if why != AHEAD:
                await self._wait_for_room(why, bulk.topic, bulk.highest_partition, deadline)
            elif not await self._opened().wait(bulk.has_room, max(deadline - time.monotonic(), 0.0)):
                raise OperationTimedOut("brokers acknowledged nothing for max.block.ms")
        except BarnabasError as error:
            if not bulk.taken:
                raise
            raise bulk.give_up(error) from error

    async def _wait_for_room(self, why: int, topic: str, partition: int | None, deadline: float) -> None:
        """Until what kept a record out may be gone. Raises when it will not be, or not in time."""
        driver, intake = self._opened(), self._intake
        left = max(deadline - time.monotonic(), 0.0)
        if why == CLOSED:
            raise self._core.why_not()
        if why == NO_TOPIC:
            await self._settled(driver.run(lambda: self._core.open_topic(topic, left)))
        elif why == NO_ROOM:
            driver.run(nothing)
            if not await driver.wait(lambda: not intake.starved or intake.closed, left):
                raise self._exhausted()
        elif why == NO_PARTITION:
            refreshed = driver.run(self._core.client.refresh_metadata)
            await driver.wait(lambda: refreshed.done, left)
            self._check_partition(topic, partition, refreshed, is_last=left <= 0)

    async def _settled(self, promise: Promise[T]) -> T:
        """Raises its error, or ClientClosed."""
        await self._opened().wait(lambda: promise.done)
        return promise.result()

    # --- transactions -----------------------------------------------------------------------------------------------

    async def init_transactions(
        self,
        *,
        transactional_id: str | None = None,
        keep_prepared: bool = False,
        continuing: PreparedTransaction | None = None,
        timeout: float | None = None,
    ) -> None:
        """As of `barnabas.Producer`, like all that follows. A cancelled call goes on; the same call waits for its
        end."""
        await self._finish(
            "init_transactions",
            lambda it: it.init(transactional_id=transactional_id, keep_prepared=keep_prepared, continuing=continuing),
            timeout,
        )

    async def send_offsets_to_transaction(
        self, offsets: OffsetsOfPartitions, group_metadata: GroupMetadata | str, timeout: float | None = None
    ) -> None:
        """Commit a consumer's offsets, the next ones to read, if and only if the transaction is committed."""
        await self._finish("send_offsets_to_transaction", offsets_sending(offsets, group_metadata), timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Send what waits, then make all of the transaction visible at once. Raises TransactionFailed if a record was
        not written: abort it then."""
        await self._finish("commit_transaction", TransactionManager.commit, timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Nothing of the transaction will be seen; what was not sent yet fails with TransactionAborted."""
        await self._finish("abort_transaction", TransactionManager.abort, timeout)

    async def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """Send what waits; only the outcome is open then, for `complete_transaction`."""
        return await self._finish("prepare_transaction", TransactionManager.prepare, timeout)

    async def release_transaction(self, timeout: float | None = None) -> PreparedTransaction | None:
        """Send what waits, then let go of the transaction: who is told the result ends it. See `barnabas.Producer`."""
        return await self._finish("release_transaction", TransactionManager.release, timeout)

    async def complete_transaction(self, prepared: PreparedTransaction, timeout: float | None = None) -> None:
        """Commit what is prepared if `prepared` is it, abort it otherwise; nothing where nothing is prepared."""
        await self._finish("complete_transaction", lambda it: it.complete(prepared), timeout)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """`async with producer.transaction(): ...`: begins one, commits it at the end and aborts it on an exception."""
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
        """What goes wrong here the next call tells. Who is cancelled does not wait for the broker."""
        with contextlib.suppress(BarnabasError):
            await self.abort_transaction(None if isinstance(error, Exception) else 0)

    async def _finish(self, what: str, start: Callable[[TransactionManager], Promise[T]], timeout: float | None) -> T:
        seconds = self._block_s(timeout)
        promise = self._begin(start)
        transactions = self._transactions()
        if not await self._opened().wait(lambda: promise.done, seconds):
            raise transactions.timed_out(what, seconds)
        transactions.heard(promise)
        return promise.result()

    # --- all of it --------------------------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Send all that waits and wait until it is acknowledged or has failed. Raises OperationTimedOut."""
        seconds_or_none("timeout", timeout)
        batches = self._begin_flush()
        try:
            if not await self._opened().wait(lambda: all_done(batches), timeout):
                raise self._not_flushed(batches, timeout)
        finally:
            self._core.accumulator.flushing -= 1

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionView]:
        """The topic's partitions, by number. Raises TopicNotFound, OperationTimedOut."""
        left = self._block_s(timeout)
        return (await self._settled(self._run(lambda: self._core.open_topic(topic, left)))).in_order()

    async def close(self, timeout: float | None = None) -> None:
        """Flush for `timeout` seconds at most (None: as long as it takes), then end; with 0, or when it is cancelled,
        at once. What is not acknowledged fails with ClientClosed. An open transaction is aborted where there is time; a
        prepared one stays. Calling it again does nothing."""
        seconds_or_none("timeout", timeout)
        driver = self._driver
        if self._closed or driver is None or driver.closed:
            self._closed = True
            return
        try:
            if timeout is None or timeout > 0:
                self._core.refuse_all()
                with contextlib.suppress(BarnabasError):
                    deadline = None if timeout is None else time.monotonic() + timeout
                    await self._end_transaction(timeout)
                    await self.flush(None if deadline is None else max(deadline - time.monotonic(), 0.0))
        finally:
            self._closed = True
            self._core.close()
            driver.close()

    def _close_at_exit(self, timeout_s: float) -> None:
        """Closes it where its loop still runs, in a daemon thread. Without the loop nothing can be sent."""
        driver = self._driver
        if driver is None or driver.closed:
            return
        batches = list(self._core.accumulator.all_batches())
        if driver.loop.is_running():
            ending = asyncio.run_coroutine_threadsafe(self.close(timeout_s), driver.loop)
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                ending.result(timeout_s)
        self._warn_of_lost(batches)

    def __del__(self) -> None:
        """The driver lives as long as its loop may turn it, and the producer with it."""
        driver: AioDriver | None = getattr(self, "_driver", None)
        if driver is not None and not driver.closed:
            self._warn_of_lost(self._core.accumulator.all_batches())

    def _warn_of_lost(self, batches: Iterable[ProducerBatch]) -> None:
        self._closed, self._driver = True, None
        warn_of_lost(
            batches,
            self._core.client,
            "when the event loop ended",
            "close the producer, or use it as a context manager: async with barnabas.aio.Producer(...) as producer",
        )

    async def _end_transaction(self, timeout: float | None) -> None:
        transactions = self._core.transactions
        if transactions is not None:
            ending = self._run(transactions.end_for_close)
            await self._opened().wait(lambda: ending.done, self._block_s(timeout))

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Flushes; not if an exception that is none of the application's handling (a cancellation) ends the block."""
        if kind is not None and not issubclass(kind, Exception):
            await self.close(0)
        else:
            await self.close()

    # --- fork -------------------------------------------------------------------------------------------------------

    def _left_behind(self) -> None:
        """In the child of a fork: loop, connections and records are the parent's."""
        if self._driver is not None:
            self._disown()
            self._driver.closed = True  # for callbacks of what is the parent's: nothing turns here any more
            self._driver = None


def _after_fork_in_child() -> None:
    for producer in list(_producers):
        producer._left_behind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
