"""Checkpoints as Spark keeps them."""

from pathlib import Path

import pytest

from barnabas.errors import UsageError
from barnabas.pipeline.checkpoint import find_checkpoints, read_checkpoint
from barnabas.pipeline.diagnosis import BrokerView, Problem, find_problems
from barnabas.types import TopicPartition
from pipeline.checkpoints import IDS, write_checkpoint

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
WELL = BrokerView(IDS, {ZERO: 0, ONE: 0}, {ZERO: 50, ONE: 70}, None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_checkpoint(
        tmp_path / "q", {"0": 10, "1": 20}, {"0": 30, "1": 20}, {"0": 40, "1": 60}, {"0": 45, "1": 60}, commits=3
    )


def problems(path: Path, broker: BrokerView | None = WELL) -> list[Problem]:
    return find_problems(read_checkpoint(path), broker)


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
