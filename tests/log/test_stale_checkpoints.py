"""The checkpoints of a data directory after logs were deleted or truncated: what they say of records that are gone is
never taken for what is written next."""

from pathlib import Path
from threading import Thread

import pytest

from barnabas.clock import SYSTEM_CLOCK
from barnabas.config.log_config import LogConfig
from barnabas.log.directories.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_CHECKPOINT,
    read_offset_checkpoint,
)
from barnabas.log.log_manager import LogManager
from barnabas.log.unified_log import UnifiedLog
from log.manager_rig import A0, CONFIG, die, start

CHECKPOINTS = (RECOVERY_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)


def write_checkpoints(manager: LogManager) -> None:
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_start_offsets()
    manager.checkpoint_high_watermarks()


def found(log: UnifiedLog | None) -> tuple[int, int, int]:
    assert log is not None
    return log.log_start_offset, log.high_watermark, log.log_end_offset


@pytest.mark.parametrize("meanwhile", ["nothing", "a restart", "a restart without the topic"])
@pytest.mark.parametrize("count", [300, 700])
def test_a_topic_that_is_made_anew_has_nothing_of_the_old_one(rig, meanwhile: str, count: int) -> None:
    manager = start(rig.manager())
    log = manager.create(A0, None, CONFIG)
    rig.append(log, 600)
    log.delete_records(500)
    log.flush()
    write_checkpoints(manager)
    if meanwhile != "a restart without the topic":
        manager.delete(A0)
    if meanwhile != "nothing":
        die(manager)
        manager = start(rig.manager(), belongs=lambda *_: False)
    new = manager.create(A0, None, CONFIG)
    rig.append(new, count)
    die(manager)
    start_offset, high_watermark, end = found(start(rig.manager()).get(A0))
    assert (start_offset, end) == (0, count)
    assert high_watermark == 0, "that of the old topic says nothing"


def test_a_log_that_begins_lower_keeps_its_first_records(rig) -> None:
    manager = start(rig.manager())
    log = manager.create(A0, None, CONFIG)
    rig.append(log, 600)
    log.delete_records(500)
    write_checkpoints(manager)
    log.truncate_fully_and_start_at(300)
    rig.append(log, 400)
    die(manager)
    assert found(start(rig.manager()).get(A0)) == (300, 300, 700)


def test_checkpoints_that_are_written_while_a_log_is_emptied_do_not_bring_its_offsets_back(rig) -> None:
    manager = start(rig.manager())
    log = manager.create(A0, None, CONFIG)
    rig.append(log, 600)
    log.delete_records(500)
    log.flush()
    log.cleaned_offset = 600
    lower, lowered = log.lower_checkpoints, []

    def lower_and_write(end: int) -> None:
        lower(end)
        lowered.append(end)
        if len(lowered) == 1:  # a thread comes before the segments go
            write_checkpoints(manager)
            manager.checkpoint_cleaned_offsets()

    log.lower_checkpoints = lower_and_write
    log.truncate_fully_and_start_at(300)
    for name in CHECKPOINTS:
        assert read_offset_checkpoint(f"{manager.directories[0].path}/{name}") == {A0: 300}, name


def test_records_after_a_truncation_are_verified(rig) -> None:
    """Those before were on the disk, these are not."""
    manager = start(rig.manager())
    log = manager.create(A0, None, LogConfig(segment_bytes=500))
    for _ in range(20):
        rig.append(log)
    log.flush()
    manager.checkpoint_recovery_points()
    log.truncate_to(5)
    for _ in range(15):
        rig.append(log)
    sealed = log.segments[-3]
    assert sealed.base_offset > 5
    damaged = Path(sealed.path(".log"))
    die(manager)
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert start(rig.manager(boot_id="after the power loss")).get(A0).log_end_offset == sealed.base_offset


def test_a_move_begins_without_what_the_new_directory_knew(tmp_path: Path) -> None:
    manager = start(LogManager([tmp_path / "one", tmp_path / "two"], SYSTEM_CLOCK))
    one, two = manager.directories
    one.write_checkpoint(LOG_START_CHECKPOINT, lambda: {A0: 500}, sync=True)
    manager.prefer(A0.topic, A0.partition, two)
    manager.create(A0, None, CONFIG)
    manager.futures.create(A0, one, None)
    assert read_offset_checkpoint(str(tmp_path / "one" / LOG_START_CHECKPOINT))[A0] == 0
    manager.shutdown()


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_is_being_written_does_not_bring_old_offsets_back(rig, name: str) -> None:
    manager = start(rig.manager())
    directory = manager.directories[0]
    deleter = Thread(target=directory.lower_checkpoints, args=(A0, 0))

    def offsets() -> dict:
        deleter.start()
        deleter.join(0.05)  # it would be over by then if it did not wait
        return {A0: 500}

    directory.write_checkpoint(name, offsets, sync=False)
    deleter.join()
    assert read_offset_checkpoint(f"{directory.path}/{name}") == {A0: 0}
