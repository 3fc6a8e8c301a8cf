"""From the bytes of a Fetch answer to records, one by one and as Arrow batches, on both forms of the kernels."""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from barnabas.client.fetch import columns, record_batch
from barnabas.client.fetch.columns import record_schema
from barnabas.client.fetch.completed_fetch import CompletedFetch, RecordDeserializationFailed
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.errors import CorruptMessage, UsageError
from barnabas.protocol.primitives import Part
from barnabas.records.batch import HEADER_SIZE, crc_of, pack_header, read_header, set_crc
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.compiled.consumer_records import ConsumerRecord, make_record
from barnabas.records.compiled.record_walk import write_record
from barnabas.records.compression import CODECS
from barnabas.records.legacy import build_message, build_wrapper
from barnabas.records.reader import iter_any
from barnabas.records.record import Record
from barnabas.types import TopicPartition

pytestmark = pytest.mark.usefixtures("consumer_kernels")

WHERE = TopicPartition("topic", 3)
T0 = 1_700_000_000_000

fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=12), fields), max_size=3).map(tuple)
timestamps = st.just(-1) | st.integers(0, 2 * T0)
items = st.lists(st.builds(Record, st.just(0), timestamps, fields, fields, headers), min_size=1, max_size=12)
batches = st.lists(st.tuples(items, st.sampled_from(CODECS), st.integers(0, 300), st.booleans()), max_size=5)


def some(count: int, base: int = 0) -> list[Record]:
    return [Record(base + i, T0 + i, b"k%d" % i, b"value %d" % i) for i in range(count)]


