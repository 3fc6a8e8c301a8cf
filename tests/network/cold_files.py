"""Files whose pages are not in the page cache."""

import ctypes
import mmap
import os

import pytest

from barnabas.network.page_cache import CHUNK_SIZE

FILE_SIZE = 8 * CHUNK_SIZE


def make_cold(fd: int) -> None:
    """Drops the file's pages from the page cache, or skips the test where that does not work."""
    try:
        os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        pass
    except OSError as error:
        pytest.skip(f"this file system does not say what is in the page cache: {error.strerror}")
    for _ in range(20):
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        resident = resident_pages(fd)
        if not resident:
            return
    pytest.skip(f"the page cache keeps {resident} pages of what it was told to drop")


def resident_pages(fd: int) -> int:
    """By mincore: unlike a read that may not wait, it starts no reading ahead."""
    with mmap.mmap(fd, 0) as mapped:
        pages = (ctypes.c_ubyte * (len(mapped) // mmap.PAGESIZE))()
        first = ctypes.c_ubyte.from_buffer(mapped)
        failed = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(len(mapped)), pages
        )
        del first
    if failed:
        pytest.skip("mincore does not work here")
    return sum(page & 1 for page in pages)
