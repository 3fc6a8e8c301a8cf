"""A batch that a topic does not take for its size, in halves."""

from librt.strings import BytesWriter

from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.record_appender import BATCH_OVERHEAD
from barnabas.records.compression import NONE, compress, decompress
from barnabas.records.kernel import read_records, write_records
from barnabas.records.record import Record

__all__ = ["halves_of"]


def halves_of(batch: ProducerBatch, level: int | None) -> list[ProducerBatch]:
    """Two batches with the halves of the records: order, deadline and sequences stay."""
    assert batch.body is not None
    body = decompress(batch.compression, batch.body)
    records = read_records(body, 0, batch.count, 0, batch.base_timestamp, None)
    middle = len(records) // 2
    halves = []
    for start, part in ((0, records[:middle]), (middle, records[middle:])):
        half = _batch_of(batch, part, level)
        half.span = batch.span / 2
        half.number = batch.number + (half.span if start else 0.0)
        if batch.base_sequence >= 0:
            half.base_sequence = (batch.base_sequence + start) & 0x7FFFFFFF
        halves.append(half)
    return halves


def _batch_of(whole: ProducerBatch, records: list[Record], level: int | None) -> ProducerBatch:
    half = ProducerBatch(whole.topic, whole.partition, records[0].timestamp, whole.owner)
    out = BytesWriter()
    half.max_timestamp = write_records(out, records, 0, records[0].timestamp)
    body = out.getvalue()
    half.body = body if whole.compression == NONE else compress(whole.compression, body, level)
    half.count = len(records)
    half.size = BATCH_OVERHEAD + len(half.body)
    half.compression = whole.compression
    half.is_open = False
    half.opened_at = whole.opened_at
    half.deadline = whole.deadline
    half.sent_at = whole.sent_at
    half.producer_id = whole.producer_id
    half.producer_epoch = whole.producer_epoch
    half.reasons = whole.reasons
    return half