def plain(records: Sequence[Any]) -> list[Record]:
    return [Record(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


def read_all(fetch: CompletedFetch, limit: int = 500) -> list[Record]:
    found: list[Record] = []
    while records := fetch.read(limit):
        assert len(records) <= limit
        assert all((r.topic, r.partition) == WHERE for r in records)
        assert fetch.next_offset >= records[-1].offset + 1
        found += plain(records)
    return found


def arrow_all(fetch: CompletedFetch, size_bytes: int = 1024, *, with_headers: bool = True) -> list[Record]:
    found: list[Record] = []
    while (batch := fetch.read_arrow(headers=with_headers, size_bytes=size_bytes)) is not None:
        assert batch.schema == record_schema(headers=with_headers)
        batch.validate(full=True)
        rows = batch.drop_columns("timestamp").to_pydict()
        assert set(rows["topic"]) == {WHERE.topic}
        assert set(rows["partition"]) == {WHERE.partition}
        stamps = batch.column("timestamp").cast(pa.int64()).fill_null(-1).to_pylist()
        pairs = rows.get("headers", [()] * batch.num_rows)
        found += [
            Record(offset, stamp, key, value, tuple((pair["key"], pair["value"]) for pair in pairs_of))
            for offset, stamp, key, value, pairs_of in zip(
                rows["offset"], stamps, rows["key"], rows["value"], pairs, strict=True
            )
        ]
    return found


def batch_all(fetch: CompletedFetch, size_bytes: int = 1024) -> list[Record]:
    """By batches, whose columns must agree with their records."""
    found: list[Record] = []
    while (batch := fetch.read_batch(size_bytes=size_bytes)) is not None:
        keys, values = batch.keys(), batch.values()
        assert len(batch) == len(keys) == len(values) > 0
        records = list(batch)
        assert [record.key for record in records] == keys == batch.keys()
        assert [record.value for record in records] == values == batch.values()
        assert all((r.topic, r.partition) == WHERE == (batch.topic, batch.partition) for r in records)
        assert fetch.next_offset >= records[-1].offset + 1
        found += plain(records)
    return found


def log_of(parts: list[tuple[list[Record], str, int, bool]]) -> tuple[bytes, int]:
    """Batches with gaps between them, some in LogAppendTime, and the offset behind the last."""
    offset, data = 5, b""
    for records, codec, gap, append in parts:
        offset += gap
        stamp = T0 + offset if append else None
        data += build_batch(
            records, base_offset=offset, compression=codec, log_append_time=stamp, partition_leader_epoch=7
        )
        offset += len(records)
    return data, offset


@settings(max_examples=120, deadline=None)
@given(batches, st.integers(1, 9), st.integers(0, 40), st.integers(1, 4000))
def test_records_and_arrow_agree_with_the_reader(
    parts: list[tuple[list[Record], str, int, bool]], limit: int, skip: int, size_bytes: int
) -> None:
    data, end = log_of(parts)
    expected = [record for record in iter_any(data) if record.offset >= 5 + skip]
    fetch = CompletedFetch(WHERE, data, 5 + skip)
    assert read_all(fetch, limit) == expected
    assert fetch.next_offset == max(end if parts else 5, 5 + skip)
    assert fetch.leader_epoch == (7 if expected else -1)
    assert fetch.bytes_left == 0
    # among other bytes, as it lies in an answer
    fetch = CompletedFetch(WHERE, Part(b"before" + data + data, 6, 6 + len(data)), 5 + skip)
    assert fetch.size_bytes == len(data)
    assert batch_all(fetch, size_bytes) == expected
    assert fetch.is_ended
    assert fetch.next_offset == max(end if parts else 5, 5 + skip)
    assert fetch.leader_epoch == (7 if expected else -1)
    fetch = CompletedFetch(WHERE, memoryview(data), 5 + skip)
    assert arrow_all(fetch, size_bytes) == expected
    assert fetch.next_offset == max(end if parts else 5, 5 + skip)


@settings(max_examples=60, deadline=None)
@given(batches, st.integers(1, 9), st.integers(0, 3))
def test_records_first_and_arrow_from_there_on(
    parts: list[tuple[list[Record], str, int, bool]], limit: int, reads: int
) -> None:
    data, _ = log_of(parts)
    fetch = CompletedFetch(WHERE, data, 0)
    found: list[Record] = []
    for _ in range(reads):
        found += plain(fetch.read(limit))
    found += arrow_all(fetch)
    assert found == list(iter_any(data))
    fetch = CompletedFetch(WHERE, data, 0)
    found = []
    for _ in range(reads):
        found += plain(fetch.read(limit))
    found += batch_all(fetch)
    assert found == list(iter_any(data))


def test_what_batches_say_of_their_records() -> None:
    data = build_batch(some(1), partition_leader_epoch=4) + build_batch(
        some(1), base_offset=1, log_append_time=T0 + 9, partition_leader_epoch=5
    )
    fetch = CompletedFetch(WHERE, data, 0)
    (first,) = fetch.read(1)
    assert (first.leader_epoch, first.timestamp_type, first.timestamp) == (4, 0, T0)
    assert (fetch.leader_epoch, fetch.next_offset) == (4, 1)
    (second,) = fetch.read(9)
    assert (second.leader_epoch, second.timestamp_type, second.timestamp) == (5, 1, T0 + 9)
    assert (fetch.leader_epoch, fetch.next_offset) == (5, 2)
    both = CompletedFetch(WHERE, data, 0)
    kinds = [both.read_arrow().column("timestamp_type").to_pylist() for _ in range(2)]  # type: ignore[union-attr]
    assert kinds == [[0], [1]]


def test_the_last_batch_is_left_out_where_it_is_not_whole() -> None:
    first, second = build_batch(some(3)), build_batch(some(3), base_offset=3)
    for cut in range(len(second)):
        fetch = CompletedFetch(WHERE, first + second[:cut], 0)
        assert [r.offset for r in fetch.read(3)] == [0, 1, 2]
        assert fetch.is_ended
        assert fetch.read(1) == []
        assert fetch.next_offset == 3
        assert fetch.bytes_left == cut
        # what lies behind in the same answer would make it whole
        part = Part(first + second, 0, len(first) + cut)
        assert [r.offset for r in batch_all(CompletedFetch(WHERE, part, 0))] == [0, 1, 2]


def test_gaps_of_compaction_are_stepped_over() -> None:
    batch = bytearray(build_batch(some(2), base_offset=10))
    header = read_header(batch)._replace(last_offset_delta=9)
    batch[:HEADER_SIZE] = pack_header(header)
    set_crc(batch)
    empty = bytearray(pack_header(header._replace(base_offset=20, record_count=0, batch_length=49)))
    set_crc(empty)
    fetch = CompletedFetch(WHERE, bytes(batch + empty), 10)
    assert [r.offset for r in fetch.read(2)] == [10, 11]
    assert fetch.next_offset == 20
    assert fetch.read(2) == []
    assert fetch.next_offset == 30
    arrow = CompletedFetch(WHERE, bytes(empty), 20)
    assert arrow.read_arrow() is None
    assert arrow.next_offset == 30


def test_nothing_at_all() -> None:
    fetch = CompletedFetch(WHERE, b"", 8)
    assert fetch.read(5) == []
    assert fetch.read_arrow() is None
    assert (fetch.next_offset, fetch.leader_epoch) == (8, -1)


# --- transactions ----------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["write", "write", "commit", "abort", "plain"])), max_size=25
)


@settings(max_examples=150, deadline=None)
@given(steps, st.integers(0, 30), st.sampled_from(CODECS))
def test_read_committed_against_a_model(script: list[tuple[int, str]], position: int, codec: str) -> None:
    data, offset = b"", 0
    written: list[tuple[int, int]] = []  # offset, producer
    open_since: dict[int, int] = {}
    first_of: dict[int, list[int]] = {}
    aborted: list[tuple[int, int]] = []
    lost: set[int] = set()
    for producer, step in script:
        if step in ("write", "plain"):
            transactional = step == "write"
            data += build_batch(
                some(2), base_offset=offset, producer_id=producer if transactional else -1, producer_epoch=0,
                base_sequence=0, transactional=transactional, compression=codec,
            )  # fmt: skip
            written += [(offset, producer), (offset + 1, producer)]
            if transactional:
                open_since.setdefault(producer, offset)
                first_of.setdefault(producer, []).extend((offset, offset + 1))
            offset += 2
        elif producer in open_since:
            data += build_control_batch(
                committed=step == "commit", producer_id=producer, producer_epoch=0, coordinator_epoch=1,
                timestamp=T0, base_offset=offset,
            )  # fmt: skip
            if step == "abort":
                aborted.append((producer, open_since[producer]))
                lost.update(first_of[producer])
            del open_since[producer], first_of[producer]
            offset += 1
    # a broker answers up to the last stable offset, and lists the aborted transactions that reach beyond the position
    expected = [number for number, _ in written if number >= position]
    fetch = CompletedFetch(WHERE, data, position)
    assert [r.offset for r in read_all(fetch, 3)] == expected
    assert fetch.next_offset == max(position, offset)
    stable = min(open_since.values(), default=offset)
    cut = stable_bytes(data, stable)
    expected = [number for number, _ in written if position <= number < stable and number not in lost]
    fetch = CompletedFetch(WHERE, cut, position, aborted=reversed(aborted))
    assert [r.offset for r in read_all(fetch, 3)] == expected
    assert fetch.next_offset == max(position, stable)
    arrow = CompletedFetch(WHERE, cut, position, aborted=aborted)
    assert [r.offset for r in arrow_all(arrow, 100)] == expected


def stable_bytes(data: bytes, stable: int) -> bytes:
    position = 0
    while position < len(data) and (header := read_header(data, position)).base_offset < stable:
        position += header.size_bytes
    return data[:position]


def test_an_emptied_marker_of_an_aborted_transaction() -> None:
    marker = bytearray(
        build_control_batch(committed=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=T0)
    )
    header = read_header(marker)._replace(record_count=0, batch_length=49)
    empty = bytearray(pack_header(header))
    set_crc(empty)
    fetch = CompletedFetch(WHERE, bytes(empty), 0, aborted=[(1, 0)])
    assert fetch.read(1) == []
    assert fetch.next_offset == 1


# --- messages of versions 0 and 1 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_messages(magic: int, codec: int) -> None:
    records = [Record(i * 3, T0 + i if magic else -1, b"k", None if i == 1 else b"v%d" % i) for i in range(4)]
    if codec:
        data = build_wrapper(records, codec=codec, magic=magic)
    else:
        data = b"".join(build_message(r.offset, r.key, r.value, magic=magic, timestamp=r.timestamp) for r in records)
    data += build_batch(some(1), base_offset=20)
    for position in (0, 4):
        fetch = CompletedFetch(WHERE, data, position)
        found = fetch.read(99)
        assert plain(found)[:-1] == [r for r in records if r.offset >= position]
        assert {r.timestamp_type for r in found[:-1]} == {0 if magic else -1}
        assert found[0].leader_epoch == -1
        assert fetch.next_offset == 21
        assert arrow_all(CompletedFetch(WHERE, data, position)) == plain(found)


def test_old_messages_in_log_append_time() -> None:
    data = build_wrapper(some(2), codec=1, magic=1, log_append_time=T0 + 77)
    assert [(r.timestamp, r.timestamp_type) for r in CompletedFetch(WHERE, data, 0).read(9)] == [(T0 + 77, 1)] * 2


# --- damage ----------------------------------------------------------------------------------------------------------


def damaged(position: int, value: int) -> bytes:
    """A good batch, then one with one byte changed and the checksum put right."""
    batch = bytearray(build_batch(some(3), base_offset=3))
    batch[position] = value
    set_crc(batch)
    return build_batch(some(3)) + bytes(batch) + build_batch(some(3), base_offset=6)


def test_what_comes_before_the_damage_is_returned_first() -> None:
    data = damaged(HEADER_SIZE + 7, 100)  # the length of a value
    fetch = CompletedFetch(WHERE, data, 0)
    assert [r.offset for r in fetch.read(99)] == [0, 1, 2]
    assert fetch.next_offset == 3
    for _ in range(2):
        with pytest.raises(CorruptMessage, match=r"topic-3: the batch at offset 3 is broken at or after offset 3"):
            fetch.read(99)
    assert fetch.next_offset == 3
    assert [r.offset for r in read_all(CompletedFetch(WHERE, data, 6))] == [6, 7, 8]
    arrow = CompletedFetch(WHERE, data, 0)
    batch = arrow.read_arrow()
    assert batch is not None
    assert batch.column("offset").to_pylist() == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="the batch at offset 3 is broken"):
            arrow.read_arrow()
    assert arrow.next_offset == 3


