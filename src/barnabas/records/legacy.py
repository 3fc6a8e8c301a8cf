"""Message formats v0 and v1, which brokers wrote before 2017. Tools and clients read them; brokers refuse them.

A message (big endian): offset i64, size i32, then crc u32 (CRC-32 of all that follows it), magic i8, attributes i8,
in v1 timestamp i64, key and value each with an i32 length (-1: null). A compressed set is a wrapper message whose value
holds messages. In v0 the messages inside carry absolute offsets. In v1 their offsets count from 0 and the wrapper has
the absolute offset of the last one; a wrapper of type LogAppendTime gives its timestamp to all of them.
"""

import zlib
from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from barnabas.errors import CorruptMessage
from barnabas.records.batch import COMPRESSION_MASK, LOG_APPEND_TIME_FLAG, Buffer
from barnabas.records.compression import (
    DECOMPRESSED_MAX_BYTES,
    LZ4,
    NONE,
    ZSTD,
    DamagedData,
    DecompressedTooLarge,
    codec_name,
    compress,
    decompress,
)
from barnabas.records.record import Record

__all__ = ["LegacyMessage", "build_message", "build_wrapper", "iter_messages", "read_message", "records_of"]

OVERHEAD: Final = 12
"""Bytes of offset and size, which the size does not count."""
SIZE_MIN: Final = 14
"""The size of a v0 message with null key and null value."""

_HEAD: Final = Struct(">qiIbb")
_I64: Final = Struct(">q")
_I32: Final = Struct(">i")
_U32: Final = Struct(">I")
_CHECKED_POSITION: Final = 16
_LZ4_CONTENT_SIZE: Final = 0x08


