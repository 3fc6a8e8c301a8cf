"""Questions to the page cache: which pages of a file are in memory."""

import os
from pathlib import Path

import pytest

from barnabas.log.directories.disk import OpenFile
from barnabas.network import page_cache
from barnabas.network.page_cache import CHUNK_SIZE, bring_in, is_resident, read_resident
from barnabas.records.file_slice import FileSlice
from network.cold_files import FILE_SIZE

SMALL = 3_000


def test_cold_pages_are_told_from_warm_ones(file: OpenFile, content: bytes) -> None:
    start = 2 * CHUNK_SIZE
    bring_in(FileSlice(file.fd, 0, start + CHUNK_SIZE), start, CHUNK_SIZE)
    assert is_resident(file.fd, start, CHUNK_SIZE)
    assert bytes(read_resident(file.fd, start, SMALL) or b"") == content[start : start + SMALL]
    assert not is_resident(file.fd, start - CHUNK_SIZE, 2 * CHUNK_SIZE), "the first byte is cold"
    assert read_resident(file.fd, 0, SMALL) is None


def test_bytes_behind_the_end_are_never_resident(file: OpenFile) -> None:
    bring_in(FileSlice(file.fd, 0, FILE_SIZE), 0, FILE_SIZE)
    assert not is_resident(file.fd, FILE_SIZE - 1, 2)
    assert read_resident(file.fd, FILE_SIZE - 1, 2) is None


def test_a_file_system_that_cannot_say_is_asked_once() -> None:
    """tmpfs refuses RWF_NOWAIT: its pages are in memory."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("no /dev/shm here")
    path = shared / f"barnabas-cold-reads-{os.getpid()}"
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_RDONLY)
    try:
        try:
            os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
        except OSError:
            pass
        else:
            pytest.skip("/dev/shm knows RWF_NOWAIT here")
        for _ in range(2):
            assert is_resident(fd, 0, 10)
            assert bytes(read_resident(fd, 2, 3) or b"") == b"234"
        assert os.fstat(fd).st_dev in page_cache._devices_without_answer
    finally:
        os.close(fd)
        path.unlink()
