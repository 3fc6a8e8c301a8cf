"""One closed batch on its way to a leader, with what is needed to send it again unchanged, renumbered, or in halves."""

from struct import Struct
from typing import Final

from barnabas.client.deadline import Deadline
from barnabas.records.batch import read_header, set_crc
from barnabas.records.builder import build_batch
from barnabas.records.reader import read_records
from barnabas.types import TopicPartition

__all__ = ["PendingBatch", "split_batch"]

_PRODUCER: Final = Struct(">qhi")
_PRODUCER_POSITION: Final = 43


class PendingBatch:
    """Bytes of a batch, its place in the producer's order, and its tries."""

    __slots__ = ("data", "deadline", "first_sent", "number", "partition", "record_count", "retried", "span")

    def __init__(
        self, partition: TopicPartition, number: float, data: bytearray, record_count: int, timeout_s: float
    ) -> None:
        self.partition = partition
        self.number = number
        self.span = 1.0
        """Up to number + span no other batch has its place: the room for halves."""
        self.data = data
        self.record_count = record_count
        self.deadline = Deadline(timeout_s)
        self.first_sent = 0.0
        self.retried = False

    def set_producer(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Write the idempotent producer's marks into the header, and the checksum anew."""
        _PRODUCER.pack_into(self.data, _PRODUCER_POSITION, producer_id, epoch, base_sequence)
        set_crc(self.data)


def split_batch(batch: PendingBatch, compression: str, level: int | None) -> list[PendingBatch]:
    """Two batches with the halves of the records, in place of the one: order, deadline and sequences stay."""
    header = read_header(batch.data)
    records = read_records(batch.data, check_crc=False)
    middle = len(records) // 2
    halves = []
    for start, part in ((0, records[:middle]), (middle, records[middle:])):
        data = build_batch(
            part,
            compression=compression,
            compression_level=level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=-1 if header.base_sequence < 0 else (header.base_sequence + start) & 0x7FFFFFFF,
        )
        span = batch.span / 2
        half = PendingBatch(batch.partition, batch.number + (span if start else 0.0), bytearray(data), len(part), 0)
        half.span = span
        half.deadline = batch.deadline
        half.retried = batch.retried
        half.first_sent = batch.first_sent
        halves.append(half)
    return halves
