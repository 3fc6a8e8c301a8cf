"""The part that offset index and time index share: entries in memory and in a file, found by bisection."""

import os
import tempfile
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.log.indexes.offset_index import OffsetIndex
from barnabas.log.indexes.sparse_index import CorruptIndex


def test_maps_come_and_go_with_the_pool(tmp_path: Path) -> None:
    pool = ResourcePool(2)
    indexes = [OffsetIndex(str(tmp_path / f"{number}.index"), 0, Disk(), pool) for number in range(6)]
    for index in indexes:
        index.append(10, 100)
        index.write_tail()
    for index in indexes * 2:
        assert index.lookup(10) == (10, 100)
        assert len(pool) <= 2


def test_a_map_that_another_thread_evicts_is_read_to_the_end(tmp_path: Path) -> None:
    """The thread of a log that moves to another directory opens files by the pool of all logs."""

    class Evicted:
        size = OffsetIndex.entry.size

        def unpack_from(self, data: object, position: int) -> tuple[int, ...]:
            index.release()  # as that thread does, right behind the lookup of the map
            return OffsetIndex.entry.unpack_from(data, position)

    class Index(OffsetIndex):
        entry = Evicted()

    index = Index(str(tmp_path / "0.index"), 0, Disk(), ResourcePool(1))
    written = OffsetIndex(index.path, 0, Disk(), ResourcePool(1))
    for number in range(20):
        written.append(10 * number, number)
    written.write_tail()
    index.load()
    assert index.lookup(55) == (50, 5)


def test_index_entries_wait_for_room_in_memory(rig) -> None:
    log = rig.log(index_interval_bytes=0)
    rig.disk.fails = {"pwrite"}
    for _ in range(300):
        rig.append(log)
    rig.disk.fails = set()
    log = rig.reopen(log)
    assert len(log.active_segment.offset_index) == 299
    for offset in range(300):
        assert log.read(offset, 1, upper_bound=300, min_one_message=True).size > 0


@given(st.lists(st.integers(1, 2**20), min_size=1, max_size=400), st.lists(st.integers(0, 2**28), max_size=20))
def test_however_unevenly_keys_grow_the_entry_is_found(gaps: list[int], asked: list[int]) -> None:
    """A search begins where the key would be if they grew evenly."""
    offsets = list(accumulate(gaps))
    with tempfile.TemporaryDirectory() as directory:
        index = OffsetIndex(f"{directory}/0.index", 0, Disk(), ResourcePool(4))
        for position, offset in enumerate(offsets):
            index.append(offset, position)
        index.write_tail()
        for offset in asked + [near + step for near in offsets[::7] for step in (-1, 0, 1)]:
            slot = bisect_right(offsets, offset) - 1
            assert index.lookup(offset) == ((offsets[slot], slot) if slot >= 0 else (0, 0))
        index.release()


def test_a_file_that_became_shorter_is_corrupt(tmp_path: Path) -> None:
    index = OffsetIndex(str(tmp_path / "0.index"), 0, Disk(), ResourcePool(4))
    for number in range(3):
        index.append(10 * number, number)
    index.write_tail()
    os.truncate(index.path, 8)
    with pytest.raises(CorruptIndex, match="shorter than its 3 entries"):
        index.lookup(25)
    index.load()
    assert len(index) == 1


@pytest.mark.parametrize("kept", [0, 2, 3, 4, 5])
def test_entries_are_kept_in_the_file_and_in_memory(tmp_path: Path, kept: int) -> None:
    index = OffsetIndex(str(tmp_path / "0.index"), 0, Disk(), ResourcePool(4))
    for number in range(3):
        index.append(10 + number, number)
    index.write_tail()
    for number in range(3, 5):
        index.append(10 + number, number)
    index.keep(kept)
    assert [index.entry_at(slot) for slot in range(len(index))] == [(10 + n, n) for n in range(kept)]
    index.append(99, 7)
    index.write_tail()
    assert os.path.getsize(index.path) == 8 * (kept + 1)
    assert index.lookup(100) == (99, 7)
