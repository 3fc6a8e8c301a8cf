"""Decodes records of the fetch buffer, passes them through the interceptors and delivers them, in both consumers.

No method waits. Records are decoded without the driver's lock, because the application's deserializers and interceptors
may be slow; records whose decoding is interrupted are fetched again.
"""

import logging
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.client.arguments import INT64_MAX, number, seconds_or_none
from barnabas.client.consumer.delivered_records import DecodedRecords
from barnabas.client.consumer.front_base import ConsumerBase
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.errors import BarnabasError, UsageError
from barnabas.records.consumer_record import AnyRecord

if TYPE_CHECKING:
    import pyarrow

__all__ = ["CHUNK", "Ended", "Pace", "ReadingBase"]

T = TypeVar("T")

CHUNK: Final = 1000
"""The number of records that are decoded at once for an iteration."""
RUN_MAX: Final = 128
"""The most records that an iteration gives before it checks whether the application has to poll."""
RUN_FAST_S: Final = 0.002
RUN_SLOW_S: Final = 0.05

_log = logging.getLogger("barnabas.consumer")


class Pace:
    """Adapts the number of records in a run of an iteration to the speed of the application."""

    __slots__ = ("_began", "size")

    def __init__(self) -> None:
        self.size = 1
        self._began = 0.0

    def begin(self) -> float:
        """Begins a run, and returns the time."""
        self._began = now = time.monotonic()
        return now

    def end(self) -> bool:
        """Ends the run. Returns whether it took so long that other tasks should run."""
        took = time.monotonic() - self._began
        if took < RUN_FAST_S:
            self.size = min(2 * self.size, RUN_MAX)
            return False
        if took > RUN_SLOW_S:
            self.size = 1
        return True


_count = number(1, INT64_MAX)


class Ended(Exception):
    """The consumer was closed: an iteration is at its end."""


class ReadingBase(ConsumerBase):
    @abstractmethod
    def _reads(self) -> AbstractContextManager[None]:
        """Lets one thread or task poll at a time. Raises UsageError."""

    def _poll_limit(self, timeout: float | None, max_records: int | None) -> int:
        """Checks the arguments of a poll, and returns the most records that it may return."""
        seconds_or_none("timeout", timeout)
        return self.settings.max_poll_records if max_records is None else _count("max_records", max_records)

    def _collect(self, records: list[AnyRecord], found: DecodedRecords | CompletedFetch | None, limit: int) -> None:
        """Adds up to `limit` of the buffered records. An error behind the first record is raised by the next poll."""
        while found is not None:
            more = self._return_some(found, limit - len(records), raises=not records)
            if more is None:
                return
            records += more
            if len(records) >= limit:
                return
            with self._driver.lock:
                found = self._state.more_records() if records else self._state.next_records()

    def _return_some(
        self, found: DecodedRecords | CompletedFetch, limit: int, *, raises: bool
    ) -> list[AnyRecord] | None:
        """Returns up to `limit` records. Without `raises`, returns None for an error, which is raised the next time."""
        if isinstance(found, DecodedRecords):
            with self._driver.lock:
                return self._state.delivered.deliver(found, limit)
        try:
            records = self._read(found, limit)
        except BarnabasError:
            if raises:
                raise
            return None
        with self._driver.lock:
            if len(records) <= limit:
                is_wanted = self._state.deliver(found, ended=found.is_ended, gives=bool(records))
                return records if is_wanted else []
            decoded = self._state.hold(found, records, ended=found.is_ended)  # an interceptor has added some
            return [] if decoded is None else self._state.delivered.deliver(decoded, limit)

    def _decode(self, fetch: CompletedFetch, limit: int) -> DecodedRecords | None:
        records = self._read(fetch, limit)
        with self._driver.lock:
            return self._state.hold(fetch, records, ended=fetch.is_ended)

    def _read(self, fetch: CompletedFetch, limit: int) -> list[AnyRecord]:
        try:
            records = fetch.read(limit)
        except BarnabasError:
            with self._driver.lock:  # the position now is that of the broken record
                self._state.hold(fetch, [], ended=False)
            raise
        return self._intercepted(records) if records and self.settings.interceptor_classes else records

    def _intercepted(self, records: list[AnyRecord]) -> list[AnyRecord]:
        """Calls the interceptors in turn, which may change or leave out records. One that fails has no effect."""
        for interceptor in self.settings.interceptor_classes:
            if hasattr(interceptor, "on_consume"):
                try:
                    records = list(interceptor.on_consume(records))
                except Exception:
                    _log.exception("on_consume of %r fails", interceptor)
        return records

    def _read_batch(self, found: DecodedRecords | CompletedFetch) -> "RecordBatch[Any, Any] | None":
        if isinstance(found, CompletedFetch) and not self._decodes_each:
            return self._read_whole(found, found.read_batch)
        partition = found.partition
        records = self._return_some(found, CHUNK, raises=True)
        return RecordBatch.of(partition, records) if records else None

    @property
    def _decodes_each(self) -> bool:
        """Whether each record must be decoded, for deserializers or interceptors."""
        settings = self.settings
        return bool(settings.key_deserializer or settings.value_deserializer or settings.interceptor_classes)

    def _read_table(self, found: DecodedRecords | CompletedFetch, headers: bool) -> "pyarrow.Table | None":
        from barnabas.client.fetch.columns import require_pyarrow

        pyarrow = require_pyarrow()
        if isinstance(found, DecodedRecords):
            raise UsageError("an iteration over records has stopped in the middle; finish it before you read tables")
        batch = self._read_whole(found, lambda: found.read_arrow(headers=headers))
        return None if batch is None else pyarrow.Table.from_batches([batch])

    def _read_whole(self, fetch: CompletedFetch, read: Callable[[], T | None]) -> T | None:
        """Delivers the result of `read` for the fetch at once; None if it is no longer wanted."""
        try:
            batch = read()
        except BarnabasError:
            with self._driver.lock:
                self._state.deliver(fetch, ended=False, gives=False)
            raise
        with self._driver.lock:
            is_wanted = self._state.deliver(fetch, ended=fetch.is_ended, gives=batch is not None)
        return batch if is_wanted else None
