"""Maps a group or a transactional id to a partition of the internal topic, by Java's hash of the name."""

import codecs
from functools import lru_cache
from typing import Final

__all__ = ["java_string_hash", "partition_for"]

_UTF_16: Final = codecs.lookup("utf-16-be")  # Python imports it at its first use: there may be no descriptor by then


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: a signed 32-bit number over the UTF-16 code units; `java_string_hash("ab")` is 3105."""
    units, _ = _UTF_16.encode(text, "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


@lru_cache(maxsize=4096)
def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that a group or transactional id lives on."""
    value = java_string_hash(key)
    # Kafka's Utils.abs: the one int without a positive counterpart becomes 0.
    return (0 if value == -(2**31) else abs(value)) % partition_count
