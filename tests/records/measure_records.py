"""Measures checking, reading and building batches: PYTHONPATH=tests python tests/records/measure_records.py

Each figure is the median of seven rounds on one core. BARNABAS_PURE=1 measures the kernel's source uncompiled.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable

from barnabas.records import builder, reader, validation
from barnabas.records.builder import build_batch
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.records.validation import AppendPolicy, validate_produce
from source_forms import RECORD_WALK

POLICY = AppendPolicy(max_message_bytes=2**30)
T0 = 1_700_000_000_000


def use_source() -> None:
    """Puts the uncompiled record walk in the place of the compiled one."""
    for module in (builder, reader, validation):
        module.record_walk = RECORD_WALK  # type: ignore[attr-defined]


def seconds(work: Callable[[], object]) -> float:
    rounds, repeats = [], 1
    while True:
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        spent = time.perf_counter() - start
        if spent < 0.02:
            repeats *= 4
            continue
        rounds.append(spent / repeats)
        if len(rounds) == 7:
            return statistics.median(rounds)


def million(count: int, spent: float) -> str:
    return f"{count / spent / 1e6:7.2f} M rec/s"


def batches(size: int, count: int) -> list[Record]:
    return [Record(0, T0 + i // 10, None, os.urandom(size // 2).hex().encode()) for i in range(count)]


def main() -> None:
    print(f"kernel: {'compiled' if validation.record_walk.is_compiled() else 'plain Python'}")
    for size, count in ((10, 50_000), (100, 9_000), (1000, 1_000)):
        records = batches(size, count)
        batch = build_batch(records)
        view = memoryview(batch)
        print(f"{count} records of {size} B, {len(batch)} B uncompressed")
        spent = seconds(lambda v=view: validate_produce(v, POLICY, T0))
        print(f"  validate  {million(count, spent)} {len(batch) / spent / 1e6:8.0f} MB/s {spent * 1e6:8.0f} us")
        spent = seconds(lambda b=batch: read_records(b))
        print(f"  read      {million(count, spent)}")
        spent = seconds(lambda r=records: build_batch(r))
        print(f"  build     {million(count, spent)}")
    records = [
        Record(0, T0 + i // 10, None, b'{"number": %d, "carrier": "UA", "delay": %d}' % (i, i % 97))
        for i in range(9_000)
    ]
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        batch = build_batch(records, compression=codec)
        size = len(build_batch(records))
        spent = seconds(lambda b=batch: validate_produce(b, POLICY, T0))
        read = seconds(lambda b=batch: read_records(b))
        build = seconds(lambda c=codec: build_batch(records, compression=c))
        rates = f"validate {million(9_000, spent)}, read {million(9_000, read)}, build {million(9_000, build)}"
        print(f"{codec:7} {len(batch):7} of {size} B: {rates}")
    small = build_batch([Record(0, T0, b"k", b"v" * 100)])
    view = memoryview(small)
    print(f"one record of 100 B: validate {seconds(lambda: validate_produce(view, POLICY, T0)) * 1e6:.2f} us")
    small_lz4 = build_batch([Record(0, T0, b"k", b"v" * 100)], compression="lz4")
    print(f"one record of 100 B, lz4: validate {seconds(lambda: validate_produce(small_lz4, POLICY, T0)) * 1e6:.2f} us")
    append_time = AppendPolicy(log_append_time=True)
    spent = seconds(lambda: validate_produce(view, append_time, T0))
    print(f"one record of 100 B, LogAppendTime: validate {spent * 1e6:.2f} us")


if __name__ == "__main__":
    if os.environ.get("BARNABAS_PURE") == "1":
        use_source()
    sys.exit(main())
