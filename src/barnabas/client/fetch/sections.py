"""Splits the records of one partition in a Fetch response into sections of uncompressed records.

Control batches, aborted transactions and an incomplete batch at the end are left out. Nothing is read beyond the end of
a batch, whatever its fields say.
"""

from struct import Struct
from typing import Final, NamedTuple

from librt.strings import BytesWriter

from barnabas.client.fetch.aborted_transactions import AbortedTransactions
from barnabas.errors import CorruptMessage
from barnabas.records.batch import (
    BATCH_LENGTH_OVERHEAD,
    CHECKED_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    TRANSACTIONAL_FLAG,
)
from barnabas.records.checksum import crc32c
from barnabas.records.compiled import record_walk
from barnabas.records.compression import DECOMPRESSED_MAX_BYTES, NONE, DamagedData, DecompressedTooLarge, decompress
from barnabas.records.legacy import SIZE_MIN, read_message, records_of
from barnabas.types import NO_LEADER_EPOCH

__all__ = ["Section", "Sections", "end_offset"]

_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH: Final = Struct(">i")
_MAGIC_POSITION: Final = 16
_DELTA_POSITION: Final = 23
OFFSET_MAX: Final = 2**63 - 2
"""The largest offset that a record can have: the one behind it is a number of 64 bits too."""
_ABORT: Final = b"\x00\x00"
_SPECIAL: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG
_CREATE_TIME: Final = 0
_LOG_APPEND_TIME: Final = 1
_NO_TIMESTAMP: Final = -1


def end_offset(data: bytes, at: int, stop: int) -> int | None:
    """Returns the offset behind the last whole batch of `data[at:stop]`, None if there is no whole batch."""
    last = None
    while stop - at > _MAGIC_POSITION:
        (length,) = _LENGTH.unpack_from(data, at + 8)
        end = at + BATCH_LENGTH_OVERHEAD + length
        if length < SIZE_MIN or end > stop:
            break
        last, at = at, end
    if last is None:
        return None
    offset = int.from_bytes(data[last : last + 8], "big", signed=True)
    if data[last + _MAGIC_POSITION] >= MAGIC and at - last >= HEADER_SIZE:
        offset += int.from_bytes(data[last + _DELTA_POSITION : last + _DELTA_POSITION + 4], "big", signed=True)
    return offset + 1


class Section(NamedTuple):
    """The records of one batch: `record_count` of them in `data[position:end]`."""

    data: bytes
    position: int
    end: int
    record_count: int
    base_offset: int
    last_offset: int
    """The last offset of the batch: compaction may have removed the record that had it."""
    first_offset: int
    """Records below were not requested and are left out."""
    base_timestamp: int
    append_timestamp: int
    """The timestamp of all records if the type is LogAppendTime."""
    timestamp_type: int
    leader_epoch: int