def test_damage_within_a_batch() -> None:
    record = len(build_batch(some(1))) - HEADER_SIZE
    data = damaged(HEADER_SIZE + record + 7, 100)
    fetch = CompletedFetch(WHERE, data, 0)
    assert [r.offset for r in fetch.read(99)] == [0, 1, 2, 3]
    assert fetch.next_offset == 4
    with pytest.raises(CorruptMessage, match="at or after offset 4"):
        fetch.read(1)


def test_checksums() -> None:
    data = bytearray(build_batch(some(3)))
    data[-2] ^= 1
    with pytest.raises(CorruptMessage, match=r"offsets 0 to 2 fails its checksum; a seek .* such as 3"):
        CompletedFetch(WHERE, data, 0).read(1)
    assert len(CompletedFetch(WHERE, data, 0, check_crcs=False).read(9)) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_length": 10}, "impossible length 10"),
        ({"batch_length": 48}, "60 bytes, fewer than its header"),
        ({"magic": 3}, "magic 3"),
        ({"last_offset_delta": -1}, "last offset delta -1"),
        ({"record_count": -5}, "-5 records"),
        ({"base_offset": -7}, "offset -7"),
        ({"base_offset": 2**63 - 1}, "offset 9223372036854775807"),
        ({"record_count": 4}, "the records end early"),
        ({"record_count": 2}, "bytes follow the last record"),
        ({"last_offset_delta": 1}, "offset 2, beyond its batch"),
        ({"record_count": 0}, "0 records in|bytes follow"),
        ({"attributes": 4}, "zstd"),
        ({"attributes": 6}, "compression type 6 does not exist"),
    ],
)
def test_impossible_headers(change: dict[str, int], message: str) -> None:
    batch = bytearray(build_batch(some(3)))
    batch[:HEADER_SIZE] = pack_header(read_header(batch)._replace(**change))
    if "batch_length" not in change:
        set_crc(batch)
    for read in (lambda fetch: read_all(fetch), lambda fetch: arrow_all(fetch), lambda fetch: batch_all(fetch)):
        with pytest.raises(CorruptMessage, match=message):
            read(CompletedFetch(WHERE, bytes(batch), 0))


