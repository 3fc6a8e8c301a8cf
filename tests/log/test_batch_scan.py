"""The batches of an open file, with and without their checksums, up to the first that is none."""

import os
from pathlib import Path

import pytest

from barnabas.log.batch_scan import find_batch, scan_headers, scan_verified, why_not_a_batch
from barnabas.log.directories.disk import Disk
from barnabas.records.builder import build_batch
from barnabas.records.record import Record

SIZES = [10, 5000, 10, 70_000, 1_100_000, 10, 10]


@pytest.fixture(scope="module")
def batches() -> list[bytes]:
    return [build_batch([Record(0, 1, None, b"v" * size)], base_offset=at) for at, size in enumerate(SIZES)]


def scanned(tmp_path: Path, data: bytes, *, verified: bool, position: int = 0) -> tuple[list[int], str]:
    """The base offsets that a scan finds, and what it says of the place where it stops."""
    path = tmp_path / "log"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        found, end = [], position
        for at, header in (scan_verified if verified else scan_headers)(Disk(), fd, position, len(data)):
            assert at == end
            found.append(header.base_offset)
            end = at + header.size_bytes
        return found, why_not_a_batch(Disk(), fd, end, len(data))
    finally:
        os.close(fd)


@pytest.mark.parametrize("verified", [True, False])
def test_large_and_small_batches_are_found(tmp_path: Path, batches: list[bytes], verified: bool) -> None:
    data = b"".join(batches)
    assert scanned(tmp_path, data, verified=verified)[0] == [*range(7)]
    assert scanned(tmp_path, data, verified=verified, position=len(batches[0]))[0] == [*range(1, 7)]


@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.parametrize(
    ("left", "why"),
    [(0, "the 0 bytes there are shorter"), (60, "the 60 bytes there are shorter"), (-1, "the batch there claims")],
)
def test_a_torn_batch_ends_the_scan(tmp_path: Path, batches: list[bytes], verified: bool, left: int, why: str) -> None:
    found, reason = scanned(tmp_path, b"".join(batches[:3]) + batches[3][:left], verified=verified)
    assert found == [0, 1, 2]
    assert why in reason


@pytest.mark.parametrize("damaged", [1, 3, 4])
def test_only_checksums_see_damage_in_records(tmp_path: Path, batches: list[bytes], damaged: int) -> None:
    changed = bytearray(batches[damaged])
    changed[-1] ^= 1
    data = b"".join([*batches[:damaged], changed, *batches[damaged + 1 :]])
    assert scanned(tmp_path, data, verified=False)[0] == [*range(7)]
    found, reason = scanned(tmp_path, data, verified=True)
    assert found == [*range(damaged)]
    assert "CRC" in reason


def test_what_is_no_header_ends_the_scan(tmp_path: Path, batches: list[bytes]) -> None:
    for verified in (True, False):
        found, reason = scanned(tmp_path, batches[0] + bytes(100), verified=verified)
        assert found == [0]
        assert "no batch begins there" in reason


@pytest.mark.parametrize("base", [0, 2**32 - 1, 2**40 - 1])
@pytest.mark.parametrize("gap", [1, 61, 5000, 1024 * 1024 - 60, 1024 * 1024])
@pytest.mark.parametrize("filling", [b"\0", b"\2"])
def test_a_batch_is_found_behind_rubbish(tmp_path: Path, base: int, gap: int, filling: bytes) -> None:
    path = tmp_path / "segment"
    batch = build_batch([Record(0, 0, None, b"v")], base_offset=base + 7)
    path.write_bytes(filling * gap + batch)
    with path.open("rb") as file:
        end = gap + len(batch)
        assert find_batch(Disk(), file.fileno(), 0, end, base + 7, base + 2**31 - 1) == gap
        assert find_batch(Disk(), file.fileno(), 0, end - 1, base, base + 2**31 - 1) is None
        assert find_batch(Disk(), file.fileno(), 0, end, base + 8, base + 2**31 - 1) is None


def found_behind(tmp_path: Path, data: bytes, first: int) -> int | None:
    """Where a batch is found behind the damaged one at the beginning; None as well if it is given up."""
    path = tmp_path / "segment"
    path.write_bytes(data)
    with path.open("rb") as file:
        found = find_batch(Disk(), file.fileno(), 0, len(data), first, first + 2**31 - 1)
    return None if found == len(data) else found


@pytest.mark.parametrize("zeros", [0, 5000])
def test_wherever_a_write_is_torn_nothing_in_its_records_is_a_batch(tmp_path: Path, zeros: int) -> None:
    """But where it is torn just behind one: that looks like a damaged length in front of the log's last batches. What
    begins with zeros may be missing in a file that was preallocated."""
    parts = [build_batch([Record(0, 1, None, b"v" * 30)], base_offset=offset) for offset in (8, 9, 12)]
    values = [b"first", b"".join(parts), b"rest" + parts[2] + b"last", parts[1]]
    written = build_batch([Record(0, 1, b"k", value) for value in values], base_offset=7)
    inner = {at + len(part) for part in parts for at in range(len(written)) if written.startswith(part, at)}
    for cut in range(61, len(written)):
        data = written[:cut] + bytes(zeros)
        ends = [end for end in inner if data.startswith(written[:end])]
        if not any(data[end:] == bytes(len(data) - end) and (zeros or end == cut) for end in ends):
            assert found_behind(tmp_path, data, 7) is None, cut


@pytest.mark.parametrize("size", [1, 4, 30, 200])
def test_wherever_a_batch_is_damaged_the_one_behind_is_found(tmp_path: Path, size: int) -> None:
    """Also by its length, whatever it claims."""
    first = 0x0203040506070800
    batches = [build_batch([Record(0, 1, None, b"v" * 100)] * 2, base_offset=first + 2 * n) for n in range(10)]
    data = b"".join(batches)
    ends = [len(batches[0]) * number for number in range(1, 10)]
    for filling in (b"\0", b"\1", b"\x7f", b"\xff"):
        for at in range(len(batches[0])):
            damaged = data[:at] + filling * size + data[at + size :]
            behind = next(end for end in ends if damaged[end:] == data[end:])
            assert found_behind(tmp_path, damaged, first) == behind, (at, filling)
