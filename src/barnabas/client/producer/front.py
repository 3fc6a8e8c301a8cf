"""The synchronous producer. `barnabas.aio.Producer` is the same for asyncio."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from barnabas.client.arguments import seconds_or_none
from barnabas.client.offset_messages import GroupMetadata, OffsetsOfPartitions
from barnabas.client.producer.bulk.delivery import Delivery
from barnabas.client.producer.bulk.send import AHEAD, BulkSend, bulk_of_lists, bulk_of_table
from barnabas.client.producer.driving import ProducerFront
from barnabas.client.producer.front_base import (
    OnDelivery,
    ProducerBase,
    all_done,
    nothing,
    offsets_sending,
)
from barnabas.client.producer.interceptors import ProducerRecord
from barnabas.client.producer.producer_batch import RecordHandle
from barnabas.client.producer.producer_core import Headers, ProducerCore
from barnabas.client.producer.record_appender import CLOSED, NO_PARTITION, NO_ROOM, NO_TOPIC
from barnabas.client.producer.transactions.requests import PreparedTransaction
from barnabas.client.producer.transactions.transaction_manager import TransactionManager
from barnabas.client.producer.unclosed import close_at_exit, warn_of_lost
from barnabas.client.settings.network import network_client_settings
from barnabas.connection.cluster import PartitionView
from barnabas.connection.drivers.signals import HELD, in_main_thread
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import BarnabasError, OperationTimedOut, TransactionFailed, UsageError

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.settings.keywords import ProducerKeywords

__all__ = ["Producer"]

T = TypeVar("T")

REENTRY_LOOKS: Final = 60_000
"""A millisecond apart: no thread that goes on keeps the lock so long."""


class Producer(ProducerBase):
    """Sends records to topics.

        with barnabas.Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("orders", b"value", key=b"key")

    Settings are Kafka's, as keywords (`linger_ms=5`) or in a dict (`{"linger.ms": 5}`); times are in milliseconds,
    sizes in bytes. docs/client-settings.md lists all of them; these matter most:

    bootstrap_servers    where brokers are, "host:port" or a list of such; "localhost:9092" by default
    acks                 who has a record before it counts as sent: "all" (the default), 1 or 0
    linger_ms            how long a batch waits for more records: 5
    compression_type     "none" (the default), "gzip", "snappy", "lz4" or "zstd"
    delivery_timeout_ms  after which a record has failed that is not acknowledged: 120000
    max_block_ms         how long `send` may wait for metadata and for memory: 60000
    transactional_id     makes the producer transactional
    key_serializer, value_serializer
                         functions that make bytes of keys and values

    Errors are subclasses of barnabas.errors.BarnabasError; a setting that does not exist or does not fit is a
    UsageError. What became of a record is told by the handle that `send` returns.

    Safe for use by several threads. Close it, or use it as a context manager. One that is still open when the process
    ends gets five seconds for what it has not sent, and logs a warning with the number of records that are lost. After
    a fork the child has a producer of its own, without the records that the parent has not sent yet.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **named: "Unpack[ProducerKeywords]") -> None:
        """Connects at the first use. Raises UsageError for a setting that does not exist or does not fit."""
        self._set_up(settings, named)
        self._forked = False
        self._reopening = threading.Lock()
        self._open()

    def _open(self) -> None:
        client = NetworkClient(network_client_settings(self.settings), time.monotonic())
        self._driver = SyncDriver(client, ssl_context=self._tls, on_fork=self._left_behind, name="producer")
        front = ProducerFront(self._driver, self._send_slowly, lingers=self.settings.linger_ms > 0)
        self._core = ProducerCore(client, self.settings, front, self._driver.lock)
        front.accumulator = self._core.accumulator
        self._intake = self._core.intake
        self.__dict__["send"] = self._intake.send  # one call less for each record
        close_at_exit(self)

    def _run(self, action: Callable[[], T]) -> T:
        self._check_process()
        if self._driver.lock.locked() and in_main_thread() and not self._intake.closed:  # who closes waits in any case
            self._check_reentry()
        return self._driver.run(action)

    def _check_reentry(self) -> None:
        """Nobody keeps the lock for long, unless it is this very thread, in a call that a signal handler interrupted:
        that would wait for itself. Looks are counted, and not the time, in which the process may have stood still.
        Raises UsageError."""
        for looks in range(REENTRY_LOOKS):
            if not self._driver.lock.locked():
                return
            time.sleep(0.001 if looks else 0)
        raise UsageError(
            "a signal handler has interrupted a call of this producer and calls it again, which would wait for itself:"
            " set a flag in the handler, or raise, and call the producer where that is noticed; or a plugin of the"
            " producer, such as its token provider, has kept it for a minute"
        )

    # --- records ----------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordHandle:
        """Adds a record to a batch, which leaves when it is full or `linger.ms` old.

        topic        its name
        value, key   bytes or None, or what the serializers take; a value of None is a tombstone
        partition    its number; by default chosen by the key, or without a key by load
        timestamp    milliseconds since 1970; by default now
        headers      pairs of a name and bytes or None, or a mapping of such
        on_delivery  called with (error, metadata) when the record is acknowledged (error is None) or has failed

        Returns a handle, a future of the record's place: `handle.result(timeout)` waits for its topic, partition,
        offset and timestamp, or raises what kept it from being written. Forgetting the handle costs nothing.

        Blocks, for `max.block.ms` at most, while the topic is not known or the buffer is full. Raises
        OperationTimedOut (BufferExhausted if it was the buffer), TopicNotFound (of a partition that does not exist,
        too), MessageTooLarge, ClientClosed, and UsageError or TypeError for arguments that do not fit.
        """
        return self._intake.send(topic, value, key, partition, timestamp, headers, on_delivery)

    def _send_slowly(
        self, topic: str, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any, on_delivery: Any
    ) -> RecordHandle:
        """`send` for whatever its fast way does not do: wait, call interceptors and serializers, choose by the caller's
        rules."""
        self._check_process()
        interceptors = self._core.interceptors
        if interceptors is None:
            return self._send(topic, value, key, partition, timestamp, headers, on_delivery)
        record = interceptors.on_send(ProducerRecord(topic, value, key, partition, timestamp, headers))
        try:
            return self._send(*record, interceptors.watching(on_delivery))
        except Exception as error:
            interceptors.not_taken(record, error)
            raise

    def _send(
        self, topic: str, value: Any, key: Any, partition: Any, timestamp: Any, headers: Any, on_delivery: Any
    ) -> RecordHandle:
        deadline = self._block_until()
        if not self._intake.plain:
            if topic not in self._intake.lanes:
                self._wait_for_room(NO_TOPIC, topic, partition, deadline)
            value, key, partition = self._core.prepared(topic, value, key, partition)
        while True:
            with self._driver.lock:
                handle = self._intake.append(topic, value, key, partition, timestamp, headers, on_delivery)
                why = self._intake.why
                turn = self._intake.wants_turn
            if handle is not None:
                if turn:
                    self._driver.run(nothing)
                return handle
            self._wait_for_room(why, topic, partition, deadline)

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: Headers | Iterable[Headers | None] | None = None,
        timestamps: Iterable[int] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Add a record for each of `values`, many times faster than one by one; the order within a partition is kept.

        `keys` and `timestamps` have one for each value, and so have `headers` unless they are a mapping, which is for
        all. One row that cannot be sent (TypeError, UsageError, MessageTooLarge name it) and none is. The delivery is a
        future of where all stand. Blocks while brokers take less than there is, for `max.block.ms` without progress at
        most: RecordsFailed then says which rows were not taken. Other errors as `send`.
        """
        return self._send_bulk(
            topic, lambda: bulk_of_lists(self._core, topic, values, keys, headers, timestamps, partition)
        )

    def send_table(
        self, topic: str, table: "pyarrow.Table | pyarrow.RecordBatch", *, partition: int | None = None
    ) -> Delivery:
        """Add a record for each row of an Arrow table: column `value`, and if there are such `key` (binary or string),
        `timestamp` (or milliseconds), `partition` and `headers` (maps). No serializer is called. Else as `send_many`.
        """
        return self._send_bulk(topic, lambda: bulk_of_table(self._core, topic, table, partition))

    def _send_bulk(self, topic: str, make: Callable[[], BulkSend]) -> Delivery:
        self._check_process()
        self._check_bulk(topic)
        deadline = self._block_until()
        if topic not in self._intake.lanes or self._intake.closed:
            self._wait_for_room(CLOSED if self._intake.closed else NO_TOPIC, topic, None, deadline)
        bulk = make()
        while not bulk.is_over:
            before = bulk.taken
            with self._driver.lock:
                why = bulk.take()
                turn = self._intake.wants_turn
            if turn:
                self._driver.run(nothing)
            if bulk.taken > before:
                deadline = self._block_until()
            if why:
                self._wait_for_bulk(bulk, why, deadline)
        return bulk.delivery

    def _wait_for_bulk(self, bulk: BulkSend, why: int, deadline: float) -> None:
        """Until more of it can be taken. What cannot be taken in time has failed."""
        try:
            if why != AHEAD:
                self._wait_for_room(why, bulk.topic, bulk.highest_partition, deadline)
            elif not self._driver.wait(bulk.has_room, max(deadline - time.monotonic(), 0.0)):
                raise OperationTimedOut("brokers acknowledged nothing for max.block.ms")
        except BarnabasError as error:
            if not bulk.taken:
                raise
            with self._driver.lock:
                failure = bulk.give_up(error)
            raise failure from error

    def _wait_for_room(self, why: int, topic: str, partition: int | None, deadline: float) -> None:
        """Until what kept a record out may be gone. Raises when it will not be, or not in time."""
        left = deadline - time.monotonic()
        if why == CLOSED:
            raise self._core.why_not()
        if why == NO_TOPIC:
            self._driver.wait_for(self._driver.run(lambda: self._core.open_topic(topic, max(left, 0.0))))
        elif why == NO_ROOM:
            intake = self._intake
            self._driver.turn()
            if not self._driver.wait(lambda: not intake.starved or intake.closed, max(left, 0.0)):
                raise self._exhausted()
        elif why == NO_PARTITION:
            refreshed = self._driver.run(self._core.client.refresh_metadata)
            self._driver.wait(lambda: refreshed.done, max(left, 0.0))
            self._check_partition(topic, partition, refreshed, is_last=left <= 0)

    # --- transactions -----------------------------------------------------------------------------------------------

    def init_transactions(
        self,
        *,
        transactional_id: str | None = None,
        keep_prepared: bool = False,
        continuing: PreparedTransaction | None = None,
        timeout: float | None = None,
    ) -> None:
        """Take over the transactional id, before the first transaction: whoever had it is fenced, and the transaction
        it left open is aborted, or with `keep_prepared` kept for `complete_transaction`. `transactional_id` replaces
        that of the settings. `continuing`: only if nobody has taken it over since a producer elsewhere had this
        producer id and epoch (ProducerFenced otherwise).

        This and the other calls about transactions wait for `timeout` seconds (max.block.ms by default); after
        OperationTimedOut the same call goes on waiting. They raise ProducerFenced when another producer has the id.
        """
        self._finish(
            "init_transactions",
            lambda it: it.init(transactional_id=transactional_id, keep_prepared=keep_prepared, continuing=continuing),
            timeout,
        )

    def send_offsets_to_transaction(
        self,
        offsets: OffsetsOfPartitions,
        group_metadata: GroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's offsets, the next ones to read, if and only if the transaction is committed.

        `group_metadata` is the consumer's `group_metadata()`: if the group has moved on without it, this raises
        CommitFailed. With the group's id alone nobody checks that.
        """
        self._finish("send_offsets_to_transaction", offsets_sending(offsets, group_metadata), timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send what waits, then make all of the transaction visible at once. Raises TransactionFailed if a record was
        not written: abort it then."""
        self._finish("commit_transaction", TransactionManager.commit, timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Nothing of the transaction will be seen; what was not sent yet fails with TransactionAborted."""
        self._finish("abort_transaction", TransactionManager.abort, timeout)

    def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """Send what waits; only the outcome is open then, and the broker does not decide it by a timeout. Keep the
        result in the other system, for `complete_transaction`. Needs transaction.two.phase.commit.enable."""
        return self._finish("prepare_transaction", TransactionManager.prepare, timeout)

    def release_transaction(self, timeout: float | None = None) -> PreparedTransaction | None:
        """Send what waits, then let go of the transaction: whoever is told the result ends it, by
        `Admin.end_transaction`. None where nothing was written, and nothing is open then. The producer begins again
        with `init_transactions`, under another transactional id: the same one would abort what was released.
        """
        return self._finish("release_transaction", TransactionManager.release, timeout)

    def complete_transaction(self, prepared: PreparedTransaction, timeout: float | None = None) -> None:
        """Commit what is prepared if `prepared` is it, abort it otherwise; nothing where nothing is prepared."""
        self._finish("complete_transaction", lambda it: it.complete(prepared), timeout)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """`with producer.transaction(): ...`: begins one, commits it at the end and aborts it on an exception."""
        begun = ends = False
        try:
            with HELD:  # Ctrl-C comes before or after it
                self.begin_transaction()
                begun = True
            yield
            with HELD:
                ends = True
                self.commit_transaction()
        except BaseException as error:
            if begun and (not ends or isinstance(error, TransactionFailed)):
                self._abort_after(error)
            raise

    def _abort_after(self, error: BaseException) -> None:
        """What goes wrong here the next call tells. Ctrl-C does not wait for the broker."""
        with HELD, contextlib.suppress(BarnabasError):
            self.abort_transaction(None if isinstance(error, Exception) else 0)

    def _finish(self, what: str, start: Callable[[TransactionManager], Promise[T]], timeout: float | None) -> T:
        """Begin it, or begin to wait for it again, and wait."""
        seconds = self._block_s(timeout)
        promise = self._begin(start)
        transactions = self._transactions()
        if not self._driver.wait(lambda: promise.done, seconds):
            raise transactions.timed_out(what, seconds)
        with self._driver.lock:
            transactions.heard(promise)
        return promise.result()

    # --- all of it --------------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Send all that waits and wait until it is acknowledged or has failed. Raises OperationTimedOut."""
        seconds_or_none("timeout", timeout)
        with HELD:  # what is begun here ends here
            batches = self._begin_flush()
            try:
                if not self._driver.wait(lambda: all_done(batches), timeout):
                    raise self._not_flushed(batches, timeout)
            finally:
                with self._driver.lock:
                    self._core.accumulator.flushing -= 1

    def close(self, timeout: float | None = None) -> None:
        """Flush for `timeout` seconds at most (None: as long as it takes), then end. What is not acknowledged fails
        with ClientClosed; with 0 it returns at once. An open transaction is aborted, but for 0, which leaves it to a
        successor, its timeout, or `Admin.end_transaction`; a prepared one stays. Calling it again does nothing."""
        seconds_or_none("timeout", timeout)
        if self._driver.closed:
            return
        try:
            if timeout is None or timeout > 0:
                self._core.refuse_all()
                with contextlib.suppress(BarnabasError):
                    deadline = None if timeout is None else time.monotonic() + timeout
                    self._end_transaction(timeout)
                    self.flush(None if deadline is None else max(deadline - time.monotonic(), 0.0))
        finally:
            self._end()

    def _close_at_exit(self, timeout_s: float) -> None:
        if self._driver.closed:
            return
        with self._driver.lock:
            self._core.refuse_all()
            batches = list(self._core.accumulator.all_batches())
        try:
            self.close(timeout_s)
        finally:
            warn_of_lost(
                batches,
                self._core.client,
                "when the process ended",
                "close the producer, or use it as a context manager: with barnabas.Producer(...) as producer",
            )

    def _end_transaction(self, timeout: float | None) -> None:
        transactions = self._core.transactions
        if transactions is not None:
            ending = self._driver.run(transactions.end_for_close)
            self._driver.wait(lambda: ending.done, self._block_s(timeout))

    def _end(self) -> None:
        self._core.refuse_all()
        if not self._driver.closed:
            with self._driver.lock:
                self._core.close()
            self._driver.close()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Flushes; not if an exception that is none of the application's handling (Ctrl-C) ends the block."""
        if kind is not None and not issubclass(kind, Exception):
            self.close(0)
        else:
            self.close()

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionView]:
        """The topic's partitions, by number. Raises TopicNotFound, OperationTimedOut."""
        left = self._block_s(timeout)
        return self._driver.wait_for(self._run(lambda: self._core.open_topic(topic, left))).in_order()

    # --- fork -------------------------------------------------------------------------------------------------------

    def _left_behind(self) -> None:
        """In the child of a fork: connections and records are the parent's."""
        self._forked = True
        self._reopening = threading.Lock()
        self._disown()

    def _check_process(self) -> None:
        if self._forked:
            with self._reopening:
                if self._forked:
                    self._open()
                    self._forked = False
