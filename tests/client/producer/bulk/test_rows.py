"""Bulk sending: what goes in as lists or columns stands in the logs as if it had been sent one by one."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.producer.bulk.rows import rows_of_lists, rows_of_table
from barnabas.client.producer.bulk.send import BATCHES_AHEAD_MIN, bulk_of_lists
from barnabas.client.producer.record_appender import BATCH_OVERHEAD
from barnabas.errors import MessageTooLarge, UsageError
from simulation.producer import SimulatedProducer

T0 = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

fields = st.none() | st.binary(max_size=150)
pairs = st.lists(st.tuples(st.text("ab\xe9", max_size=5), st.none() | st.binary(max_size=9)), max_size=2).map(tuple)
rows = st.lists(
    st.tuples(fields, fields, st.integers(T0 - 5, T0 + 10**10), st.none() | st.integers(0, 2), pairs), max_size=40
)


def columns_of(given_rows: list[Any]) -> list[list[Any]]:
    return [list(column) for column in zip(*given_rows, strict=True)] or [[], [], [], [], []]


def table_of(given_rows: list[Any], kind: Any = None, maps: bool = True) -> pa.Table:
    header_type = pa.map_(pa.string(), pa.binary()) if maps else pa.list_(
        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    )  # fmt: skip
    heads = [list(row[4]) if maps else [{"key": k, "value": v} for k, v in row[4]] for row in given_rows]
    return pa.table(
        {
            "key": pa.array([row[0] for row in given_rows], kind or pa.binary()),
            "value": pa.array([row[1] for row in given_rows], kind or pa.binary()),
            "timestamp": pa.array([row[2] for row in given_rows], pa.timestamp("ms", tz="UTC")),
            "partition": pa.array([row[3] for row in given_rows], pa.int32()),
            "headers": pa.array(heads, header_type),
        }
    )


def logs(producing: SimulatedProducer) -> dict[int, list[Any]]:
    """Each partition's records as they were read, by offset, and the sizes of its batches."""
    return {
        partition: [log.records(), [(h.record_count, h.size_bytes, h.compression_type) for h in log.headers]]
        for (_, partition), log in sorted(producing.cluster.logs.items())
    }


def single(given_rows: list[Any], **how: Any) -> dict[int, list[Any]]:
    producing = SimulatedProducer(partitions=3, **how)
    for key, value, timestamp, partition, headers in given_rows:
        producing.send(value, key=key, timestamp=timestamp, partition=partition, headers=headers)
    producing.flush()
    return logs(producing)


@settings(max_examples=60, deadline=None)
@given(rows, st.sampled_from(CODECS), st.sampled_from([None, "round_robin"]), st.booleans())
def test_a_table_is_written_as_its_rows_one_by_one(
    given_rows: list[Any], codec: str, partitioner: Any, maps: bool
) -> None:
    how = {"compression_type": codec, "batch_size": 300, "partitioner_class": partitioner, "linger_ms": 1000}
    producing = SimulatedProducer(partitions=3, **how)
    delivery = producing.send_table(table_of(given_rows, maps=maps))
    producing.flush()
    assert logs(producing) == single(given_rows, **how)
    assert sum(part.record_count for part in delivery.result()) == len(given_rows)
    assert producing.kafka_producer.appender.used_bytes == 0


@settings(max_examples=60, deadline=None)
@given(rows, st.sampled_from(CODECS), st.none() | st.integers(0, 2))
def test_lists_are_written_as_their_rows_one_by_one(given_rows: list[Any], codec: str, partition: Any) -> None:
    how = {"compression_type": codec, "batch_size": 300, "linger_ms": 1000}
    given_rows = [(*row[:3], partition, row[4]) for row in given_rows]
    keys, values, timestamps, _, headers = columns_of(given_rows)
    producing = SimulatedProducer(partitions=3, **how)
    delivery = producing.send_many(values, keys=keys, headers=headers, timestamps=timestamps, partition=partition)
    producing.flush()
    assert logs(producing) == single(given_rows, **how)
    for part in delivery.result():
        assert len(producing.values(part.partition)[part.offset : part.offset + part.record_count]) == part.record_count


@settings(max_examples=40, deadline=None)
@given(
    rows,
    st.integers(0, 12),
    st.sampled_from([pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary())]),
)
def test_slices_chunks_and_types_of_columns(given_rows: list[Any], offset: int, kind: Any) -> None:
    how = {"batch_size": 300, "linger_ms": 1000}
    expected = single(given_rows, **how)
    whole = table_of(given_rows)
    for name in ("key", "value"):
        whole = whole.set_column(whole.schema.get_field_index(name), name, whole[name].cast(kind))
    padded = pa.concat_tables([table_of([(None, b"x", 1, 0, ())] * offset).cast(whole.schema), whole]).slice(offset)
    for table in (padded, pa.concat_tables([whole.slice(0, offset), whole.slice(offset)])):
        producing = SimulatedProducer(partitions=3, **how)
        producing.send_table(table)
        producing.flush()
        assert logs(producing) == expected


