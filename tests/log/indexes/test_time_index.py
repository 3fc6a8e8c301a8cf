from pathlib import Path
from struct import pack

import pytest

from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.log.indexes.time_index import TimeIndex


@pytest.fixture
def index(tmp_path: Path) -> TimeIndex:
    return TimeIndex(str(tmp_path / "00000000000000000100.timeindex"), 100, Disk(), ResourcePool(4))


def test_an_entry_has_twelve_bytes_timestamp_and_relative_offset(index: TimeIndex) -> None:
    index.maybe_append(1_700_000_000_000, 105)
    index.write_tail()
    assert Path(index.path).read_bytes() == pack(">qi", 1_700_000_000_000, 5)


def test_only_later_timestamps_make_an_entry(index: TimeIndex) -> None:
    for timestamp, offset in ((10, 101), (10, 102), (5, 103), (11, 104)):
        index.maybe_append(timestamp, offset)
    assert len(index) == 2
    assert index.last_entry() == (11, 104)


@pytest.mark.parametrize("written", [True, False])
def test_lookup_finds_the_last_entry_at_or_before(index: TimeIndex, written: bool) -> None:
    for number in range(300):
        index.maybe_append(1000 + 10 * number, 101 + number)
    if written:
        index.write_tail()
    assert index.lookup(999) == (-1, 100)
    assert index.lookup(1000) == (1000, 101)
    assert index.lookup(1999) == (1990, 200)
    assert index.lookup(10**12) == (3990, 400)


def test_truncation_goes_by_offset(index: TimeIndex) -> None:
    for number in range(5):
        index.maybe_append(1000 + number, 110 + number)
    index.write_tail()
    index.truncate_to(112)
    assert index.last_entry() == (1001, 111)
    index.truncate_to(0)
    assert index.last_entry() == (-1, 100)


def test_the_zeros_of_a_killed_kafka_are_corruption(index: TimeIndex) -> None:
    Path(index.path).write_bytes(pack(">qi", 1_700_000_000_000, 5) + bytes(120))
    index.load()
    with pytest.raises(CorruptIndex):
        index.sanity_check()
