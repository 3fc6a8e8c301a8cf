"""What it costs to encode records in bulk: python tests/client/core/measure_bulk.py

50,000 values of 100 B into batches of 16 KB, framed and summed; CPU time of one core, the median of nine rounds.
aiokafka's compiled builder does the same work beside it where it is installed.
"""

import random
import statistics
import time
from collections.abc import Callable

from crc32c import crc32c

from barnabas.client.core.bulk import BulkRules, list_sections, table_sections
from barnabas.records import bulk_kernel
from barnabas.records.batch import CHECKED, PREFIX
from barnabas.records.builder import BatchBuilder
from barnabas.records.bulk_kernel import RecordSection

COUNT = 50_000
T0 = 1_700_000_000_000
PARTITIONS = 4


def framed(sections: list[RecordSection]) -> int:
    """Header and checksum for each, as a sender adds them."""
    for section in sections:
        count = section.record_count
        checked = CHECKED.pack(0, count - 1, section.base_timestamp, section.max_timestamp, -1, -1, -1, count)
        crc = crc32c(section.records, crc32c(checked))
        PREFIX.pack(0, 49 + len(section.records), 0, 2, crc)
    return sum(section.record_count for section in sections)


def one_by_one(values: list[bytes]) -> int:
    count, builder = 0, BatchBuilder()
    for value in values:
        if builder.size_bytes + len(value) + 32 > 16_384:
            builder.build()
            builder = BatchBuilder()
        builder.append(None, value, T0)
        count += 1
    builder.build()
    return count


def aiokafkas(values: list[bytes]) -> int:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    index = 0
    while index < len(values):
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 16_384)
        start = index
        while index < len(values) and builder.append(index - start, T0, None, values[index], []) is not None:
            index += 1
        builder.build()
    return index


def rate(work: Callable[[], int]) -> str:
    rounds = []
    for _ in range(9):
        start = time.process_time()
        assert work() == COUNT
        rounds.append(time.process_time() - start)
    return f"{COUNT / statistics.median(rounds) / 1e6:7.2f} M rec/s"


def main() -> None:
    import pyarrow as pa

    print(f"kernels: {'compiled' if bulk_kernel.is_compiled() else 'plain Python'}")
    rng = random.Random(1)
    values = [rng.randbytes(50).hex().encode() for _ in range(COUNT)]
    keys = [b"user-%06d" % rng.randrange(100_000) for _ in range(COUNT)]
    rules = BulkRules(PARTITIONS, 0, lambda: rng.randrange(PARTITIONS), 16_384, 1024 * 1024, T0)
    table = pa.table({"value": pa.array(values, pa.binary())})
    keyed = table.append_column("key", pa.array(keys, pa.binary()))
    print("lists                ", rate(lambda: framed(list_sections(rules, values))))
    print("lists, by key        ", rate(lambda: framed(list_sections(rules, values, keys))))
    print("table                ", rate(lambda: framed(table_sections(rules, table))))
    print("table, by key        ", rate(lambda: framed(table_sections(rules, keyed))))
    print("one by one           ", rate(lambda: one_by_one(values)))
    print("aiokafka, one by one ", rate(lambda: aiokafkas(values)))


if __name__ == "__main__":
    main()
