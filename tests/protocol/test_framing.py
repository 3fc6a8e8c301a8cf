"""Frames come out the same however the stream is cut, and a size field alone allocates nothing."""

import random

import pytest

from barnabas.protocol.framing import SCRATCH_SIZE, BufferPool, FrameReader, FrameTooLarge

MIB = 1024 * 1024


def feed(reader: FrameReader, data: bytes, cuts) -> list[bytes]:
    """Push `data` through the reader in pieces of the given sizes."""
    frames = []
    position = 0
    for cut in cuts:
        left = min(cut, len(data) - position)
        while left > 0:
            buffer = reader.buffer()
            count = min(left, len(buffer))
            buffer[:count] = data[position : position + count]
            frames += [bytes(frame) for frame in reader.received(count)]
            position += count
            left -= count
        if position == len(data):
            break
    return frames


def stream(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def repeat(size: int):
    while True:
        yield size


FRAMES = [b"", b"a", b"xy" * 500, bytes(70_000), b"tail", bytes(range(256)) * 2000, b"z"]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 1000, 65_536, SCRATCH_SIZE, 10 * MIB])
def test_cut_anywhere(size):
    if size == 1:
        frames = [b"", b"a", b"xyz" * 30]
    else:
        frames = FRAMES
    assert feed(FrameReader(BufferPool(), 100 * MIB), stream(*frames), repeat(size)) == frames


def test_random_cuts():
    rng = random.Random(7)
    for _ in range(50):
        frames = [rng.randbytes(rng.choice([0, 1, 30, 5000, 300_000])) for _ in range(rng.randrange(1, 12))]
        cuts = (rng.choice([1, 3, 4, 100, 70_000, 400_000]) for _ in range(10**9))
        assert feed(FrameReader(BufferPool(), 100 * MIB), stream(*frames), cuts) == frames


def test_readers_that_share_a_pool_do_not_mix():
    pool = BufferPool()
    one, two = FrameReader(pool, MIB), FrameReader(pool, MIB)
    first, second = stream(b"1" * 1000), stream(b"2" * 100_000)
    assert feed(one, first[:600], repeat(600)) == []
    assert feed(two, second[:2], repeat(2)) == []
    assert feed(one, first[600:], repeat(1000)) == [b"1" * 1000]
    assert feed(two, second[2:], repeat(50_000)) == [b"2" * 100_000]


@pytest.mark.parametrize("size", [-1, -(2**31), MIB + 1, 2**31 - 1])
def test_impossible_sizes_are_refused_before_anything_is_kept(size):
    reader = FrameReader(BufferPool(), MIB)
    with pytest.raises(FrameTooLarge, match="limit is 1048576"):
        feed(reader, size.to_bytes(4, "big", signed=True) + b"rest", repeat(8))


def test_memory_follows_what_arrives_not_what_is_claimed():
    reader = FrameReader(BufferPool(), 100 * MIB)
    feed(reader, (100 * MIB).to_bytes(4, "big") + b"only this", repeat(100))
    assert len(reader.buffer()) <= 64 * 1024
