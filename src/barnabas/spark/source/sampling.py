"""The newest values of what a query reads, to find out their schema."""

from collections.abc import Mapping
from contextlib import closing
from math import ceil
from typing import Final

from barnabas.client.partition_reader import PartitionReader
from barnabas.spark.source.offset_reader import OffsetReader
from barnabas.spark.source.options import SourceOptions

__all__ = ["newest_values"]

_OF_POSITIONS: Final = ("starting", "ending", "min", "max")
"""The beginnings of options about offsets and portions, which mean nothing for a sample."""
_SHOWN: Final = 3


def newest_values(options: Mapping[str, str], count: int) -> tuple[list[bytes | None], str]:
    """Returns about `count` values, and a description of their topics. Raises UsageError and the errors of brokers."""
    if "segments" in options:
        from barnabas.spark.segments.segment_reader import newest_values_of_segments

        return newest_values_of_segments(options, count)
    given = {name: text for name, text in options.items() if not name.lower().startswith(_OF_POSITIONS)}
    parsed = SourceOptions.parse(given, streaming=False)
    found: list[bytes | None] = []
    with OffsetReader(parsed) as lookup:
        partitions = lookup.topics().partitions
        starts, ends = lookup.earliest(partitions), lookup.latest(partitions)
    there = [partition for partition in partitions if ends[partition] > starts[partition]]
    share = ceil(count / max(len(there), 1))
    reader = PartitionReader({"client.id": "barnabas-spark", **parsed.client})
    with closing(reader):
        for partition in there:
            begin = max(starts[partition], ends[partition] - share)
            for batch in reader.read(partition, begin, ends[partition], timeout=parsed.fetch_timeout_ms / 1000):
                found += batch.column("value").to_pylist()
    topics = list(dict.fromkeys(partition.topic for partition in partitions))
    more = len(topics) - _SHOWN
    what = "topic " + ", ".join(topics[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return found[-count:] if len(there) == 1 else found, what
