"""The four codecs of the batch format, each with a bound on what comes out.

    id  name    stored as
    0   none    -
    1   gzip    gzip members (RFC 1952)
    2   snappy  xerial blocks as Java writes them; a bare snappy block is read too
    3   lz4     one LZ4 frame
    4   zstd    zstd frames

Decompression never holds more than `max_bytes` plus a constant, whatever sizes the input claims. It accepts at most
`pieces_max(max_bytes)` gzip members, snappy or lz4 blocks, zstd frames and blocks. The libraries are imported at their
first use: a broker needs them only to check the records of compressed batches.
"""

import functools
import io
import threading
import zlib
from collections.abc import Callable
from typing import Any, Final

from barnabas.errors import BarnabasError
from barnabas.late_imports import import_late
from barnabas.records.batch import Buffer

__all__ = [
    "CODECS",
    "CODEC_IDS",
    "DECOMPRESSED_MAX_BYTES",
    "GZIP",
    "LZ4",
    "NONE",
    "SNAPPY",
    "ZSTD",
    "DamagedData",
    "DecompressedTooLarge",
    "TooManyPieces",
    "TrailingData",
    "codec_name",
    "compress",
    "compress_lz4_blocks",
    "decompress",
    "pieces_max",
]

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_IDS: Final = {name: number for number, name in enumerate(CODECS)}

DECOMPRESSED_MAX_BYTES: Final = 100_000_000
"""The most bytes that one batch may hold uncompressed. librdkafka's consumers refuse larger ones by default
(receive.message.max.bytes), so such a batch would stop some of its readers."""

_CHUNK: Final = 65_536
_PIECES_FREE: Final = 100
_PIECE_BYTES_MIN: Final = 4096
_JOINED_PARTS_MAX: Final = 64
_SNAPPY_BLOCK: Final = 32_768
_LZ4_HEADER: Final = b'\x04"M\x18\x60\x40\x82'
"""The header of a frame of independent blocks of 64 KiB, without checksums and sizes."""
_LZ4_STORED: Final = 1 << 31
_LZ4_END: Final = b"\0\0\0\0"
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK_MAX: Final = 131_072
_ZSTD_RLE: Final = 1
_ZSTD_COMPRESSED: Final = 2

_local = threading.local()


class DamagedData(BarnabasError):
    """The compressed bytes are cut off, followed by others, or not of the codec that their batch names."""


class TrailingData(DamagedData):
    """Bytes follow the compressed records; some readers stop there and some do not."""


class TooManyPieces(DamagedData):
    """The data has too many members, blocks or frames. Each costs time, even an empty one."""


class DecompressedTooLarge(BarnabasError):
    """The data holds more bytes than the caller allows."""


def codec_name(codec: int) -> str:
    """Returns the name of a codec: `lz4` for 3, `unknown(5)` for 5, which does not exist."""
    return CODECS[codec] if 0 <= codec < len(CODECS) else f"unknown({codec})"


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compresses `data`. `level` None is Kafka's default (gzip 6, lz4 fast, zstd 3)."""
    if codec == NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: int, data: Buffer, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> bytes:
    """Decompresses `data`. Raises DamagedData, or DecompressedTooLarge for more than `max_bytes`."""
    if codec == NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return bytes(data)
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise DamagedData(f"compression type {codec} does not exist")
    return decompressor(data, max_bytes)


def _too_large(max_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"the compressed records hold more than {max_bytes} bytes")


def pieces_max(max_bytes: int) -> int:
    """Returns how many members, blocks and frames may hold `max_bytes`. All clients of Kafka write one gzip member, or
    pieces of 32 KiB and more."""
    return _PIECES_FREE + max_bytes // _PIECE_BYTES_MIN


def _too_many(what: str, most: int) -> TooManyPieces:
    return TooManyPieces(f"{what}: the records are cut into more than {most} pieces; compress them as a whole")


def _joined(parts: list[bytes]) -> bytes:
    """Joins the parts. Other threads may run in between if there are many of them."""
    if len(parts) == 1:
        return parts[0]
    if len(parts) <= _JOINED_PARTS_MAX:
        return b"".join(parts)
    whole = io.BytesIO()
    for part in parts:
        whole.write(part)
    return whole.getvalue()


# gzip


def _gzip(data: Buffer, level: int | None) -> bytes:
    deflate = zlib.compressobj(6 if level is None else level, zlib.DEFLATED, 31)
    return deflate.compress(data) + deflate.flush()


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    room, position, end = max_bytes, 0, len(view)
    for _ in range(pieces_max(max_bytes)):
        inflate = zlib.decompressobj(31)
        while not inflate.eof:
            # in chunks: the unused rest is copied for each member, and there may be many
            chunk = view[position : position + _CHUNK]
            try:
                part = inflate.decompress(chunk, min(room + 1, max(_CHUNK, 4 * len(chunk))))
            except zlib.error as error:
                raise DamagedData(f"gzip: {error}") from None
            position += len(chunk) - len(inflate.unconsumed_tail) - len(inflate.unused_data)
            room -= len(part)
            if room < 0:
                raise _too_large(max_bytes)
            if part:
                parts.append(part)
            elif position == end and not inflate.eof:
                raise DamagedData("gzip: the data ends early")
        if position == end:
            return _joined(parts)
        if bytes(view[position : position + 2]) != b"\x1f\x8b":
            raise TrailingData(f"gzip: {end - position} bytes follow the last member")
    raise _too_many("gzip", pieces_max(max_bytes))