class LegacyMessage(NamedTuple):
    """A stored message: one record, or the wrapper of a compressed set."""

    offset: int
    """The record's offset; in a wrapper, that of its last record."""
    size_bytes: int
    """The size of the whole message, offset and size included."""
    crc: int
    magic: int
    attributes: int
    timestamp: int
    """In milliseconds; -1 in v0."""
    key: bytes | None
    value: bytes | None
    is_valid: bool
    """Whether the crc matches the bytes."""

    @property
    def compression_type(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == 1 and self.attributes & LOG_APPEND_TIME_FLAG != 0


def read_message(buffer: Buffer, position: int = 0) -> LegacyMessage:
    """Reads the message at `position`. A wrong checksum only makes its `is_valid` False.

    Raises CorruptMessage if the message is not whole, has another magic, or fields that do not fit its size.
    """
    try:
        offset, size, crc, magic, attributes = _HEAD.unpack_from(buffer, position)
    except struct_error:
        raise CorruptMessage(f"message at byte {position} is cut off") from None
    end = position + OVERHEAD + size
    if magic not in (0, 1) or size < SIZE_MIN or end > len(buffer):
        raise CorruptMessage(
            f"message at byte {position} has magic {magic}, size {size}, {len(buffer) - position} bytes"
        )
    view = memoryview(buffer)[:end]
    place = position + _HEAD.size
    timestamp = -1
    try:
        if magic == 1:
            (timestamp,) = _I64.unpack_from(view, place)
            place += 8
        key, place = _field(view, place)
        value, place = _field(view, place)
    except struct_error:
        place = -1
    if place != end:
        raise CorruptMessage(f"message at byte {position}, offset {offset}: its fields do not fill its {size} bytes")
    is_valid = zlib.crc32(view[position + _CHECKED_POSITION :]) == crc
    return LegacyMessage(offset, size + OVERHEAD, crc, magic, attributes, timestamp, key, value, is_valid)


def _field(view: memoryview, position: int) -> tuple[bytes | None, int]:
    (size,) = _I32.unpack_from(view, position)
    position += 4
    if size < 0:
        return None, position
    return bytes(view[position : position + size]), position + size


def iter_messages(buffer: Buffer) -> Iterator[LegacyMessage]:
    """Yields the messages in `buffer`, without opening wrappers; a torn message at the end is left out."""
    view, position = memoryview(buffer), 0
    while len(view) - position >= OVERHEAD + SIZE_MIN:
        (size,) = _I32.unpack_from(view, position + 8)
        if size >= SIZE_MIN and position + OVERHEAD + size > len(view):
            return
        message = read_message(view, position)
        yield message
        position += message.size_bytes


def records_of(message: LegacyMessage, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> list[Record]:
    """Returns the record of a message, or the records of a wrapper, with absolute offsets. Raises CorruptMessage."""
    name = f"message of offset {message.offset}"
    if not message.is_valid:
        raise CorruptMessage(f"{name} fails its checksum")
    codec = message.compression_type
    if codec == NONE:
        return [Record(message.offset, message.timestamp, message.key, message.value)]
    if codec >= ZSTD or message.value is None:
        raise CorruptMessage(f"{name} is a wrapper with codec {codec_name(codec)} and value {message.value!r}")
    packed = _with_right_header_checksum(message.value) if codec == LZ4 and message.magic == 0 else message.value
    try:
        inner = list(iter_messages(decompress(codec, packed, max_bytes)))
    except (DamagedData, DecompressedTooLarge) as error:
        raise CorruptMessage(f"{name}: {error}") from None
    if not inner:
        raise CorruptMessage(f"{name} is a wrapper without messages")
    base = _base_offset(message, inner[-1].offset)
    records = []
    for entry in inner:
        if not entry.is_valid or entry.compression_type != NONE:
            raise CorruptMessage(f"{name}: the message inside at {entry.offset} is compressed or fails its checksum")
        timestamp = message.timestamp if message.is_log_append_time and entry.magic == 1 else entry.timestamp
        records.append(Record(base + entry.offset, timestamp, entry.key, entry.value))
    return records


def _base_offset(wrapper: LegacyMessage, last_inner: int) -> int:
    """Returns the offset to add to those inside a wrapper: 0 for absolute ones (v0, and v1 wrappers of offset 0)."""
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < last_inner:
        raise CorruptMessage(f"wrapper of offset {wrapper.offset} ends with the relative offset {last_inner}")
    return wrapper.offset - last_inner


def build_message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    timestamp: int = -1,
    attributes: int = 0,
) -> bytes:
    """Builds one message in an old format."""
    body = magic.to_bytes(1, "big") + attributes.to_bytes(1, "big")
    if magic == 1:
        body += _I64.pack(timestamp)
    for field in (key, value):
        body += _I32.pack(-1) if field is None else _I32.pack(len(field)) + field
    return _I64.pack(offset) + _I32.pack(len(body) + 4) + _U32.pack(zlib.crc32(body)) + body


def build_wrapper(
    records: Iterable[Record], *, codec: int, magic: int = 1, log_append_time: int | None = None
) -> bytes:
    """Builds a compressed set of `records` with absolute offsets; lz4 in v0 with the wrong checksum of old clients."""
    entries = list(records)
    base = entries[0].offset if magic == 1 else 0
    inner = b"".join(
        build_message(entry.offset - base, entry.key, entry.value, magic=magic, timestamp=entry.timestamp)
        for entry in entries
    )
    packed = compress(codec, inner)
    if codec == LZ4 and magic == 0:
        packed = _with_header_checksum(packed, 0)
    attributes, timestamp = codec, max(entry.timestamp for entry in entries)
    if log_append_time is not None:
        attributes, timestamp = codec | LOG_APPEND_TIME_FLAG, log_append_time
    return build_message(entries[-1].offset, None, packed, magic=magic, timestamp=timestamp, attributes=attributes)


def _with_right_header_checksum(frame: bytes) -> bytes:
    """Corrects the header checksum of the first Kafka clients with lz4, which covered the magic number too."""
    return _with_header_checksum(frame, 4)


def _with_header_checksum(frame: bytes, start: int) -> bytes:
    if len(frame) < 7:
        return frame
    end = 6 + (8 if frame[4] & _LZ4_CONTENT_SIZE else 0)
    return frame[:end] + bytes([_xxh32(frame[start:end]) >> 8 & 0xFF]) + frame[end + 1 :]


def _xxh32(data: bytes) -> int:
    """Computes xxHash32 with seed 0 of fewer than 16 bytes; the header of an lz4 frame has no more."""
    assert len(data) < 16, len(data)
    prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    state = prime5 + len(data)
    words = len(data) // 4 * 4
    for place in range(0, words, 4):
        state = state + int.from_bytes(data[place : place + 4], "little") * prime3 & mask
        state = (state << 17 | state >> 15) * prime4 & mask
    for byte in data[words:]:
        state = state + byte * prime5 & mask
        state = (state << 11 | state >> 21) * prime1 & mask
    state = (state ^ state >> 15) * prime2 & mask
    state = (state ^ state >> 13) * prime3 & mask
    return state ^ state >> 16
