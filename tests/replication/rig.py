"""A batch to append, a clock that is set by hand, and a watcher of a partition."""

from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.replication.partition import Partition


def validated_batch(value: bytes = b"x") -> ValidatedBatch:
    batch = build_batch([Record(0, 1_700_000_000_000, None, value, ())])
    header = read_header(batch)
    return ValidatedBatch(header, batch, header.max_timestamp, 0, 1)


class Watcher:
    def __init__(self, partition: Partition) -> None:
        self.woken = 0
        partition.watchers[self] = None

    def partition_changed(self, *_: object) -> None:
        self.woken += 1
