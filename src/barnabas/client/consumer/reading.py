"""What both consumers do between the store and the application: decode, intercept, hand out, take back.

Nothing here waits. Records are decoded without the driver's lock, because deserializers and interceptors are the
application's and may take their time; whatever of that is interrupted is fetched again, never left out.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.client.arguments import INT64_MAX, number, seconds_or_none
from barnabas.client.consumer.delivered_records import Held
from barnabas.client.consumer.front_base import Callback, ConsumerBase
from barnabas.client.consumer.group.rebalance import ASSIGNED, Notice
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.errors import BarnabasError, UsageError
from barnabas.records.consumer_record import AnyRecord

if TYPE_CHECKING:
    import pyarrow

__all__ = ["CHUNK", "Pace", "ReadingBase"]

T = TypeVar("T")

CHUNK: Final = 1000
"""Records that are decoded at once for an iteration."""
RUN_MAX: Final = 128
"""Records that an iteration gives without looking whether anything else is to be done."""
RUN_FAST_S: Final = 0.002
RUN_SLOW_S: Final = 0.05

_log = logging.getLogger("barnabas.consumer")


class Pace:
    """How many records an iteration gives in one run: one while each takes its time, many while they fly by."""

    __slots__ = ("_began", "size")

    def __init__(self) -> None:
        self.size = 1
        self._began = 0.0

    def begin(self) -> float:
        """A run begins now; the time."""
        self._began = now = time.monotonic()
        return now

    def end(self) -> bool:
        """Whether the run took its time, so that others should have their turn."""
        took = time.monotonic() - self._began
        if took < RUN_FAST_S:
            self.size = min(2 * self.size, RUN_MAX)
            return False
        if took > RUN_SLOW_S:
            self.size = 1
        return True


_count = number(1, INT64_MAX)


class ReadingBase(ConsumerBase):
    """See the module."""

    def _poll_limit(self, timeout: float | None, max_records: int | None) -> int:
        """How many a poll returns, after a look at both of its arguments."""
        seconds_or_none("timeout", timeout)
        return self.settings.max_poll_records if max_records is None else _count("max_records", max_records)

    def _collect(self, records: list[AnyRecord], found: Held | CompletedFetch | None, limit: int) -> None:
        """Add up to `limit` records of what is in store. What is wrong with the first of them is raised; what comes
        after some is told by the next poll."""
        while found is not None:
            more = self._return_some(found, limit - len(records), told=not records)
            if more is None:
                return
            records += more
            if len(records) >= limit:
                return
            with self._driver.lock:
                found = self._core.more_of_it() if records else self._core.more()

    def _return_some(self, found: Held | CompletedFetch, limit: int, *, told: bool) -> list[AnyRecord] | None:
        """Up to `limit` records. What is wrong with them is raised if `told`; otherwise None, and the next time."""
        if isinstance(found, Held):
            with self._driver.lock:
                return self._core.handing.return_some(found, limit)
        try:
            records = self._read(found, limit)
        except BarnabasError:
            if told:
                raise
            return None
        with self._driver.lock:
            if len(records) <= limit:
                counts = self._core.took(found, ended=found.is_ended, gives=bool(records))
                return records if counts else []
            held = self._core.take(found, records, ended=found.is_ended)  # an interceptor has added some
            return [] if held is None else self._core.handing.return_some(held, limit)

    def _decode(self, fetch: CompletedFetch, limit: int) -> Held | None:
        records = self._read(fetch, limit)
        with self._driver.lock:
            return self._core.take(fetch, records, ended=fetch.is_ended)

    def _read(self, fetch: CompletedFetch, limit: int) -> list[AnyRecord]:
        try:
            records = fetch.read(limit)
        except BarnabasError:
            with self._driver.lock:  # it has come up to what is broken
                self._core.take(fetch, [], ended=False)
            raise
        return self._intercepted(records) if records and self.settings.interceptor_classes else records

    def _intercepted(self, records: list[AnyRecord]) -> list[AnyRecord]:
        """One interceptor after the other may change or leave out records; one that fails changes nothing."""
        for interceptor in self.settings.interceptor_classes:
            if hasattr(interceptor, "on_consume"):
                try:
                    records = list(interceptor.on_consume(records))
                except Exception:
                    _log.exception("on_consume of %r fails", interceptor)
        return records

    def _read_batch(self, found: Held | CompletedFetch) -> "RecordBatch[Any, Any] | None":
        if isinstance(found, CompletedFetch) and not self._is_seen:
            return self._read_whole(found, found.read_batch)
        where = found.where if isinstance(found, Held) else found.partition
        records = self._return_some(found, CHUNK, told=True)
        return RecordBatch.of(where, records) if records else None

    @property
    def _is_seen(self) -> bool:
        """Whether deserializers or interceptors want to see each record."""
        settings = self.settings
        return bool(settings.key_deserializer or settings.value_deserializer or settings.interceptor_classes)

    def _read_table(self, found: Held | CompletedFetch, headers: bool) -> "pyarrow.Table | None":
        from barnabas.client.fetch.columns import require_pyarrow

        pyarrow = require_pyarrow()
        if isinstance(found, Held):
            raise UsageError("an iteration over records has stopped in the middle; finish it before you read tables")
        batch = self._read_whole(found, lambda: found.read_arrow(headers=headers))
        return None if batch is None else pyarrow.Table.from_batches([batch])

    def _read_whole(self, fetch: CompletedFetch, read: Callable[[], T | None]) -> T | None:
        """What `read` makes of the fetch goes to the application at once."""
        try:
            batch = read()
        except BarnabasError:
            with self._driver.lock:
                self._core.took(fetch, ended=False, gives=False)
            raise
        with self._driver.lock:
            counts = self._core.took(fetch, ended=fetch.is_ended, gives=batch is not None)
        return batch if counts else None

    def _callback_for(self, notice: Notice) -> Callback | None:
        """Who is to hear of it; an assignment without anything new is told, too."""
        return self._listener.for_notice(notice) if notice.partitions or notice.kind == ASSIGNED else None
