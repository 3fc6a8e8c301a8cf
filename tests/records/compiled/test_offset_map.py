"""The offset map against a dictionary."""

from hypothesis import given, settings
from hypothesis import strategies as st
from walks import Walks

from barnabas.records.builder import build_batch
from barnabas.records.record import Record

KEYS = (
    st.binary(max_size=20) | st.binary(min_size=250, max_size=270) | st.sampled_from([b"", b"\0", b"\0\0", b"\0" * 8])
)


def batch(keys: list[bytes | None], base_offset: int) -> bytes:
    return build_batch([Record(0, 1, key, b"v") for key in keys], base_offset=base_offset)


@given(
    st.lists(st.lists(KEYS | st.none(), min_size=1, max_size=8), max_size=20), st.integers(0, 30), st.integers(1, 40)
)
@settings(deadline=None)
def test_as_a_dictionary(walks: Walks, batches: list[list[bytes | None]], first: int, room: int) -> None:
    offsets = walks.offsets.OffsetMap(room * 5 // 3 + 1, room, first)
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
    assert (offsets.stop == walks.offsets.FULL) is full
    assert full or end == len(data)
    assert offsets.latest_offset == latest
    assert offsets.entries == len(model)
    for key in {key for keys in batches for key in keys if key is not None}:
        assert offsets.get(key) == model.get(key, -1)


def test_many_keys(walks: Walks) -> None:
    count = 20_000
    offsets = walks.offsets.OffsetMap(count + 1, count, 0)
    data = b"".join(batch([b"key-%d" % (start + n) for n in range(100)], start) for start in range(0, count, 100))
    offsets.map_batches(data, 0)
    assert offsets.entries == count
    assert all(offsets.get(b"key-%d" % n) == n for n in range(count))
    assert offsets.get(b"another") == -1


def test_another_map_hashes_otherwise(walks: Walks) -> None:
    """A client that chooses keys cannot predict their slots."""
    maps = [walks.offsets.OffsetMap(1000, 900, 0) for _ in range(2)]
    first, second = (m._hash(b"key", 0, 3) for m in maps)
    assert first != second


def test_where_the_walk_stops(walks: Walks) -> None:
    plain = batch([b"a"], 0)
    for special in (
        build_batch([Record(0, 1, b"a", b"v")], base_offset=1, compression="lz4"),
        build_batch([Record(0, 1, b"a", b"v")], base_offset=1, producer_id=1, producer_epoch=0, transactional=True),
        build_batch([Record(0, 1, b"a", b"v")], base_offset=1, producer_id=1, producer_epoch=0, control=True),
    ):
        offsets = walks.offsets.OffsetMap(10, 9, 0)
        assert offsets.map_batches(plain + special, 0) == len(plain)
        assert offsets.stop == walks.offsets.SPECIAL
    for cut in (1, 30, len(plain) - 1):
        offsets = walks.offsets.OffsetMap(10, 9, 0)
        assert offsets.map_batches(plain + plain[:cut], 0) == len(plain)
        assert offsets.stop == walks.offsets.TORN


def test_offsets_too_far_from_the_first_end_the_map(walks: Walks) -> None:
    offsets = walks.offsets.OffsetMap(10, 9, 5)
    far = 5 + walks.offsets.RELATIVE_MAX
    assert offsets.map_batches(batch([b"a"], far), 0) > 0
    assert offsets.get(b"a") == far
    offsets.map_batches(batch([b"b"], far + 1), 0)
    assert offsets.stop == walks.offsets.FULL
    assert (offsets.get(b"b"), offsets.latest_offset) == (-1, far)
