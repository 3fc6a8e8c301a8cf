"""A partition of the simulated cluster: batches, leader epochs, the producers' sequence numbers, transactions."""

from collections import deque
from typing import Any, NamedTuple

from barnabas.records.batch import crc_of, read_header
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.reader import read_records
from barnabas.records.record import Record

__all__ = ["Batch", "Log"]

DUPLICATES_KEPT = 5
MESSAGE_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH = 10, 45, 47


class Batch(NamedTuple):
    """A batch as it lies in the log. `header` is the one that the producer sent."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    header: Any
    data: bytes


class Log:
    """One partition. It checks producers as Kafka's brokers do, and remembers which records transactions hide."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.values: dict[int, bytes | None] = {}
        """The values of all records by their offsets, without the end markers of transactions."""
        self.leader_epoch = 0
        self.start = 0
        self.end = 0
        self.fetch_error = 0
        """The error that every Fetch of the partition is answered with."""
        self.batch_size_max = 1 << 30
        self.producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = {}
        """By producer id: the epoch, and (first sequence, last sequence, base offset) of the last batches."""
        self.open: dict[int, list[int]] = {}
        """By producer id: the offsets of the records of its open transaction."""
        self.hidden: set[int] = set()
        """The offsets of the records of aborted transactions."""
        self.aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker) of each aborted transaction."""

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, *values: bytes, timestamp: int = 0) -> None:
        """Appends one batch without a producer id."""
        self._place(build_batch([Record(0, timestamp, None, value) for value in values]))

    def write(self, producer_id: int, *values: bytes) -> None:
        """Appends a batch of a transaction, which begins if there is none. Its sequence numbers are not checked."""
        records = [Record(0, 0, None, value) for value in values]
        self._place(
            build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        )

    def produce(self, data: bytes) -> tuple[int, int]:
        """Appends a producer's batch. Returns the error code and the base offset."""
        header = read_header(data)
        assert header.crc == crc_of(data)
        assert header.size_bytes == len(data)
        if len(data) > self.batch_size_max:
            return MESSAGE_TOO_LARGE, -1
        if header.producer_id < 0:
            return 0, self._place(data)
        code, offset = self._check(header)
        if code is not None:
            return code, offset
        offset = self._place(data)
        epoch, kept = self.producers.get(header.producer_id, (header.producer_epoch, deque()))
        if epoch != header.producer_epoch:
            kept = deque()
        kept.append((header.base_sequence, header.last_sequence, offset))
        while len(kept) > DUPLICATES_KEPT:
            kept.popleft()
        self.producers[header.producer_id] = (header.producer_epoch, kept)
        return 0, offset

    def _check(self, header: Any) -> tuple[int | None, int]:
        """The error code, or None if the batch is to be appended; 0 and the base offset for a duplicate."""
        known = self.producers.get(header.producer_id)
        if known is None:
            return None, -1  # the first batch of a producer id may have any sequence number
        epoch, kept = known
        if header.producer_epoch < epoch:
            return INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > epoch:
            return (None, -1) if header.base_sequence == 0 else (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        for first, last, offset in kept:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return 0, offset
        expected = (kept[-1][1] + 1) & 0x7FFFFFFF if kept else 0
        return (None, -1) if header.base_sequence == expected else (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    def end_transaction(self, producer_id: int, *, committed: bool, epoch: int = 0) -> None:
        """Appends the end marker of a transaction."""
        offsets = self.open.pop(producer_id, [])
        if offsets and not committed:
            self.hidden.update(offsets)
            self.aborted.append((producer_id, offsets[0], self.end))
        known = self.producers.get(producer_id)
        if known is None or epoch > known[0]:
            self.producers[producer_id] = epoch, deque()
        self._place(
            build_control_batch(
                committed=committed, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, timestamp=0
            )
        )

    def _place(self, data: bytes) -> int:
        """Appends the batch under the next offset and the leader's epoch. Returns its base offset."""
        header = read_header(data)
        found = [] if header.is_control else read_records(data)
        assert [record.offset - header.base_offset for record in found] == list(range(len(found)))
        assert header.is_control or len(found) == header.record_count
        base = self.end
        placed = base.to_bytes(8, "big") + data[8:12] + self.leader_epoch.to_bytes(4, "big") + data[16:]
        self.end += header.record_count
        self.batches.append(Batch(base, self.end - 1, self.leader_epoch, header, placed))
        self.values.update((base + index, record.value) for index, record in enumerate(found))
        if header.is_transactional and not header.is_control:
            self.open.setdefault(header.producer_id, []).extend(range(base, self.end))
        return base

    def truncate(self, offset: int) -> None:
        """Removes all records from the offset on. A batch across the offset is cut in two, as brokers never do."""
        batches, self.batches, self.end = self.batches, [], 0
        self.values = {known: value for known, value in self.values.items() if known < offset}
        leader_epoch = self.leader_epoch
        for batch in batches:
            if batch.last_offset < offset:
                self.batches.append(batch)
                self.end = batch.last_offset + 1
            elif batch.base_offset < offset:
                self.leader_epoch = batch.leader_epoch
                self._place(build_batch(read_records(batch.data)[: offset - batch.base_offset]))
        self.leader_epoch = leader_epoch

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def headers(self) -> list[Any]:
        return [batch.header for batch in self.batches]

    def records(self) -> list[Any]:
        return [record for batch in self.batches if not batch.header.is_control for record in read_records(batch.data)]

    @property
    def last_stable_offset(self) -> int:
        return min((offsets[0] for offsets in self.open.values() if offsets), default=self.end)

    def visible(self, *, read_committed: bool = True) -> list[int]:
        """Returns the offsets of the records that consumers of this isolation level get."""
        if not read_committed:
            return list(self.values)
        end = self.last_stable_offset
        return [offset for offset in self.values if offset < end and offset not in self.hidden]

    def committed_values(self) -> list[bytes | None]:
        return [self.values[offset] for offset in self.visible()]

    def read(self, offset: int, max_bytes: int, *, read_committed: bool = False) -> bytes:
        """Returns whole batches, and a cut one where `max_bytes` end, as brokers do; at least one whole batch."""
        out = b""
        for batch in self.batches:
            if batch.last_offset < offset:
                continue
            if read_committed and batch.base_offset >= self.last_stable_offset:
                break
            if out and len(out) + len(batch.data) > max_bytes:
                return out + batch.data[: max(0, max_bytes - len(out))]
            out += batch.data
        return out

    def aborted_from(self, offset: int) -> list[tuple[int, int]]:
        """Returns (producer id, first offset) of the aborted transactions that a reader from the offset may meet."""
        return [(producer_id, first) for producer_id, first, marker in self.aborted if marker >= offset]

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int]:
        """Returns offset and timestamp of the first record that is not older, or (-1, -1)."""
        return next(((each.offset, each.timestamp) for each in self.records() if each.timestamp >= timestamp), (-1, -1))

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch up to this one and the offset where it ends, or (-1, -1) if that is not known."""
        if epoch == self.leader_epoch:
            return epoch, self.end
        starts: dict[int, int] = {}
        for batch in self.batches:
            starts.setdefault(batch.leader_epoch, batch.base_offset)
        starts.setdefault(self.leader_epoch, self.end)
        later = [start for known, start in starts.items() if known > epoch]
        if not later:
            return -1, -1
        return max((known for known in starts if known <= epoch), default=epoch), min(later)
