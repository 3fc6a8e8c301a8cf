"""A log of which something cannot be read: it says so once, with file and position, and serves the rest."""

import errno
import os

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.log_damage import MARK
from barnabas.log.unified_log import UnifiedLog
from log.log_files import refuse


def several_segments(rig) -> UnifiedLog:
    log = rig.log(segment_bytes=1000, index_interval_bytes=0)
    for number in range(40):
        rig.append(log, timestamp=rig.clock.now_ms + number)
    return rig.reopen(log)


def read(log: UnifiedLog, offset: int) -> int:
    return log.read(offset, 100, upper_bound=log.log_end_offset, min_one_message=True).size


def overwrite(path: str, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def test_a_batch_that_is_none_is_told_once_and_the_rest_is_served(rig, caplog: pytest.LogCaptureFixture) -> None:
    log = several_segments(rig)
    damaged = log.segments[1]
    overwrite(damaged.path(".log"), 0, b"\xff" * 61)
    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            read(log, damaged.base_offset)
    assert damaged.path(".log") in log.damage.found
    assert "byte 0" in log.damage.found
    assert caplog.text.count("is damaged") == 1
    assert read(log, 0)
    assert read(log, log.segments[2].base_offset)
    rig.append(log)


def test_a_read_that_the_disk_refuses_is_damage_and_one_without_descriptors_is_none(rig) -> None:
    log = several_segments(rig)
    rig.disk.pread = refuse(errno.EMFILE)
    with pytest.raises(KafkaStorageError):
        read(log, 0)
    assert not log.damage.found
    rig.disk.pread = refuse(errno.EIO)
    with pytest.raises(KafkaStorageError):
        read(log, 0)
    assert log.damage.found == f"{log.segments[0].path('.log')}: byte 0: {os.strerror(errno.EIO)}"


def test_indexes_that_turn_to_garbage_are_made_again(rig) -> None:
    log = several_segments(rig)
    segment = log.segments[1]
    entries = len(segment.offset_index)
    overwrite(segment.path(".index"), 0, os.urandom(8 * entries))
    segment.offset_index.load()
    for offset in range(segment.base_offset, log.segments[2].base_offset):
        assert read(log, offset)
    assert not log.damage.found
    assert len(segment.offset_index) == entries


def test_a_time_lookup_does_not_pass_over_a_batch_that_is_none(rig) -> None:
    log = several_segments(rig)
    damaged = log.segments[1]
    overwrite(damaged.path(".log"), damaged.size // 2, b"\xff" * (damaged.size - damaged.size // 2))
    with pytest.raises(KafkaStorageError):
        log.offset_for_timestamp(damaged.max_timestamp)
    assert log.damage.found


@pytest.mark.parametrize("is_mended", [False, True])
def test_a_start_checks_a_log_that_was_damaged(rig, is_mended: bool) -> None:
    log = several_segments(rig)
    path = log.segments[1].path(".log")
    with open(path, "rb") as file:
        before = file.read()
    overwrite(path, len(before) - 2, b"\xff")
    log.damage.note("found by somebody")
    log.mark_damaged()
    if is_mended:
        overwrite(path, 0, before)
    again = rig.reopen(log)
    assert bool(again.damage.found) is not is_mended
    assert is_mended or path in again.damage.found
    assert os.path.exists(f"{again.directory}/{MARK}") is not is_mended
