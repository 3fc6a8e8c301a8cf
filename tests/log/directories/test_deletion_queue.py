"""Deleted files and directories wait for their time."""

from pathlib import Path

import pytest

from barnabas.log.directories.deletion_queue import AGAIN_MS, DeletionQueue
from log.log_files import fail_at


def test_deletions_wait_for_their_time(tmp_path) -> None:
    queue = DeletionQueue()
    late, early, missing = tmp_path / "late", tmp_path / "early", tmp_path / "missing"
    late.touch()
    early.mkdir()
    (early / "inside").touch()
    queue.add(str(late), 200)
    queue.add(str(early), 100)
    queue.add(str(missing), 100)
    assert queue.remove_due(99) == 0
    assert queue.remove_due(100) == 2
    assert not early.exists()
    assert late.exists()
    assert queue.remove_due(1000) == 1
    assert len(queue) == 0


def test_deletions_follow_a_renamed_directory(tmp_path) -> None:
    queue = DeletionQueue()
    old, new = tmp_path / "a-0", tmp_path / "a-0.x-delete"
    old.mkdir()
    (old / "file.deleted").touch()
    queue.add(str(old / "file.deleted"), 100)
    old.rename(new)
    queue.rename_below(str(old), str(new))
    queue.remove_due(100)
    assert list(new.iterdir()) == []


def test_deletions_follow_a_directory_that_is_renamed_again_and_again(tmp_path) -> None:
    queue = DeletionQueue()
    directory = tmp_path / "a-0"
    directory.mkdir()
    for due_ms, name in enumerate(("first", "second", "third")):
        (directory / name).touch()
        queue.add(str(directory / name), due_ms)
        renamed = tmp_path / f"a-0.{due_ms}"
        queue.rename_below(str(tmp_path / "b-0"), str(renamed))
        directory = directory.rename(renamed)
        queue.rename_below(str(tmp_path / "a-0" if due_ms == 0 else tmp_path / f"a-0.{due_ms - 1}"), str(renamed))
        queue.remove_due(due_ms - 1)
    assert [path.name for path in directory.iterdir()] == ["third"]
    queue.remove_due(2)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_the_disk_keeps_is_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    queue = DeletionQueue()
    kept, other = tmp_path / "kept", tmp_path / "other"
    other.touch()
    if kind == "file":
        kept.touch()
    else:
        kept.mkdir()
        (kept / "inside").touch()
    queue.add(str(kept), 100)
    queue.add(str(other), 100)
    with monkeypatch.context() as patch:
        fail_at(patch, "unlink", "kept" if kind == "file" else "inside")
        assert queue.remove_due(100) == 1
        assert not other.exists()
        assert queue.remove_due(100 + AGAIN_MS - 1) == 0
        assert queue.remove_due(100 + AGAIN_MS) == 0
    assert [record.message.partition(": ")[2] for record in caplog.records] == ["Input/output error; tried again"]
    assert queue.remove_due(100 + 2 * AGAIN_MS) == 1
    assert not kept.exists()
    assert len(queue) == 0
