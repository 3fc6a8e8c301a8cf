"""Filters batches for the log cleaner: decides which records stay, and rewrites the batches. Compiled by mypyc.

The module knows bytes and numbers only. `barnabas.log.cleaner` chooses the logs to be cleaned and replaces their files.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be

from barnabas.records.batch import DELETE_HORIZON_FLAG, HEADER_SIZE, LOG_APPEND_TIME_FLAG, MAGIC
from barnabas.records.checksum import crc32c
from barnabas.records.compiled.mypyc_types import i64
from barnabas.records.compiled.offset_map import (
    OLD_FORMAT,
    SPECIAL,
    SPECIAL_BITS,
    TORN,
    OffsetMap,
    batch_size,
    last_offset_of,
)
from barnabas.records.compiled.offset_map import check_crc as check_crc
from barnabas.records.compiled.record_walk import _long_varint, _signed, _varlong, _write_varint

_EMPTY_BITS: Final = 0x38
"""The attributes that an emptied batch keeps: timestamp type, transactional, control."""
_LOW: Final = 0xFFFFFFFF
_NO_DELTA: Final = -(2**62)
_POSITION_MAX: Final = 2**31 - 1


class BatchFilter:
    """Filters blocks of a segment file and collects the batches that stay, with the entries of the new indexes.

    `parts` holds the bytes of the batches that stay; a batch that keeps all of its records is copied unchanged.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        base_offset: int,
        now_ms: int,
        delete_horizon_ms: int,
        kept_offsets: frozenset[int],
        last_kept_offset: int,
        index_interval_bytes: int,
    ) -> None:
        self._offsets = offsets
        self._latest_offset: i64 = offsets.latest_offset
        self._base_offset: i64 = base_offset
        self._now_ms: i64 = now_ms
        self._delete_horizon_ms: i64 = delete_horizon_ms
        """The horizon of a batch in which the cleaner finds tombstones for the first time."""
        self._kept_offsets = kept_offsets
        """Last offsets of the last batches of producers, which stay even if they are empty."""
        self._last_kept_offset: i64 = last_kept_offset
        """The last offset of the cleaned part; its batch stays even if it is empty."""
        self._interval: i64 = index_interval_bytes
        self.parts: list[bytes] = []
        self.changed = False
        """Whether the result differs from the source."""
        self.stop: i64 = TORN
        self.size: i64 = 0
        """The number of bytes collected so far, those that the caller has taken out of `parts` included."""
        self.records_read: i64 = 0
        self.records_kept: i64 = 0
        self.next_horizon_ms: i64 = -1
        """The earliest horizon of the batches that stay with tombstones; -1 if there are none."""
        self.max_timestamp: i64 = -1
        self.offset_entries = BytesWriter()
        """The content of the offset index."""
        self.time_entries = BytesWriter()
        """The content of the time index."""
        self._max_timestamp_offset: i64 = base_offset
        self._last_time_entry: i64 = -1
        self._since_entry: i64 = 0
        self._tombstones: i64 = 0
        self._max_delta: i64 = 0
        self._kept: i64 = 0
        self._dropped = False
        self._last_of_producer = False
        self._sets_horizon = False
        self._out = BytesWriter()

    # -- blocks --------------------------------------------------------------------------------------------------------

    def filter_batches(self, data: bytes, position: i64) -> i64:
        """Filters the batches from `position` on. Returns the position after the last of them; `stop` has the reason.

        Raises ValueError or IndexError for broken structure.
        """
        size: i64 = len(data)
        run: i64 = position
        self.stop = TORN
        while size - position >= HEADER_SIZE:
            if data[position + 16] != MAGIC:
                self.stop = OLD_FORMAT
                break
            length: i64 = batch_size(data, position)
            if length > size - position:
                break
            if data[position + 22] & SPECIAL_BITS:
                self.stop = SPECIAL
                break
            if not self.stands(data, position, data, position + HEADER_SIZE, position + length):
                if run < position:
                    self.parts.append(data[run:position])
                run = position + length
                self.rewrite(data, position, data, position + HEADER_SIZE, position + length)
            position += length
        if run < position:
            self.parts.append(data if run == 0 and position == size else data[run:position])
        return position

    # -- one batch: its header in `head` at `at`, its records uncompressed in `data` -----------------------------------

    def judges_records(self, head: bytes, at: i64) -> bool:
        """Returns whether `stands` reads the records of this batch."""
        if read_i64_be(head, at) > self._latest_offset:
            return False
        return self._offsets.entries > 0 or head[at + 22] & DELETE_HORIZON_FLAG > 0

    def stands(self, head: bytes, at: i64, data: bytes, position: i64, end: i64) -> bool:
        """Returns whether the batch stays unchanged. Its index entries are then made. If not, it must be rewritten."""
        base_offset: i64 = read_i64_be(head, at)
        last_offset: i64 = last_offset_of(head, at)
        count: i64 = read_i64_be(head, at + 53) & _LOW
        horizon: i64 = read_i64_be(head, at + 27) if head[at + 22] & DELETE_HORIZON_FLAG else -1
        self.records_read += count
        if not self.judges_records(head, at):
            self._keep_all(count)
        else:
            self._filter_records(data, position, end, count, base_offset, horizon >= 0 and horizon <= self._now_ms)
        self._sets_horizon = self._tombstones > 0 and horizon < 0 and last_offset <= self._latest_offset
        if self._kept < count or self._sets_horizon or (count == 0 and not self._stays_empty(head, at)):
            self.changed = True
            return False
        if self._tombstones and horizon >= 0:
            self._note_horizon(horizon)
        self.records_kept += count
        self._note(last_offset, read_i64_be(head, at + 35), batch_size(head, at))
        return True

    def stands_marker(self, head: bytes, at: i64, needed: bool, last: bool) -> bool:
        """Returns whether the end marker of a transaction stays unchanged, like `stands`. `needed`: records of the
        transaction are still there. A marker that is not needed gets a horizon here and is dropped after it. `last`:
        only this batch has its producer's epoch."""
        count: i64 = read_i64_be(head, at + 53) & _LOW
        horizon: i64 = read_i64_be(head, at + 27) if head[at + 22] & DELETE_HORIZON_FLAG else -1
        self.records_read += count
        self._keep_all(count)
        self._last_of_producer = last
        self._sets_horizon = not needed and horizon < 0 and count > 0
        if not needed and horizon >= 0 and horizon <= self._now_ms:
            self._kept = 0
        if self._kept < count or self._sets_horizon or (count == 0 and not self._stays_empty(head, at)):
            self.changed = True
            return False
        if not needed and horizon >= 0:
            self._note_horizon(horizon)
        self.records_kept += count
        self._note(last_offset_of(head, at), read_i64_be(head, at + 35), batch_size(head, at))
        return True

    def discard(self, head: bytes, at: i64) -> None:
        """Drops all records of the batch, which is part of an aborted transaction."""
        self.changed = True
        self.records_read += read_i64_be(head, at + 53) & _LOW
        self._keep_all(0)
        self.rewrite(head, at, b"", 0, 0)

    def _keep_all(self, count: i64) -> None:
        self._last_of_producer = False
        self._kept = count
        self._tombstones = 0
        self._max_delta = _NO_DELTA
        self._dropped = False

    def _note_horizon(self, horizon: i64) -> None:
        if self.next_horizon_ms < 0 or horizon < self.next_horizon_ms:
            self.next_horizon_ms = horizon

    def _filter_records(
        self, data: bytes, position: i64, last: i64, count: i64, base_offset: i64, drops_tombstones: bool
    ) -> None:
        out = self._out
        offsets = self._offsets
        latest: i64 = self._latest_offset
        run: i64 = position
        kept: i64 = 0
        tombstones: i64 = 0
        max_delta: i64 = _NO_DELTA
        dropped = False
        index: i64 = 0
        key: i64
        while index < count:
            start: i64 = position
            # begin record_start record {index}
            length: i64 = data[position]
            position += 1
            if length > 127:
                second: i64 = data[position]
                if second < 128:
                    length = length & 127 | second << 7
                    position += 1
                else:
                    length, position = _long_varint(data, position, length)
            end: i64 = position + (length >> 1)
            if length & 1 or end > last:
                raise ValueError(f"record {index} has length {_signed(length)}, {last - position} bytes are left")
            delta: i64 = data[position + 1]  # after the attributes, of which no bit has a meaning yet
            if delta < 128:
                delta = delta >> 1 ^ -(delta & 1)
                position += 2
            else:
                second = data[position + 2]
                if second < 128:
                    delta = (delta & 127 | second << 7) >> 1 ^ -(delta & 1)
                    position += 3
                else:
                    delta, position = _varlong(data, position + 1)
            offset: i64 = data[position]
            position += 1
            if offset > 127:
                second = data[position]
                if second < 128:
                    offset = offset & 127 | second << 7
                    position += 1
                else:
                    offset, position = _long_varint(data, position, offset)
            # end record_start
            offset = base_offset + (offset >> 1 ^ -(offset & 1))
            # begin varint key
            key = data[position]
            position += 1
            if key > 127:
                second = data[position]
                if second < 128:
                    key = key & 127 | second << 7
                    position += 1
                else:
                    key, position = _long_varint(data, position, key)
            # end varint
            stays = True
            if key & 1:
                stays = offset > latest
            else:
                key = key >> 1
                if position + key >= end:
                    raise ValueError(f"record {index} has a key of {key} bytes, which is longer than the record")
                if offset <= latest and offsets._get(data, position, key) > offset:
                    stays = False
                position += key
            if stays and data[position] == 1:
                if drops_tombstones and offset <= latest:
                    stays = False
                else:
                    tombstones += 1
            if stays:
                kept += 1
                if delta > max_delta:
                    max_delta = delta
            else:
                if not dropped:
                    dropped = True
                    out.truncate(0)
                if run < start:
                    out.write(data[run:start])
                run = end
            position = end
            index += 1
        if position != last:
            raise ValueError(f"{last - position} bytes follow the last of {count} records")
        if dropped and run < last:
            out.write(data[run:last])
        self._last_of_producer = False
        self._kept = kept
        self._tombstones = tombstones
        self._max_delta = max_delta
        self._dropped = dropped

    # -- rewriting the batch that `stands` was asked about last --------------------------------------------------------

    def rewrite(self, head: bytes, at: i64, data: bytes, position: i64, end: i64) -> None:
        """Appends the uncompressed batch with the records that stay, or without records if it has to stay empty."""
        if self._kept:
            check_crc(head, at)
            self.append_batch(head, at, self.payload(head, at, data, position, end))
            return
        if self._stays_empty(head, at):
            self._append(head, at, head[at + 22] & _EMPTY_BITS, -1, read_i64_be(head, at + 35), 0, b"")

    def _stays_empty(self, head: bytes, at: i64) -> bool:
        """Returns whether the batch stays without records: its producer's sequence or the end of the log needs it."""
        last_offset: i64 = last_offset_of(head, at)
        if last_offset == self._last_kept_offset or self._last_of_producer:
            return True
        return read_i64_be(head, at + 43) >= 0 and last_offset in self._kept_offsets

    @property
    def is_empty(self) -> bool:
        """Whether no record of the batch stays."""
        return self._kept == 0

    def payload(self, head: bytes, at: i64, data: bytes, position: i64, end: i64) -> bytes:
        """Returns the bytes of the records that stay."""
        records = self._out.getvalue() if self._dropped else data[position:end]
        if self._sets_horizon:
            return shift_timestamps(records, self._kept, read_i64_be(head, at + 27) - self._delete_horizon_ms)
        return records

    def append_batch(self, head: bytes, at: i64, records: bytes) -> None:
        """Appends the batch with these records, which are compressed as its header says."""
        attributes: i64 = head[at + 22]
        base_timestamp: i64 = read_i64_be(head, at + 27)
        max_timestamp: i64 = read_i64_be(head, at + 35)
        if self._dropped and not attributes & LOG_APPEND_TIME_FLAG:
            max_timestamp = base_timestamp + self._max_delta
        if self._sets_horizon:
            base_timestamp = self._delete_horizon_ms
            attributes |= DELETE_HORIZON_FLAG
        if self._sets_horizon or (self._tombstones and attributes & DELETE_HORIZON_FLAG):
            self._note_horizon(base_timestamp)
        self._append(head, at, attributes, base_timestamp, max_timestamp, self._kept, records)

    def _append(
        self,
        head: bytes,
        at: i64,
        attributes: i64,
        base_timestamp: i64,
        max_timestamp: i64,
        count: i64,
        records: bytes,
    ) -> None:
        checked = BytesWriter()
        checked.append(head[at + 21])
        checked.append(attributes)
        checked.write(head[at + 23 : at + 27])
        write_i64_be(checked, base_timestamp)
        write_i64_be(checked, max_timestamp)
        checked.write(head[at + 43 : at + 57])
        _write_i32(checked, count)
        checked.write(records)
        rest = checked.getvalue()
        prefix = BytesWriter()
        prefix.write(head[at : at + 8])
        _write_i32(prefix, len(rest) + 9)
        prefix.write(head[at + 12 : at + 17])
        _write_i32(prefix, crc32c(rest))
        self.parts.append(prefix.getvalue())
        self.parts.append(rest)
        self.records_kept += count
        self._note(last_offset_of(head, at), max_timestamp, len(rest) + 21)

    # -- indexes -------------------------------------------------------------------------------------------------------

    def _note(self, last_offset: i64, max_timestamp: i64, size: i64) -> None:
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._since_entry > self._interval:
            _write_i32(self.offset_entries, last_offset - self._base_offset)
            _write_i32(self.offset_entries, self.size)
            self.note_time()
            self._since_entry = 0
        self._since_entry += size
        self.size += size
        if self.size > _POSITION_MAX:
            raise ValueError(f"the cleaned segment at {self._base_offset} is larger than {_POSITION_MAX} bytes")

    def note_time(self) -> None:
        """Enters the largest timestamp so far into the time index. The caller does so once more at the end."""
        if self.max_timestamp > self._last_time_entry:
            write_i64_be(self.time_entries, self.max_timestamp)
            _write_i32(self.time_entries, self._max_timestamp_offset - self._base_offset)
            self._last_time_entry = self.max_timestamp


def _write_i32(out: BytesWriter, number: i64) -> None:
    out.append(number >> 24 & 255)
    out.append(number >> 16 & 255)
    out.append(number >> 8 & 255)
    out.append(number & 255)


def shift_timestamps(records: bytes, count: i64, shift: i64) -> bytes:
    """Returns the records with `shift` added to their timestamp deltas."""
    out = BytesWriter()
    position: i64 = 0
    delta: i64
    length: i64
    while count > 0:
        length = records[position]
        position += 1
        if length > 127:
            length, position = _long_varint(records, position, length)
        record_end: i64 = position + (length >> 1)
        delta, delta_end = _varlong(records, position + 1)
        moved = BytesWriter()
        _write_varint(moved, delta + shift)
        _write_varint(out, len(moved) + record_end - delta_end + 1)
        out.append(records[position])
        out.write(moved.getvalue())
        out.write(records[delta_end:record_end])
        position = record_end
        count -= 1
    return out.getvalue()
