"""The synchronous consumer, `barnabas.Consumer`."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from barnabas.client.arguments import seconds, seconds_or_none
from barnabas.client.consumer.front_base import (
    CLOSE_TIMEOUT_S,
    OffsetAndTimestamp,
    OffsetsArgument,
    Partitions,
    Times,
    at_times,
    begin,
    end,
    found_at_times,
    plain_offsets,
)
from barnabas.client.consumer.processing.threads import Handler, OnError, Processing
from barnabas.client.consumer.threads import Ended, ThreadedReading
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.connection.cluster import PartitionView
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.records.consumer_record import ConsumerRecord, K, V
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import re

    import pyarrow

    from barnabas.client.settings.keywords import ConsumerKeywords

__all__ = ["Consumer"]

T = TypeVar("T")


class Consumer(ThreadedReading, Generic[K, V]):
    """Reads the records of topics.

        with barnabas.Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    The members of a group share the partitions of its topics, and the group keeps how far it has read. Without a
    `group_id` all partitions are read, from where `auto_offset_reset` says, and nothing is kept. A topic that begins
    with `^` is a regular expression: `Consumer("^orders-")`.

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

    Iterate over it, or `poll`. One thread reads at a time; `wakeup`, `close`, `health`, `pause`, `commit` and so on may
    be called by any. Close it, or use it as a context manager: closing commits what was read and leaves the group.
    After a fork the child has a consumer of its own.
    """

    def __init__(
        self,
        *topics: "str | re.Pattern[str] | Mapping[str, Any]",
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **named: "Unpack[ConsumerKeywords]",
    ) -> None:
        """Topics or a compiled pattern to subscribe to, settings by keyword or in a dict, and `on_assigned`,
        `on_revoked`, `on_lost` as for `subscribe`. Raises UsageError for what does not exist or does not fit."""
        self._reopening = threading.Lock()
        self._init_threads()
        self._set_up(topics, {**named, "key_deserializer": key_deserializer, "value_deserializer": value_deserializer})

    def _open(self) -> None:
        core = self._core = self._new_core()
        self._driver = SyncDriver(core.client, ssl_context=self._tls, on_fork=self._left_behind, name="consumer")
        if self._subscribed is not None:
            try:
                self._driver.run(self._subscribed)
            except BaseException:
                self._driver.close()
                raise

    # --- reading ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None, max_records: int | None = None) -> "list[ConsumerRecord[K, V]]":
        """The next records, at most `max_records` (`max.poll.records`). Waits `timeout` seconds for the first, None: as
        long as it takes; an empty list if none came.

        The records count as done when the next poll begins: a commit by itself leaves them out before.
        """
        limit = self._poll_limit(timeout, max_records)
        return self._handed(lambda: self._poll(timeout, limit))

    def poll_batch(self, timeout: float | None = None) -> "RecordBatch[K, V] | None":
        """The next records as one of the `batches`. Waits `timeout` seconds for it, None: as long as it takes. None if
        no record came, which may be before the time is over: aborted records and markers of transactions are none.

        The batch counts as done when the next poll begins.
        """
        seconds_or_none("timeout", timeout)

        def read() -> "RecordBatch[K, V] | None":
            found = self._next(timeout)
            return None if found is None else self._read_batch(found)

        return self._handed(read)

    def __iter__(self) -> "Iterator[ConsumerRecord[K, V]]":
        """Record by record, without end; it ends when the consumer is closed. A record counts as done when the next one
        is asked for."""
        return chain.from_iterable(self._runs())

    def batches(self) -> "Iterator[RecordBatch[K, V]]":
        """Batches of records, each of one partition and some 512 KiB, without end: sequences whose records are made
        when they are touched; see RecordBatch. A batch counts as done when the next one is asked for."""
        with contextlib.suppress(Ended):
            while True:
                batch = self._handed(lambda: self._read_batch(self._wait_for_next()), ends=True)
                if batch is not None:
                    yield batch

    def arrow(self, *, headers: bool = False) -> "Iterator[pyarrow.Table]":
        """Arrow tables, each of one partition and about a megabyte, without end: topic, partition, offset, timestamp,
        timestamp_type, key, value and, if asked for, headers. Keys and values are as they were sent: deserializers do
        not see them. Needs pyarrow."""
        with contextlib.suppress(Ended):
            while True:
                table = self._handed(lambda: self._read_table(self._wait_for_next(), headers), ends=True)
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
        """Call `handler(record)` for every record, up to `workers` at a time, until the consumer is closed.

        Records of one key of a partition are handled one after the other (`ordered_by`: "key", "partition" or "none");
        records without a key in any order. What is done is committed by itself every auto.commit.interval.ms, at each
        rebalance and at the end, never beyond a record that is not done; what was done beyond it is noted in the
        commit, and not done again. `limit` records wait or are in work at most.

        An exception ends it all: what is in work gets `finish_timeout` seconds, then the exception is raised, and the
        next poll begins at the record that failed. With `on_error(record, error)` such a record counts as done once
        that returns. Partitions that go to another member have their work finished within `finish_timeout`, too; what
        takes longer is done again there. Handlers run in threads.
        """
        Processing(
            self,
            handler,
            workers,
            ordered_by=ordered_by,
            on_error=on_error,
            limit=limit,
            finish_timeout=finish_timeout,
        ).run()

    # --- waking up, positions, commits ------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Let the thread that waits in here, or the next one that would, raise WokenUp. May be called from any thread
        and from signal handlers."""
        self._core.woken = self._core.attention = True
        self._driver.interrupt()

    def commit(self, offsets: OffsetsArgument | None = None, timeout: float | None = None) -> None:
        """Commit what the application has got (the record at hand included), a record with all before it, or the next
        offsets to read by partition. What passes is tried again for `timeout` seconds (`default.api.timeout.ms`).

        Raises RebalanceInProgress (poll, then commit again), CommitFailed (others may have the partitions), and what
        else the coordinator says.
        """
        self._wait_for(self._ask_commit(offsets, self._timeout(timeout)))

    def commit_async(
        self, offsets: OffsetsArgument | None = None, callback: Callable[[Any, Any], object] | None = None
    ) -> None:
        """Commit without waiting, and without a second try. `callback(offsets, error)` is called by any thread that
        works for the consumer; without one failures are logged."""
        self._commit_async(offsets, callback)

    def committed(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None for nothing."""
        return self._wait_for(self._ask_committed(partitions, self._timeout(timeout)))

    def position(self, partition: "TopicPartition | tuple[str, int]", timeout: float | None = None) -> int:
        """The offset behind what the application has got. Waits until it is known where to begin."""
        return self._wait_for(self._ask_position(partition, self._timeout(timeout)))

    def offsets_for_times(
        self, timestamps: Times, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in milliseconds; None if there is none so new."""
        places = at_times("timestamps", timestamps)
        return found_at_times(self._wait_for(self._ask_offsets(places, self._timeout(timeout))))

    def beginning_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The first offsets that there are."""
        found = self._wait_for(self._ask_offsets(begin(partitions), self._timeout(timeout)))
        return plain_offsets(found)

    def end_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The offsets behind the last records (with `read_committed`: behind the last that can be read)."""
        found = self._wait_for(self._ask_offsets(end(partitions), self._timeout(timeout)))
        return plain_offsets(found)

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionView]:
        """The topic's partitions, by number. Raises TopicNotFound, OperationTimedOut."""
        view = self._wait_for(self._ask_topic(topic, self._timeout(timeout)))
        return view.in_order()

    # --- the end ----------------------------------------------------------------------------------------------------

    def unsubscribe(self) -> None:
        """Give everything up and leave the group; with `enable.auto.commit` what was read is committed before."""
        self._check_process()
        with self._enters():
            self._driver.run(lambda: self._core.last_commit(0.0, all_done=True))
            notice = self._driver.run(self._core.parting)
            try:
                if notice is not None:
                    self._tell(notice)
            finally:
                self._subscribed = None
                self._driver.run(self._core.unsubscribe)

    def close(self, timeout: float | None = None) -> None:
        """Commit what was read (with `enable.auto.commit`), leave the group, end. Whoever waits in here hears
        ClientClosed at once; iterations end. What was handed out counts as done.

        What has to be said is said in any case, as far as a broker is connected. `timeout` is how many seconds to wait
        for answers: a twentieth by default, so that nothing keeps a process from ending; commit yourself, or give more,
        if you must know. Calling it again does nothing. Signal handlers may call it.
        """
        self._close(CLOSE_TIMEOUT_S if timeout is None else seconds("timeout", timeout), True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes. What was at hand when an exception ended the block is not committed."""
        self._close(CLOSE_TIMEOUT_S, kind is None)

    # --- fork -------------------------------------------------------------------------------------------------------

    def _left_behind(self) -> None:
        """In the child of a fork: connections, membership and positions are the parent's."""
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
