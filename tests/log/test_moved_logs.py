"""A start that finds two directories of one log."""

import shutil
from pathlib import Path

import pytest

from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import CLEAN_SHUTDOWN, RUNNING
from barnabas.log.log_manager import LogManager
from barnabas.log.moved_logs import note_origin
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.types import LeaderEpoch
from hand_clock import HandClock
from log.log_files import fail_at
from log.manager_rig import A0, CONFIG, die, start


def manager(tmp_path: Path) -> LogManager:
    return LogManager([tmp_path / "one", tmp_path / "two"], HandClock(), boot_id="boot")


def append(log: UnifiedLog, count: int, epoch: int) -> None:
    for _ in range(count):
        data = build_batch([Record(0, 1, None, b"x")])
        header = read_header(data)
        log.append_as_leader(ValidatedBatch(header, data, header.max_timestamp, 0, 1), LeaderEpoch(epoch))


def interrupted(tmp_path: Path, old: tuple[int, int], new: tuple[int, int], *, moved_to: str = "two") -> None:
    """Leaves logs of so many records up to an epoch in both directories; that in `moved_to` is the new one."""
    made = {}
    for (count, epoch), index in ((old, 0), (new, 1)):
        running = start(manager(tmp_path))
        home = running.directories[index if moved_to == "two" else 1 - index]
        running.prefer(A0.topic, A0.partition, home)
        append(running.create(A0, None, CONFIG), count, epoch)
        die(running)
        made[index] = tmp_path / f"log-{index}", Path(home.path) / "a-0"
        made[index][1].rename(made[index][0])
    for kept, path in made.values():
        shutil.move(kept, path)
    origin = next(d for d in running.directories if d.path != str(made[1][1].parent))
    note_origin(str(made[1][1]), origin)


def lose_power(tmp_path: Path) -> None:
    for path in ("one", "two"):
        (tmp_path / path / RUNNING).unlink()


@pytest.mark.parametrize("moved_to", ["one", "two"])
def test_the_new_one_is_chosen(tmp_path: Path, moved_to: str) -> None:
    interrupted(tmp_path, (3, 1), (5, 1), moved_to=moved_to)
    running = start(manager(tmp_path))
    log = running.logs[A0]
    assert Path(log.directory) == tmp_path / moved_to / "a-0"
    assert log.log_end_offset == 5
    assert not list(tmp_path.glob("*/a-0/barnabas-moved-from"))
    assert len(list(tmp_path.glob("*/a-0"))) == 1
    running.remove_deleted(running._clock.wall_ms())
    assert not list(tmp_path.glob("*/*-delete"))
    running.shutdown()


@pytest.mark.parametrize(
    ("old", "new", "chosen"),
    [((3, 1), (5, 1), "two"), ((5, 1), (3, 1), "one"), ((5, 1), (3, 2), "two"), ((5, 1), (5, 1), "two")],
)
def test_after_a_loss_of_power_that_with_the_latest_records(
    tmp_path: Path, old: tuple[int, int], new: tuple[int, int], chosen: str
) -> None:
    interrupted(tmp_path, old, new)
    lose_power(tmp_path)
    running = start(manager(tmp_path))
    assert Path(running.logs[A0].directory) == tmp_path / chosen / "a-0"
    running.shutdown()


def test_without_a_note_the_operator_decides(tmp_path: Path) -> None:
    interrupted(tmp_path, (3, 1), (5, 1))
    (tmp_path / "two" / "a-0" / "barnabas-moved-from").unlink()
    with pytest.raises(UsageError, match="hold the same partition; move one away"):
        start(manager(tmp_path))
    assert len(list(tmp_path.glob("*/a-0"))) == 2


def test_a_note_whose_other_directory_is_gone_means_nothing(tmp_path: Path) -> None:
    interrupted(tmp_path, (3, 1), (5, 1))
    shutil.rmtree(tmp_path / "one" / "a-0")
    running = start(manager(tmp_path))
    assert running.logs[A0].log_end_offset == 5
    running.shutdown()
    assert (tmp_path / "one" / CLEAN_SHUTDOWN).exists()


def test_a_disk_that_does_not_tell_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(tmp_path, (3, 1), (5, 1))
    with monkeypatch.context() as patch:
        fail_at(patch, "stat", "-stray")
        with pytest.raises(UsageError, match="Input/output error"):
            start(manager(tmp_path))
    assert len(list(tmp_path.glob("*/a-0"))) == 2
    assert start(manager(tmp_path)).logs[A0].log_end_offset == 5
