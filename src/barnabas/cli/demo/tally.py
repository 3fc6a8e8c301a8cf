"""Counts what the demo's consumers read, measures it, and shows progress bars."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from barnabas.pipeline.demo.flights import checksum, flight_id
from barnabas.records.consumer_record import ConsumerRecord

__all__ = ["GroupReading", "ProgressBar", "Tally", "measured"]

_PARTITION_AND_OFFSET: Final = attrgetter("partition", "offset")


class Tally:
    """The records of one consumer, which its thread adds. They are examined when all are read, so as not to slow down
    the reading that is measured."""

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

    def examine(self) -> None:
        """Takes ids, checksums and sizes, and counts gaps between offsets."""
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


class GroupReading:
    """The progress of the group, which the consumers' threads share."""

    def __init__(self, ends: dict[int, int]) -> None:
        self._ends = ends
        self._left = set(ends)
        self.stop = threading.Event()
        self.failure: str | None = None

    @property
    def complete(self) -> bool:
        return not self._left

    def take(self, records: list[ConsumerRecord]) -> None:
        """Notes which partitions are read to their ends."""
        for partition, offset in dict(map(_PARTITION_AND_OFFSET, records)).items():
            if offset + 1 >= self._ends.get(partition, 0):
                self._left.discard(partition)


def measured(records: int, size: int, seconds: float) -> dict[str, Any]:
    """Returns the figures of a stage."""
    seconds = max(seconds, 1e-9)
    return {
        "records": records,
        "bytes": size,
        "seconds": round(seconds, 3),
        "records_per_second": round(records / seconds),
        "megabytes_per_second": round(size / seconds / 1e6, 1),
    }


class ProgressBar:
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
