"""Checkpoints as Spark keeps them."""

from pathlib import Path

import pytest

from barnabas.errors import UsageError
from barnabas.pipeline.checkpoint import find_checkpoints, read_checkpoint
from pipeline.checkpoints import ONE, ZERO, problems, write_checkpoint


def test_what_stands_in_one(path: Path) -> None:
    found = read_checkpoint(path)
    assert (found.query_id, found.done.number, found.last.number) == ("22222222-2222-2222-2222-222222222222", 2, 3)  # type: ignore[union-attr]
    assert found.done is not None
    assert found.done.offsets == {ZERO: 40, ONE: 60}
    assert problems(path) == []
    assert problems(path, None) == []


def test_where_checkpoints_are_looked_for(tmp_path: Path, path: Path) -> None:
    project = tmp_path / "project"
    write_checkpoint(project / "checkpoints" / "b", commits=0)
    write_checkpoint(project / "checkpoints" / "a.backup-20260101-000000", commits=0)
    assert find_checkpoints(path) == [path]
    assert find_checkpoints(project) == [project / "checkpoints" / "b"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"there is no checkpoint in .*empty .* begins anew, as startingOffsets says"):
        find_checkpoints(tmp_path / "empty")
    with pytest.raises(UsageError, match="nowhere is no directory"):
        find_checkpoints(tmp_path / "nowhere")
