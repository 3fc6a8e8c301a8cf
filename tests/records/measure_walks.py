"""Measures each loop over records by itself: python tests/records/measure_walks.py

CPU time in ns a record, the best of fifteen rounds, over batches of 9,000 records. PYTHONPATH=COPY/src measures another
checkout, or a copy without compiled modules: two are compared by runs in turn.
"""

import time
from collections.abc import Callable, Iterator

from barnabas.records.builder import build_batch
from barnabas.records.compiled.batch_filter import BatchFilter
from barnabas.records.compiled.consumer_records import RecordCursor, RecordOrigin
from barnabas.records.compiled.offset_map import OffsetMap
from barnabas.records.compiled.record_columns import RecordColumns
from barnabas.records.compiled.record_walk import check_records, read_records
from barnabas.records.record import Record

COUNT = 9_000
T0 = 1_700_000_000_000


def section(size: int, key: bool, headers: bool) -> bytes:
    """Returns a batch of COUNT records."""
    pairs = (("trace", b"0123456789abcdef"),) if headers else ()
    rows = [Record(0, T0 + i // 10, b"user-%d" % i if key else None, b"v" * size, pairs) for i in range(COUNT)]
    return build_batch(rows)


class Walks:
    """The loops over one batch."""

    def __init__(self, batch: bytes) -> None:
        self.batch = batch
        self.offsets = OffsetMap(2 * COUNT, COUNT, 0)
        self.offsets.map_batches(batch, 0)

    def check(self) -> None:
        check_records(self.batch, 61, COUNT, -(2**62), 2**62, -1, False, [], 10)

    def read(self) -> None:
        read_records(self.batch, 61, COUNT, 0, T0, None)

    def cursor(self) -> None:
        origin = RecordOrigin("t", 0, 0, 0)
        cursor = RecordCursor(origin, self.batch, 61, len(self.batch), COUNT, 0, T0, -1, 0, COUNT)
        while cursor.left:
            cursor.read([], 500)

    def columns(self) -> None:
        columns = RecordColumns(False)
        columns.add_batch(self.batch, 61, len(self.batch), COUNT, 0, T0, -1, False, 0, COUNT)

    def map(self) -> None:
        offsets = OffsetMap(2 * COUNT, COUNT, 0)
        offsets.map_batches(self.batch, 0)

    def filter(self) -> None:
        batches = BatchFilter(
            self.offsets, base_offset=0, now_ms=T0, delete_horizon_ms=T0, kept_offsets=frozenset(),
            last_kept_offset=-1, index_interval_bytes=4096,
        )  # fmt: skip
        batches.filter_batches(self.batch, 0)

    def __iter__(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for name in ("check", "read", "cursor", "columns", "map", "filter"):
            yield name, getattr(self, name)


def best(work: Callable[[], None], rounds: int = 15) -> float:
    found = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found) / COUNT * 1e9


def main() -> None:
    for name, arguments in {
        "100 B": (100, False, False),
        "100 B, key": (100, True, False),
        "100 B, key, header": (100, True, True),
        "10 B": (10, False, False),
    }.items():
        rates = {walk: best(work) for walk, work in Walks(section(*arguments))}
        print(f"{name:20}", "  ".join(f"{walk} {rate:7.1f}" for walk, rate in rates.items()), flush=True)


if __name__ == "__main__":
    main()
