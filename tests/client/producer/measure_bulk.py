"""What it costs to take records in: python tests/client/producer/measure_bulk.py

100,000 values of 100 B into batches of 16 and 256 KB, in bulk and one by one, without compression and checksum; CPU
time of one core, the best of nine rounds. aiokafka's compiled builder does the same work beside it, where it is
installed.
"""

import random
import time
from collections.abc import Callable

from librt.threading import Lock

from barnabas.client.producer.bulk.rows import RowSource, rows_of_lists, rows_of_table
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.record_appender import RecordAppender, TopicInfo
from barnabas.records.compiled.record_walk import is_compiled

COUNT = 100_000
T0 = 1_700_000_000_000
PARTITIONS = 4


class Owner:
    """Driver, accumulator and partitioner of an appender, which do as little as it can do with."""

    def __init__(self, batch_size: int) -> None:
        self.appender = RecordAppender(
            self,  # type: ignore[arg-type]  # it has what is asked of a driver here
            Lock(),
            self,
            self,
            batch_size=batch_size,
            bulk_batch_size=batch_size,
            linger_ms=5,
            buffer_memory=1 << 40,
            record_size_max=1 << 20,
        )
        self.topic = self.appender.topics["t"] = TopicInfo("t", bytes(16), PARTITIONS, 0)

    def batch_opened(self, batch: ProducerBatch) -> None: ...

    def next_partition(self, topic: TopicInfo) -> int:
        return (int(topic.sticky_partition) + 1) % PARTITIONS

    def turn(self) -> None:
        for batch in self.appender.take_full_batches():
            self.appender.take_records(batch)

    def in_bulk(self, source: RowSource) -> None:
        for rows in source.chunks:
            row = 0
            while row < rows.count:
                row = self.appender.append_rows(self.topic, rows, row, [])
                self.turn()


def lists(owner: Owner, values: list[bytes], keys: list[bytes] | None) -> None:
    owner.in_bulk(rows_of_lists(values, keys, None, None, None, 1 << 20))


def one_by_one(owner: Owner, values: list[bytes]) -> None:
    send = owner.appender.send
    for value in values:
        send("t", value)


def aiokafkas(values: list[bytes], batch_size: int) -> None:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    index = 0
    while index < len(values):
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, batch_size)
        start = index
        while index < len(values) and builder.append(index - start, T0, None, values[index], []) is not None:
            index += 1
        builder.build()


def nanoseconds(work: Callable[[], None]) -> str:
    rounds = []
    for _ in range(9):
        start = time.process_time()
        work()
        rounds.append(time.process_time() - start)
    return f"{min(rounds) / COUNT * 1e9:6.0f} ns a record"


def measure(batch_size: int, values: list[bytes], keys: list[bytes]) -> None:
    import pyarrow as pa

    table = pa.table({"value": pa.array(values, pa.binary())})
    keyed = table.append_column("key", pa.array(keys, pa.binary()))
    owner = Owner(batch_size)
    print(f"batches of {batch_size} bytes")
    print("lists                ", nanoseconds(lambda: lists(owner, values, None)))
    print("lists, by key        ", nanoseconds(lambda: lists(owner, values, keys)))
    print("table                ", nanoseconds(lambda: owner.in_bulk(rows_of_table(table, -1, 1 << 20))))
    print("table, by key        ", nanoseconds(lambda: owner.in_bulk(rows_of_table(keyed, -1, 1 << 20))))
    print("one by one           ", nanoseconds(lambda: one_by_one(owner, values)))
    print("aiokafka, one by one ", nanoseconds(lambda: aiokafkas(values, batch_size)))


def main() -> None:
    print(f"kernels: {'compiled' if is_compiled() else 'plain Python'}")
    rng = random.Random(1)
    values = [rng.randbytes(50).hex().encode() for _ in range(COUNT)]
    keys = [b"user-%06d" % rng.randrange(100_000) for _ in range(COUNT)]
    for batch_size in (16_384, 262_144):
        measure(batch_size, values, keys)


if __name__ == "__main__":
    main()
