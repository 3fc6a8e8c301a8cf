"""Which partition a record goes to: murmur2 of the key as Kafka's Java producer, the sticky partition without a key."""

import random
from collections.abc import Callable

from barnabas.records.bulk_kernel import murmur2

__all__ = ["StickyPartitioner", "crc32_partition", "murmur2", "murmur2_partition"]


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The partition that Java, franz-go and aiokafka choose for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def crc32_partition(key: bytes, partitions: int) -> int:
    """librdkafka's default choice (`consistent_random`), for topics that its clients write."""
    import zlib

    return zlib.crc32(key) % partitions


class StickyPartitioner:
    """One partition for all records without a key until a batch is full, then another (KIP-480, KIP-794)."""

    def __init__(self, choose: Callable[[int], int] = random.randrange) -> None:
        self._choose = choose
        self._current: dict[str, int] = {}

    def partition(self, topic: str, partitions: int) -> int:
        current = self._current.get(topic)
        if current is None or current >= partitions:
            current = self._current[topic] = self._choose(partitions)
        return current

    def next(self, topic: str, partitions: int) -> None:
        """The batch left: stick to another partition from now on."""
        if partitions > 1:
            before = self._current.get(topic, -1)
            choice = self._choose(partitions - (0 <= before < partitions))
            self._current[topic] = choice + (0 <= before <= choice)
