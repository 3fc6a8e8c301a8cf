"""A range of an open file."""

import os
from pathlib import Path

import pytest

from barnabas.records.file_slice import FileSlice


def test_a_slice_is_read_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 7), at))  # which it may do
    fd = os.open(path, os.O_RDONLY)
    try:
        piece = FileSlice(fd, 10, 80)
        assert len(piece) == 80
        assert piece.read() == bytes(range(10, 90))
        with pytest.raises(EOFError, match=r"position=90, size=11.* truncated under a reader"):
            FileSlice(fd, 90, 11).read()
    finally:
        os.close(fd)