def test_a_record_does_not_reach_into_the_next_batch() -> None:
    """The second batch's bytes would make good the length that the first's last record claims."""
    batch = bytearray(build_batch(some(1)))
    following = build_batch(some(1), base_offset=1)
    batch[HEADER_SIZE] += 60  # the record's length, 30 more
    batch[HEADER_SIZE + 7] += 60  # its value's
    set_crc(batch)
    data = bytes(batch) + following
    with pytest.raises(CorruptMessage, match="bytes are left"):
        CompletedFetch(WHERE, data, 0).read(1)
    with pytest.raises(CorruptMessage, match="bytes are left"):
        CompletedFetch(WHERE, data, 0).read_arrow()
    with pytest.raises(CorruptMessage, match="bytes are left"):
        CompletedFetch(WHERE, Part(data, 0, len(batch)), 0).read_batch()


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damage_gives_records_or_our_error(data: st.DataObject) -> None:
    log = bytearray(log_of([(some(3), "none", 0, False), (some(2), data.draw(st.sampled_from(CODECS)), 1, True)])[0])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(log) - 1))
        log[place] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 254, 255]) | st.integers(0, 255))
    outcomes = []
    for read in (read_all, arrow_all, batch_all):
        fetch = CompletedFetch(WHERE, bytes(log), 0, check_crcs=False, aborted=[], max_bytes=1_000_000)
        found: list[Record] = []
        try:
            found = read(fetch)
        except CorruptMessage:
            outcomes.append((None, fetch.next_offset))
        else:
            outcomes.append((len(found), fetch.next_offset))
    assert outcomes[0][0] == outcomes[1][0]
    assert outcomes[1] == outcomes[2]


