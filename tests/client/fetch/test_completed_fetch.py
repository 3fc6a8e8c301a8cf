"""From the bytes of a Fetch answer to records, one by one and as Arrow batches, on both forms of the kernels."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.fetch.completed_fetch import CompletedFetch, RecordDeserializationFailed
from barnabas.errors import CorruptMessage
from barnabas.protocol.primitives import Part
from barnabas.records.batch import HEADER_SIZE, crc_of, read_header, set_crc
from barnabas.records.builder import build_batch
from barnabas.records.compiled.consumer_records import ConsumerRecord, make_record
from barnabas.records.compression import CODECS
from barnabas.records.reader import iter_any
from barnabas.records.record import Record
from client.fetch.all_records import T0, WHERE, arrow_all, batch_all, plain, read_all, some

pytestmark = pytest.mark.usefixtures("consumer_kernels")


fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=12), fields), max_size=3).map(tuple)
timestamps = st.just(-1) | st.integers(0, 2 * T0)
items = st.lists(st.builds(Record, st.just(0), timestamps, fields, fields, headers), min_size=1, max_size=12)
batches = st.lists(st.tuples(items, st.sampled_from(CODECS), st.integers(0, 300), st.booleans()), max_size=5)


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


def test_nothing_at_all() -> None:
    fetch = CompletedFetch(WHERE, b"", 8)
    assert fetch.read(5) == []
    assert fetch.read_arrow() is None
    assert (fetch.next_offset, fetch.leader_epoch) == (8, -1)


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


def test_checksum_is_that_of_the_batch_not_of_what_follows() -> None:
    batch = build_batch(some(1))
    assert crc_of(batch) == read_header(batch).crc
    assert len(read_all(CompletedFetch(WHERE, batch + b"rest of a batch", 0))) == 1
