"""Parts of the demo: what a consumer got, how far the group is, progress bars."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from barnabas.pipeline.demo.flights import checksum, flight_id
from barnabas.records.consumer_record import ConsumerRecord

__all__ = ["Progress", "Reading", "Tally", "measured"]

_PLACE: Final = attrgetter("partition", "offset")


class Tally:
    """What one consumer got. Only its thread writes here; looked into when all is read, so that reading is measured."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records = 0
        self.size = 0
        self.gaps = 0
        self.first = 0.0
        self.last = 0.0
        self.seen: list[tuple[int, int]] = []
        self.by_partition: Counter[int] = Counter()
        self._batches: list[list[ConsumerRecord]] = []

    def take(self, records: list[ConsumerRecord]) -> None:
        self._batches.append(records)
        self.records += len(records)
        self.last = time.perf_counter()
        self.first = self.first or self.last

    def look_into(self) -> None:
        """Ids, checksums, sizes, and whether offsets follow each other."""
        next_offsets: dict[int, int] = {}
        for batch in self._batches:
            for record in batch:
                key, value = record.key or b"", record.value or b""
                partition, offset = record.partition, record.offset
                self.gaps += next_offsets.get(partition, offset) != offset
                next_offsets[partition] = offset + 1
                self.by_partition[partition] += 1
                self.seen.append((flight_id(value), checksum(key, value, record.timestamp)))
                self.size += len(key) + len(value)
            batch.clear()


class Reading:
    """How far the group has come; the threads share it."""

    def __init__(self, ends: dict[int, int]) -> None:
        self._ends = ends
        self._left = set(ends)
        self.stop = threading.Event()
        self.failure: str | None = None

    @property
    def complete(self) -> bool:
        return not self._left

    def take(self, records: list[ConsumerRecord]) -> None:
        """These are read: some partition may have come to its end."""
        for partition, offset in dict(map(_PLACE, records)).items():
            if offset + 1 >= self._ends.get(partition, 0):
                self._left.discard(partition)


def measured(records: int, size: int, seconds: float) -> dict[str, Any]:
    """What is printed of a stage."""
    seconds = max(seconds, 1e-9)
    return {
        "records": records,
        "bytes": size,
        "seconds": round(seconds, 3),
        "records_per_second": round(records / seconds),
        "megabytes_per_second": round(size / seconds / 1e6, 1),
    }


class Progress:
    """rich's progress bar, or nothing. The block's value moves it forward."""

    def __init__(self, title: str, total: int, *, shown: bool) -> None:
        self._title = title
        self._total = total
        self._bar: Any = None
        if shown:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns)

    def __enter__(self) -> Callable[[int], None]:
        if self._bar is None:
            return lambda count: None
        self._bar.start()
        task = self._bar.add_task(f"{self._title:<10}", total=self._total)
        return lambda count: self._bar.advance(task, count)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
