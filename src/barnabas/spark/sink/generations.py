"""Finds the first record of a generation in each partition, and commits these offsets for a consumer group.

A full refresh of a query writes all rows again as a new generation of the topic. The header `generation` of a record
has the number of its generation. Within a partition the numbers never decrease, so a binary search finds the first
record of a generation.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final

from barnabas.errors import UsageError
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.partition_reader import PartitionReader

__all__ = ["GENERATION", "switch_generation", "with_header"]

GENERATION: Final = "generation"
"""The name of the header."""
_NONE: Final = -1
"""The generation of records without the header, which precedes all others."""
_OFFSETS_AT_ONCE: Final = 100
"""The number of offsets that one read covers. Control records and compaction leave offsets without a record."""


def with_header(rows: "pyarrow.RecordBatch", name: str, value: bytes) -> "pyarrow.RecordBatch":
    """Returns the rows with a header added to each, after those of the column `headers`."""
    import pyarrow as pa

    header = {"key": name, "value": value}
    headers: Iterable[list[Mapping[str, object]] | None] = [None] * rows.num_rows
    if "headers" in rows.schema.names:
        headers = rows.column("headers").to_pylist()
        rows = rows.drop_columns(["headers"])
    arrow_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return rows.append_column("headers", pa.array([[*(each or ()), header] for each in headers], arrow_type))


def switch_generation(
    settings: Mapping[str, str] | str,
    group_id: str,
    topics: str | Iterable[str],
    *,
    generation: int | None = None,
    timeout: float = 60.0,
) -> dict[TopicPartition, int]:
    """Commits for a consumer group, in each partition, the offset of the first record of a generation or a later one,
    and returns these offsets. The default generation is the newest one of the topics.

    `settings` are the client's settings, or the addresses of brokers. The group must have no members. A read waits up
    to `timeout` seconds for a record. The committed offset is the partition's end if it has no record of the
    generation. Raises UsageError if no record has the header, ItemsFailed if the group has members (UnknownMemberId),
    TopicNotFound, OperationTimedOut.
    """
    from barnabas.client.admin.front import Admin
    from barnabas.client.partition_reader import PartitionReader

    client = {"bootstrap.servers": settings} if isinstance(settings, str) else dict(settings)
    names = [topics] if isinstance(topics, str) else list(topics)
    with Admin(client) as admin, closing(PartitionReader(client)) as reader:
        searches = {
            TopicPartition(view.name, number): _Search(reader, TopicPartition(view.name, number), timeout)
            for view in admin.describe_topics(names).values()
            for number in view.partitions
        }
        if generation is None:
            generation = max((search.newest() for search in searches.values()), default=_NONE)
        if generation == _NONE:
            raise UsageError(
                f"no record of {', '.join(names)} has a header {GENERATION}: write them with option generation, or set"
                " the group's offsets by `barnabas groups reset-offsets`"
            )
        offsets = {partition: search.first_offset(generation) for partition, search in searches.items()}
        admin.alter_group_offsets(group_id, dict(offsets.items()))
    return offsets


class _Search:
    """Searches the records of a partition for a generation."""

    def __init__(self, reader: "PartitionReader", partition: TopicPartition, timeout: float) -> None:
        self._reader = reader
        self._partition = partition
        self._timeout = timeout
        self._start, self._end = reader.bounds(partition)

    def newest(self) -> int:
        """Returns the generation of the last record."""
        step, begin = 1, self._end
        while begin > self._start:
            begin = max(begin - step, self._start)
            records = self._read(begin, min(begin + step, self._end))
            if records:
                return records[-1][1]
            step *= 2
        return _NONE

    def first_offset(self, generation: int) -> int:
        """Returns the offset of the first record of this generation or a later one; the end if there is none."""
        low, high = self._start, self._end
        while low < high:
            middle = (low + high) // 2
            record = self._next(middle, high)
            if record is None or record[1] >= generation:
                high = middle
            else:
                low = record[0] + 1
        following = self._next(low, self._end)
        return self._end if following is None else following[0]

    def _next(self, begin: int, end: int) -> tuple[int, int] | None:
        """Returns offset and generation of the first record from `begin` on; None if there is none before `end`."""
        while begin < end:
            records = self._read(begin, min(begin + _OFFSETS_AT_ONCE, end))
            if records:
                return records[0]
            begin += _OFFSETS_AT_ONCE
        return None

    def _read(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Returns the offsets and generations of the records from `begin` to `end`."""
        return [
            (offset, _generation_of(headers))
            for batch in self._reader.read(self._partition, begin, end, headers=True, timeout=self._timeout)
            for offset, headers in zip(batch.column("offset").to_pylist(), batch.column("headers").to_pylist())
        ]


def _generation_of(headers: Iterable[Mapping[str, object]] | None) -> int:
    for header in headers or ():
        value = header["value"]
        if header["key"] == GENERATION and isinstance(value, bytes) and value.isdigit():
            return int(value)
    return _NONE
