"""Appends the rows of a bulk call to batches, in pieces between which the call waits."""

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, overload

from barnabas.client.producer.bulk.delivery import Delivery
from barnabas.client.producer.bulk.rows import HeadersArgument, RowSource, header_pairs, rows_of_lists, rows_of_table
from barnabas.client.producer.kafka_producer import KafkaProducer
from barnabas.client.producer.record_appender import UNKNOWN_PARTITION, UNKNOWN_TOPIC, AppendedRows, partition_number
from barnabas.errors import RecordsFailed, UsageError
from barnabas.records.compiled.bulk_rows import Rows
from barnabas.records.record import Headers as Pairs

if TYPE_CHECKING:
    import pyarrow

__all__ = ["TOO_FAR_AHEAD", "BulkSend", "bulk_of_lists", "bulk_of_table"]

BYTES_AHEAD: Final = 8 << 20
BATCHES_AHEAD_MIN: Final = 8
TOO_FAR_AHEAD: Final = 5
"""The refusal of rows because enough batches are closed and not acknowledged. More would fill memory and leave the
processor's cache long before they are sent."""


def bulk_of_lists(
    producer: KafkaProducer,
    topic: str,
    values: Iterable[Any],
    keys: Iterable[Any] | None,
    headers: HeadersArgument | Iterable[HeadersArgument | None] | None,
    timestamps: Iterable[int] | None,
    partition: int | None,
) -> "BulkSend":
    """Returns a bulk call of lists for a known topic. Raises an error for a row that cannot be sent, and sends none
    then."""
    value_list = _list("values", values)
    count = len(value_list)
    key_list = _list("keys", keys, count)
    timestamp_list = _list("timestamps", timestamps, count)
    heads = header_pairs(headers) if isinstance(headers, Mapping) else ()
    header_list = None if isinstance(headers, Mapping) else _header_list(headers, count)
    to = -1 if partition is None else partition_number(partition)
    partitions = None
    if producer.appender.has_plugins and count:
        value_list, key_list, partitions = _serialized(producer, topic, value_list, key_list, partition)
    limit = int(producer.appender.record_size_max)
    source = rows_of_lists(value_list, key_list, timestamp_list, partitions, header_list, limit, to=to, heads=heads)
    return BulkSend(producer, topic, source)


def bulk_of_table(
    producer: KafkaProducer, topic: str, table: "pyarrow.Table | pyarrow.RecordBatch", partition: int | None
) -> "BulkSend":
    """Returns a bulk call of a table, as `bulk_of_lists`. No serializer is called."""
    to = -1 if partition is None else partition_number(partition)
    rows = rows_of_table(table, to, int(producer.appender.record_size_max))
    if to < 0 and callable(producer.settings.partitioner_class) and "partition" not in table.schema.names:
        raise UsageError("partitioner.class is a function: give the table a column `partition` of what it chooses")
    return BulkSend(producer, topic, rows)


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


def _serialized(
    producer: KafkaProducer, topic: str, values: list[Any], keys: list[Any] | None, partition: int | None
) -> tuple[list[Any], list[Any] | None, list[int] | None]:
    """Calls the application's serializers and partitioner for each row. Returns values, keys and partitions."""
    rows = []
    count = int(producer.appender.topics[topic].partition_count)
    for index, (value, key) in enumerate(zip(values, repeat(None) if keys is None else keys, strict=False)):
        try:
            rows.append(producer.serializer.serialize(topic, count, value, key, partition))
        except Exception as error:
            error.add_note(f"at row {index} of {len(values)}; none was sent")
            raise
    found_values, found_keys, partitions = map(list, zip(*rows, strict=True))
    chosen = partition is None and partitions[0] is not None
    return found_values, None if keys is None else found_keys, partitions if chosen else None


class BulkSend:
    """The rows of a bulk call that are not in batches yet. All of them were checked."""

    def __init__(self, producer: KafkaProducer, topic: str, source: RowSource) -> None:
        self.topic = topic
        self.delivery = Delivery(producer.driver, topic, source.row_count)
        self.highest_partition = source.highest_partition
        self._accumulator = producer.accumulator
        self._appender = producer.appender
        self._chunks = source.chunks
        self._chunk: Rows | None = next(self._chunks, None)
        self._next = 0
        """The next row of the chunk to append."""
        self._batches_max = max(BYTES_AHEAD // max(int(producer.appender.bulk_batch_size), 1), BATCHES_AHEAD_MIN)

    @property
    def taken(self) -> int:
        """The number of rows that are in batches."""
        return self.delivery.count if self._chunk is None else self._chunk.base + self._next

    @property
    def is_over(self) -> bool:
        """Whether all rows are in batches."""
        return self._chunk is None

    def has_room(self) -> bool:
        """Whether more rows can be appended: few enough batches are closed and not acknowledged."""
        return len(self._accumulator.incomplete) < self._batches_max

    def take(self) -> int:
        """Appends rows, under the lock, until the sender must send. Returns 0, or the reason why the next row was not
        appended."""
        appender = self._appender
        topic = appender.topics.get(self.topic)
        if topic is None:
            return UNKNOWN_TOPIC
        if self.highest_partition >= topic.partition_count:
            return UNKNOWN_PARTITION
        if not self.has_room():
            return TOO_FAR_AHEAD
        while self._chunk is not None:
            appended: list[AppendedRows] = []
            self._next = appender.append_rows(topic, self._chunk, self._next, appended)
            for rows in appended:
                self.delivery.follow(rows)
            if self._next < self._chunk.count:
                return int(appender.refusal)
            self._chunk, self._next = next(self._chunks, None), 0
        return 0

    def give_up(self, error: BaseException) -> RecordsFailed:
        """Gives up the rows that are not appended yet."""
        failure = self.delivery.give_up(self.taken, error)
        self._chunk = None
        return failure
