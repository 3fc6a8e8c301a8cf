"""Files split into ranges of about the same size. No Spark."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.testing import Broker

pytest.importorskip("pyarrow")

from barnabas.spark.segments.file_ranges import FileRange, split

from .conftest import files_of, offsets, whole_file


def test_files_are_cut_by_bytes(tmp_path: Path) -> None:
    """Ten large records weigh as much as a thousand small ones."""
    with Broker(data_dir=str(tmp_path / "live")) as broker:
        broker.create_topic("skewed", 2, configs={"index.interval.bytes": "500"})
        for number in range(1000):
            broker.produce("skewed", b"." * 10, partition=0)
            if number < 10:
                broker.produce("skewed", b"." * 8_000, partition=0)
        broker.produce("skewed", b"small", partition=1)
        shutil.copytree(tmp_path / "live", tmp_path / "copy")
    files = files_of(tmp_path / "copy", "skewed-*")
    everything = [whole_file(file) for file in files]
    assert split(everything, 2) == everything
    ranges = split(everything, 5)
    assert [each.file.partition.partition for each in ranges] == [0, 0, 0, 0, 1]
    first = [each for each in ranges if each.file.partition.partition == 0]
    assert offsets(first) == list(range(1010))
    sizes = [sum(8_000 if o % 2 and o < 20 else 80 for o in range(p.start, min(p.end, 1010))) for p in first]
    assert max(sizes) < 2 * min(sizes), sizes
    assert len(split(everything, 10_000)) > 50, "as many as the index knows places"
    index = Path(files[0].path).with_suffix(".index")
    index.write_bytes(b"\xff" * 16)
    assert split(everything, 5) == everything, "without its index a file is one range"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 400), st.integers(0, 400), st.integers(0, 900))
def test_ranges_of_files_are_the_whole(data: Path, least: int, start: int, size: int) -> None:
    files = files_of(data, "orders-0")
    wanted = [
        FileRange(file, max(start, file.base_offset), min(start + size, file.next_base_offset))
        for file in files
        if max(start, file.base_offset) < min(start + size, file.next_base_offset)
    ]
    ranges = split(wanted, least)
    assert all(each.start < each.end for each in ranges)
    assert offsets(ranges) == offsets(wanted)
