"""Reads the records of fetched batches as columns, with keys and values as positions. Compiled by mypyc.

No key or value is copied while the records are read: the columns say where it begins and ends in the data. Arrow's
`take` then makes a column of each in one call (`client.fetch.columns`).
"""

from __future__ import annotations

from librt.strings import BytesWriter, read_i64_le, write_i32_le, write_i64_le

from barnabas.records.compiled.mypyc_types import I64_MAX, I64_MIN, i32, i64
from barnabas.records.compiled.record_walk import _end_of_headers, _long_varint, _signed, _varint, _varlong


class BinaryColumn:
    """Positions of byte strings in a buffer that is read from front to back."""

    __slots__ = ("_bits", "_byte", "_count", "_is_mixed", "_places", "null_count")

    def __init__(self) -> None:
        self._places = BytesWriter()
        self._bits = BytesWriter()
        self._byte: i64 = 0
        self._count: i64 = 0
        self._is_mixed = False
        self.null_count: i64 = 0

    def add(self, start: i64, end: i64) -> None:
        if self.null_count:
            self._mark(1)
        write_i64_le(self._places, start | end << 32)
        self._count += 1

    def add_null(self, place: i64) -> None:
        if self.null_count != self._count:
            self._mark(0)
        write_i64_le(self._places, place | place << 32)
        self._count += 1
        self.null_count += 1

    def _mark(self, bit: i64) -> None:
        if not self._is_mixed:
            self._begin_bits()
        at: i64 = self._count & 7
        self._byte |= bit << at
        if at == 7:
            self._bits.append(self._byte)
            self._byte = 0

    def _begin_bits(self) -> None:
        """Begins the validity bitmap: the column is about to have both nulls and values."""
        self._is_mixed = True
        same: i64 = 0 if self.null_count else 0xFF
        for _ in range(self._count >> 3):
            self._bits.append(same)
        self._byte = same & (1 << (self._count & 7)) - 1

    def places(self) -> bytes:
        """Returns pairs of little-endian 32-bit numbers: start and end of each. A null has the same number twice."""
        return self._places.getvalue()

    def validity(self) -> bytes:
        """Returns Arrow's validity bitmap of a column with nulls and values: a bit for each, 1 for a value, the lowest
        bit first."""
        bits = self._bits.getvalue()
        return bits + bytes([int(self._byte)]) if self._count & 7 else bits

    def of(self, data: bytes) -> list[bytes | None]:
        """Returns the byte strings. `data` is the buffer in which they are."""
        if self.null_count == self._count:
            return [None] * int(self._count)
        found: list[bytes | None] = []
        at: i64
        places = self._places.getvalue()
        nulls: i64 = self.null_count
        bits = self.validity() if nulls else b""
        for at in range(self._count):
            if nulls and not bits[at >> 3] >> (at & 7) & 1:
                found.append(None)
                continue
            place: i64 = read_i64_le(places, at << 3)
            found.append(data[place & 0x7FFFFFFF : place >> 32])
        return found


class RecordColumns:
    """The columns of some batches of one partition, with `count` records so far."""

    __slots__ = (
        "count",
        "header_keys",
        "header_values",
        "headers",
        "keys",
        "offsets",
        "timestamps",
        "values",
        "with_headers",
    )

    def __init__(self, with_headers: bool) -> None:
        self.with_headers = with_headers
        self.count: i64 = 0
        self.offsets = BytesWriter()
        """Little-endian 64-bit numbers, as are the timestamps."""
        self.timestamps = BytesWriter()
        self.keys = BinaryColumn()
        self.values = BinaryColumn()
        self.headers = BytesWriter()
        """Little-endian 32-bit numbers: the index of each record's first header, and the number of all headers."""
        self.header_keys = BinaryColumn()
        self.header_values = BinaryColumn()
        if with_headers:
            write_i32_le(self.headers, 0)

    def add_batch(
        self,
        data: bytes,
        position: i64,
        last: i64,
        count: i64,
        base_offset: i64,
        base_timestamp: i64,
        append_timestamp: i64,
        log_append: bool,
        minimum: i64,
        last_offset: i64,
    ) -> None:
        """Adds the `count` records of `data[position:last]`, except those below offset `minimum` and those whose offset
        is not above the one before. `data` must be shorter than 2 GiB and the same for all batches. Raises ValueError
        or IndexError for broken structure; the columns are then unusable."""
        if not 0 <= position <= last <= len(data) or last > 0x7FFFFFFF or count < 0:
            raise ValueError(f"{count} records from byte {position} to {last} of {len(data)}")
        keys, values = self.keys, self.values
        lowest: i64 = I64_MIN
        highest: i64 = I64_MAX
        if not log_append:  # a timestamp has 64 bits
            lowest -= min(base_timestamp, 0)
            highest -= max(base_timestamp, 0)
        while count > 0:
            count -= 1
            # begin record_start a record
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
                raise ValueError(f"a record has length {_signed(length)}, {last - position} bytes are left")
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
            if delta < lowest or delta > highest:
                raise ValueError(f"a record's timestamp is {delta} beyond {base_timestamp}, which takes over 64 bits")
            offset = base_offset + (offset >> 1 ^ -(offset & 1))
            if not base_offset <= offset <= last_offset:
                raise ValueError(f"a record has offset {offset}, beyond its batch")
            if offset < minimum:
                position = end
                continue
            minimum = offset + 1
            write_i64_le(self.offsets, offset)
            write_i64_le(self.timestamps, append_timestamp if log_append else base_timestamp + delta)
            position = self._field(keys, data, position, end)
            position = self._field(values, data, position, end)
            if data[position] == 0:
                position += 1
            elif self.with_headers:
                position = self._headers(data, position, end)
            else:
                position = _end_of_headers(data, position, end)
            if self.with_headers:
                write_i32_le(self.headers, i32(self.header_keys._count))
            if position != end:
                raise ValueError(f"the record of offset {offset} has a length that its fields do not fill")
            self.count += 1
        if position != last:
            raise ValueError(f"{last - position} bytes follow the last record")

    def _field(self, column: BinaryColumn, data: bytes, position: i64, end: i64) -> i64:
        """Adds a key or value and returns the position after it."""
        size: i64
        second: i64
        # begin varint size
        size = data[position]
        position += 1
        if size > 127:
            second = data[position]
            if second < 128:
                size = size & 127 | second << 7
                position += 1
            else:
                size, position = _long_varint(data, position, size)
        # end varint
        if size == 1:
            column.add_null(position)
            return position
        start: i64 = position
        position += size >> 1
        if size & 1 or position > end:
            raise ValueError(f"a key, value or header has length {_signed(size)}, {end - start} bytes are left")
        column.add(start, position)
        return position

    def _headers(self, data: bytes, position: i64, end: i64) -> i64:
        """Adds the headers of a record and returns the position after them."""
        count: i64
        count, position = _varint(data, position)
        if count < 0:
            raise ValueError(f"a record has {count} headers")
        keys, values = self.header_keys, self.header_values
        while count > 0 and position < end:
            if data[position] == 1:
                raise ValueError("a header has no key")
            position = self._field(keys, data, position, end)
            if position >= end:
                break
            position = self._field(values, data, position, end)
            count -= 1
        if count > 0 or position > end:
            raise ValueError("a record's headers do not fit its length")
        return position