class Sections:
    """Reads the sections one by one: `next` returns them until it returns None."""

    __slots__ = (
        "_aborted",
        "_at",
        "_check_crcs",
        "_data",
        "_max_bytes",
        "_name",
        "_stop",
        "_view",
        "leader_epoch",
        "next_offset",
    )

    def __init__(
        self,
        name: str,
        data: bytes,
        start: int,
        stop: int,
        first_offset: int,
        *,
        check_crcs: bool = True,
        aborted: AbortedTransactions | None = None,
        max_bytes: int = DECOMPRESSED_MAX_BYTES,
    ) -> None:
        """The records are `data[start:stop]`. `name`: the partition, for messages. `first_offset`: the offset that was
        requested. `aborted`: the transactions to leave out. `max_bytes`: the most that a batch may hold
        uncompressed."""
        self._name = name
        self.next_offset = first_offset
        """The offset behind all batches that were returned or left out."""
        self.leader_epoch: int = NO_LEADER_EPOCH
        """The leader epoch of the last of these batches."""
        self._data = data
        self._view = memoryview(data)
        self._at = start
        self._stop = stop
        self._check_crcs = check_crcs
        self._aborted = aborted
        self._max_bytes = max_bytes

    @property
    def bytes_left(self) -> int:
        return self._stop - self._at

    @property
    def has_more(self) -> bool:
        """Whether there is another batch, or a broken one."""
        at = self._at
        if self._stop - at <= _MAGIC_POSITION:
            return False
        length: int = _LENGTH.unpack_from(self._data, at + 8)[0]
        return length < SIZE_MIN or at + BATCH_LENGTH_OVERHEAD + length <= self._stop

    def next(self) -> Section | None:
        """Returns the next section that may have records, None at the end. Raises CorruptMessage, and so does then each
        further call."""
        data = self._data
        section = None
        while section is None:
            at = self._at
            if self._stop - at <= _MAGIC_POSITION:
                return None
            (length,) = _LENGTH.unpack_from(data, at + 8)
            end = at + BATCH_LENGTH_OVERHEAD + length
            if length < SIZE_MIN:
                raise self._corrupt(self.next_offset + 1, f"the next batch has the impossible length {length}")
            if end > self._stop:
                return None
            section = self._batch(at, end) if data[at + _MAGIC_POSITION] >= MAGIC else self._message(at, end)
            self._at = end
        return section

    # --- batches of version 2 ---------------------------------------------------------------------------------------

    def _batch(self, at: int, end: int) -> Section | None:
        """Returns the section of the batch in these bytes, None if the batch is left out."""
        if end - at < HEADER_SIZE:
            raise self._corrupt(self.next_offset + 1, f"the next batch has {end - at} bytes, fewer than its header")
        header = _HEADER.unpack_from(self._data, at)
        base_offset, _, leader_epoch, magic, crc, attributes, last_delta, base_timestamp, max_timestamp = header[:9]
        last_offset = base_offset + last_delta
        first_offset = self.next_offset
        if magic != MAGIC or last_delta < 0 or header[12] < 0 or not 0 <= base_offset <= OFFSET_MAX - last_delta:
            what = f"magic {magic}, offset {base_offset}, last offset delta {last_delta}, {header[12]} records"
            raise self._corrupt(first_offset + 1, f"the next batch has {what}")
        if self._check_crcs and crc32c(self._view[at + CHECKED_POSITION : end]) != crc:
            raise self._corrupt(
                last_offset + 1, f"the batch of offsets {base_offset} to {last_offset} fails its checksum"
            )
        if attributes & _SPECIAL and self._left_out(header, last_offset, at, end):
            self.next_offset = max(first_offset, last_offset + 1)
            self.leader_epoch = leader_epoch
            return None
        if last_offset < first_offset:
            return None
        data, position, stop = self._records(attributes, last_offset, at, end)
        self.next_offset = last_offset + 1
        self.leader_epoch = leader_epoch
        return Section(
            data,
            position,
            stop,
            header[12],
            base_offset,
            last_offset,
            first_offset,
            base_timestamp,
            max_timestamp,
            _LOG_APPEND_TIME if attributes & LOG_APPEND_TIME_FLAG else _CREATE_TIME,
            leader_epoch,
        )

    def _left_out(self, header: tuple[int, ...], last_offset: int, at: int, end: int) -> bool:
        """Returns whether a batch of a transaction or a control batch is to be left out."""
        attributes, producer_id = header[5], header[9]
        control = attributes & CONTROL_FLAG != 0
        aborted = self._aborted
        if aborted is None:
            return control
        drop = aborted.drops(producer_id, last_offset, transactional=attributes & TRANSACTIONAL_FLAG != 0)
        if control and drop and self._aborts(header, last_offset, at, end):
            aborted.end(producer_id)
        return control or drop

    def _aborts(self, header: tuple[int, ...], last_offset: int, at: int, end: int) -> bool:
        """Returns whether a control batch is an abort marker. Compaction may have emptied it."""
        data, position, stop = self._records(header[5], last_offset, at, end)
        try:
            records = record_walk.read_records(data[position:stop], 0, header[12], 0, 0, None)
        except (ValueError, IndexError) as error:
            raise self._corrupt(last_offset + 1, f"the marker at offset {last_offset}: {error}") from None
        key = records[0].key if records else None
        return key is not None and len(key) >= 4 and key[2:4] == _ABORT

    def _records(self, attributes: int, last_offset: int, at: int, end: int) -> tuple[bytes, int, int]:
        """Returns bytes that have the uncompressed records, their first position and their end."""
        codec = attributes & COMPRESSION_MASK
        if codec == NONE:
            return self._data, at + HEADER_SIZE, end
        try:
            data = decompress(codec, self._view[at + HEADER_SIZE : end], self._max_bytes)
        except (DamagedData, DecompressedTooLarge) as error:
            raise self._corrupt(last_offset + 1, f"the batch up to offset {last_offset}: {error}") from None
        return data, 0, len(data)

    # --- messages of versions 0 and 1 -------------------------------------------------------------------------------

    def _message(self, at: int, end: int) -> Section | None:
        """Returns the section of a message, or of a compressed set of messages, as if it were a batch of version 2."""
        first_offset = self.next_offset
        try:
            message = read_message(self._view[at:end])
            if message.offset < first_offset:
                return None
            if message.offset > OFFSET_MAX:
                raise CorruptMessage(f"the next message has the impossible offset {message.offset}")
            records = records_of(message, self._max_bytes)
        except CorruptMessage as error:
            raise self._corrupt(first_offset + 1, str(error)) from None
        if message.magic == 0:
            kind = _NO_TIMESTAMP
        else:
            kind = _LOG_APPEND_TIME if message.is_log_append_time else _CREATE_TIME
        base_offset, base_timestamp = records[0].offset, records[0].timestamp
        out = BytesWriter()
        try:
            for record in records:
                offset_delta, timestamp_delta = record.offset - base_offset, record.timestamp - base_timestamp
                record_walk.write_record(out, offset_delta, timestamp_delta, record.key, record.value, ())
        except OverflowError:
            raise self._corrupt(
                message.offset + 1, f"the messages up to {message.offset} are impossibly far apart"
            ) from None
        data = out.getvalue()
        self.next_offset = message.offset + 1
        self.leader_epoch = NO_LEADER_EPOCH
        return Section(
            data,
            0,
            len(data),
            len(records),
            base_offset,
            message.offset,
            first_offset,
            base_timestamp,
            message.timestamp,
            kind,
            NO_LEADER_EPOCH,
        )

    def _corrupt(self, beyond: int, what: str) -> CorruptMessage:
        return CorruptMessage(f"{self._name}: {what}; a seek to an offset beyond, such as {beyond}, leaves it out")
