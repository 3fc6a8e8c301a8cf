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
"""How the options begin that say from where to where, and in what portions: for a sample they mean nothing."""
_SHOWN: Final = 3


def newest_values(options: Mapping[str, str], count: int) -> tuple[list[bytes | None], str]:
    """About `count` values, and what they are of, in words. Raises UsageError, and what brokers say."""
    if "segments" in options:
        from barnabas.spark.segments.reader import newest_values_of_segments

        return newest_values_of_segments(options, count)
    given = {name: text for name, text in options.items() if not name.lower().startswith(_OF_POSITIONS)}
    parsed = SourceOptions.parse(given, streaming=False)
    found: list[bytes | None] = []
    with OffsetReader(parsed) as lookup:
        partitions = lookup.topics().partitions
        starts, ends = lookup.earliest(partitions), lookup.latest(partitions)
    there = [where for where in partitions if ends[where] > starts[where]]
    share = ceil(count / max(len(there), 1))
    reader = PartitionReader({"client.id": "barnabas-spark", **parsed.client})
    with closing(reader):
        for where in there:
            begin = max(starts[where], ends[where] - share)
            for batch in reader.read(where, begin, ends[where], timeout=parsed.fetch_timeout_ms / 1000):
                found += batch.column("value").to_pylist()
    topics = list(dict.fromkeys(where.topic for where in partitions))
    more = len(topics) - _SHOWN
    what = "topic " + ", ".join(topics[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return found[-count:] if len(there) == 1 else found, what
