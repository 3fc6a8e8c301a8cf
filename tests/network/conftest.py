"""A file that is not in the page cache."""

import os
from pathlib import Path

import pytest

from barnabas.log.directories.disk import OpenFile
from network.cold_files import FILE_SIZE, make_cold


@pytest.fixture
def content() -> bytes:
    return os.urandom(FILE_SIZE)


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> OpenFile:
    """On disk, and out of the page cache."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content)
    opened = OpenFile(os.open(path, os.O_RDWR))
    make_cold(opened.fd)
    return opened
