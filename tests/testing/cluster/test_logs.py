"""The batches of a replica, read from its files."""

from pathlib import Path

import pytest

from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.testing.cluster import logs
from barnabas.testing.cluster.logs import LoggedBatch, read_log, read_replica


def batch_at(offset: int, *values: bytes) -> bytes:
    data = bytearray(build_batch([Record(number, 0, None, value) for number, value in enumerate(values)]))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def test_the_batches_of_all_segments_in_their_order(tmp_path: Path) -> None:
    first, second, third = batch_at(0, b"a", b"b"), batch_at(2, b"c"), batch_at(3, b"d")
    (tmp_path / f"{2:020d}.log").write_bytes(second + third)
    (tmp_path / f"{0:020d}.log").write_bytes(first)
    (tmp_path / f"{0:020d}.index").write_bytes(b"no batch")
    found = read_log(tmp_path)
    assert [(batch.base_offset, batch.last_offset, batch.data) for batch in found] == [
        (0, 1, first),
        (2, 2, second),
        (3, 3, third),
    ]
    assert "0..1 in epoch" in repr(found[0])


def test_what_is_not_whole_is_left_out(tmp_path: Path) -> None:
    whole, torn = batch_at(0, b"a"), batch_at(1, b"b")[:-1]
    (tmp_path / f"{0:020d}.log").write_bytes(whole + torn)
    assert [batch.data for batch in read_log(tmp_path)] == [whole]
    (tmp_path / f"{0:020d}.log").write_bytes(whole + bytes(4096))
    assert [batch.data for batch in read_log(tmp_path)] == [whole], "space that was allocated ahead"
    assert read_log(tmp_path / "not-there") == []


def test_a_log_that_moves_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (tmp_path / name / "t-0" for name in ("old", "new"))
    new.parent.mkdir()
    old.mkdir(parents=True)
    (old / f"{0:020d}.log").write_bytes(batch_at(0, b"a"))

    def move_and_read(directory: Path) -> list[LoggedBatch]:
        if old.exists():
            old.rename(new)
        return read_log(directory)

    monkeypatch.setattr(logs, "read_log", move_and_read)
    found = read_replica([old.parent, new.parent], "t-0")
    assert found is not None
    assert len(found) == 1
    assert read_replica([old.parent, new.parent], "t-1") is None
