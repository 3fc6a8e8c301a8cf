"""The calls of a producer that may wait. Both fronts use them."""

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from barnabas.client.arguments import by_partition, flag, instance, offset, seconds, seconds_or_none, text, topic_name
from barnabas.client.offset_messages import GroupMetadata, OffsetsOfPartitions
from barnabas.client.producer.bulk.delivery import Delivery
from barnabas.client.producer.bulk.rows import HeadersArgument
from barnabas.client.producer.bulk.send import TOO_FAR_AHEAD, BulkSend, bulk_of_lists, bulk_of_table
from barnabas.client.producer.kafka_producer import KafkaProducer
from barnabas.client.producer.plugins import Interceptors, ProducerRecord
from barnabas.client.producer.producer_batch import ProducerBatch, RecordHandle
from barnabas.client.producer.record_appender import BUFFER_FULL, CLOSED, UNKNOWN_PARTITION, UNKNOWN_TOPIC
from barnabas.client.producer.transactions.transaction_manager import PreparedTransaction, TransactionManager
from barnabas.client.settings import ProducerSettings
from barnabas.client.settings.tls import ssl_context
from barnabas.connection.cluster import PartitionView
from barnabas.connection.promise import Promise
from barnabas.errors import (
    BarnabasError,
    BufferExhausted,
    OperationTimedOut,
    RecordsPurged,
    TopicNotFound,
    UsageError,
)

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ProducerBase", "ProducerCalls"]

T = TypeVar("T")

_log = logging.getLogger("barnabas.producer")

_SILENT_S: Final = 1.0
"""The time that a record may wait for its topic before the log says why."""
_group_metadata = instance(GroupMetadata, "what the consumer's group_metadata() gave, or the group's name")
_offsets = by_partition(offset, "100")


class CallDriver(Protocol):
    """The part of a front's driver that the calls use."""

    @property
    def producer(self) -> KafkaProducer: ...

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock that is held during every use of the producer."""

    @property
    def through(self) -> AbstractContextManager[object]:
        """A context for code of the application, in which signals are not held back."""

    @property
    def closed(self) -> bool: ...

    def run(self, action: Callable[[], T]) -> T:
        """Calls `action`, which uses the producer, and makes a turn. Raises ClientClosed."""

    def turn(self) -> None:
        """Makes a turn of the network client."""

    async def wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits until `done()`. Returns False if the time is over before. Raises ClientClosed."""

    async def pause(self) -> None:
        """Lets other tasks of the loop run."""

    def close(self) -> None:
        """Closes every connection."""