def test_what_was_sent_before_stands_before_it() -> None:
    producing = SimulatedProducer(partitions=1, linger_ms=1000)
    producing.send(b"a")
    producing.send_many([b"b", b"c"])
    producing.send(b"d")
    producing.flush()
    assert producing.values() == [b"a", b"b", b"c", b"d"]
    assert len(producing.cluster.log("t", 0).headers) == 1


def test_many_chunks() -> None:
    values = [b"%d" % number for number in range(20_000)]
    producing = SimulatedProducer(partitions=1)
    delivery = producing.send_table(pa.table({"value": values}))
    producing.flush()
    assert producing.values() == values
    assert delivery.result() == (("t", 0, 0, 20_000),)


def test_timestamps_of_other_units_and_the_clock_where_there_is_none() -> None:
    producing = SimulatedProducer(linger_ms=1000)
    column = pa.array([1_700_000_000_123_999, None], pa.timestamp("us"))
    producing.send_table(pa.table({"value": ["a", "b"], "timestamp": column}))
    producing.flush()
    first, second = producing.cluster.log("t", 0).records()
    assert first.timestamp == 1_700_000_000_123
    assert second.timestamp > first.timestamp


# --- room -------------------------------------------------------------------------------------------------------------


def test_a_bulk_call_stays_within_the_buffer() -> None:
    producing = SimulatedProducer(partitions=2, buffer_memory=5000, batch_size=1000)
    most = 0
    handle = producing.cluster.produce

    def watch(received: Any) -> Any:
        nonlocal most
        most = max(most, producing.kafka_producer.appender.used_bytes)
        return handle(received)

    producing.cluster.handlers[0] = watch
    delivery = producing.send_many([bytes(100)] * 1000)
    producing.flush()
    assert sum(part.record_count for part in delivery.result()) == 1000
    assert 2000 < most <= 5000 + 2 * BATCH_OVERHEAD


def test_a_bulk_call_is_not_far_ahead_of_the_brokers() -> None:
    producing = SimulatedProducer(partitions=1, batch_size=1 << 20, max_request_size=4 << 20, linger_ms=1000)
    bulk = bulk_of_lists(producing.kafka_producer, "t", [bytes(1 << 19)] * 100, None, None, None, None)
    turns = 0
    while bulk.has_room():
        assert bulk.take() == 0
        producing.kafka_producer.accumulator.queue_ready(0)
        turns += 1
    assert turns == BATCHES_AHEAD_MIN
    assert bulk.take() == 5
    assert producing.run(bulk.has_room)


# --- what is refused --------------------------------------------------------------------------------------------------

BAD = [
    ({"values": [b"a", "b"]}, TypeError, r"values\[1\] is bytes or None, not str; encode it, or set value_serializer"),
    ({"values": [b"a"], "keys": [7]}, TypeError, r"keys\[0\] is bytes or None, not int"),
    ({"values": [b"a"], "keys": [b"a", b"b"]}, UsageError, "1 values, but 2 keys"),
    ({"values": b"abc"}, TypeError, "values is a list of one for each record, not bytes"),
    ({"values": [b"a", bytes(2000)]}, MessageTooLarge, "row 1 makes a record of up to 2032 bytes.* allow 1000"),
    ({"values": [b"a"], "timestamps": [-5]}, UsageError, r"timestamps\[0\] is -5"),
    ({"values": [b"a"], "timestamps": [1 << 63]}, UsageError, r"timestamps\[0\] is 9223372036854775808"),
    (
        {"values": [b"a"], "timestamps": ["now"]},
        TypeError,
        r"timestamps\[0\] is milliseconds .* as int, not str",
    ),
    ({"values": [b"a"], "partition": -2}, UsageError, "partition=-2 will not do"),
    ({"values": [b"a"], "headers": [5]}, TypeError, r"headers\[0\]: "),
    ({"values": [b"a"] * 2, "headers": [None, [("h",)]]}, TypeError, r"headers\[1\]: a header is a pair"),
    ({"values": [b"a"], "headers": [[(b"h", b"v")]]}, TypeError, r"headers\[0\]: a header's name is str, not bytes"),
    ({"values": [b"a"], "headers": {"h": 5}}, TypeError, "the value of header 'h' is bytes, str or None, not int"),
    ({"values": [b"a"], "headers": [{"\ud800": b""}]}, UsageError, r"headers\[0\]: .*surrogates"),
    ({"values": [b"a"], "headers": [{"h": bytes(1000)}]}, MessageTooLarge, "row 0 makes a record of up to 1047 bytes"),
]


