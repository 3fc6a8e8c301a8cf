"""A bulk call on its way into batches, a piece at a time: the fronts wait between the pieces."""

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, overload

from barnabas.client.arguments import INT32_MAX, whole
from barnabas.client.producer.bulk.delivery import Delivery
from barnabas.client.producer.bulk.rows import RowSource, header_pairs, rows_of_lists, rows_of_table
from barnabas.client.producer.record_appender import NO_PARTITION, NO_TOPIC, Span
from barnabas.errors import RecordsFailed, UsageError
from barnabas.records.bulk_kernel import Rows
from barnabas.records.record import Headers as Pairs

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.producer.producer_core import Headers, ProducerCore

__all__ = ["AHEAD", "BulkSend", "bulk_of_lists", "bulk_of_table"]

AHEAD_BYTES: Final = 8 << 20
BATCHES_AHEAD_MIN: Final = 8
AHEAD: Final = 5
"""Why rows are not taken: enough is closed and not acknowledged. More would fill memory and leave the processor's cache
long before it is sent."""


def bulk_of_lists(
    core: "ProducerCore",
    topic: str,
    values: Iterable[Any],
    keys: Iterable[Any] | None,
    headers: "Headers | Iterable[Headers | None] | None",
    timestamps: Iterable[int] | None,
    partition: int | None,
) -> "BulkSend":
    """For a topic whose lane is open. Raises for a row that cannot be sent; then none is."""
    value_list = _list("values", values)
    count = len(value_list)
    key_list = _list("keys", keys, count)
    timestamp_list = _list("timestamps", timestamps, count)
    heads = header_pairs(headers) if isinstance(headers, Mapping) else ()
    header_list = None if isinstance(headers, Mapping) else _header_list(headers, count)
    to = _partition(partition)
    partitions = None
    if not core.intake.plain and count:
        value_list, key_list, partitions = _prepared(core, topic, value_list, key_list, partition)
    limit = int(core.intake.record_limit)
    source = rows_of_lists(value_list, key_list, timestamp_list, partitions, header_list, limit, to=to, heads=heads)
    return BulkSend(core, topic, source)


def bulk_of_table(
    core: "ProducerCore", topic: str, table: "pyarrow.Table | pyarrow.RecordBatch", partition: int | None
) -> "BulkSend":
    """As `bulk_of_lists`. Columns hold what is sent: no serializer is called."""
    to = _partition(partition)
    rows = rows_of_table(table, to, int(core.intake.record_limit))
    if to < 0 and callable(core.settings.partitioner_class) and "partition" not in table.schema.names:
        raise UsageError("partitioner.class is a function: give the table a column `partition` of what it chooses")
    return BulkSend(core, topic, rows)


@overload
def _list(name: str, given: Iterable[Any]) -> list[Any]: ...
@overload
def _list(name: str, given: Iterable[Any] | None, count: int) -> list[Any] | None: ...
def _list(name: str, given: Iterable[Any] | None, count: int | None = None) -> list[Any] | None:
    if given is None and count is not None:
        return None
    if isinstance(given, str | bytes | bytearray | memoryview | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is a list of one for each record, not {type(given).__name__}")
    items = given if type(given) is list else list(given)
    if count is not None and len(items) != count:
        raise UsageError(f"{count} values, but {len(items)} {name}: give one for each, None where there is none")
    return items


def _header_list(headers: Iterable[Any] | None, count: int) -> list[Pairs] | None:
    rows = _list("headers", headers, count)
    pairs: list[Pairs] = []
    for index, row in enumerate(rows or ()):
        try:
            pairs.append(() if row is None else header_pairs(row))
        except TypeError as error:
            raise TypeError(f"headers[{index}]: {error}") from None
        except ValueError as error:
            raise UsageError(f"headers[{index}]: {error}") from None
    return None if rows is None else pairs


def _partition(given: int | None) -> int:
    """-1 for None."""
    if given is None:
        return -1
    return whole("partition", given, 0, INT32_MAX, "give a number from 0 on, or None to have one chosen")


def _prepared(
    core: "ProducerCore", topic: str, values: list[Any], keys: list[Any] | None, partition: int | None
) -> tuple[list[Any], list[Any] | None, list[int] | None]:
    """Serialized, and at the partitions that the caller's own partitioner chooses."""
    rows = []
    for index, (value, key) in enumerate(zip(values, repeat(None) if keys is None else keys, strict=False)):
        try:
            rows.append(core.prepared(topic, value, key, partition))
        except Exception as error:
            error.add_note(f"at row {index} of {len(values)}; none was sent")
            raise
    found_values, found_keys, partitions = map(list, zip(*rows, strict=True))
    chosen = partition is None and partitions[0] is not None
    return found_values, None if keys is None else found_keys, partitions if chosen else None


class BulkSend:
    """See the module. Made before the first row is taken, and only if none of them has to be refused."""

    def __init__(self, core: "ProducerCore", topic: str, source: RowSource) -> None:
        self.topic = topic
        self.delivery = Delivery(core.front, topic, source.row_count)
        self.highest_partition = source.highest_partition
        self._core = core
        self._chunks = source.chunks
        self._chunk: Rows | None = next(self._chunks, None)
        self._next = 0
        """The row of the chunk to be taken next."""
        self._batches_max = max(AHEAD_BYTES // max(int(core.intake.bulk_batch_size), 1), BATCHES_AHEAD_MIN)

    @property
    def taken(self) -> int:
        """Rows."""
        return self.delivery.count if self._chunk is None else self._chunk.base + self._next

    @property
    def is_over(self) -> bool:
        """All are taken."""
        return self._chunk is None

    def has_room(self) -> bool:
        """Whether so little is closed and not acknowledged that more can be taken."""
        return len(self._core.accumulator.incomplete) < self._batches_max

    def take(self) -> int:
        """Take rows, under the lock, until the sender should have its turn; 0, or why the next was not taken."""
        intake = self._core.intake
        lane = intake.lanes.get(self.topic)
        if lane is None:
            return NO_TOPIC
        if self.highest_partition >= lane.partition_count:
            return NO_PARTITION
        if not self.has_room():
            return AHEAD
        while self._chunk is not None:
            spans: list[Span] = []
            self._next = intake.append_rows(lane, self._chunk, self._next, spans)
            for span in spans:
                self.delivery.follow(span)
            if self._next < self._chunk.count:
                return int(intake.why)
            self._chunk, self._next = next(self._chunks, None), 0
        return 0

    def give_up(self, error: BaseException) -> RecordsFailed:
        """Take no more rows."""
        failure = self.delivery.give_up(self.taken, error)
        self._chunk = None
        return failure
