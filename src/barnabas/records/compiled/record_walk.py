"""Checks, reads and writes v2 records: their varints, lengths and deltas, as plain typed Python.

Wheels hold the module compiled by mypyc, ten to thirty times faster, with the same results. It knows bytes and numbers
only: no batch headers, no codecs, no policies.

A varint here is Kafka's: zigzag, 7 bits a byte, at most 5 bytes for 32 bits and 10 for 64. Encodings whose value does
not fit are refused, because clients disagree about them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i64_le

from barnabas.records.compiled.mypyc_types import I64_MIN, i64
from barnabas.records.record import Headers, Record

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_RECORDS: Final = 65_536
"""Records that `check_records` checks between two pauses: half a millisecond."""

_BYTES: Final = [bytes([number]) for number in range(256)]
_SMALL: Final = 8192
"""Numbers from 0 up to this fit varints of two bytes."""

# as Record(...), without a call of Python code for each record
_new_record = tuple.__new__


def is_compiled() -> bool:
    """Returns whether the modules run as machine code: all of them do, or none."""
    return not __file__.endswith(".py")


def _signed(raw: i64) -> i64:
    """Returns the number that a zigzag code stands for: 0, 1, 2, 3 are 0, -1, 1, -2."""
    return raw >> 1 ^ -(raw & 1)


def _long_varint(data: bytes, position: i64, first: i64) -> tuple[i64, i64]:
    """Returns the zigzag code of the varint whose first byte precedes `position`, and the position after it."""
    raw: i64 = first & 127
    shift: i64 = 7
    while True:
        byte: i64 = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise ValueError("a 32-bit varint is longer than 5 bytes")
    if raw > 0xFFFFFFFF:
        raise ValueError("a varint exceeds 32 bits")
    return raw, position


def _varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """Reads a varint; returns it and the position after it. Raises IndexError at the end of data, ValueError beyond 32
    bits."""
    raw: i64 = data[position]
    position += 1
    if raw > 127:
        raw, position = _long_varint(data, position, raw)
    return raw >> 1 ^ -(raw & 1), position


def _varlong(data: bytes, position: i64) -> tuple[i64, i64]:
    """Reads a varlong; returns it and the position after it. Raises IndexError at the end of data, ValueError beyond 64
    bits."""
    byte: i64 = data[position]
    position += 1
    raw: i64 = byte & 127
    shift: i64 = 7
    while byte > 127:
        byte = data[position]
        position += 1
        if shift == 63:
            if byte > 1:
                raise ValueError("a varlong exceeds 64 bits")
            # raw holds 63 bits; this byte is the 64th
            low: i64 = raw & 1
            half: i64 = raw >> 1
            if byte == 1:
                half |= 1 << 62
            return half ^ -low, position
        raw |= (byte & 127) << shift
        shift += 7
    return (raw >> 1) ^ -(raw & 1), position


def check_records(
    data: bytes,
    position: i64,
    count: i64,
    delta_min: i64,
    delta_max: i64,
    no_timestamp_delta: i64,
    keys_required: bool,
    refused: list[tuple[int, int, int, int]],
    refused_max: i64,
    pause: Callable[[], None] | None = None,
) -> i64:
    """Checks the `count` records from `position` to the end of `data`; returns the largest timestamp delta, -2^63
    without records. Raises ValueError or IndexError for broken structure.

    A well-formed record is refused if its offset delta is not its index, if its timestamp delta is outside [delta_min,
    delta_max] and not `no_timestamp_delta`, or if it lacks a key although `keys_required`. The function appends it to
    `refused`, which takes `refused_max` of them, as (index, offset delta, timestamp delta, key length).

    `pause` is called every PAUSE_RECORDS records: compiled code does not let other threads run by itself.
    """
    last: i64 = len(data)
    index: i64 = 0
    max_delta: i64 = I64_MIN
    key: i64
    value: i64
    pause_at: i64 = -1 if pause is None else PAUSE_RECORDS
    while index < count:
        if index == pause_at:
            assert pause is not None
            pause()
            pause_at += PAUSE_RECORDS
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
        if key & 1:
            if key != 1:
                raise ValueError(f"record {index} has a key of length {_signed(key)}")
        else:
            position += key >> 1
        # begin varint value
        value = data[position]
        position += 1
        if value > 127:
            second = data[position]
            if second < 128:
                value = value & 127 | second << 7
                position += 1
            else:
                value, position = _long_varint(data, position, value)
        # end varint
        if value & 1:
            if value != 1:
                raise ValueError(f"record {index} has a value of length {_signed(value)}")
        else:
            position += value >> 1
        if data[position] == 0:
            position += 1
        else:
            position = _end_of_headers(data, position, end)
        if position != end:
            raise ValueError(f"record {index} has length {length >> 1}, which its fields do not fill")
        if (
            offset != index << 1
            or ((delta < delta_min or delta > delta_max) and delta != no_timestamp_delta)
            or (keys_required and key == 1)
        ) and len(refused) < refused_max:
            refused.append((index, _signed(offset), delta, -1 if key == 1 else key >> 1))
        if delta > max_delta:
            max_delta = delta
        index += 1
    if position != last:
        raise ValueError(f"{last - position} bytes follow the last of {count} records")
    return max_delta


def _end_of_headers(data: bytes, position: i64, end: i64) -> i64:
    """Returns the position after the headers, whose count is at `position`. Raises ValueError if it is beyond `end`."""
    count: i64
    length: i64
    count, position = _varint(data, position)
    if count < 0:
        raise ValueError(f"a record has {count} headers")
    while count > 0 and position < end:
        length, position = _varint(data, position)
        if length < 0:
            raise ValueError(f"a header's key has length {length}")
        position += length
        if position >= end:
            break
        length, position = _varint(data, position)
        if length < -1:
            raise ValueError(f"a header's value has length {length}")
        if length > 0:
            position += length
        count -= 1
    if count > 0 or position > end:
        raise ValueError("a record's headers do not fit its length")
    return position


def _slice(data: bytes, position: i64, length: i64) -> bytes:
    end: i64 = position + length
    if end > len(data):
        raise ValueError(f"a field has length {length}, {len(data) - position} bytes are left")
    return data[position:end]


def _read_headers(data: bytes, position: i64, count: i64) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    length: i64
    while count > 0:
        length, position = _varint(data, position)
        if length < 0:
            raise ValueError(f"a header's key has length {length}")
        key = _slice(data, position, length).decode("utf-8", "replace")
        position += length
        length, position = _varint(data, position)
        if length < -1:
            raise ValueError(f"a header's value has length {length}")
        if length < 0:
            headers.append((key, None))
        else:
            headers.append((key, _slice(data, position, length)))
            position += length
        count -= 1
    return tuple(headers)


def read_records(
    data: bytes, position: i64, count: i64, base_offset: i64, base_timestamp: int, append_timestamp: int | None
) -> list[Record]:
    """Reads the `count` records from `position` to the end of `data`. `append_timestamp` replaces each record's own.

    Offsets need not be consecutive: compaction leaves gaps. Raises ValueError or IndexError for broken structure.
    """
    last: i64 = len(data)
    records: list[Record] = []
    index: i64 = 0
    size: i64
    headers: i64
    while index < count:
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
        key: bytes | None = None
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
        if not size & 1:
            key = _slice(data, position, size >> 1)
            position += size >> 1
        value: bytes | None = None
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
        if not size & 1:
            value = _slice(data, position, size >> 1)
            position += size >> 1
        headers = data[position]
        if headers == 0:
            position += 1
            fields: Headers = ()
        else:
            after: i64 = _end_of_headers(data, position, end)
            headers, position = _varint(data, position)
            fields = _read_headers(data, position, headers)
            position = after
        if position != end:
            raise ValueError(f"record {index} ends at byte {end}, its fields at byte {position}")
        timestamp: int = int(delta) + base_timestamp if append_timestamp is None else append_timestamp
        records.append(_new_record(Record, (base_offset + _signed(offset), timestamp, key, value, fields)))
        index += 1
    if position != last:
        raise ValueError(f"{last - position} bytes follow the last of {count} records")
    return records


def _write_varint(out: BytesWriter, number: i64) -> None:
    raw: i64 = (number << 1) ^ (number >> 63)
    while raw > 127 or raw < 0:
        out.write(_BYTES[(raw & 127) | 128])
        raw = (raw >> 7) & 0x1FFFFFFFFFFFFFF
    out.write(_BYTES[raw])


def _varint_size(number: i64) -> i64:
    raw: i64 = (number << 1) ^ (number >> 63)
    size: i64 = 1
    while raw > 127 or raw < 0:
        raw = (raw >> 7) & 0x1FFFFFFFFFFFFFF
        size += 1
    return size


def _write_field(out: BytesWriter, field: bytes | None) -> None:
    if field is None:
        out.write(b"\x01")
    else:
        _write_varint(out, len(field))
        out.write(field)


def _field_size(field: bytes | None) -> i64:
    if field is None:
        return 1
    length: i64 = len(field)
    return _varint_size(length) + length


def write_record(
    out: BytesWriter,
    offset_delta: i64,
    timestamp_delta: i64,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> None:
    """Appends one record to `out`. The caller sees to it that the deltas fit 32 and 64 bits."""
    if headers or not 0 <= offset_delta < _SMALL or not 0 <= timestamp_delta < _SMALL:
        _write_any_record(out, offset_delta, timestamp_delta, key, value, headers)
        return
    key_length: i64 = -1 if key is None else len(key)
    value_length: i64 = -1 if value is None else len(value)
    if key_length + value_length >= _SMALL - 16:
        _write_any_record(out, offset_delta, timestamp_delta, key, value, headers)
        return
    # All varints have one or two bytes: they are packed into one number of `bits` bits, which is written as eight bytes
    # and then cut to its length.
    timestamp_raw: i64 = timestamp_delta << 1
    packed: i64
    bits: i64
    if timestamp_raw < 128:
        packed, bits = timestamp_raw << 8, 16
    else:
        packed, bits = (timestamp_raw & 127 | 128 | timestamp_raw >> 7 << 8) << 8, 24
    offset_raw: i64 = offset_delta << 1
    if offset_raw < 128:
        packed, bits = packed | offset_raw << bits, bits + 8
    else:
        packed, bits = packed | (offset_raw & 127 | 128 | offset_raw >> 7 << 8) << bits, bits + 16
    size: i64 = bits >> 3
    if key_length < 0:
        size += 1
    else:
        size += key_length + (1 if key_length < 64 else 2)
    if value_length < 0:
        size += 2
    else:
        size += value_length + (2 if value_length < 64 else 3)
    size <<= 1
    if size < 128:
        packed, bits = packed << 8 | size, bits + 8
    else:
        packed, bits = packed << 16 | size & 127 | 128 | size >> 7 << 8, bits + 16
    end: i64 = len(out) + (bits >> 3)
    write_i64_le(out, packed)
    out.truncate(end)
    if key is None:
        out.write(b"\x01")
    else:
        _write_short(out, key, key_length)
    if value is None:
        out.write(b"\x01\x00")
    else:
        _write_short(out, value, value_length)
        out.write(b"\x00")


def _write_short(out: BytesWriter, field: bytes, length: i64) -> None:
    """Appends the length of a field of fewer than 8,192 bytes, and the field."""
    if length < 64:
        out.write(_BYTES[length << 1])
    else:
        end: i64 = len(out) + 2
        write_i64_le(out, length << 1 & 127 | 128 | length >> 6 << 8)
        out.truncate(end)
    out.write(field)


def _write_any_record(
    out: BytesWriter,
    offset_delta: i64,
    timestamp_delta: i64,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> None:
    size: i64 = 2 + _varint_size(timestamp_delta) + _varint_size(offset_delta) + _field_size(key) + _field_size(value)
    names: list[bytes] = []
    if headers:
        size += _varint_size(len(headers)) - 1
        for header in headers:
            name = header[0].encode()
            names.append(name)
            size += _field_size(name) + _field_size(header[1])
    _write_varint(out, size)
    out.write(b"\x00")
    _write_varint(out, timestamp_delta)
    _write_varint(out, offset_delta)
    _write_field(out, key)
    _write_field(out, value)
    _write_varint(out, len(headers))
    for index, header in enumerate(headers):
        _write_field(out, names[index])
        _write_field(out, header[1])


def write_records(out: BytesWriter, records: list[Record], first_delta: i64, base_timestamp: int) -> int:
    """Appends `records` with consecutive offset deltas from `first_delta` on, in place of their own offsets.

    Returns the largest timestamp, at least -1.
    """
    delta: i64 = first_delta
    most: int = -1
    for record in records:
        timestamp: int = record[1]
        if timestamp > most:
            most = timestamp
        write_record(out, delta, timestamp - base_timestamp, record[2], record[3], record[4])
        delta += 1
    return most
