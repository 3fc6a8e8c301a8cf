import random
import zlib

import pytest

from barnabas.client.partitioner import StickyPartitioner, crc32_partition, murmur2, murmur2_partition

# Kafka's own vectors (its UtilsTest)
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected
    assert murmur2_partition(key, 7) == (expected & 0x7FFFFFFF) % 7


def test_crc32_is_librdkafkas() -> None:
    assert crc32_partition(b"key", 10) == zlib.crc32(b"key") % 10


def test_without_a_key_one_partition_is_kept_until_the_batch_leaves() -> None:
    sticky = StickyPartitioner(random.Random(1).randrange)
    first = sticky.partition("t", 4)
    assert {sticky.partition("t", 4) for _ in range(100)} == {first}
    for _ in range(50):
        sticky.next("t", 4)
        following = sticky.partition("t", 4)
        assert following != first
        first = following


def test_a_single_partition_needs_no_choice() -> None:
    sticky = StickyPartitioner()
    assert sticky.partition("t", 1) == 0
    sticky.next("t", 1)
    assert sticky.partition("t", 1) == 0
