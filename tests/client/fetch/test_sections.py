"""The batches of a Fetch response: whole ones, aborted ones, old ones and impossible ones."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.errors import CorruptMessage
from barnabas.protocol.primitives import Part
from barnabas.records.batch import HEADER_SIZE, pack_header, read_header, set_crc
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.compression import CODECS
from barnabas.records.legacy import build_message, build_wrapper
from barnabas.records.record import Record
from client.fetch.all_records import T0, WHERE, arrow_all, batch_all, plain, read_all, some

pytestmark = pytest.mark.usefixtures("consumer_kernels")


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


@pytest.mark.parametrize("reader", [read_all, arrow_all])
def test_the_position_has_the_epoch_of_the_batch_before_it_though_that_was_left_out(
    reader: Callable[[CompletedFetch, int], object],
) -> None:
    """With the epoch of the last record the next leader's answer would look as if its log was cut."""
    of_epoch_2 = build_batch(
        some(2), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True, partition_leader_epoch=2
    )
    marker = build_control_batch(
        committed=True,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=T0,
        base_offset=2,
        partition_leader_epoch=3,
    )
    for aborted in (None, (), ((1, 0),)):
        fetch = CompletedFetch(WHERE, of_epoch_2 + marker, 0, aborted=aborted)
        reader(fetch, 100)
        assert (fetch.next_offset, fetch.leader_epoch) == (3, 3)
    fetch = CompletedFetch(WHERE, marker, 2)
    assert fetch.read(1) == []
    assert (fetch.next_offset, fetch.leader_epoch) == (3, 3)


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


def test_a_small_batch_cannot_fill_the_memory() -> None:
    data = build_batch([Record(0, T0, None, bytes(3_000_000))], compression="zstd")
    with pytest.raises(CorruptMessage, match="1000000"):
        CompletedFetch(WHERE, data, 0, max_bytes=1_000_000).read(1)
