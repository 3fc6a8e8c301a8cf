"""Problems of checkpoints, and their repair."""

from pathlib import Path

import pytest

from barnabas.pipeline.checkpoint import read_checkpoint
from barnabas.pipeline.diagnosis import BrokerView, Problem
from barnabas.pipeline.repair import repair
from pipeline.checkpoints import ONE, WELL, ZERO, problems, write_checkpoint


def mended(path: Path, broker: BrokerView | None = WELL) -> list[Problem]:
    """What is wrong after the repair."""
    repair(path, problems(path, broker), path.with_name("kept"))
    return problems(path, broker)


@pytest.mark.parametrize(
    "text", ["", "\0" * 40, "v1", "v1\n{", 'v1\n{"a":1}', 'v1\n{"a":1}\n{"orders": {"0": 4', "v2\n{}\n{}"]
)
def test_offsets_of_a_batch_that_was_not_done(path: Path, text: str) -> None:
    (path / "offsets" / "3").write_text(text)
    (problem,) = problems(path)
    assert f"{path}/offsets/3 cannot be read: " in problem.what
    assert "batch 3 was not done: without the file it is planned anew, after batch 2" in problem.way_out
    assert mended(path) == []
    assert not (path / "offsets" / "3").exists()
    assert not (path / "offsets" / ".3.crc").exists()
    assert (path.with_name("kept") / "offsets" / "3").read_text() == text


def test_offsets_that_the_sink_has_committed_are_not_thrown_away(path: Path) -> None:
    (path / "offsets" / "3").write_text("")
    (problem,) = problems(path, WELL._replace(decided=3))
    assert problem.changes is None
    assert "the sink has committed batch 3" in problem.way_out
    (problem,) = problems(path, WELL._replace(decided=2))
    assert problem.changes is not None


def test_offsets_of_the_last_batch_that_is_done(path: Path) -> None:
    (path / "offsets" / "3").unlink()
    (path / "offsets" / "2").write_text("v1")
    (problem,) = problems(path)
    assert (problem.changes, "only this file says up to where it has read" in problem.way_out) == (None, True)


def test_old_files_and_commits(path: Path) -> None:
    (path / "offsets" / "0").write_text("v1")
    (path / "commits" / "2").write_text("")
    old, commit = problems(path, None)
    assert "batch 0 is long done" in old.way_out
    assert "offsets/0 cannot be read: it ends after its first line" in old.what
    assert "commits/2 cannot be read: it is empty" in commit.what
    assert mended(path, None) == []
    assert sorted(file.name for file in (path / "commits").iterdir()) == ["0", "1"]


def test_metadata(path: Path) -> None:
    (path / "metadata").unlink()
    (problem,) = problems(path)
    assert (problem.changes, "metadata cannot be read: it is not there" in problem.what) == (None, True)


def test_directories_of_different_times(path: Path) -> None:
    for number in (1, 2, 3):
        (path / "offsets" / str(number)).unlink()
    (problem,) = problems(path)
    assert "batches 1 to 2 are committed, and offsets are there up to batch 0 only" in problem.what
    assert mended(path) == []


def test_rolled_back(path: Path) -> None:
    (problem,) = problems(path, WELL._replace(decided=9))
    assert problem.what == "the checkpoint was rolled back: its last batch is 3, the sink has committed batch 9"
    assert (problem.changes, "restore the newest copy" in problem.way_out) == (None, True)


def test_a_topic_that_was_made_again(path: Path) -> None:
    new = WELL._replace(ids={"orders": "33333333-3333-3333-3333-333333333333"}, starts={ZERO: 0}, ends={ZERO: 7})
    (problem,) = problems(path, new)
    assert "topic orders was deleted and made again (its id was 1111" in problem.what
    assert mended(path, new) == []
    after = read_checkpoint(path).last
    assert after is not None
    assert (after.number, after.offsets, after.ids) == (2, {ZERO: 0}, new.ids)
    assert after.time_ms == 1_700_000_002_000, "the rest of the file is as it was"


def test_a_topic_that_is_gone_and_others_that_stay(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "q", {"0": 4}, commits=1, ids={})
    (problem,) = problems(path, WELL._replace(ids={}))
    assert problem.what == "topic orders is not there any more"
    assert mended(path, WELL._replace(ids={})) == []


def test_offsets_that_are_gone_or_not_yet_there(path: Path) -> None:
    other = WELL._replace(starts={ZERO: 42, ONE: 0}, ends={ZERO: 50, ONE: 55})
    gone, ahead = problems(path, other)
    assert (gone.what, gone.way_out) == (
        "orders-0: offsets 40 to 41 are gone, the query has not read them",
        "the query goes on at 42",
    )
    assert "orders-1: read up to 60, but the log ends at 55" in ahead.what
    assert mended(path, other) == []
    done = read_checkpoint(path).done
    assert done is not None
    assert done.offsets == {ZERO: 42, ONE: 55}


def test_what_the_sink_has_is_not_planned_anew(path: Path) -> None:
    """Batch 3 is begun, and the sink has it: its offsets cannot be given up."""
    (problem,) = problems(path, WELL._replace(starts={ZERO: 42, ONE: 0}, decided=3))
    assert problem.changes is None


def test_sources_of_other_kinds_stay_as_they_are(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "q", {"0": 4}, commits=1)
    file = path / "offsets" / "0"
    file.write_text(file.read_text() + '\n{"logOffset":3}\n-')
    assert problems(path) == []
    assert mended(path, WELL._replace(starts={ZERO: 5, ONE: 0})) == []
    assert file.read_text().splitlines()[-2:] == ['{"logOffset":3}', "-"]
