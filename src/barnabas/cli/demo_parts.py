"""Parts of the demo: what a consumer got, how far the group is, progress bars."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from barnabas.cli.flights import checksum, flight_id

__all__ = ["Progress", "Reading", "Tally", "commit", "measured"]


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
        self._batches: list[list[Any]] = []

    def take(self, messages: list[Any], state: "Reading") -> None:
        """Keep the messages; ends of partitions go to `state`. Raises KafkaException."""
        records = [message for message in messages if message.error() is None]
        if len(records) != len(messages):
            for message in messages:
                if message.error() is not None:
                    state.take_notice(message)
        if records:
            self._batches.append(records)
            self.records += len(records)
            self.last = time.perf_counter()
            self.first = self.first or self.last

    def look_into(self) -> None:
        """Ids, checksums, sizes, and whether offsets follow each other."""
        next_offsets: dict[int, int] = {}
        for batch in self._batches:
            for message in batch:
                key, value = message.key() or b"", message.value()
                partition, offset = message.partition(), message.offset()
                self.gaps += next_offsets.get(partition, offset) != offset
                next_offsets[partition] = offset + 1
                self.by_partition[partition] += 1
                self.seen.append((flight_id(value), checksum(key, value, message.timestamp()[1])))
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

    def take_notice(self, message: Any) -> None:
        """The end of a partition, or an error. Raises KafkaException."""
        from confluent_kafka import KafkaError as ClientKafkaError
        from confluent_kafka import KafkaException

        error = message.error()
        if error.code() == ClientKafkaError._PARTITION_EOF:
            if message.offset() >= self._ends.get(message.partition(), 0):
                self._left.discard(message.partition())
        elif not error.retriable():
            raise KafkaException(error)


def commit(consumer: Any) -> None:
    """Commit the positions of what was counted, and wait for the answer."""
    from confluent_kafka import KafkaException

    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].name() != "_NO_OFFSET":  # nothing read since the assignment
            raise


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