class ProducerCalls:
    """The calls about records and transactions. A call waits only by its driver: the synchronous front runs a call to
    its end, the front for asyncio awaits it."""

    def __init__(self, driver: CallDriver) -> None:
        self.producer = driver.producer
        self.turn = driver.turn
        self._driver = driver
        self._appender = driver.producer.appender
        self._interceptors = driver.producer.interceptors

    def _block_s(self, timeout: float | None) -> float:
        """Returns the seconds for which a call may wait."""
        return self.producer.settings.max_block_ms / 1000 if timeout is None else seconds("timeout", timeout)

    def _block_until(self) -> float:
        return time.monotonic() + self._block_s(None)

    # --- records ----------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: Any,
        timestamp: Any,
        headers: Any,
        on_delivery: Any,
        is_serialized: bool = False,
    ) -> Coroutine[Any, Any, RecordHandle]:
        """Sends a record that the appender cannot append at once: waits for topic and memory, calls interceptors."""
        if self._interceptors is None:
            return self._send(topic, value, key, partition, timestamp, headers, on_delivery, is_serialized)
        record = ProducerRecord(topic, value, key, partition, timestamp, headers)
        return self._send_intercepted(self._interceptors, record, on_delivery)

    async def _send_intercepted(
        self, interceptors: Interceptors, record: ProducerRecord, on_delivery: Any
    ) -> RecordHandle:
        record = interceptors.on_send(record)
        try:
            return await self._send(*record, interceptors.watching(on_delivery))
        except Exception as error:
            interceptors.not_taken(record, error)
            raise

    async def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: Any,
        timestamp: Any,
        headers: Any,
        on_delivery: Any,
        is_serialized: bool = False,
    ) -> RecordHandle:
        deadline = 0.0
        appender = self._appender
        if appender.has_plugins and not is_serialized:
            if topic not in appender.topics:
                deadline = self._block_until()
                await self._wait_for(UNKNOWN_TOPIC, topic, partition, deadline)
            count = int(appender.topics[topic].partition_count)
            value, key, partition = self.producer.serializer.serialize(topic, count, value, key, partition)
        while True:
            with self._driver.lock:
                handle = appender.append(topic, value, key, partition, timestamp, headers, on_delivery)
                refusal = appender.refusal
                turn_due = appender.turn_due
            if handle is not None:
                if turn_due:
                    self._driver.turn()
                return handle
            deadline = deadline or self._block_until()
            await self._wait_for(refusal, topic, partition, deadline)

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: HeadersArgument | Iterable[HeadersArgument | None] | None = None,
        timestamps: Iterable[int] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Adds a record for each of `values`, many times faster than `send`. The order within a partition is kept.

        `keys` and `timestamps` have an entry for each value, and so have `headers` unless they are a mapping, which is
        for all. If a row cannot be sent (TypeError, UsageError, MessageTooLarge name it), none is sent. Returns a
        future of the records' places. Waits while the brokers are slower, for `max.block.ms` without progress at most:
        RecordsFailed then names the rows that were not taken. Other errors are those of `send`.
        """
        return await self._send_bulk(
            topic, lambda: bulk_of_lists(self.producer, topic, values, keys, headers, timestamps, partition)
        )

    async def send_table(
        self, topic: str, table: "pyarrow.Table | pyarrow.RecordBatch", *, partition: int | None = None
    ) -> Delivery:
        """Adds a record for each row of an Arrow table with the column `value`, and optionally `key` (binary or
        string), `timestamp` (or milliseconds), `partition` and `headers` (maps). No serializer is called. Otherwise the
        call is like `send_many`.
        """
        return await self._send_bulk(topic, lambda: bulk_of_table(self.producer, topic, table, partition))

    async def _send_bulk(self, topic: str, make: Callable[[], BulkSend]) -> Delivery:
        topic_name("topic", topic)
        if self._interceptors is not None:
            raise UsageError(
                "interceptor.classes see single records, which a bulk call does not have: use send, or a producer"
                " without interceptors"
            )
        deadline = self._block_until()
        appender = self._appender
        if topic not in appender.topics or appender.closed:
            await self._wait_for(CLOSED if appender.closed else UNKNOWN_TOPIC, topic, None, deadline)
        with self._driver.through:
            bulk = make()
        while not bulk.is_over:
            before = bulk.taken
            with self._driver.lock:
                refusal = bulk.take()
                turn_due = appender.turn_due
            if turn_due:
                self._driver.turn()
                await self._driver.pause()
            if bulk.taken > before:
                deadline = self._block_until()
            if refusal:
                await self._wait_for_bulk(bulk, refusal, deadline)
        return bulk.delivery

    async def _wait_for_bulk(self, bulk: BulkSend, refusal: int, deadline: float) -> None:
        """Waits until more rows can be appended. Rows that cannot be appended in time fail."""
        try:
            if refusal != TOO_FAR_AHEAD:
                await self._wait_for(refusal, bulk.topic, bulk.highest_partition, deadline)
            elif not await self._driver.wait(bulk.has_room, max(deadline - time.monotonic(), 0.0)):
                raise OperationTimedOut("brokers acknowledged nothing for max.block.ms")
        except BarnabasError as error:
            if not bulk.taken:
                raise
            with self._driver.lock:
                failure = bulk.give_up(error)
            raise failure from error

    async def _wait_for(self, refusal: int, topic: str, partition: int | None, deadline: float) -> None:
        """Waits until a refused record may be accepted. Raises an error if it never will be, or not in time."""
        producer, appender = self.producer, self._appender
        left_s = max(deadline - time.monotonic(), 0.0)
        if refusal == CLOSED:
            raise producer.why_closed()
        if refusal == UNKNOWN_TOPIC:
            opened = self._driver.run(lambda: producer.open_topic(topic, left_s))
            if not await self._driver.wait(lambda: opened.done, min(left_s, _SILENT_S)):
                _log.warning(
                    "send waits for the metadata of topic %r, which no broker has given yet, for max.block.ms at most"
                    " (%g s more); records for a topic that was written to before do not wait",
                    topic,
                    max(deadline - time.monotonic(), 0.0),
                )
            await self._settled(opened)
        elif refusal == BUFFER_FULL:
            self._driver.turn()
            if not await self._driver.wait(lambda: not appender.exhausted or appender.closed, left_s):
                raise BufferExhausted(
                    f"buffer.memory ({producer.settings.buffer_memory} bytes) stayed full for max.block.ms: records"
                    " come faster than the brokers take them"
                )
        elif refusal == UNKNOWN_PARTITION:
            refreshed = self._driver.run(producer.client.refresh_metadata)
            await self._driver.wait(lambda: refreshed.done, left_s)
            self._check_partition(topic, partition, refreshed, is_last=left_s <= 0)

    def _check_partition(self, topic: str, partition: int | None, refreshed: Promise[None], *, is_last: bool) -> None:
        """Raises TopicNotFound for a partition that fresh metadata does not list. If the refresh has failed or is not
        done, the caller may try again, unless `is_last`."""
        info = self._appender.topics.get(topic)
        if partition is None or info is None or partition < info.partition_count:
            return
        if is_last or (refreshed.done and refreshed.error is None):
            count = int(info.partition_count)
            numbers = f"{count} partitions, 0 to {count - 1}" if count > 1 else "one partition, 0"
            raise TopicNotFound(f"topic {topic!r} has {numbers}: there is no partition {partition}")

    async def _settled(self, promise: Promise[T]) -> T:
        """Returns the value of a promise. Raises its error, or ClientClosed."""
        await self._driver.wait(lambda: promise.done)
        return promise.result()

    # --- transactions -----------------------------------------------------------------------------------------------

    def begin_transaction(self) -> None:
        self._driver.run(lambda: self._transactions().begin())

    async def init_transactions(
        self,
        *,
        transactional_id: str | None = None,
        keep_prepared: bool = False,
        continuing: PreparedTransaction | None = None,
        timeout: float | None = None,
    ) -> None:
        """Takes over the transactional id, before the first transaction. This fences the producer that had the id, and
        aborts the transaction that it left open, or with `keep_prepared` keeps it for `complete_transaction`.
        `transactional_id` replaces that of the settings. `continuing` is the producer id and epoch of a producer
        elsewhere: if another producer has taken over the id since, this raises ProducerFenced.

        All transactional calls wait for `timeout` seconds (max.block.ms by default); after OperationTimedOut the same
        call goes on waiting. They raise ProducerFenced when another producer has the id.
        """
        await self._finish(
            "init_transactions",
            lambda it: it.init(transactional_id=transactional_id, keep_prepared=keep_prepared, continuing=continuing),
            timeout,
        )

    async def send_offsets_to_transaction(
        self, offsets: OffsetsOfPartitions, group_metadata: GroupMetadata | str, timeout: float | None = None
    ) -> None:
        """Commits a consumer's next offsets if and only if the transaction is committed.

        `group_metadata` is the consumer's `group_metadata()`: if the group has moved on without the consumer, this
        raises CommitFailed. With the group's id alone this is not checked.
        """
        if isinstance(group_metadata, str):
            group_metadata = GroupMetadata(text("group_metadata", group_metadata))
        group = _group_metadata("group_metadata", group_metadata)
        wanted = _offsets("offsets", offsets)
        await self._finish("send_offsets_to_transaction", lambda it: it.send_offsets(wanted, group), timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Sends all records, and then makes those of the transaction visible at once. Raises TransactionFailed if a
        record was not written; the transaction must be aborted then."""
        await self._finish("commit_transaction", TransactionManager.commit, timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Ends the transaction without making its records visible. Records that were not sent yet fail with
        TransactionAborted."""
        await self._finish("abort_transaction", TransactionManager.abort, timeout)

    async def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """Sends all records. Afterwards only the outcome is open, and the broker does not decide it by a timeout. The
        result is to be kept in the other system, for `complete_transaction`. Needs
        transaction.two.phase.commit.enable."""
        return await self._finish("prepare_transaction", TransactionManager.prepare, timeout)

    async def release_transaction(self, timeout: float | None = None) -> PreparedTransaction | None:
        """Sends all records, and leaves the transaction open: `Admin.end_transaction` ends it, given the result.
        Returns None if no record was written; no transaction is open then. The producer goes on with
        `init_transactions` under another transactional id: the same id would abort the released transaction.
        """
        return await self._finish("release_transaction", TransactionManager.release, timeout)

    async def complete_transaction(self, prepared: PreparedTransaction, timeout: float | None = None) -> None:
        """Commits the prepared transaction if it is `prepared`, and aborts it otherwise. Does nothing if no transaction
        is prepared."""
        await self._finish("complete_transaction", lambda it: it.complete(prepared), timeout)

    def _transactions(self) -> TransactionManager:
        transactions = self.producer.transactions
        if transactions is None:
            raise UsageError("this producer writes no transactions; give it a transactional_id")
        return transactions

    async def _finish(self, what: str, start: Callable[[TransactionManager], Promise[T]], timeout: float | None) -> T:
        """Begins a transactional call, or continues one that timed out, and waits for its end."""
        timeout_s = self._block_s(timeout)
        promise = self._driver.run(lambda: start(self._transactions()))
        transactions = self._transactions()
        if not await self._driver.wait(lambda: promise.done, timeout_s):
            raise transactions.timed_out(what, timeout_s)
        with self._driver.lock:
            transactions.heard(promise)
        return promise.result()

    # --- all of it --------------------------------------------------------------------------------------------------

    def purge(self, *, in_flight: bool) -> int:
        error = RecordsPurged("the record was purged before it was acknowledged")
        return self._driver.run(lambda: self.producer.sender.purge(error, in_flight=in_flight))

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionView]:
        """Returns the topic's partitions in the order of their numbers. Raises TopicNotFound, OperationTimedOut."""
        timeout_s = self._block_s(timeout)
        found = await self._settled(self._driver.run(lambda: self.producer.open_topic(topic, timeout_s)))
        return found.in_order()

    async def flush(self, timeout: float | None = None) -> None:
        """Sends all records, and waits until they are acknowledged or have failed. Raises OperationTimedOut."""
        seconds_or_none("timeout", timeout)
        accumulator = self.producer.accumulator

        def begin() -> list[ProducerBatch]:
            accumulator.flushing += 1
            return list(accumulator.all_batches())

        batches = self._driver.run(begin)
        try:
            if not await self._driver.wait(lambda: _all_done(batches), timeout):
                count = sum(batch.count for batch in batches if not batch.done)
                raise OperationTimedOut(f"{count} records were not acknowledged within {timeout:g} s")
        finally:
            with self._driver.lock:
                accumulator.flushing -= 1

    async def close(self, timeout: float | None) -> None:
        """Ends an open transaction and flushes if there is time, and then closes the producer."""
        try:
            if timeout is None or timeout > 0:
                self.producer.accumulator.close()
                with contextlib.suppress(BarnabasError):
                    deadline = None if timeout is None else time.monotonic() + timeout
                    transactions = self.producer.transactions
                    if transactions is not None:
                        ending = self._driver.run(transactions.end_for_close)
                        await self._driver.wait(lambda: ending.done, self._block_s(timeout))
                    await self.flush(None if deadline is None else max(deadline - time.monotonic(), 0.0))
        finally:
            self.producer.accumulator.close()
            if not self._driver.closed:
                with self._driver.lock:
                    self.producer.close()
                self._driver.close()


def _all_done(batches: list[ProducerBatch]) -> bool:
    """Whether all batches are done. Removes those that are, so that repeated calls stay cheap."""
    while batches:
        batch = batches[-1]
        if batch.parts is not None:
            batches.pop()
            batches.extend(batch.parts)
        elif batch.done:
            batches.pop()
        else:
            return False
    return True


class ProducerBase(ABC):
    """The part of both fronts that does not wait."""

    def __init__(self, settings: Mapping[str, object] | None, named: Mapping[str, object]) -> None:
        self.settings = ProducerSettings(settings, **named)
        self._tls = ssl_context(self.settings)

    @abstractmethod
    def _opened(self) -> ProducerCalls:
        """Returns the calls of the producer that belongs to this process. Raises ClientClosed."""

    def purge(self, *, in_flight: bool = True) -> int:
        """Gives up all records that are not acknowledged, or without `in_flight` all that were not sent yet. Returns
        their number; their handles and callbacks get RecordsPurged."""
        flag("in_flight", in_flight)
        return self._opened().purge(in_flight=in_flight)

    def begin_transaction(self) -> None:
        """Begins a transaction. With isolation.level=read_committed, consumers get its records only after a commit."""
        self._opened().begin_transaction()

    def metrics(self) -> dict[str, int]:
        """Returns the producer's counts of records and batches, and its producer id and epoch."""
        return self._opened().producer.metrics()
