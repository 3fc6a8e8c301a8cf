"""Java's hash and Kafka's partition of a group."""

import pytest

from barnabas.metadata.partitioning import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value", "partition"),
    [
        ("", 0, 0),
        ("ab", 3105, 5),
        ("my-group", -1906497762, 12),
        ("console-consumer-12345", 158455506, 6),
        ("Ünïcode-☃", 532484224, 24),
        ("\U0001f600", 1772899, 49),
        ("polygenelubricants", -(2**31), 0),
    ],
)
def test_javas_hash_and_kafkas_partition(text: str, value: int, partition: int) -> None:
    assert java_string_hash(text) == value
    assert partition_for(text, 50) == partition
