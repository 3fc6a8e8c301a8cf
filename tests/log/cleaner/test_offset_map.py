"""The offset map against a dictionary."""

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records.builder import build_batch
from barnabas.records.compiled.batch_filter import shift_timestamps
from barnabas.records.reader import read_records
from barnabas.records.record import Record

Kernels = tuple[ModuleType, ModuleType]
KEYS = (
    st.binary(max_size=20) | st.binary(min_size=250, max_size=270) | st.sampled_from([b"", b"\0", b"\0\0", b"\0" * 8])
)


def batch(keys: list[bytes | None], base_offset: int) -> bytes:
    return build_batch([Record(0, 1, key, b"v") for key in keys], base_offset=base_offset)


@given(
    st.lists(st.lists(KEYS | st.none(), min_size=1, max_size=8), max_size=20), st.integers(0, 30), st.integers(1, 40)
)
@settings(deadline=None)
def test_as_a_dictionary(kernels: Kernels, batches: list[list[bytes | None]], first: int, room: int) -> None:
    offsets = kernels[0].OffsetMap(room * 5 // 3 + 1, room, first)
    model: dict[bytes, int] = {}
    latest, offset, data, full = first - 1, 0, b"", False
    for keys in batches:
        data += batch(keys, offset)
        for key in keys:
            if not full and key is not None and offset >= first:
                full = len(model) >= room
                if not full:
                    model[key] = latest = offset
            offset += 1
        if not full and offset - 1 >= first:
            latest = offset - 1
    end = offsets.map_batches(data, 0)
    assert (offsets.stop == kernels[0].FULL) is full
    assert full or end == len(data)
    assert offsets.latest_offset == latest
    assert offsets.entries == len(model)
    for key in {key for keys in batches for key in keys if key is not None}:
        assert offsets.get(key) == model.get(key, -1)


def test_many_keys(kernels: Kernels) -> None:
    count = 20_000
    offsets = kernels[0].OffsetMap(count + 1, count, 0)
    data = b"".join(batch([b"key-%d" % (start + n) for n in range(100)], start) for start in range(0, count, 100))
    offsets.map_batches(data, 0)
    assert offsets.entries == count
    assert all(offsets.get(b"key-%d" % n) == n for n in range(count))
    assert offsets.get(b"another") == -1


def test_another_map_hashes_otherwise(kernels: Kernels) -> None:
    """A client that chooses keys cannot predict their slots."""
    maps = [kernels[0].OffsetMap(1000, 900, 0) for _ in range(2)]
    first, second = (m._hash(b"key", 0, 3) for m in maps)
    assert first != second


def test_where_the_walk_stops(kernels: Kernels) -> None:
    plain = batch([b"a"], 0)
    for special in (
        build_batch([Record(0, 1, b"a", b"v")], base_offset=1, compression="lz4"),
        build_batch([Record(0, 1, b"a", b"v")], base_offset=1, producer_id=1, producer_epoch=0, transactional=True),
        build_batch([Record(0, 1, b"a", b"v")], base_offset=1, producer_id=1, producer_epoch=0, control=True),
    ):
        offsets = kernels[0].OffsetMap(10, 9, 0)
        assert offsets.map_batches(plain + special, 0) == len(plain)
        assert offsets.stop == kernels[0].SPECIAL
    for cut in (1, 30, len(plain) - 1):
        offsets = kernels[0].OffsetMap(10, 9, 0)
        assert offsets.map_batches(plain + plain[:cut], 0) == len(plain)
        assert offsets.stop == kernels[0].TORN


def test_offsets_too_far_from_the_first_end_the_map(kernels: Kernels) -> None:
    offsets = kernels[0].OffsetMap(10, 9, 5)
    far = 5 + kernels[0].RELATIVE_MAX
    assert offsets.map_batches(batch([b"a"], far), 0) > 0
    assert offsets.get(b"a") == far
    offsets.map_batches(batch([b"b"], far + 1), 0)
    assert offsets.stop == kernels[0].FULL
    assert (offsets.get(b"b"), offsets.latest_offset) == (-1, far)


@pytest.mark.parametrize("shift", [0, 1, -1, 63, -65, 10**6, -(10**12), 2**61])
def test_shifted_timestamps(shift: int) -> None:
    records = [Record(n, 1000 + 77 * n, b"k" * n, None if n % 2 else b"v" * 40 * n) for n in range(40)]
    whole = build_batch(records)
    moved = shift_timestamps(whole[61:], len(records), shift)
    rebuilt = whole[:8] + (len(moved) + 49).to_bytes(4, "big") + whole[12:61] + moved
    assert [r._replace(timestamp=r.timestamp - shift) for r in read_records(rebuilt, check_crc=False)] == records
