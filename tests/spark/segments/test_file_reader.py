"""The records of segment files, whole and damaged. No Spark."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.records.batch import set_crc

pytest.importorskip("pyarrow")

from barnabas.spark.segments.file_reader import read_range
from barnabas.spark.segments.segment_files import SegmentFile, find_segments
from barnabas.spark.source.data_loss import DataLoss

from .conftest import PAD, files_of, offsets, whole_file


def test_records_are_those_that_were_written(data: Path) -> None:
    for partition in (0, 1):
        ranges = [whole_file(file) for file in files_of(data, f"orders-{partition}")]
        found = [
            row for each in ranges for batch in read_range(each, "fail", headers=True) for row in batch.to_pylist()
        ]
        assert [row["offset"] for row in found] == list(range(1000))
        numbers = range(partition, 2000, 2)
        assert [(row["key"], row["value"]) for row in found] == [(b"%d" % n, b"value-%d" % n + PAD) for n in numbers]
        assert {(row["topic"], row["partition"], row["timestamp_type"]) for row in found} == {("orders", partition, 0)}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_any_range_of_offsets(data: Path, one: int, other: int) -> None:
    start, end = sorted((one, other))
    ranges = [
        whole_file(file, start=max(start, file.base_offset), end=min(end, file.next_base_offset))
        for file in files_of(data, "orders-1")
        if start < file.next_base_offset and end > file.base_offset
    ]
    assert offsets(ranges) == list(range(start, end))


@pytest.fixture
def copied(data: Path, tmp_path: Path) -> Callable[[int, bytes], SegmentFile]:
    """A segment with other contents."""

    def make(which: int, content: bytes) -> SegmentFile:
        directory = tmp_path / "orders-0"
        directory.mkdir(exist_ok=True)
        for file in files_of(data, "orders-0"):
            target = directory / os.path.basename(file.path)
            target.write_bytes(Path(file.path).read_bytes())
        wanted = find_segments(str(directory))[which]
        Path(wanted.path).write_bytes(content)
        return find_segments(str(directory))[which]

    return make


def batches_of(content: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(content):
        end = at + 12 + int.from_bytes(content[at + 8 : at + 12], "big")
        found.append((at, end))
        at = end
    return found


def content_of(data: Path, which: int) -> tuple[bytearray, list[tuple[int, int]], list[int]]:
    file = files_of(data, "orders-0")[which]
    content = bytearray(Path(file.path).read_bytes())
    return content, batches_of(bytes(content)), offsets([whole_file(file)])


def test_a_damaged_batch_is_named_or_left_out(data: Path, copied: Any, caplog: Any) -> None:
    content, batches, whole = content_of(data, 1)
    start, end = batches[3]
    content[end - 1] ^= 1
    file = copied(1, bytes(content))
    with pytest.raises(DataLoss) as caught:
        offsets([whole_file(file)])
    said = str(caught.value)
    assert f"{file.path}, byte {start}: " in said
    assert "fails its checksum" in said
    assert "seek" not in said
    assert "onDataLoss=warn" in said
    found = offsets([whole_file(file)], "warn")
    lost = set(whole) - set(found)
    assert lost
    assert lost == set(range(min(lost), max(lost) + 1))
    assert f"byte {start}" in caplog.text


def test_records_that_do_not_fill_their_batch(data: Path, copied: Any) -> None:
    """Its checksum is right: whoever wrote it meant it."""
    content, batches, whole = content_of(data, 1)
    start, end = batches[2]
    content[start + 61] = 127
    set_crc(memoryview(content)[start:end])
    file = copied(1, bytes(content))
    with pytest.raises(DataLoss, match=f"byte {start}: "):
        offsets([whole_file(file)])
    found = offsets([whole_file(file)], "skip")
    assert set(found) < set(whole)
    assert found[-1] == whole[-1]


def test_an_end_in_the_middle_of_a_batch(data: Path, copied: Any, caplog: Any) -> None:
    content, batches, whole = content_of(data, -1)
    cut = copied(-1, bytes(content[: batches[-1][1] - 5]))
    found = offsets([whole_file(cut)])
    assert 0 < len(found) < len(whole)
    assert f"byte {batches[-1][0]}: the batch there claims" in caplog.text
    older = copied(0, content_of(data, 0)[0][:-5])
    with pytest.raises(DataLoss, match="the batch there claims"):
        offsets([whole_file(older)])


def test_a_preallocated_file(data: Path, copied: Any, caplog: Any) -> None:
    content, _, whole = content_of(data, -1)
    assert offsets([whole_file(copied(-1, bytes(content) + bytes(100_000)))]) == whole
    assert not caplog.records
    with pytest.raises(DataLoss, match="impossible length 0"):
        offsets([whole_file(copied(-1, bytes(content) + bytes(1000) + b"x"))])


def test_offsets_that_go_back(data: Path, copied: Any) -> None:
    content, batches, whole = content_of(data, 1)
    start, end = batches[4]
    content[end:end] = content[start:end]
    file = copied(1, bytes(content))
    with pytest.raises(DataLoss, match=rf"byte {end}: the batch there has offset \d+, which cannot follow \d+"):
        offsets([whole_file(file)])
    assert offsets([whole_file(file)], "skip") == whole


def test_an_offset_of_another_file(data: Path, copied: Any) -> None:
    content, batches, whole = content_of(data, 1)
    start, _ = batches[-1]
    content[start + 5] ^= 1
    file = copied(1, bytes(content))
    with pytest.raises(DataLoss, match=rf"byte {start}: .* in a file that ends before {file.next_base_offset}"):
        offsets([whole_file(file)])
    assert set(offsets([whole_file(file)], "skip")) < set(whole)


def test_files_that_change_after_planning(data: Path, copied: Any) -> None:
    content, batches, _ = content_of(data, -1)
    file = copied(-1, bytes(content[: batches[-1][0]]))
    before = offsets([whole_file(file)])
    with open(file.path, "ab") as log:
        log.write(content[batches[-1][0] :])
    assert offsets([whole_file(file)]) == before  # up to the size that it had
    os.rename(file.path, file.path + ".deleted")
    with pytest.raises(DataLoss, match="is gone since the query was planned"):
        offsets([whole_file(file)])
    Path(file.path).write_bytes(bytes(content))
    with pytest.raises(DataLoss, match="is another file since the query was planned"):
        offsets([whole_file(file)])
    assert offsets([whole_file(file)], "warn") == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_damaged_bytes_are_refused_or_left_out(data: Path, copied: Any, seed: int, count: int) -> None:
    """What comes out is what was written, and nothing is missing without a word. Only offsets are not changed: they lie
    outside of the checksums, so that those that could be true are."""
    random_place = random.Random(seed)
    content, batches, whole = content_of(data, 1)
    for _ in range(count):
        place = random_place.randrange(len(content))
        if not any(start <= place < start + 8 for start, _ in batches):
            content[place] = random_place.randrange(256)
    file = copied(1, bytes(content))
    try:
        complete = offsets([whole_file(file)])
    except DataLoss:
        assert set(offsets([whole_file(file)], "skip")) <= set(whole)
    else:
        assert complete == whole