# snappy


def _snappy(data: Buffer, _level: int | None) -> bytes:
    snappy = import_late("cramjam").snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _SNAPPY_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + _SNAPPY_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _unsnappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _unsnappy_block(view, max_bytes)
    if len(view) < len(_XERIAL_HEADER):
        raise DamagedData("snappy: the xerial header is cut off")
    parts: list[bytes] = []
    room, position, end = max_bytes, len(_XERIAL_HEADER), len(view)
    most = pieces_max(max_bytes)
    while position < end:
        if len(parts) == most:
            raise _too_many("snappy", most)
        if end - position < 4:
            raise TrailingData(f"snappy: {end - position} bytes follow the last block")
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if size > end - position:
            raise DamagedData(f"snappy: a block of {size} bytes, {end - position} are left")
        try:
            part = _unsnappy_block(view[position : position + size], room)
        except DecompressedTooLarge:
            raise _too_large(max_bytes) from None
        parts.append(part)
        room -= len(part)
        position += size
    return _joined(parts)


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytes:
    cramjam = import_late("cramjam")

    try:
        size = cramjam.snappy.decompress_raw_len(block)
    except (cramjam.DecompressionError, OSError, ValueError) as error:
        raise DamagedData(f"snappy: {error}") from None
    if size > max_bytes:
        raise _too_large(max_bytes)
    # two bytes hold 64 bytes at most: nothing is allocated for a false size
    if size > 64 * len(block):
        raise DamagedData(f"snappy: a block of {len(block)} bytes claims to hold {size}")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except (cramjam.DecompressionError, OSError, ValueError) as error:
        raise DamagedData(f"snappy: {error}") from None


# lz4


