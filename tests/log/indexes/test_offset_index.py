from pathlib import Path
from struct import pack

import pytest

from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.log.indexes.offset_index import OffsetIndex
from barnabas.log.indexes.sparse_index import TAIL_ENTRIES, CorruptIndex


@pytest.fixture
def index(tmp_path: Path) -> OffsetIndex:
    return OffsetIndex(str(tmp_path / "00000000000000000100.index"), 100, Disk(), ResourcePool(4))


def test_an_entry_has_eight_bytes_relative_offset_and_position(index: OffsetIndex) -> None:
    index.append(105, 4096)
    index.append(300, 9000)
    index.write_tail()
    assert Path(index.path).read_bytes() == pack(">iiii", 5, 4096, 200, 9000)


@pytest.mark.parametrize("count", [3, TAIL_ENTRIES - 1, TAIL_ENTRIES, 5 * TAIL_ENTRIES + 7])
def test_lookup_finds_the_last_entry_at_or_below(index: OffsetIndex, count: int) -> None:
    for number in range(count):
        index.append(110 + 10 * number, 1000 * number)
    assert index.lookup(100) == (100, 0)
    assert index.lookup(109) == (100, 0)
    for number in range(count):
        assert index.lookup(110 + 10 * number) == (110 + 10 * number, 1000 * number)
        assert index.lookup(119 + 10 * number) == (110 + 10 * number, 1000 * number)
        assert index.lookup_position(1000 * number + 999) == (110 + 10 * number, 1000 * number)
    assert index.last_offset() == 110 + 10 * (count - 1)


@pytest.mark.parametrize("written", [True, False])
def test_truncation_drops_entries_at_and_above(index: OffsetIndex, written: bool) -> None:
    for number in range(10):
        index.append(110 + 10 * number, 1000 * number)
    if written:
        index.write_tail()
    index.truncate_to(150)
    assert len(index) == 4
    assert index.lookup(1000) == (140, 3000)
    index.append(155, 4500)
    index.write_tail()
    assert index.lookup(1000) == (155, 4500)


def test_what_was_written_is_there_after_loading(index: OffsetIndex) -> None:
    index.append(105, 4096)
    index.write_tail()
    again = OffsetIndex(index.path, 100, Disk(), ResourcePool(4))
    again.load()
    assert again.lookup(200) == (105, 4096)


def test_a_missing_file_is_an_empty_index(index: OffsetIndex) -> None:
    index.load()
    assert len(index) == 0
    index.sanity_check(0)


def test_a_torn_entry_is_corruption(index: OffsetIndex) -> None:
    Path(index.path).write_bytes(bytes(9))
    with pytest.raises(CorruptIndex, match="multiple of 8"):
        index.load()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pack(">ii", 5, 5000), "outside"),
        (pack(">ii", -5, 50), "outside"),
        (pack(">iiii", 5, 50, 5, 60) + bytes(80), "grow"),
        (pack(">iiii", 9, 90, 5, 60), "grow"),
    ],
)
def test_entries_that_cannot_be_are_corruption(index: OffsetIndex, content: bytes, reason: str) -> None:
    Path(index.path).write_bytes(content)
    index.load()
    with pytest.raises(CorruptIndex, match=reason):
        index.sanity_check(1000)
