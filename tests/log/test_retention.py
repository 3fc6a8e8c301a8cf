import os

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError
from log.log_files import fail_at
from log.manager_rig import A0, start


@pytest.fixture
def log(rig):
    """Ten segments of one batch each, a second apart."""
    log = rig.log(segment_ms=500, retention_ms=-1)
    for second in range(10):
        rig.append(log, timestamp=rig.clock.now_ms + 1000 * second)
    assert len(log.segments) == 10
    rig.clock.now_ms += 9000
    return log


def configure(log, **settings: object) -> None:
    log.config = LogConfig(**({"segment_ms": 500, "retention_ms": -1} | settings))


def starts(log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_by_time(rig, log) -> None:
    configure(log, retention_ms=3000)
    assert log.delete_old_segments(rig.clock.now_ms) == 6
    assert starts(log) == [6, 7, 8, 9]
    assert log.log_start_offset == 6


def test_the_largest_timestamp_of_a_segment_counts(rig) -> None:
    log = rig.log(retention_ms=-1)
    rig.append(log, timestamp=rig.clock.now_ms + 10_000)
    rig.append(log)
    log.roll()
    configure(log, retention_ms=1000)
    assert log.delete_old_segments(rig.clock.now_ms + 5000) == 0
    assert log.delete_old_segments(rig.clock.now_ms + 11_001) == 1


def test_by_size(rig, log) -> None:
    size = log.segments[0].size
    configure(log, retention_bytes=3 * size + 1)
    assert log.delete_old_segments(rig.clock.now_ms) == 6
    configure(log, retention_bytes=3 * size)
    assert log.delete_old_segments(rig.clock.now_ms) == 1
    assert log.size_bytes == 3 * size


def test_by_the_logs_start(rig, log) -> None:
    log.delete_records(5)
    assert log.delete_old_segments(rig.clock.now_ms) == 5
    log.delete_records(10)
    assert log.delete_old_segments(rig.clock.now_ms) == 4
    assert starts(log) == [9]


def test_an_expired_active_segment_is_rolled_first(rig, log) -> None:
    configure(log, retention_ms=0)
    assert log.delete_old_segments(rig.clock.now_ms + 1) == 10
    assert starts(log) == [10]
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert log.delete_old_segments(rig.clock.now_ms + 10**9) == 0


def test_a_log_whose_records_have_all_gone_is_flushed(rig, log) -> None:
    configure(log, retention_ms=1000)
    assert log.delete_old_segments(rig.clock.now_ms + 10_000) == 10
    assert log.recovery_point < log.log_end_offset
    log.flush()
    assert log.recovery_point == log.log_end_offset


def test_nothing_above_the_high_watermark_goes(rig) -> None:
    log = rig.log(segment_bytes=100, retention_bytes=0)
    for _ in range(5):
        log.append_as_leader(rig.batch(), 0)
    log.update_high_watermark(2)
    assert log.delete_old_segments(rig.clock.now_ms) == 2
    assert starts(log) == [2, 3, 4]


@pytest.mark.parametrize("policy", [frozenset(), frozenset({"compact"})])
def test_without_delete_only_the_start_counts(rig, log, policy: frozenset[str]) -> None:
    configure(log, retention_ms=0, retention_bytes=0, cleanup_policy=policy)
    log.delete_records(3)
    assert log.delete_old_segments(rig.clock.now_ms + 10**9) == 3


def test_both_policies_delete(rig, log) -> None:
    configure(log, retention_ms=3000, cleanup_policy=frozenset({"compact", "delete"}))
    assert log.delete_old_segments(rig.clock.now_ms) == 6


def test_records_without_time_go_by_the_file(rig) -> None:
    log = rig.log(retention_ms=1000)
    rig.append(log, timestamp=-1)
    log.roll()
    assert log.delete_old_segments(rig.clock.now_ms + 1000) == 0
    assert log.delete_old_segments(rig.clock.now_ms + 1001) == 1


def test_files_wait_for_the_delay(rig, log) -> None:
    configure(log, retention_ms=3000, file_delete_delay_ms=500)
    log.delete_old_segments(rig.clock.now_ms)
    waiting = sorted(name for name in os.listdir(log.directory) if name.endswith(".deleted"))
    assert len(waiting) == 18
    assert waiting[0] == "00000000000000000000.index.deleted"
    assert rig.environment.deletions.remove_due(rig.clock.now_ms + 499) == 0
    assert rig.environment.deletions.remove_due(rig.clock.now_ms + 500) == 18
    assert not [name for name in os.listdir(log.directory) if name.endswith(".deleted")]


def test_a_restart_removes_what_was_waiting(rig, log) -> None:
    configure(log, retention_ms=3000)
    log.delete_old_segments(rig.clock.now_ms)
    log = rig.reopen(log)
    assert starts(log) == [6, 7, 8, 9]
    assert not [name for name in os.listdir(log.directory) if name.endswith(".deleted")]


def test_files_that_the_disk_does_not_let_go_are_deleted_later(rig, log, monkeypatch) -> None:
    configure(log, retention_ms=3000)
    with monkeypatch.context() as patch:
        fail_at(patch, "rename", "02.timeindex")
        for _ in range(2):
            with pytest.raises(KafkaStorageError, match="Input/output error"):
                log.delete_old_segments(rig.clock.now_ms)
    assert (starts(log), log.log_start_offset) == ([6, 7, 8, 9], 6)
    assert log.delete_old_segments(rig.clock.now_ms) == 0
    assert rig.environment.deletions.remove_due(rig.clock.now_ms + 60_000) == 18
    assert len([name for name in os.listdir(log.directory) if name.endswith(".log")]) == 4


def test_what_was_deleted_does_not_come_back_with_files_that_the_disk_does_not_let_go(rig, monkeypatch) -> None:
    manager = start(rig.manager())
    log = manager.create(A0, None, LogConfig(segment_bytes=100))
    for _ in range(4):
        rig.append(log)
    log.update_high_watermark(4)
    log.delete_records(2)
    with monkeypatch.context() as patch:
        fail_at(patch, "rename", "/00000000000000000000.log")
        manager.cleanup_logs(rig.clock.now_ms)
    manager.shutdown()
    assert start(rig.manager()).logs[A0].log_start_offset == 2


def test_an_emptied_log_has_no_files_that_the_disk_has_not_let_go(rig, log, monkeypatch) -> None:
    """The next start would take them for its own."""
    configure(log, retention_ms=3000)
    with monkeypatch.context() as patch:
        fail_at(patch, "rename", "00.log")
        with pytest.raises(KafkaStorageError):
            log.delete_old_segments(rig.clock.now_ms)
    log.truncate_fully_and_start_at(1)
    rig.append(log)
    log = rig.reopen(log)
    assert (starts(log), log.log_end_offset) == ([1], 2)
