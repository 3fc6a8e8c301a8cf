"""What it costs to get records out of a Fetch answer: PYTHONPATH=tests python tests/client/fetch/measure_fetch.py

9,000 records in batches of 16 KB; CPU time of one core, the median of fifteen rounds. aiokafka's compiled reader does
the same work beside it where it is installed. BARNABAS_PURE=1 measures the kernels' source uncompiled.
"""

import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from barnabas.client.fetch import columns, record_batch
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.records.builder import BatchBuilder
from barnabas.records.compiled.record_walk import is_compiled
from barnabas.types import TopicPartition

COUNT = 9_000
WHERE = TopicPartition("topic", 0)
T0 = 1_700_000_000_000


def answer(size: int, *, key: bool = False, headers: bool = False, codec: str = "none") -> bytes:
    rng = random.Random(size)
    data, offset = b"", 0
    while offset < COUNT:
        builder = BatchBuilder(base_offset=offset, compression=codec)
        while builder.size_bytes + size < 16_384 + 61 and offset < COUNT:
            value = b'{"id": %d, "text": "%s"}' % (offset, rng.randbytes(size).hex().encode())
            pairs = (("trace", b"0123456789abcdef"),) if headers else ()
            builder.append(b"user-%d" % offset if key else None, value[:size], T0 + offset // 10, pairs)
            offset += 1
        data += builder.build()
    return data


def ours(data: bytes) -> int:
    fetch, count = CompletedFetch(WHERE, data, 0), 0
    while records := fetch.read(500):
        for record in records:
            count += len(record.value) > 0
    return count


def ours_values(data: bytes) -> int:
    fetch, count = CompletedFetch(WHERE, data, 0), 0
    while (batch := fetch.read_batch()) is not None:
        count += sum(len(value) > 0 for value in batch.values())
    return count


def ours_arrow(data: bytes) -> int:
    fetch, count = CompletedFetch(WHERE, data, 0), 0
    while (batch := fetch.read_arrow()) is not None:
        count += batch.num_rows
    return count


def aiokafkas(data: bytes) -> int:
    from aiokafka.record.memory_records import MemoryRecords

    records, count = MemoryRecords(data), 0
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        for record in batch:
            count += len(record.value) > 0
    return count


def rate(work: Callable[[bytes], int], data: bytes) -> str:
    rounds = []
    for _ in range(15):
        start = time.process_time()
        assert work(data) == COUNT
        rounds.append(time.process_time() - start)
    return f"{COUNT / statistics.median(rounds) / 1e6:7.2f} M rec/s"


def main() -> None:
    if os.environ.get("BARNABAS_PURE") == "1":
        import source_kernels

        for name in ("RecordCursor", "RecordOrigin"):
            setattr(record_batch, name, getattr(source_kernels.SOURCE_CONSUMER, name))
        columns.RecordColumns = source_kernels.SOURCE_COLUMNS.RecordColumns  # type: ignore[misc]
        print("kernels: plain Python")
    else:
        print(f"kernels: {'compiled' if is_compiled() else 'plain Python'}")
    cases: list[tuple[str, dict[str, Any]]] = [
        ("100 B", {"size": 100}),
        ("100 B and a key", {"size": 100, "key": True}),
        ("100 B, a key, a header", {"size": 100, "key": True, "headers": True}),
        ("100 B, lz4", {"size": 100, "codec": "lz4"}),
        ("1000 B", {"size": 1000}),
    ]
    for name, options in cases:
        data = answer(**options)
        rates = {
            "records": rate(ours, data),
            "values": rate(ours_values, data),
            "Arrow": rate(ours_arrow, data),
            "aiokafka": rate(aiokafkas, data),
        }
        print(f"{name:24}", "  ".join(f"{what} {text}" for what, text in rates.items()))


if __name__ == "__main__":
    main()