def _lz4(data: Buffer, level: int | None) -> bytes:
    frame = import_late("lz4.frame")

    # Kafka's default level 9 is its fast compressor, level 0 of lz4; Java reads frames of independent blocks only
    compressed: bytes = frame.compress(
        data,
        compression_level=0 if level is None or level == 9 else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def compress_lz4_blocks(data: Buffer) -> bytes:
    """Compresses `data` as an LZ4 frame with less CPU: in a third to two thirds of the time of `compress`, and up to 4
    percent larger. Kafka's own compressor makes the same blocks."""
    view = memoryview(data)
    parts: list[Buffer] = [_LZ4_HEADER]
    for start in range(0, len(view), _CHUNK):
        chunk = view[start : start + _CHUNK]
        block: Buffer = _lz4_block().compress(chunk, store_size=False)
        flag = 0
        if len(block) >= len(chunk):
            block, flag = chunk, _LZ4_STORED
        parts += ((len(block) | flag).to_bytes(4, "little"), block)
    parts.append(_LZ4_END)
    return b"".join(parts)


@functools.cache
def _lz4_block() -> Any:
    return import_late("lz4.block")


def _unlz4(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    is_usual = bytes(view[: len(_LZ4_HEADER)]) == _LZ4_HEADER
    return _unlz4_blocks(view, max_bytes) if is_usual else _unlz4_frame(view, max_bytes)


def _unlz4_blocks(view: memoryview, max_bytes: int) -> bytes:
    """Decompresses the kind of frame that all clients of Kafka write, block by block: in half of the library's time."""
    codec = _lz4_block()
    parts: list[bytes] = []
    room, position, end = max_bytes, len(_LZ4_HEADER), len(view)
    most = pieces_max(max_bytes)
    while True:
        size = int.from_bytes(view[position : position + 4], "little")
        start = position + 4
        position = start + (size & ~_LZ4_STORED)
        if start > end or position > end:
            raise DamagedData("lz4: the frame ends early")
        if not size:
            break
        if len(parts) == most:
            raise _too_many("lz4", most)
        block = view[start:position]
        if size & _LZ4_STORED:
            if len(block) > _CHUNK:
                raise DamagedData(f"lz4: a block of {len(block)} bytes in a frame of blocks of {_CHUNK}")
            part = bytes(block)
        else:
            try:
                part = codec.decompress(block, uncompressed_size=_CHUNK)
            except (codec.LZ4BlockError, ValueError) as error:
                raise DamagedData(f"lz4: {error}") from None
        room -= len(part)
        if room < 0:
            raise _too_large(max_bytes)
        parts.append(part)
    if position < end:
        raise TrailingData(f"lz4: {end - position} bytes follow the frame")
    return _joined(parts)


def _unlz4_frame(data: memoryview, max_bytes: int) -> bytes:
    """Decompresses any other frame."""
    frame = import_late("lz4.frame")

    context: Any = getattr(_local, "lz4_context", None) or frame.create_decompression_context()
    _local.lz4_context = None  # kept again only after a whole frame
    parts: list[bytes] = []
    room = max_bytes
    rest = data
    size = max(_CHUNK, 4 * len(data))
    while True:
        limit = min(room + 1, size)
        try:
            part, used, at_end = frame.decompress_chunk(context, rest, max_length=limit)
        except (RuntimeError, ValueError, EOFError) as error:
            raise DamagedData(f"lz4: {error}") from None
        room -= len(part)
        if room < 0:
            raise _too_large(max_bytes)
        parts.append(part)
        rest = rest[used:]
        if at_end:
            break
        if len(part) < limit:
            raise DamagedData("lz4: the frame ends early")
        size *= 2
    _local.lz4_context = context
    if len(rest):
        raise TrailingData(f"lz4: {len(rest)} bytes follow the frame")
    return _joined(parts)


# zstd


def _zstd(data: Buffer, level: int | None) -> bytes:
    compressors: dict[int, Any] | None = getattr(_local, "zstd_compressors", None)
    if compressors is None:
        compressors = _local.zstd_compressors = {}
    number = 3 if level is None else level
    compressor = compressors.get(number)
    if compressor is None:
        compressor = compressors[number] = import_late("zstandard").ZstdCompressor(level=number)
    compressed: bytes = compressor.compress(data)
    return compressed


def _unzstd(data: Buffer, max_bytes: int) -> bytes:
    zstandard = import_late("zstandard")
    decompressor = getattr(_local, "zstd_decompressor", None)
    if decompressor is None:
        decompressor = _local.zstd_decompressor = zstandard.ZstdDecompressor()
    view = memoryview(data)
    parts: list[bytes] = []
    room, position = max_bytes, 0
    pieces = pieces_max(max_bytes)
    while position < len(view):
        end, most, is_exact, blocks = _zstd_frame(view, position, pieces)
        if is_exact and most > room:
            raise _too_large(max_bytes)
        pieces -= 1 + blocks
        if pieces < 0:
            raise _too_many("zstd", pieces_max(max_bytes))
        if most > 0:
            try:
                part: bytes = decompressor.decompress(view[position:end], max_output_size=min(most, room + 1))
            except zstandard.ZstdError as error:
                if most > room and "too small" in str(error):
                    raise _too_large(max_bytes) from None
                raise DamagedData(f"zstd: {error}") from None
            room -= len(part)
            if room < 0:
                raise _too_large(max_bytes)
            parts.append(part)
        position = end
    return _joined(parts)


def _zstd_frame(data: memoryview, start: int, blocks_max: int) -> tuple[int, int, bool, int]:
    """Returns the end of the frame at `start`, a bound on its content, whether the bound is exact, and the number of
    blocks, which are counted up to the first beyond `blocks_max` (RFC 8878, section 3.1).

    The library alone is not enough: it trusts the content size when it allocates memory, and its stream readers, which
    do not, cannot tell a truncated frame from a whole one.
    """
    try:
        magic = int.from_bytes(data[start : start + 4], "little")
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            return _within(data, start + 8 + int.from_bytes(data[start + 4 : start + 8], "little")), 0, True, 0
        if magic != _ZSTD_MAGIC:
            raise DamagedData("zstd: this is no frame")
        flags = data[start + 4]
        single, content_flag = flags >> 5 & 1, flags >> 6
        position = start + 6 - single + (0, 1, 2, 4)[flags & 3]
        content_size = (single, 2, 4, 8)[content_flag]
        claimed = int.from_bytes(data[position : position + content_size], "little") + (256 if content_size == 2 else 0)
        position += content_size
        most, last, blocks = 0, 0, 0
        while not last and blocks <= blocks_max:
            header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            last, kind, size = header & 1, header >> 1 & 3, header >> 3
            position += 4 if kind == _ZSTD_RLE else 3 + size
            blocks += 1
            most += _ZSTD_BLOCK_MAX if kind == _ZSTD_COMPRESSED else min(size, _ZSTD_BLOCK_MAX)
    except IndexError:
        raise DamagedData("zstd: the frame ends early") from None
    if not last:
        return position, claimed, content_size > 0, blocks
    end = _within(data, position + (4 if flags & 4 else 0))
    if not content_size:
        return end, most, False, blocks
    if claimed > most:
        raise DamagedData(f"zstd: a frame that holds {most} bytes at most claims {claimed}")
    return end, claimed, True, blocks


def _within(data: memoryview, end: int) -> int:
    if end > len(data):
        raise DamagedData("zstd: the frame ends early")
    return end


_COMPRESSORS: Final[dict[int, Callable[[Buffer, int | None], bytes]]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
_DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
