import gzip
import random
import tracemalloc
import zlib

import pytest

from barnabas.records.compression import (
    CODEC_IDS,
    CODECS,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    DamagedData,
    DecompressedTooLarge,
    TooManyPieces,
    TrailingData,
    codec_name,
    compress,
    compress_lz4_blocks,
    decompress,
    pieces_max,
)

rng = random.Random(7)
SAMPLES = {
    "nothing": b"",
    "a byte": b"x",
    "text": b"the quick brown fox " * 40,
    "noise": rng.randbytes(200_000),
    "zeros": bytes(3_000_000),
    "mixed": b"".join(rng.randbytes(rng.randint(1, 300)) * rng.randint(1, 30) for _ in range(500)),
}
REAL = (GZIP, SNAPPY, LZ4, ZSTD)


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_round_trip(codec: int, sample: str) -> None:
    data = SAMPLES[sample]
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(b"_" + packed)[1:], len(data)) == data
    assert compress(codec, memoryview(bytearray(data))) == packed


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_bound_is_exact(codec: int) -> None:
    for size in (1, 1000, 65_536, 131_072, 500_000):
        data = b"abcdefgh" * (size // 8) + b"z" * (size % 8)
        packed = compress(codec, data)
        assert decompress(codec, packed, size) == data
        with pytest.raises(DecompressedTooLarge, match=f"more than {size - 1} bytes"):
            decompress(codec, packed, size - 1)


@pytest.mark.parametrize("codec", REAL, ids=CODECS[1:])
def test_bomb_takes_no_more_memory_than_its_bound(codec: int) -> None:
    packed = compress(codec, bytes(60_000_000))
    tracemalloc.start()
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, 1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(packed) + 4_000_000


@pytest.mark.parametrize("codec", REAL, ids=CODECS[1:])
@pytest.mark.parametrize("level", [1, 3, 9])
def test_levels(codec: int, level: int) -> None:
    assert decompress(codec, compress(codec, SAMPLES["text"], level)) == SAMPLES["text"]


@pytest.mark.parametrize("codec", REAL, ids=CODECS[1:])
def test_every_truncation_is_damage(codec: int) -> None:
    packed = compress(codec, b"some records " * 30)
    whole = decompress(codec, packed)
    for size in range(len(packed)):
        try:
            assert decompress(codec, packed[:size]) in (b"",), size  # a bare header of snappy, no frame of zstd
        except DamagedData:
            continue
    assert whole == b"some records " * 30


@pytest.mark.parametrize("codec", REAL, ids=CODECS[1:])
def test_every_changed_byte_is_damage_or_data(codec: int) -> None:
    packed = compress(codec, b"some records " * 30)
    for position in range(len(packed)):
        for bit in range(8):
            changed = bytearray(packed)
            changed[position] ^= 1 << bit
            try:
                decompress(codec, bytes(changed), 10_000)
            except (DamagedData, DecompressedTooLarge):
                continue


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4], ids=["gzip", "snappy", "lz4"])
def test_bytes_after_the_end(codec: int) -> None:
    with pytest.raises(TrailingData):
        decompress(codec, compress(codec, b"records") + b"\0")


def test_zstd_bytes_after_the_end() -> None:
    with pytest.raises(DamagedData):
        decompress(ZSTD, compress(ZSTD, b"records") + b"\0")


@pytest.mark.parametrize("codec", [GZIP, ZSTD], ids=["gzip", "zstd"])
def test_two_frames(codec: int) -> None:
    packed = compress(codec, b"first ") + compress(codec, b"second")
    assert decompress(codec, packed) == b"first second"
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, 11)


def test_zstd_forms() -> None:
    import zstandard

    data = SAMPLES["mixed"]
    streamed = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    frames = [
        streamed.compress(data) + streamed.flush(),
        zstandard.ZstdCompressor(write_checksum=True).compress(data),
        zstandard.ZstdCompressor(level=19).compress(data),
        b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + zstandard.ZstdCompressor().compress(data),
    ]
    for frame in frames:
        assert decompress(ZSTD, frame) == data
        with pytest.raises(DecompressedTooLarge):
            decompress(ZSTD, frame, len(data) - 1)


def test_zstd_claimed_size_is_not_allocated() -> None:
    # a frame with an 8-byte content size of a terabyte and one raw block of a byte
    frame = bytes.fromhex("28b52ffd e0") + (2**40).to_bytes(8, "little") + bytes.fromhex("090000 78")
    with pytest.raises(DamagedData, match="claims 1099511627776"):
        decompress(ZSTD, frame)


def test_snappy_claimed_size_is_not_allocated() -> None:
    claim = b"\xff\xff\xff\x2f" + b"\x00x"  # 100 million bytes from one literal byte
    with pytest.raises(DamagedData, match="claims to hold"):
        decompress(SNAPPY, claim, 200_000_000)