def test_a_small_batch_cannot_fill_the_memory() -> None:
    data = build_batch([Record(0, T0, None, bytes(3_000_000))], compression="zstd")
    with pytest.raises(CorruptMessage, match="1000000"):
        CompletedFetch(WHERE, data, 0, max_bytes=1_000_000).read(1)


# --- deserializers ---------------------------------------------------------------------------------------------------


def test_deserializers() -> None:
    records = [Record(0, T0, b"1", b"one"), Record(0, T0, None, b"two"), Record(0, T0, b"3", None)]
    data = build_batch(records)
    fetch = CompletedFetch(WHERE, data, 0, key_deserializer=int, value_deserializer=bytes.decode)
    assert [(r.key, r.value) for r in fetch.read(9)] == [(1, "one"), (None, "two"), (3, None)]


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_deserializer_that_fails(part: str) -> None:
    data = build_batch(
        [Record(0, T0, b"1", b"1"), Record(0, T0, b"2", b"x") if part == "value" else Record(0, T0, b"x", b"2")]
    )
    fetch = CompletedFetch(WHERE, data, 0, key_deserializer=int, value_deserializer=int)
    assert [(r.key, r.value) for r in fetch.read(9)] == [(1, 1)]
    assert fetch.next_offset == 1
    with pytest.raises(RecordDeserializationFailed, match=f"the {part} of the record at topic-3, offset 1") as caught:
        fetch.read(9)
    record = caught.value.record
    assert (record.key, record.value) == ((b"2", b"x") if part == "value" else (b"x", b"2"))
    assert isinstance(caught.value.__cause__, ValueError)


# --- batches ---------------------------------------------------------------------------------------------------------

