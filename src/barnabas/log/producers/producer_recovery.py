"""Finding a log's producers again: from the newest snapshot, and from the headers of the batches behind it."""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.errors import CorruptMessage
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.log.indexes.transaction_index import AbortedTransaction
from barnabas.log.log_segment import LogSegment
from barnabas.log.producers.producer_state_manager import EndMarker, ProducerStateManager
from barnabas.records.batch import BatchHeader, Buffer
from barnabas.records.reader import read_records

if TYPE_CHECKING:
    from barnabas.log.unified_log import UnifiedLog

__all__ = ["note_batch", "read_end_marker", "rebuild_producers"]

_REFILL_BYTES: Final = 8 * 1024 * 1024
"""How far in front of a snapshot the batches of producers in flight are looked for: five of a megabyte, and some of
others."""
_REFILL_AGE_MS: Final = 15 * 60 * 1000
"""A producer gives a batch up after delivery.timeout.ms, two to five minutes: older logs need no refill."""

_log = logging.getLogger(__name__)


def read_end_marker(batch: Buffer) -> EndMarker:
    """What the control record of a batch says. Raises CorruptMessage if it is not the end of a transaction."""
    records = read_records(batch, check_crc=False)
    key, value = (records[0].key, records[0].value) if records else (None, None)
    if key is None or value is None or len(key) < 4 or len(value) < 6 or key[2:4] not in (b"\0\0", b"\0\1"):
        raise CorruptMessage(f"a control batch of {len(batch)} bytes holds no end marker")
    return EndMarker(key[2:4] == b"\0\1", int.from_bytes(value[2:6], "big", signed=True))


def note_batch(
    producers: ProducerStateManager,
    header: BatchHeader,
    base_offset: int,
    marker: EndMarker | None,
    segment: LogSegment,
    append_ms: int,
) -> None:
    """Enter a producer's batch that is in the log since `append_ms`, `marker` if it ends a transaction.

    Raises nothing but what `segment.transaction_index` raises for an abort: an append asks for that one before.
    """
    if marker is None:
        if not header.is_control:
            producers.update(header, base_offset, append_ms)
        return
    completed = producers.end_transaction(header, base_offset, marker, append_ms)
    if completed is not None and completed.aborted:
        index = segment.transaction_index
        if not index.entries or index.entries[-1].last_offset < completed.last_offset:
            index.append(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
                )
            )


def rebuild_producers(log: "UnifiedLog", newest_snapshot: int | None = None) -> None:
    """Load the newest snapshot, at `newest_snapshot` at most, and replay what the log has behind it.

    Nobody expires here: a Kafka's snapshot has the time of the records, and the batches that a producer repeats come
    soon after a start. The next `remove_expired` is early enough for the others.
    """
    producers, end = log.producers, log.log_end_offset
    producers.load(log.log_start_offset, end if newest_snapshot is None else min(end, newest_snapshot))
    try:
        if producers.producers and _is_recent(log):
            producers.refill_batches(_headers_before(log.segments, producers.end_offset))
        _replay(log, producers.end_offset, end)
    except (
        CorruptMessage,
        CorruptIndex,
    ) as error:  # in a part that did not have to be verified; its readers will hear of it
        _log.warning("%s: producers may be incomplete: %s", log.topic_partition, error)
    producers.end_offset = end
    log.offsets.restore_last_stable(producers.first_unstable_offset(log.high_watermark))


def _replay(log: "UnifiedLog", start: int, end: int) -> None:
    """When a batch was appended no file says; it was not after the last change of its segment."""
    now_ms = log.clock.wall_ms()
    append_ms, of_segment = now_ms, None
    for segment, position, header in log.headers_from(start) if start < end else ():
        if segment is not of_segment:
            append_ms, of_segment = min(segment.changed_ms(), now_ms), segment
        if header.producer_id < 0 or header.next_offset <= start:
            continue
        marker = None
        if header.is_control:
            try:
                marker = read_end_marker(segment.read(position, header.size_bytes))
            except CorruptMessage as error:  # an emptied control batch, or a control record of another kind
                _log.info("%s: offset %d: %s", log.topic_partition, header.base_offset, error)
        note_batch(log.producers, header, header.base_offset, marker, segment, append_ms)


def _is_recent(log: "UnifiedLog") -> bool:
    return log.clock.wall_ms() - log.active_segment.changed_ms() < _REFILL_AGE_MS


def _headers_before(segments: Sequence[LogSegment], end_offset: int) -> Iterator[BatchHeader]:
    """Headers of producers' batches in the last megabytes below `end_offset`."""
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