@pytest.mark.parametrize(("arguments", "kind", "message"), BAD, ids=range(len(BAD)))
def test_rows_that_cannot_be_sent(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    producing = SimulatedProducer(max_request_size=1000)
    with pytest.raises(kind, match=message):
        producing.send_many(**arguments)
    assert producing.kafka_producer.accumulator.is_idle()
    assert producing.kafka_producer.appender.used_bytes == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.none() | st.binary(max_size=20), max_size=20),
    st.integers(0, 20),
    st.sampled_from(["values", "keys", "headers", "timestamps"]),
    st.sampled_from(["text", 7, 1.5, object(), [b"a"], (b"a",), {b"a"}, b"\xff".__len__, Exception]),
)
def test_one_wrong_row_and_nothing_is_sent(good: list[Any], place: int, where: str, bad: Any) -> None:
    place = min(place, len(good))
    if where == "timestamps" and isinstance(bad, int):
        bad = -bad
    lists = {
        "values": [*good, None],
        "keys": [*good, None],
        "headers": [None] * (len(good) + 1),
        "timestamps": [1] * (len(good) + 1),
    }
    lists[where][place] = bad
    producing = SimulatedProducer(partitions=2, batch_size=100)
    with pytest.raises((TypeError, UsageError), match=rf"{where}\[{place}\]"):
        producing.send_many(**lists)
    producing.flush()
    assert producing.cluster.logs == {}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"valu": ["a"]}, "column valu is not known: did you mean value"),
        ({"value": ["a"], "offset": [1]}, "a table to be sent has value, key, timestamp, partition, headers"),
        ({"key": ["a"]}, "no column `value`"),
        ({"value": [1]}, "column value is of type int64; it must be binary or string"),
        ({"value": ["a"], "timestamp": ["b"]}, "column timestamp is of type string; it must be a timestamp or integer"),
        ({"value": ["a", "b"], "timestamp": [5, -7]}, "row 1 has the timestamp -7; give milliseconds since 1970"),
        ({"value": ["a"], "partition": [0.5]}, "column partition is of type double; it must be integer"),
        ({"value": ["a"], "partition": [2**40]}, "Integer value 1099511627776 not in range"),
        ({"value": ["a", "b"], "partition": [None, -1]}, "row 1 has the partition -1; give the number of a partition"),
        ({"value": ["a"], "headers": ["h"]}, "headers of row 0: .* a column of headers has maps"),
    ],
)
def test_tables_that_cannot_be_sent(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rows_of_table(pa.table(columns), -1, 1000)
    with pytest.raises(TypeError, match="a table to be sent is a pyarrow"):
        rows_of_table(columns, -1, 1000)  # type: ignore[arg-type]


def test_a_row_of_a_table_that_is_too_large() -> None:
    small = pa.table({"value": pa.array([b"a"] * 3), "key": pa.nulls(3, pa.binary())})
    table = pa.concat_tables([small, small])
    large = pa.table({"value": pa.array([b"a", bytes(600)]), "key": pa.array([bytes(600), bytes(400)])})
    with pytest.raises(MessageTooLarge, match="row 7 makes a record of up to 1032 bytes"):
        rows_of_table(pa.concat_tables([table, large]), -1, 1000)
    assert rows_of_table(large, -1, 1032).row_count == 2


def test_a_partition_twice() -> None:
    with pytest.raises(UsageError, match="leave the argument out"):
        rows_of_table(pa.table({"value": ["a"], "partition": [0]}), 1, 1000)


def test_bytearrays_and_views_are_taken() -> None:
    producing = SimulatedProducer()
    producing.send_many([bytearray(b"a"), memoryview(b"b"), None]).result()
    assert producing.values() == [b"a", b"b", None]


def test_serializers_and_partitioners_of_the_callers() -> None:
    def choose(topic: str, key: Any, value: Any, count: int) -> int:
        return int(key) % count

    producing = SimulatedProducer(
        partitions=3, value_serializer=str.encode, key_serializer=lambda key: b"%d" % key, partitioner_class=choose
    )
    producing.send_many(["a", "b", "c"], keys=[4, 1, 2]).result()
    assert (producing.values(1), producing.values(2)) == ([b"a", b"b"], [b"c"])
    with pytest.raises(TypeError) as caught:
        producing.send_many(["a", 5], keys=[1, 2])
    assert caught.value.__notes__ == ["at row 1 of 2; none was sent"]
    with pytest.raises(UsageError, match=r"partitioner\.class is a function"):
        producing.send_table(pa.table({"value": ["a"]}))


def test_a_partition_that_is_not_there_yet() -> None:
    producing = SimulatedProducer(partitions=1)
    bulk = bulk_of_lists(producing.kafka_producer, "t", [b"a"], None, None, None, 1)
    assert (bulk.take(), bulk.taken) == (2, 0)
    assert rows_of_lists([b"a"], None, None, [3], None, 100).highest_partition == 3
