"""Reads exact ranges of offsets, for programs that plan reads elsewhere (`PartitionReader`)."""

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.fetch_session import FetchConfig
from barnabas.client.fetch.fetcher import FetchRequestManager
from barnabas.client.fetch.list_offsets import epoch_ends, list_offsets
from barnabas.client.fetch.positions import FetchPosition, FetchState, PartitionState
from barnabas.client.offset_messages import EARLIEST, LATEST
from barnabas.client.settings import ConsumerSettings
from barnabas.client.settings.network import network_client_settings
from barnabas.client.settings.tls import ssl_context
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.network_client import NetworkClient
from barnabas.errors import (
    BarnabasError,
    InvalidTopic,
    LogTruncation,
    NoOffsetForPartition,
    OperationTimedOut,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from barnabas.types import NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["PartitionReader"]

_SILENCE_S: Final = 0.5
"""The time without records after which the broker is asked whether the range has any."""
_DEFAULTS: Final = {
    "fetch.max.wait.ms": 100,
    "max.partition.fetch.bytes": 4 * 1024 * 1024,
    "receive.buffer.bytes": -1,  # Kafka's default of 64 KiB is a twentieth of what comes at once
}
_FIXED: Final = {"auto.offset.reset": "none", "allow.auto.create.topics": False}
_LASTING: Final = (InvalidTopic.code, TopicAuthorizationFailed.code)

_log = logging.getLogger("barnabas.consumer")


class _AssignedPartition:
    """The partition that is read now, for the Fetcher."""

    def __init__(self) -> None:
        self.topic_partition: TopicPartition | None = None
        self.state = PartitionState()

    def assigned(self) -> list[TopicPartition]:
        return [] if self.topic_partition is None else [self.topic_partition]

    def get(self, topic_partition: TopicPartition, /) -> PartitionState | None:
        return self.state if topic_partition == self.topic_partition else None

    def take_turn(self, topic_partition: TopicPartition, /) -> None:
        """Does nothing: there are no others."""

    def request_reset(self, topic_partition: TopicPartition, /) -> None:
        raise NoOffsetForPartition([topic_partition], "there is no valid offset")


class PartitionReader:
    """Reads ranges of partitions, one after the other, as Arrow batches. Records beyond the end of a range are not
    requested, so no broker holds a request back that delays the next range.

    An offset that the log does not have raises OffsetOutOfRange. Needs pyarrow. Only one thread may use it. Close it.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Takes the settings of a consumer; those about groups have no effect. Connects at the first use. Raises
        UsageError."""
        found = ConsumerSettings({**_DEFAULTS, **settings, **_FIXED})
        for warning in found.warnings:
            _log.warning("%s", warning)
        self._read_committed = found.read_committed
        self._timeout_s = found.default_api_timeout_ms / 1000
        self._client = NetworkClient(network_client_settings(found, allow_auto_topic_creation=False), time.monotonic())
        self._driver = SyncDriver(self._client, ssl_context=ssl_context(found), name="partition reader")
        self._assigned = _AssignedPartition()
        self._requests = FetchRequestManager(self._client, self._assigned, FetchConfig.of(found))
        self._topic_error: BarnabasError | None = None
        self._client.components.append(self._requests)
        self._client.on_metadata.append(self._follow_metadata)

    def close(self) -> None:
        """Ends the fetch sessions and the connections. A second call does nothing."""
        if not self._driver.closed:
            self._driver.run(self._requests.close)
            self._driver.close()

    def __enter__(self) -> "PartitionReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading ----------------------------------------------------------------------------------------------------

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Returns the first offset of the log and the offset behind its last record. With read_committed the end is
        the last stable offset."""
        first, end = (
            self._driver.wait_for(
                self._driver.run(
                    lambda timestamp=timestamp: list_offsets(  # type: ignore[misc]
                        self._client,
                        {partition: timestamp},
                        read_committed=self._read_committed,
                        timeout_s=self._timeout_s,
                    )
                )
            )[partition].offset
            for timestamp in (EARLIEST, LATEST)
        )
        return first, end

    def read(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        headers: bool = False,
        timeout: float | None = None,
    ) -> "Iterator[pyarrow.RecordBatch]":
        """Yields the records from `start` up to `end` (not included) in batches of about a megabyte; none where all
        records were compacted away or belong to aborted transactions. `timeout`: the seconds to wait for a batch.

        The columns are those of `Consumer.arrow`. Raises OffsetOutOfRange, LogTruncation, OperationTimedOut, and the
        errors of brokers.
        """
        if start < end:
            self._driver.run(lambda: self._assign(TopicPartition(*partition), start, end))
        while start < end:
            fetch = self._wait_for_fetch(end, timeout)
            if fetch is None:
                return
            try:
                batch = fetch.read_arrow(headers=headers)
            except BarnabasError:
                self._was_read(fetch, ended=False)  # up to the broken record
                raise
            start = self._was_read(fetch, ended=fetch.is_ended)
            if batch is not None:
                batch = _before(batch, end)
            if batch is not None:
                yield batch

    def _assign(self, topic_partition: TopicPartition, start: int, end: int) -> None:
        assigned = self._assigned
        self._requests.drop(assigned.assigned())
        if assigned.topic_partition is not None and assigned.topic_partition.topic != topic_partition.topic:
            self._client.metadata.remove_topics([assigned.topic_partition.topic])
        self._topic_error = None
        assigned.topic_partition, assigned.state = topic_partition, PartitionState()
        assigned.state.seek(FetchPosition(start))
        assigned.state.fetch_until = end
        self._client.add_topics([topic_partition.topic])
        self._requests.fetcher.follow_leaders()
        self._requests.changed()

    def _position(self) -> FetchPosition:
        position = self._assigned.state.position
        assert position is not None, "a partition is read without a position"
        return position

    def _was_read(self, fetch: CompletedFetch, *, ended: bool) -> int:
        """Moves the position behind the records that were read, and returns it."""
        with self._driver.lock:
            self._requests.fetcher.buffer.was_read(fetch, ended=ended)
            if ended and not self._requests.fetcher.is_fetching(fetch.partition):
                self._requests.changed()
            return self._position().offset

    def _wait_for_fetch(self, end: int, timeout: float | None) -> CompletedFetch | None:
        """Returns the fetch to read next, None if there are no records up to the end."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            fetch = self._driver.run_before_wait(self._next_fetch)
            if fetch is not None:
                return fetch
            if self._assigned.state.state is FetchState.AWAIT_VALIDATION:
                self._validate()
            elif not self._driver.wait(self._is_ready, min(_SILENCE_S, max(deadline - time.monotonic(), 0.0))):
                if self._is_empty(end):
                    return None
                if time.monotonic() >= deadline:
                    raise OperationTimedOut(
                        f"{self._assigned.topic_partition}: nothing came from offset {self._position().offset} on,"
                        f" wanted up to {end}, within {timeout:g} s",
                        self._client.unreachable().attempts,
                    )
                # a partition without changes is left out of the responses of a session
                self._driver.run(self._requests.fetcher.request_all)

    def _next_fetch(self) -> CompletedFetch | None:
        error = self._topic_error or self._requests.take_failure()
        if error is not None:
            raise error
        return self._requests.fetcher.buffer.next_fetch()

    def _is_ready(self) -> bool:
        return (
            self._topic_error is not None
            or self._requests.has_failed
            or not self._requests.fetcher.buffer.is_empty
            or not self._assigned.state.is_valid
        )

    def _is_empty(self, end: int) -> bool:
        """Returns whether the broker has answered for the position that it has all up to the end, without records: a
        compaction removed the last records of a log whose newest segment is empty."""
        state = self._assigned.state
        last = state.last_stable_offset if self._read_committed else state.high_watermark
        return state.empty_at == self._position().offset and last != NO_OFFSET and last >= end

    # --- leaders ----------------------------------------------------------------------------------------------------

    def _follow_metadata(self) -> None:
        for topic, _ in self._assigned.assigned():
            view = self._client.metadata.cluster.topics.get(topic)
            if view is not None and view.error_code in _LASTING:
                self._topic_error = self._client.metadata.topic_error(topic)
        self._requests.fetcher.follow_leaders()
        self._requests.changed()

    def _validate(self) -> None:
        """Asks the new leader whether its log holds the records that were read. Raises LogTruncation (KIP-320)."""
        state, position = self._assigned.state, self._position()
        assert self._assigned.topic_partition is not None
        topic_partition, epoch = self._assigned.topic_partition, position.offset_epoch
        asked = self._driver.run(lambda: epoch_ends(self._client, {topic_partition: epoch}, self._timeout_s))
        try:
            found = self._driver.wait_for(asked)[topic_partition]
        except UnsupportedVersion:
            found = None  # brokers before 2.3 cannot answer
        with self._driver.lock:
            if state.position != position:
                return  # the leader has changed again
            diverging = None if found is None else state.diverging(*found)
            if diverging is not None:
                raise LogTruncation(topic_partition, position, None if diverging.offset == NO_OFFSET else diverging)
            state.seek(position)
            self._requests.changed()


def _before(batch: "pyarrow.RecordBatch", end: int) -> "pyarrow.RecordBatch | None":
    """Returns the records before the offset, None if there are none."""
    offsets = batch.column("offset")
    if offsets[len(offsets) - 1].as_py() < end:
        return batch
    values = memoryview(offsets.buffers()[1]).cast("q")[offsets.offset : offsets.offset + len(offsets)]
    count = bisect_left(values, end)
    return batch.slice(0, count) if count else None
