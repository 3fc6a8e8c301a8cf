"""The synchronous producer, `barnabas.Producer`. `barnabas.aio.Producer` is the same for asyncio."""

import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, Unpack

from barnabas.client.arguments import seconds_or_none
from barnabas.client.producer.bulk.rows import HeadersArgument
from barnabas.client.producer.calls import ProducerBase, ProducerCalls
from barnabas.client.producer.drivers.sync import SyncProducerDriver
from barnabas.client.producer.producer_batch import OnDelivery, RecordHandle
from barnabas.client.producer.unclosed import close_at_exit, warn_of_lost
from barnabas.client.settings.network import network_client_settings
from barnabas.connection.drivers.signals import HELD, in_main_thread
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.flow import result_of
from barnabas.connection.network_client import NetworkClient
from barnabas.errors import BarnabasError, TransactionFailed, UsageError

if TYPE_CHECKING:
    from barnabas.client.settings.keywords import ProducerKeywords

__all__ = ["Producer"]

P = ParamSpec("P")
T = TypeVar("T")

REENTRY_LOOKS: Final = 60_000
"""The attempts to get the lock, a millisecond apart: no thread that makes progress keeps the lock so long."""


def _waiting(
    call: Callable[Concatenate[ProducerCalls, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Producer", P], T]:
    """Makes a method of a call. The method waits for the call's end."""

    @wraps(call)
    def method(self: "Producer", /, *args: P.args, **kwargs: P.kwargs) -> T:
        calls = self._opened()
        with HELD:  # Ctrl-C comes before the call, after it, or where it waits
            return result_of(call(calls, *args, **kwargs))

    return method


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
    UsageError. The handle that `send` returns has the result of a record.

    Several threads may share a producer. Close it, or use it as a context manager. A producer that is still open when
    the process ends gets five seconds to send its records, and logs a warning with the number of records that are lost.
    After a fork the child has a producer of its own, without the records that the parent has not sent yet.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **named: "Unpack[ProducerKeywords]") -> None:
        """Connects at the first use. Raises UsageError for a setting that does not exist or does not fit."""
        super().__init__(settings, named)
        self._forked = False
        self._reopening = threading.Lock()
        self._open()

    def _open(self) -> None:
        client = NetworkClient(network_client_settings(self.settings), time.monotonic())
        self._driver = SyncDriver(client, ssl_context=self._tls, on_fork=self._left_behind, name="producer")
        self._calls = ProducerCalls(
            SyncProducerDriver(self._driver, self.settings, self._send_slowly, self._check_reentry)
        )
        self.__dict__["send"] = self._calls.producer.appender.send  # one call less for each record
        close_at_exit(self)

    def _left_behind(self) -> None:
        """Drops connections and records in a forked child: they belong to the parent."""
        self._forked = True
        self._reopening = threading.Lock()
        self._calls.producer.accumulator.abandon()

    def _opened(self) -> ProducerCalls:
        if self._forked:
            with self._reopening:
                if self._forked:
                    self._open()
                    self._forked = False
        return self._calls

    def _check_reentry(self) -> None:
        """Raises UsageError if this thread itself holds the lock, in a call that a signal handler has interrupted: the
        call would wait for itself. No other thread keeps the lock for long. Attempts to get the lock are counted, not
        the time, because the process may have been suspended."""
        lock = self._driver.lock
        if not lock.locked() or not in_main_thread() or self._calls.producer.appender.closed:
            return  # `close` waits in any case
        for looks in range(REENTRY_LOOKS):
            if not lock.locked():
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
        headers: HeadersArgument | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordHandle:
        """Adds a record to a batch, which is sent when it is full or `linger.ms` old.

        topic        its name
        value, key   bytes or None, or what the serializers take; a value of None is a tombstone
        partition    its number; by default chosen by the key, or without a key by load
        timestamp    milliseconds since 1970; by default now
        headers      pairs of a name and bytes or None, or a mapping of such
        on_delivery  called with (error, metadata) when the record is acknowledged (error is None) or has failed

        Returns a handle, a future of the record's metadata: `handle.result(timeout)` waits for its topic, partition,
        offset and timestamp, or raises the error of the record. The handle may be dropped.

        Blocks, for `max.block.ms` at most, while the topic is unknown or the buffer is full. Raises OperationTimedOut
        (BufferExhausted for the buffer), TopicNotFound (also for an unknown partition), MessageTooLarge, ClientClosed,
        and UsageError or TypeError for invalid arguments.
        """
        return self._calls.producer.appender.send(topic, value, key, partition, timestamp, headers, on_delivery)

    def _send_slowly(self, *record: Any) -> RecordHandle:
        calls = self._opened()
        if calls.producer.appender.has_plugins:  # Ctrl-C must interrupt the application's code
            return result_of(calls.send(*record))
        with HELD:
            return result_of(calls.send(*record))

    send_many = _waiting(ProducerCalls.send_many)
    send_table = _waiting(ProducerCalls.send_table)
    flush = _waiting(ProducerCalls.flush)
    partitions_for = _waiting(ProducerCalls.partitions_for)

    # --- transactions -----------------------------------------------------------------------------------------------

    init_transactions = _waiting(ProducerCalls.init_transactions)
    send_offsets_to_transaction = _waiting(ProducerCalls.send_offsets_to_transaction)
    commit_transaction = _waiting(ProducerCalls.commit_transaction)
    abort_transaction = _waiting(ProducerCalls.abort_transaction)
    prepare_transaction = _waiting(ProducerCalls.prepare_transaction)
    release_transaction = _waiting(ProducerCalls.release_transaction)
    complete_transaction = _waiting(ProducerCalls.complete_transaction)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Begins a transaction for a `with` block, commits it at the end of the block, and aborts it on an
        exception."""
        begun = ends = False
        try:
            with HELD:  # Ctrl-C is handled before or after the call
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
        """Aborts the transaction after an exception of its block. The next call raises an error of the abort. Ctrl-C
        does not wait for the broker."""
        with HELD, contextlib.suppress(BarnabasError):
            self.abort_transaction(None if isinstance(error, Exception) else 0)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Flushes for `timeout` seconds at most (None: without a limit), then closes the producer. Records that are not
        acknowledged fail with ClientClosed. An open transaction is aborted, unless the timeout is 0: then its timeout,
        a successor or `Admin.end_transaction` ends it. A prepared transaction stays. A second call does nothing."""
        seconds_or_none("timeout", timeout)
        if not self._driver.closed:
            with HELD:
                result_of(self._calls.close(timeout))

    def _close_at_exit(self, timeout_s: float) -> None:
        if self._driver.closed:
            return
        accumulator = self._calls.producer.accumulator
        with self._driver.lock:
            accumulator.close()
            batches = list(accumulator.all_batches())
        try:
            self.close(timeout_s)
        finally:
            warn_of_lost(
                batches,
                self._driver.client,
                "when the process ended",
                "close the producer, or use it as a context manager: with barnabas.Producer(...) as producer",
            )

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Flushes and closes. Does not flush if Ctrl-C or SystemExit ends the block."""
        self.close(0 if kind is not None and not issubclass(kind, Exception) else None)