sparse = st.lists(st.none() | st.binary(max_size=5), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(sparse, sparse)
def test_nulls_among_values(keys: list[bytes | None], values: list[bytes | None]) -> None:
    """The bitmap begins where nulls and others meet, wherever that is."""
    records = [Record(i, T0, key, value) for i, (key, value) in enumerate(zip(keys, values, strict=False))]
    data = build_batch(records)
    assert batch_all(CompletedFetch(WHERE, data, 0)) == records
    assert arrow_all(CompletedFetch(WHERE, data, 0)) == records


def test_a_batch_is_a_sequence() -> None:
    data = build_batch(some(3), base_offset=5)
    batch = CompletedFetch(WHERE, data, 6).read_batch()
    assert batch is not None
    assert repr(batch) == "<RecordBatch of topic-3: 2 records>"
    assert [batch[0].offset, batch[-1].offset] == [6, 7]
    assert [record.offset for record in batch[1:]] == [7]
    assert batch[0] is next(iter(batch))
    assert batch.index(batch[1]) == 1
    with pytest.raises(IndexError):
        batch[2]


def test_records_of_a_batch_know_their_own_origin() -> None:
    data = build_batch(some(1), partition_leader_epoch=4) + build_batch(
        some(1), base_offset=1, partition_leader_epoch=5
    )
    batch = CompletedFetch(WHERE, data, 0).read_batch()
    assert batch is not None
    assert [record.leader_epoch for record in batch] == [4, 5]


def test_a_batch_as_arrow() -> None:
    records = [Record(i, T0 + i, None, b"v%d" % i, (("h", b"x"),)) for i in range(3)]
    data = build_batch(records, compression="lz4") + build_batch(records, base_offset=3)
    batch = CompletedFetch(WHERE, data, 0).read_batch()
    assert batch is not None
    for headers_wanted in (False, True):
        found = batch.to_arrow(headers=headers_wanted)
        assert found.schema == record_schema(headers=headers_wanted)
        assert found.equals(CompletedFetch(WHERE, data, 0).read_arrow(headers=headers_wanted))
    assert found.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}]] * 6


def test_a_batch_of_records_that_were_changed() -> None:
    records = [make_record("topic", 3, offset, key="k", value=offset) for offset in range(2)]
    batch = RecordBatch.of(WHERE, records)
    assert (list(batch), batch.keys(), batch.values()) == (records, ["k", "k"], [0, 1])
    with pytest.raises(UsageError, match=r"Consumer\.arrow"):
        batch.to_arrow()


# --- the record itself -----------------------------------------------------------------------------------------------


def test_headers_are_decoded_when_asked_for() -> None:
    pairs = (("a", b"1"), ("é", None), ("", b""))
    (record,) = CompletedFetch(WHERE, build_batch([Record(0, T0, None, b"v", pairs)]), 0).read(1)
    assert record.headers == pairs
    assert record.headers is record.headers


def test_records_compare_show_and_travel() -> None:
    record = make_record("t", 1, 5, T0, 0, b"k", b"v", (("h", b"x"),), 3)
    same = make_record("t", 1, 5, T0, 0, b"k", b"v", (("h", b"x"),), 3)
    assert record == same
    assert hash(record) == hash(same)
    assert record != make_record("t", 1, 6, T0, 0, b"k", b"v", (("h", b"x"),), 3)
    assert record != "record"
    assert pickle.loads(pickle.dumps(record)) == record  # noqa: S301 -- our own bytes
    assert repr(record) == (
        "ConsumerRecord(topic='t', partition=1, offset=5, timestamp=1700000000000, key=b'k', value=b'v', "
        "headers=(('h', b'x'),))"
    )
    assert isinstance(record, ConsumerRecord)


# --- Arrow -----------------------------------------------------------------------------------------------------------


def test_arrow_without_headers_does_not_look_at_them() -> None:
    data = build_batch([Record(0, T0, None, b"v", (("h", b"x"),)), Record(0, T0, b"k", None)])
    assert arrow_all(CompletedFetch(WHERE, data, 0), with_headers=False) == [
        Record(0, T0, None, b"v"),
        Record(1, T0, b"k", None),
    ]


def test_arrow_header_names_that_are_not_utf8() -> None:
    batch = bytearray(build_batch([Record(0, T0, None, b"v", (("h", b"x"),))]))
    batch[batch.index(b"h", HEADER_SIZE)] = 0xFF
    set_crc(batch)
    assert arrow_all(CompletedFetch(WHERE, bytes(batch), 0)) == [Record(0, T0, None, b"v", (("\ufffd", b"x"),))]


def test_without_pyarrow_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    fetch = CompletedFetch(WHERE, build_batch(some(1)), 0)
    with pytest.raises(UsageError, match=r"pip install 'barnabas\[arrow\]'"):
        fetch.read_arrow()


