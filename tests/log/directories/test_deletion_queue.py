"""Deleted files and directories wait for their time."""

from barnabas.log.directories.deletion_queue import DeletionQueue


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
