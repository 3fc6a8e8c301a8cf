"""The cleaner among many logs: which comes first, what it remembers, what the others may do meanwhile."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.log.directories.checkpoints import read_offset_checkpoint
from barnabas.log.log_segment import LogSegment
from barnabas.log.unified_log import UnifiedLog
from barnabas.types import TopicPartition
from log.cleaner.cleaner_rig import COMPACTED, TP, CleanerRig, MakeRig

OTHER = TopicPartition("other", 0)


def checkpoint(rig: CleanerRig) -> dict[TopicPartition, int]:
    return read_offset_checkpoint(str(rig.root / "cleaner-offset-checkpoint"))


def dirty(rig: CleanerRig, batches: int = 3) -> None:
    for number in range(batches):
        rig.put(("a", str(number)))
    rig.roll()


def with_log(rig: CleanerRig, tp: TopicPartition, **settings: object) -> None:
    """From now on the rig writes to this log."""
    rig.log = rig.manager.create(tp, None, LogConfig(**{**COMPACTED, **settings}))


def test_the_dirtiest_log_comes_first(rig: CleanerRig) -> None:
    first = rig.log
    dirty(rig)
    rig.clean()
    dirty(rig)
    with_log(rig, OTHER)
    dirty(rig)
    assert rig.cleaner.cleanable(first).ratio < rig.cleaner.cleanable(rig.log).ratio == 1.0
    rig.cleaner.run()
    assert (first.cleaned_offset, rig.log.cleaned_offset) == (3, 3)
    rig.cleaner.run()
    assert first.cleaned_offset == 6


def test_only_compacted_logs_are_cleaned(rig: CleanerRig) -> None:
    for number, policy in enumerate(((), ("delete",), ("compact", "delete"))):
        with_log(rig, TopicPartition("t", number), cleanup_policy=frozenset(policy), retention_ms=-1)
        dirty(rig)
        assert rig.clean() == (1 if "compact" in policy else 0)
        assert len(rig.read()) == (1 if "compact" in policy else 3)


def test_a_log_that_is_not_dirty_enough_waits(make_rig: MakeRig) -> None:
    rig = make_rig(min_cleanable_dirty_ratio=0.6)
    dirty(rig, 10)
    assert rig.clean() == 1, "all of it is dirty"
    rig.put(("b", "1"))
    rig.roll()
    assert rig.clean() == 0
    rig.put(("b", "2" * 300))
    rig.roll()
    assert rig.clean() == 1


def test_the_checkpoint_is_kafkas_and_survives(rig: CleanerRig) -> None:
    dirty(rig)
    assert not (rig.root / "cleaner-offset-checkpoint").exists()
    rig.clean()
    assert (rig.root / "cleaner-offset-checkpoint").read_text() == "0\n1\ncities 0 3\n"
    for crash in (True, False):
        rig.restart(crash=crash)
        assert rig.log.cleaned_offset == 3
        assert rig.clean() == 0


def test_a_damaged_checkpoint_means_cleaning_again(rig: CleanerRig) -> None:
    dirty(rig)
    rig.clean()
    (rig.root / "cleaner-offset-checkpoint").write_text("0\n7\nrubbish")
    rig.restart(crash=True)
    assert rig.log.cleaned_offset is None
    assert rig.clean() == 1
    assert checkpoint(rig) == {TP: 3}


def test_a_checkpoint_beyond_the_end_is_cut(rig: CleanerRig) -> None:
    dirty(rig)
    (rig.root / "cleaner-offset-checkpoint").write_text("0\n1\ncities 0 999\n")
    rig.restart(crash=True)
    assert rig.log.cleaned_offset == 3
    # what is written from now on has not been cleaned, whatever the file said before
    assert checkpoint(rig) == {TP: 3}
    rig.put(("a", "3"))
    rig.restart(crash=True)
    assert rig.log.cleaned_offset == 3


def test_a_checkpoint_of_a_log_that_is_gone_does_not_outlive_the_start(rig: CleanerRig) -> None:
    dirty(rig)
    (rig.root / "cleaner-offset-checkpoint").write_text("0\n1\nother 0 2\n")
    rig.restart(crash=True)
    with_log(rig, OTHER, min_cleanable_dirty_ratio=1.0)
    dirty(rig)
    rig.restart(crash=True)
    assert rig.manager.logs[OTHER].cleaned_offset is None


def test_a_deleted_log_leaves_no_checkpoint_to_its_successor(rig: CleanerRig) -> None:
    dirty(rig)
    rig.clean()
    rig.manager.delete(TP)
    with_log(rig, TP)
    assert checkpoint(rig) == {TP: 0}
    assert rig.log.cleaned_offset is None
    rig.cleaner.run()
    assert rig.cleaner.state(TP).last_cleaned_ms == -1, "nothing is remembered of logs that are gone"


def test_what_was_wrong_with_a_deleted_log_is_not_held_against_its_successor(rig: CleanerRig) -> None:
    dirty(rig)
    path = rig.log.segments[0].path(".log")
    Path(path).write_bytes(b"x" * rig.log.segments[0].size)
    rig.clean()
    assert rig.cleaner.state(TP).uncleanable
    rig.manager.delete(TP)
    with_log(rig, TP)  # before the cleaner looked again
    dirty(rig)
    assert rig.clean() == 1
    assert rig.values() == [(2, "a", "2")]


def test_a_cut_log_is_dirty_from_there(rig: CleanerRig) -> None:
    dirty(rig)
    dirty(rig)
    rig.clean()
    assert rig.log.cleaned_offset == 6
    rig.log.truncate_to(4)
    assert rig.log.cleaned_offset == 4
    assert checkpoint(rig) == {TP: 4}
    rig.log.truncate_fully_and_start_at(100)
    assert rig.log.cleaned_offset is None
    rig.log.truncate_fully_and_start_at(2)
    assert checkpoint(rig) == {TP: 2}
    rig.restart(crash=True)
    assert (rig.log.log_end_offset, rig.log.cleaned_offset) == (2, 2)


def test_other_logs_are_cleaned_while_one_has_failed(rig: CleanerRig) -> None:
    dirty(rig)
    Path(rig.log.segments[0].path(".log")).unlink()
    rig.cleaner.run()
    state = rig.cleaner.state(TP)
    assert state.failure
    assert not state.uncleanable
    with_log(rig, OTHER)
    dirty(rig)
    assert rig.clean() == 1
    assert rig.log.cleaned_offset == 3
    failures = []
    for _ in range(15):
        wait = rig.cleaner.state(TP).retry_ms - rig.clock.now_ms
        failures.append(wait)
        rig.clock.now_ms += wait
        assert rig.cleaner.run()
    assert failures[:4] == [1000, 2000, 4000, 8000]
    assert failures[-1] == 600_000, "no less often than that"


def test_what_a_full_disk_kept_from_the_transaction_index_is_written_first(
    rig: CleanerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"producer_id": 11, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    rig.put(("a", "1"))
    rig.put(("a", "aborted"), **options)
    full = OSError(28, "No space left on device")

    def refuse(*_: object) -> None:
        raise full

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.log.indexes.transaction_index.os.open", refuse)
        rig.marker(11, commit=False)
    index = rig.log.active_segment.path(".txnindex")
    assert not Path(index).exists()
    rig.log.roll()
    monkeypatch.setattr("barnabas.log.log_segment.LogSegment.write_transaction_index", refuse)
    assert not rig.cleaner.run()
    assert "No space left" in rig.cleaner.state(TP).failure
    monkeypatch.undo()
    rig.clock.now_ms += 60_000
    rig.clean()
    assert rig.values() == [(0, "a", "1")]


def test_tombstones_after_a_restart_go_with_the_next_cleaning(rig: CleanerRig) -> None:
    rig.put(("a", "1"), ("b", "1"))
    rig.put(("a", None))
    rig.roll()
    rig.clean()
    rig.restart()
    rig.clock.now_ms += 100_000
    assert rig.clean() == 0, "nobody knows of their horizon"
    rig.put(("c", "1"))
    rig.roll()
    rig.clean()
    assert rig.values() == [(1, "b", "1"), (3, "c", "1")]


def test_readers_go_on_with_the_old_file(rig: CleanerRig) -> None:
    dirty(rig)
    piece = rig.log.read(0, 1000, upper_bound=3, min_one_message=True).file_slice
    assert piece is not None
    before = piece.read()
    rig.clean()
    rig.manager.remove_deleted(rig.clock.now_ms)
    assert piece.read() == before
    assert rig.values() == [(2, "a", "2")]


def test_the_old_files_go_after_their_delay(make_rig: MakeRig) -> None:
    rig = make_rig(file_delete_delay_ms=5000)
    dirty(rig)
    rig.clean()
    assert rig.files(".deleted")
    rig.manager.remove_deleted(rig.clock.now_ms + 4999)
    assert rig.files(".deleted")
    rig.manager.remove_deleted(rig.clock.now_ms + 5000)
    assert not rig.files(".deleted")


def test_a_flush_that_is_under_way_is_not_disturbed(rig: CleanerRig) -> None:
    dirty(rig)
    task = rig.log.prepare_flush()
    assert task is not None
    rig.clean()
    rig.manager.remove_deleted(rig.clock.now_ms)
    task.run()
    assert not task.complete(), "the files that it would have synced are not the log's any more"
    rig.log.flush()
    assert rig.log.recovery_point == 3


def test_what_people_are_told(rig: CleanerRig) -> None:
    assert rig.cleaner.describe(rig.log)["dirty_ratio"] == 0.0
    dirty(rig)
    told = rig.cleaner.describe(rig.log)
    assert (told["cleaned_offset"], told["dirty_ratio"], told["last_cleaned_ms"]) == (0, 1.0, -1)
    rig.clean()
    told = rig.cleaner.describe(rig.log)
    assert (told["cleaned_offset"], told["dirty_bytes"], told["is_running"]) == (3, 0, False)
    assert told["last_cleaned_ms"] == rig.clock.now_ms
    assert told["last_bytes_after"] * 3 == told["last_bytes_before"]


def test_one_file_that_cannot_be_read_keeps_no_other_log_from_its_cleaning(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0)
    dirty(rig)
    bad = rig.log.segments[0]
    Path(bad.path(".log")).unlink()
    real = LogSegment.first_timestamp

    def first_timestamp(segment: LogSegment) -> int:
        if segment is bad:
            raise OSError(5, "Input/output error")
        return real(segment)

    monkeypatch.setattr(LogSegment, "first_timestamp", first_timestamp)
    with_log(rig, OTHER)
    dirty(rig)
    assert rig.clean() == 2
    assert rig.log.cleaned_offset == 3
    assert "No such file" in rig.cleaner.state(TP).failure
    assert rig.cleaner.describe(rig.manager.logs[TP])["failure"]


def test_who_takes_compaction_away_keeps_what_is_there(rig: CleanerRig) -> None:
    dirty(rig)

    def reconfigure(event: dict[str, Any]) -> None:
        rig.log.config = LogConfig(**{**COMPACTED, "cleanup_policy": frozenset(("delete",)), "retention_ms": -1})

    rig.worker.before_event = reconfigure
    rig.cleaner.run()
    assert [event["event"] for event in rig.worker.events] == ["mapped"]
    assert len(rig.read()) == 3
    assert rig.log.cleaned_offset is None
    assert rig.cleaner.busy == frozenset()
    assert rig.cleaner.state(TP).failures == 0


def test_a_group_that_could_not_be_put_in_its_place_is_not_called_clean(
    rig: CleanerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirty(rig)
    for error in (RuntimeError("a bug"), OSError(30, "Read-only file system")):

        def refuse(*_: object, error: Exception = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("barnabas.log.cleaner.log_cleaner_manager.swap_in", refuse)
            rig.cleaner.run()
        assert rig.log.cleaned_offset is None
        assert len(rig.read()) == 3
        assert str(error) in rig.cleaner.state(TP).failure
        assert not rig.cleaner.run(), "not at once"
        rig.clock.now_ms += 60_000
    assert rig.clean() == 1
    assert rig.cleaner.state(TP).failure == ""


@pytest.mark.parametrize(("error", "is_suspect"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_log_is_suspected_only_if_it_could_not_be_read(
    rig: CleanerRig, monkeypatch: pytest.MonkeyPatch, error: int, is_suspect: bool
) -> None:
    suspected: list[UnifiedLog] = []
    rig.cleaner.on_failure = suspected.append
    dirty(rig)

    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("barnabas.log.cleaner.cleaner.Cleaner.run", refuse)
    for _ in range(2):
        assert rig.cleaner.run()
        rig.clock.now_ms += 60_000
    assert suspected == ([rig.log] if is_suspect else [])


def test_a_log_is_not_suspected_when_its_cleaners_are_killed(rig: CleanerRig) -> None:
    suspected: list[UnifiedLog] = []
    rig.cleaner.on_failure = suspected.append
    dirty(rig)
    rig.worker.submit = lambda job: rig.cleaner.ended("was killed by signal 9")  # type: ignore[method-assign]
    while not rig.cleaner.state(TP).uncleanable:
        assert rig.cleaner.run()
        rig.clock.now_ms += 600_000
    assert suspected == []


def test_a_cleaning_that_comes_no_further_is_not_begun_for_ever(rig: CleanerRig) -> None:
    dirty(rig)

    def nothing(event: dict[str, Any]) -> None:
        if event["event"] == "finished":
            event["next_dirty_offset"] = 0

    rig.worker.before_event = nothing
    assert rig.clean() == 1
    assert "no further than offset 0" in rig.cleaner.state(TP).failure


def test_a_horizon_that_nothing_clean_has_keeps_no_other_log_from_its_pass(rig: CleanerRig) -> None:
    rig.put(("a", "1"), ("a", None))
    rig.roll()
    first = rig.log
    rig.clean()
    first.cleaned_offset = 1  # as if the map had been full in the middle of the first segment
    first.config = LogConfig(**{**COMPACTED, "min_cleanable_dirty_ratio": 1.0})
    with_log(rig, OTHER)
    rig.put(("a", None))
    rig.roll()
    rig.clean()
    rig.clock.now_ms += 1000
    for _ in range(2):  # looks
        rig.clean()
    assert rig.values() == []


def test_names_that_could_not_be_synced_are_synced_the_next_time(
    rig: CleanerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def refuse(directory: str) -> None:
        synced.append(directory)
        if len(synced) == 1:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("barnabas.log.cleaner.log_cleaner_manager.fsync_directory", refuse)
    dirty(rig)
    rig.cleaner._changed = lambda: None
    rig.clean()
    with pytest.raises(OSError, match="Input/output"):
        rig.cleaner.persist()
    assert not (rig.root / "cleaner-offset-checkpoint").exists()
    rig.cleaner.persist()
    assert synced == [rig.log.directory] * 2
    assert checkpoint(rig) == {TP: 3}


def test_after_closing_nothing_begins(rig: CleanerRig) -> None:
    dirty(rig)
    rig.cleaner.close()
    assert not rig.cleaner.run()