def test_lz4_claimed_size_is_not_allocated() -> None:
    from lz4 import frame

    packed = bytearray(frame.compress(b"x" * 100, store_size=True))
    packed[6:14] = (2**40).to_bytes(8, "little")
    with pytest.raises(DamagedData):
        decompress(LZ4, bytes(packed))


def test_lz4_forms() -> None:
    from lz4 import frame

    data = SAMPLES["mixed"]
    for options in (
        {"block_linked": True},
        {"block_linked": False, "store_size": True},
        {"content_checksum": True, "block_checksum": True},
        {"block_size": frame.BLOCKSIZE_MAX4MB},
    ):
        assert decompress(LZ4, frame.compress(data, **options)) == data


@pytest.mark.parametrize("sample", SAMPLES)
def test_lz4_of_blocks_is_a_frame(sample: str) -> None:
    from lz4 import frame

    data = SAMPLES[sample]
    packed = compress_lz4_blocks(data)
    assert compress_lz4_blocks(memoryview(data)) == packed
    assert frame.decompress(packed) == data
    assert decompress(LZ4, packed, len(data)) == data
    assert len(packed) <= len(data) + 11 + 4 * (len(data) // 65_536 + 1), "what does not shrink is stored"


def test_lz4_of_blocks_is_not_believed() -> None:
    packed = compress_lz4_blocks(SAMPLES["text"] * 500)
    for end in range(len(packed)):
        with pytest.raises(DamagedData):
            decompress(LZ4, packed[:end])
    stored = packed[:7] + (65_537 | 1 << 31).to_bytes(4, "little") + bytes(65_537) + bytes(4)
    with pytest.raises(DamagedData, match="a block of 65537 bytes"):
        decompress(LZ4, stored)
    large = packed[:7] + (0x7FFFFFFF).to_bytes(4, "little") + packed[11:]
    with pytest.raises(DamagedData, match="ends early"):
        decompress(LZ4, large)


def test_gzip_forms() -> None:
    data = SAMPLES["mixed"]
    assert decompress(GZIP, gzip.compress(data)) == data
    wrong = bytearray(gzip.compress(data))
    wrong[-6] ^= 1
    with pytest.raises(DamagedData):
        decompress(GZIP, bytes(wrong))
    with pytest.raises(DamagedData):
        decompress(GZIP, zlib.compress(data))


def test_snappy_forms() -> None:
    from cramjam import snappy

    data = SAMPLES["mixed"]
    assert decompress(SNAPPY, bytes(snappy.compress_raw(data))) == data
    packed = compress(SNAPPY, data)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


def test_unknown_codec() -> None:
    with pytest.raises(DamagedData, match="compression type 5"):
        decompress(5, b"x")
    assert codec_name(5) == "unknown(5)"
    assert codec_name(3) == "lz4"
    assert CODEC_IDS == {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}


NOTHING = {
    "gzip members": (GZIP, b"", gzip.compress(b"", 1), b""),
    "snappy blocks": (SNAPPY, compress(SNAPPY, b""), b"\0\0\0\1\0", b""),
    "lz4 blocks": (LZ4, compress_lz4_blocks(b"")[:7], b"\0\0\0\x80", b"\0\0\0\0"),
    "zstd frames": (ZSTD, b"", compress(ZSTD, b""), b""),
    "skippable zstd frames": (ZSTD, b"", b"\x50\x2a\x4d\x18\0\0\0\0", b""),
    "zstd blocks": (ZSTD, bytes.fromhex("28b52ffd0058"), b"\0\0\0", b"\1\0\0"),
}


@pytest.mark.parametrize("pieces", NOTHING)
def test_pieces_that_hold_nothing_are_counted(pieces: str) -> None:
    codec, head, piece, tail = NOTHING[pieces]
    most = pieces_max(1_000_000)
    assert most == 100 + 1_000_000 // 4096
    assert decompress(codec, head + (most // 2 - 1) * piece + tail, 1_000_000) == b""
    with pytest.raises(TooManyPieces, match=f"more than {most} pieces"):
        decompress(codec, head + (most + 1) * piece + tail, 1_000_000)


@pytest.mark.parametrize("codec", REAL, ids=CODECS[1:])
def test_what_writers_make_has_few_enough_pieces(codec: int) -> None:
    data = random.Random(1).randbytes(200_000) * 40
    assert decompress(codec, compress(codec, data), len(data)) == data


def test_many_gzip_members_cost_no_copies_of_what_follows_them() -> None:
    """Members of 4 KiB are allowed, so a batch may have thousands."""
    member = gzip.compress(random.Random(1).randbytes(4096), 1)
    data = member * 4000
    tracemalloc.start()
    assert len(decompress(GZIP, data)) == 4000 * 4096
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.5 * 4000 * 4096
