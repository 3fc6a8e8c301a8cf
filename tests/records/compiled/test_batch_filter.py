"""The filter of the log cleaner: which records and batches stay."""

from typing import Any

import pytest
from walks import Walks

from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.records.reader import iter_any, read_records
from barnabas.records.record import Record

DAY_MS = 86_400_000


def filtered(walks: Walks, data: bytes, **options: Any) -> Any:
    """The filter after it has seen `data`, whose keys are all in the offset map."""
    offsets = walks.offsets.OffsetMap(100, 90, 0)
    assert offsets.map_batches(data, 0) == len(data)
    settings = {
        "base_offset": 0,
        "now_ms": 0,
        "delete_horizon_ms": DAY_MS,
        "kept_offsets": frozenset(),
        "last_kept_offset": -1,
        "index_interval_bytes": 0,
    }
    batches = walks.batches.BatchFilter(offsets, **(settings | options))
    assert batches.filter_batches(data, 0) == len(data)
    return batches


def batch(base_offset: int, *pairs: tuple[bytes, bytes | None], **options: Any) -> bytes:
    return build_batch([Record(0, 1000 + n, *pair) for n, pair in enumerate(pairs)], base_offset=base_offset, **options)


def test_the_last_record_of_each_key_stays(walks: Walks) -> None:
    first, second = batch(0, (b"a", b"1"), (b"b", b"1")), batch(2, (b"a", b"2"), (b"c", b"1"))
    batches = filtered(walks, first + second)
    assert batches.changed
    assert batches.parts[-1] == second, "a batch that keeps everything is copied as it is"
    records = list(iter_any(b"".join(batches.parts)))
    assert [(record.offset, record.key, record.value) for record in records] == [
        (1, b"b", b"1"),
        (2, b"a", b"2"),
        (3, b"c", b"1"),
    ]
    assert (batches.records_read, batches.records_kept) == (4, 3)
    assert batches.size == sum(map(len, batches.parts))


def test_nothing_changes_where_every_key_is_new(walks: Walks) -> None:
    data = batch(0, (b"a", b"1")) + batch(1, (b"b", b"1"))
    batches = filtered(walks, data)
    assert not batches.changed
    assert batches.parts == [data]
    assert batches.max_timestamp == 1000


def test_a_tombstone_gets_a_horizon_and_goes_after_it(walks: Walks) -> None:
    batches = filtered(walks, batch(0, (b"a", None), (b"b", b"1")))
    marked = b"".join(batches.parts)
    assert read_header(marked).has_delete_horizon
    assert batches.next_horizon_ms == DAY_MS
    assert [record.timestamp for record in read_records(marked)] == [1000, 1001]
    waiting = filtered(walks, marked, now_ms=DAY_MS - 1)
    assert (waiting.changed, waiting.next_horizon_ms) == (False, DAY_MS)
    over = filtered(walks, marked, now_ms=DAY_MS)
    assert [record.key for record in read_records(b"".join(over.parts))] == [b"b"]


@pytest.mark.parametrize("kept", [True, False])
def test_an_empty_batch_stays_for_its_producer_only(walks: Walks, kept: bool) -> None:
    of_producer = batch(0, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=5)
    batches = filtered(walks, of_producer + batch(1, (b"a", b"2")), kept_offsets=frozenset([0] if kept else []))
    first = read_header(b"".join(batches.parts))
    assert (first.base_offset, first.record_count) == ((0, 0) if kept else (1, 1))
    if kept:
        assert (first.producer_id, first.base_sequence) == (7, 5)


@pytest.mark.parametrize("shift", [0, 1, -1, 63, -65, 10**6, -(10**12), 2**61])
def test_shifted_timestamps(walks: Walks, shift: int) -> None:
    records = [Record(n, 1000 + 77 * n, b"k" * n, None if n % 2 else b"v" * 40 * n) for n in range(40)]
    whole = build_batch(records)
    moved = walks.batches.shift_timestamps(whole[61:], len(records), shift)
    rebuilt = whole[:8] + (len(moved) + 49).to_bytes(4, "big") + whole[12:61] + moved
    assert [r._replace(timestamp=r.timestamp - shift) for r in read_records(rebuilt, check_crc=False)] == records
