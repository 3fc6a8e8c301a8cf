"""The synchronous consumer, `barnabas.Consumer`."""

import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial, wraps
from itertools import chain
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from barnabas.client.arguments import seconds, seconds_or_none
from barnabas.client.consumer.calls import ConsumerCalls
from barnabas.client.consumer.front_base import CLOSE_TIMEOUT_S, LOOK_S
from barnabas.client.consumer.processing.processor import Handler, OnError, Processor
from barnabas.client.consumer.processing.threads import ThreadPool
from barnabas.client.consumer.reading import Ended
from barnabas.client.consumer.threads import ThreadedReading
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.flow import result_of, settle
from barnabas.records.consumer_record import ConsumerRecord, K, V
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import re

    import pyarrow

    from barnabas.client.settings.keywords import ConsumerKeywords

__all__ = ["Consumer"]

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    call: Callable[Concatenate[ConsumerCalls, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Consumer[Any, Any]", P], T]:
    """Makes a method of a call. The method waits for the call's end."""

    @wraps(call)
    def method(self: "Consumer[Any, Any]", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait_for(self._run(lambda: settle(call(self._calls, *args, **kwargs))))

    return method


class Consumer(ThreadedReading, Generic[K, V]):
    """Reads the records of topics.

        with barnabas.Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    The members of a group share the partitions of its topics, and the group stores the offsets that it has read.
    Without a `group_id` all partitions are read from the offset that `auto_offset_reset` names, and no offsets are
    stored. A topic that begins with `^` is a regular expression: `Consumer("^orders-")`.

    Settings are Kafka's, as keywords (`group_id="g"`) or in a dict (`{"group.id": "g"}`); times are in milliseconds,
    sizes in bytes. docs/client-settings.md lists all of them; these matter most:

    bootstrap_servers   where brokers are, "host:port" or a list of such; "localhost:9092" by default
    group_id            the group
    auto_offset_reset   where to begin without a committed offset: "latest" (the default), "earliest" or "none", which
                        raises NoOffsetForPartition
    enable_auto_commit  whether what was read is committed every `auto_commit_interval_ms`: True in a group
    isolation_level     "read_committed" leaves out records of transactions that were not committed
    max_poll_records    how many records a poll returns at most: 500
    key_deserializer, value_deserializer
                        functions of the bytes of keys and values that are not None; what they return has its type in
                        ConsumerRecord[K, V]

    Errors are subclasses of barnabas.errors.BarnabasError. Polling without topics or partitions is a UsageError;
    without a reachable broker it waits, and a warning is logged.

    Iterate over a consumer, or call `poll`. One thread reads at a time; `wakeup`, `close`, `health`, `pause`, `commit`
    and so on may be called by any thread. Close it, or use it as a context manager: closing commits the offsets that
    were read and leaves the group. After a fork the child has a consumer of its own.
    """

    def __init__(
        self,
        *topics: "str | re.Pattern[str] | Mapping[str, Any]",
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **named: "Unpack[ConsumerKeywords]",
    ) -> None:
        """Takes topics or a compiled pattern to subscribe to, settings by keyword or in a dict, and `on_assigned`,
        `on_revoked`, `on_lost` as for `subscribe`. Raises UsageError for settings that do not exist or do not fit."""
        self._reopening = threading.Lock()
        self._init_threads()
        self._set_up(topics, {**named, "key_deserializer": key_deserializer, "value_deserializer": value_deserializer})

    def _open(self) -> None:
        state = self._state = self._new_state()
        self._driver = SyncDriver(state.client, ssl_context=self._tls, on_fork=self._left_behind, name="consumer")
        if self._subscribed is not None:
            try:
                self._driver.run(self._subscribed)
            except BaseException:
                self._driver.close()
                raise

    # --- reading ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None, max_records: int | None = None) -> "list[ConsumerRecord[K, V]]":
        """Returns the next records, at most `max_records` (`max.poll.records`). Waits `timeout` seconds for the first
        one, with None without a limit; the list is empty if none came.

        The records count as processed when the next poll begins: automatic commits leave them out before.
        """
        limit = self._poll_limit(timeout, max_records)
        return self._deliver(lambda: self._poll(timeout, limit))

    def poll_batch(self, timeout: float | None = None) -> "RecordBatch[K, V] | None":
        """Returns the next records as one of the `batches`. Waits for `timeout` seconds, with None without a limit.
        Returns None if no record came, perhaps before the time is over: aborted records and markers do not count.

        The batch counts as processed when the next poll begins.
        """
        seconds_or_none("timeout", timeout)

        def read() -> "RecordBatch[K, V] | None":
            found = self._next(timeout)
            return None if found is None else self._read_batch(found)

        return self._deliver(read)

    def __iter__(self) -> "Iterator[ConsumerRecord[K, V]]":
        """Yields records until the consumer is closed. A record counts as processed when the next one is requested."""
        return chain.from_iterable(self._runs())

    def until_end(self, timeout: float | None = None) -> "Iterator[ConsumerRecord[K, V]]":
        """Yields the records up to the ends that the partitions have once they are assigned, and then stops: it waits
        for the group, which an empty `poll` does not tell from the end. A record counts as processed when more are
        fetched. Raises OperationTimedOut if nothing comes for `timeout` seconds, with None never."""
        return self._until_end(seconds_or_none("timeout", timeout))

    def _until_end(self, limit: float | None) -> "Iterator[ConsumerRecord[K, V]]":
        ends: dict[TopicPartition, int] = {}
        quiet_since = time.monotonic()
        while True:
            records = self.poll(LOOK_S)
            yield from records
            if records:
                quiet_since = time.monotonic()
            unknown = self._without_end(ends)
            if unknown:
                ends.update(self.end_offsets(unknown))
            if unknown is not None and self._has_reached(ends):
                return
            if limit is not None and time.monotonic() - quiet_since > limit:
                raise self._no_end(ends, limit)

    def batches(self) -> "Iterator[RecordBatch[K, V]]":
        """Yields batches of records, each of one partition and some 512 KiB, until the consumer is closed: sequences
        whose record objects are made at their first use; see RecordBatch. A batch counts as processed when the next one
        is requested."""
        with contextlib.suppress(Ended):
            while True:
                batch = self._deliver(lambda: self._read_batch(self._wait_for_next()), ends=True)
                if batch is not None:
                    yield batch

    def arrow(self, *, headers: bool = False) -> "Iterator[pyarrow.Table]":
        """Yields Arrow tables, each of one partition and about a megabyte, until the consumer is closed. Columns:
        topic, partition, offset, timestamp, timestamp_type, key, value and optionally headers. Keys and values are not
        deserialized. Needs pyarrow."""
        with contextlib.suppress(Ended):
            while True:
                table = self._deliver(lambda: self._read_table(self._wait_for_next(), headers), ends=True)
                if table is not None:
                    yield table

    def process(
        self,
        handler: Handler,
        workers: int = 4,
        *,
        ordered_by: str = "key",
        on_error: OnError | None = None,
        limit: int = 1000,
        finish_timeout: float = 5.0,
    ) -> None:
        """Calls `handler(record)` for every record, up to `workers` at a time, until the consumer is closed.

        Records of one key of a partition are handled one after the other (`ordered_by`: "key", "partition" or "none"),
        records without a key in any order. Offsets are committed automatically every auto.commit.interval.ms, at each
        rebalance and at the end, but never beyond a record that is not done. Records that are done beyond it are noted
        in the commit, and not handled again. At most `limit` records wait or are in progress.

        An exception of the handler ends the call: records in progress get `finish_timeout` seconds, then the exception
        is raised, and the next poll begins at the failed record. With `on_error(record, error)` a failed record counts
        as done when that returns. Before partitions go to another member, their records in progress get
        `finish_timeout` seconds, too; that member handles unfinished ones again. Handlers run in threads.
        """
        make_pool = partial(ThreadPool, wake=lambda: self._driver.wakeup(), is_closing=lambda: self._state.closing)
        result_of(Processor(self, make_pool, handler, workers, ordered_by, on_error, limit, finish_timeout).run())

    def wakeup(self) -> None:
        """Makes the thread that waits in a call, or the next one that would wait, raise WokenUp. Any thread and signal
        handlers may call it."""
        self._state.woken = self._state.needs_poll = True
        self._driver.wakeup()

    # --- positions, commits -----------------------------------------------------------------------------------------

    commit = _waiting(ConsumerCalls.commit)
    committed = _waiting(ConsumerCalls.committed)
    position = _waiting(ConsumerCalls.position)
    offsets_for_times = _waiting(ConsumerCalls.offsets_for_times)
    beginning_offsets = _waiting(ConsumerCalls.beginning_offsets)
    end_offsets = _waiting(ConsumerCalls.end_offsets)
    partitions_for = _waiting(ConsumerCalls.partitions_for)

    # --- the end ----------------------------------------------------------------------------------------------------

    def unsubscribe(self) -> None:
        """Gives up all partitions and leaves the group, with `enable.auto.commit` after a commit."""
        self._check_process()
        with self._enters():
            result_of(self._unsubscribe())

    def close(self, timeout: float | None = None) -> None:
        """Commits the delivered records (with `enable.auto.commit`), leaves the group, and closes the consumer. Waiting
        calls raise ClientClosed at once, and iterations end.

        The requests for that are sent in any case to brokers that are connected. `timeout` is the number of seconds to
        wait for their responses, 0.05 by default, so that a process can end quickly; for certainty commit before, or
        give more time, in which the commit is tried again while the group's coordinator cannot be reached. A second
        call does nothing. Signal handlers may call it.
        """
        self._close(CLOSE_TIMEOUT_S if timeout is None else seconds("timeout", timeout), True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes the consumer. If an exception ended the block, its current records are not committed."""
        self._close(CLOSE_TIMEOUT_S, kind is None)

    # --- fork -------------------------------------------------------------------------------------------------------

    def _left_behind(self) -> None:
        """Drops connections, membership and positions in a forked child: they belong to the parent."""
        self._init_threads()
        self._reopening = threading.Lock()
        self._forked = True

    def _check_process(self) -> None:
        if not self._forked:
            return
        self._check_not_static()
        with self._reopening:
            if self._forked:
                self._open()
                self._forked = False
