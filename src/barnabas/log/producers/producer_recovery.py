"""Rebuilds the producer state of a log from the newest snapshot and the headers of the batches after it."""

import logging
from collections.abc import Iterator
from typing import Final

from barnabas.errors import CorruptMessage
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.log.indexes.transaction_index import AbortedTransaction
from barnabas.log.log_offsets import LogOffsets
from barnabas.log.log_segment import LogSegment
from barnabas.log.log_segments import LogSegments
from barnabas.log.producers.producer_state_manager import EndMarker, ProducerStateManager
from barnabas.records.batch import BatchHeader, Buffer
from barnabas.records.reader import read_records
from barnabas.types import Offset, TopicPartition

__all__ = ["note_batch", "read_end_marker", "rebuild_producers"]

_REFILL_BYTES: Final = 8 * 1024 * 1024
"""The distance before a snapshot in which the last batches of producers are searched: five batches of a megabyte, and
small ones."""
_REFILL_AGE_MS: Final = 15 * 60 * 1000
"""A producer retries a batch for delivery.timeout.ms, two to five minutes: older logs need no refill."""

_log = logging.getLogger(__name__)


def read_end_marker(batch: Buffer) -> EndMarker:
    """Returns the end marker in a control batch. Raises CorruptMessage if the batch holds none."""
    records = read_records(batch, check_crc=False)
    key, value = (records[0].key, records[0].value) if records else (None, None)
    if key is None or value is None or len(key) < 4 or len(value) < 6 or key[2:4] not in (b"\0\0", b"\0\1"):
        raise CorruptMessage(f"a control batch of {len(batch)} bytes holds no end marker")
    return EndMarker(key[2:4] == b"\0\1", int.from_bytes(value[2:6], "big", signed=True))


def note_batch(
    producers: ProducerStateManager,
    header: BatchHeader,
    base_offset: Offset,
    marker: EndMarker | None,
    segment: LogSegment,
    append_ms: int,
    transaction_version: int = 0,
) -> None:
    """Updates the producer state with a batch that was appended at `append_ms`; `marker` ends a transaction, by the
    rules of `transaction_version`.

    Only `segment.transaction_index` can raise, for an abort: an append opens that index before it writes.
    """
    if marker is None:
        if not header.is_control:
            producers.update(header, base_offset, append_ms)
        return
    completed = producers.end_transaction(header, base_offset, marker, append_ms, transaction_version)
    if completed is not None and completed.aborted:
        index = segment.transaction_index
        if not index.entries or index.entries[-1].last_offset < completed.last_offset:
            index.append(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
                )
            )


def rebuild_producers(
    topic_partition: TopicPartition,
    producers: ProducerStateManager,
    segments: LogSegments,
    offsets: LogOffsets,
    now_ms: int,
    newest_snapshot: Offset | None = None,
) -> None:
    """Loads the newest snapshot, at `newest_snapshot` at most, and replays the batches after it.

    No producer expires here: a snapshot of Kafka's has the time of the records, and producers retry batches soon after
    a start. The next `remove_expired` removes the others.
    """
    end = offsets.log_end_offset
    producers.load(offsets.log_start_offset, end if newest_snapshot is None else min(end, newest_snapshot))
    try:
        if producers.producers and now_ms - segments.active.changed_ms() < _REFILL_AGE_MS:
            producers.refill_batches(_headers_before(segments, producers.end_offset))
        if producers.end_offset < end:
            _replay(topic_partition, producers, segments, now_ms)
    except (CorruptMessage, CorruptIndex) as error:  # the damage is below the verified part: its readers get the error
        _log.warning("%s: producers may be incomplete: %s", topic_partition, error)
    producers.end_offset = end
    offsets.restore_last_stable(producers.first_unstable_offset(offsets.high_watermark))


def _replay(
    topic_partition: TopicPartition, producers: ProducerStateManager, segments: LogSegments, now_ms: int
) -> None:
    """Replays the batches after `producers.end_offset`.

    The files do not record when a batch was appended: at the latest at the last change of its segment.
    """
    start = producers.end_offset
    append_ms, of_segment = now_ms, None
    for segment, position, header in segments.headers_from(start):
        if segment is not of_segment:
            append_ms, of_segment = min(segment.changed_ms(), now_ms), segment
        if header.producer_id < 0 or header.next_offset <= start:
            continue
        marker = None
        if header.is_control:
            try:
                marker = read_end_marker(segment.read(position, header.size_bytes))
            except CorruptMessage as error:  # an emptied control batch, or a control record of another kind
                _log.info("%s: offset %d: %s", topic_partition, header.base_offset, error)
        note_batch(producers, header, header.base_offset, marker, segment, append_ms)


def _headers_before(segments: LogSegments, end_offset: Offset) -> Iterator[BatchHeader]:
    """Yields the headers of producers' batches in the last megabytes before `end_offset`."""
    budget = _REFILL_BYTES
    chosen: list[tuple[LogSegment, int]] = []
    for segment in reversed(segments):
        if segment.base_offset >= end_offset:
            continue
        found = segment.locate(end_offset)
        end = found[0] if found else segment.size
        position = segment.offset_index.lookup_position(end - budget)[1] if end > budget else 0
        chosen.append((segment, position))
        budget -= end - position
        if budget <= 0:
            break
    for segment, position in reversed(chosen):
        for _, header in segment.headers(position):
            if header.base_offset >= end_offset:
                return
            if header.producer_id >= 0:
                yield header