def test_many_records_in_one_arrow_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_multiples", {})
    monkeypatch.setattr(columns, "_COUNT_MAX", 10)
    data = build_batch(some(50))
    assert len(arrow_all(CompletedFetch(WHERE, data, 0))) == 50
    assert columns._multiples == {}
    assert len(arrow_all(CompletedFetch(WHERE, build_batch(some(9)), 0))) == 9
    assert {step: len(kept) for step, kept in columns._multiples.items()} == {2: 36, len(WHERE.topic): 40}
    for length in range(20):
        longer = TopicPartition("t" * length, 0)
        batch = CompletedFetch(longer, build_batch(some(3)), 0).read_arrow()
        assert batch is not None
        assert batch.column("topic").to_pylist() == [longer.topic] * 3
        assert len(columns._multiples) <= columns._STEPS_MAX


def test_more_records_than_one_arrow_batch_can_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_multiples", {})
    monkeypatch.setattr(columns, "PLACE_MAX", 200)
    fetch = CompletedFetch(WHERE, build_batch(some(50)), 0)
    for _ in range(2):
        with pytest.raises(UsageError, match="too many records for one Arrow batch: seek"):
            fetch.read_arrow()
    assert fetch.next_offset == 0
    assert len(read_all(CompletedFetch(WHERE, build_batch(some(50)), 0))) == 50


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (2**63 - 100, 2**40), (-(2**63), -1), (-5, -(2**63))])
def test_a_time_beyond_64_bits_is_refused(base: int, delta: int) -> None:
    """Machine integers would go round, plain ones would go on; with LogAppendTime nobody looks at it."""
    out = BytesWriter()
    write_record(out, 0, delta, None, b"v", ())
    data = out.getvalue()
    for log_append in (False, True):
        cursor = record_batch.RecordCursor(
            record_batch.RecordOrigin("t", 0, 0, int(log_append)), data, 0, len(data), 1, 0, base, 7, 0, 0
        )
        table = columns.RecordColumns(False)
        records: list[ConsumerRecord] = []
        if log_append:
            cursor.read(records, 1)
            table.add_batch(data, 0, len(data), 1, 0, base, 7, True, 0, 0)
            assert records[0].timestamp == int.from_bytes(table.timestamps.getvalue(), "little") == 7
            continue
        with pytest.raises(ValueError, match="over 64 bits"):
            cursor.read(records, 1)
        with pytest.raises(ValueError, match="over 64 bits"):
            table.add_batch(data, 0, len(data), 1, 0, base, 7, False, 0, 0)
        assert records == []


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 2, 1), (-(2**63), 2**63 - 1), (5, -(2**63)), (-(2**63) + 1, -1)])
def test_times_at_the_ends_of_64_bits(base: int, delta: int) -> None:
    out = BytesWriter()
    write_record(out, 0, delta, None, b"v", ())
    data = out.getvalue()
    records: list[ConsumerRecord] = []
    cursor = record_batch.RecordCursor(record_batch.RecordOrigin("t", 0, 0, 0), data, 0, len(data), 1, 0, base, 7, 0, 0)
    cursor.read(records, 1)
    table = columns.RecordColumns(False)
    table.add_batch(data, 0, len(data), 1, 0, base, 7, False, 0, 0)
    assert records[0].timestamp == int.from_bytes(table.timestamps.getvalue(), "little", signed=True) == base + delta


def test_arrow_batches_do_without_pandas() -> None:
    """pyarrow imports it, where it is installed, as soon as it makes an array of Python's objects."""
    code = """
import sys
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.types import TopicPartition
data = build_batch([Record(0, 5, None, b"v", (("h", b"x"),)), Record(1, 6, None, b"w", ())])
batch = CompletedFetch(TopicPartition("t", 0), data, 0).read_arrow(headers=True)
assert batch.num_rows == 2
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_checksum_is_that_of_the_batch_not_of_what_follows() -> None:
    batch = build_batch(some(1))
    assert crc_of(batch) == read_header(batch).crc
    assert len(read_all(CompletedFetch(WHERE, batch + b"rest of a batch", 0))) == 1
