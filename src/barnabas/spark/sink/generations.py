"""Generations of a topic that a query writes: with each full refresh all rows come again, in a later generation.

The header `generation` of a record has the number of its generation. In each partition the numbers never fall, so the
first record of a generation is found by bisection.
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
"""The generation of records without the header: they are older than all that have it."""
_LOOK: Final = 100
"""Offsets that are read at once on the way to a record: end markers and what compaction has removed leave gaps."""


def with_header(rows: "pyarrow.RecordBatch", name: str, value: bytes) -> "pyarrow.RecordBatch":
    """Returns the rows of a write with one more header in each, behind those of its column `headers`."""
    import pyarrow as pa

    header = {"key": name, "value": value}
    given: Iterable[list[Mapping[str, object]] | None] = [None] * rows.num_rows
    if "headers" in rows.schema.names:
        given = rows.column("headers").to_pylist()
        rows = rows.drop_columns(["headers"])
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return rows.append_column("headers", pa.array([[*(each or ()), header] for each in given], kind))


def switch_generation(
    settings: Mapping[str, str] | str,
    group_id: str,
    topics: str | Iterable[str],
    *,
    generation: int | None = None,
    timeout: float = 60.0,
) -> dict[TopicPartition, int]:
    """Commits for a consumer group, in each partition, the offset of the first record of a generation (by default the
    newest one that the topics have) or of a later one, and returns these offsets.

    `settings`: the client's, or the addresses of brokers. The group must have no members. `timeout`: the seconds that a
    read may wait for a record. Partitions without such records get their end. Raises UsageError where no record has the
    header, ItemsFailed where the group has members (UnknownMemberId), TopicNotFound, OperationTimedOut.
    """
    from barnabas.client.admin.front import Admin
    from barnabas.client.partition_reader import PartitionReader

    client = {"bootstrap.servers": settings} if isinstance(settings, str) else dict(settings)
    names = [topics] if isinstance(topics, str) else list(topics)
    with Admin(client) as admin, closing(PartitionReader(client)) as reader:
        found = {
            TopicPartition(view.name, number): _Log(reader, TopicPartition(view.name, number), timeout)
            for view in admin.describe_topics(names).values()
            for number in view.partitions
        }
        wanted = max((log.newest() for log in found.values()), default=_NONE) if generation is None else generation
        if wanted == _NONE:
            raise UsageError(
                f"no record of {', '.join(names)} has a header {GENERATION}: write them with option generation, or say"
                " where the group is to go on by `barnabas groups reset-offsets`"
            )
        offsets = {partition: log.first_of(wanted) for partition, log in found.items()}
        admin.alter_group_offsets(group_id, dict(offsets.items()))
    return offsets


class _Log:
    """A partition whose records are looked at one by one."""

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
            found = self._records(begin, min(begin + step, self._end))
            if found:
                return found[-1][1]
            step *= 2
        return _NONE

    def first_of(self, generation: int) -> int:
        """Returns the offset of the first record of this generation or a later one; the end if there is none."""
        low, high = self._start, self._end
        while low < high:
            middle = (low + high) // 2
            at = self._next(middle, high)
            if at is None or at[1] >= generation:
                high = middle
            else:
                low = at[0] + 1
        following = self._next(low, self._end)
        return self._end if following is None else following[0]

    def _next(self, begin: int, end: int) -> tuple[int, int] | None:
        """Returns offset and generation of the first record from `begin` on; None if there is none before `end`."""
        while begin < end:
            found = self._records(begin, min(begin + _LOOK, end))
            if found:
                return found[0]
            begin += _LOOK
        return None

    def _records(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Returns offsets and generations."""
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
