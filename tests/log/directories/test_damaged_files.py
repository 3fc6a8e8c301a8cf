"""Each small file of a data directory is emptied, zeroed, cut or overwritten: what is served is right, or the file is
named."""

import logging
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_CHECKPOINT,
    RUNNING,
)
from barnabas.log.directories.space_reserve import RESERVE
from barnabas.log.log_damage import MARK
from barnabas.log.log_manager import LogManager
from barnabas.log.moved_logs import ORIGIN
from log.log_files import contents
from log.manager_rig import A0, die

CONFIG = LogConfig(index_interval_bytes=0, retention_ms=86_400_000)
TOPIC_ID = uuid.UUID(int=5)
CHECKPOINTS = (RECOVERY_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)
ONE_BATCH, SEGMENT, ACTIVE = 0, 3, 9
OF_A_LOG = (
    PARTITION_METADATA,
    "leader-epoch-checkpoint",
    f"{ACTIVE + 3:020d}.snapshot",
    *(f"{base:020d}{suffix}" for base in (SEGMENT, ONE_BATCH, ACTIVE) for suffix in (".index", ".timeindex")),
    f"{SEGMENT:020d}.txnindex",
)
MARKS = {f"a-0/{ORIGIN}": b"AAAAAAAAAAAAAAAAAAAAyw", f"a-0/{MARK}": b"byte 7 is wrong\n", RESERVE: bytes(4096)}
"""What is there after a move, after a damage, and beside the logs of a broker."""
FILES = (*CHECKPOINTS, META_PROPERTIES, CLEAN_SHUTDOWN, *(f"a-0/{name}" for name in OF_A_LOG), *MARKS)
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda _: b"",
    "zeroed": lambda data: bytes(len(data)),
    "cut": lambda data: data[:-3],
    "garbage": lambda data: b"\xa5" * len(data),
}


def start(rig) -> LogManager:
    manager = rig.manager()
    manager.startup(lambda _: CONFIG, node_id=1)
    return manager


def served(manager: LogManager) -> dict[str, object]:
    log = manager.logs[A0]
    return {
        "records": contents(log),
        "end": log.log_end_offset,
        "epochs": [epoch for epoch, _ in log.leader_epochs.entries],
        "aborted": log.aborted_transactions(0, log.log_end_offset),
        "producers": {entry.producer_id: entry.last_sequence for entry in log.active_producers()},
        "times": [log.offset_for_timestamp(ms) for _, _, h in log.headers_from(3) for ms in (h.max_timestamp,)],
        "read": [log.read(n, 1, upper_bound=log.log_end_offset, min_one_message=True).size for n in range(3, 12)],
    }


def make(rig) -> LogManager:
    """A log of three segments, the first with one batch."""
    manager = start(rig)
    log = manager.create(A0, TOPIC_ID, CONFIG)
    rig.append(log, 3)
    log.roll()
    for number in range(4):
        rig.clock.now_ms += 10
        rig.append(log, epoch=number // 2, producer_id=7, producer_epoch=0, base_sequence=number, transactional=True)
    log.append_as_leader(rig.marker(7, committed=False), 2)
    rig.append(log, epoch=2)
    log.roll()
    for number in range(3):
        rig.clock.now_ms += 10
        rig.append(log, epoch=2, producer_id=9, producer_epoch=0, base_sequence=number)
    log.delete_records(2)
    log.cleaned_offset = 3
    return manager


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_made_anew_or_named(rig, name: str, damage: str, caplog) -> None:
    manager = make(rig)
    expected = served(manager)
    manager.shutdown()
    path = rig.root / "data" / name
    path.write_bytes(DAMAGES[damage](MARKS[name] if name in MARKS else path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        if name == META_PROPERTIES:
            with pytest.raises(UsageError, match=r"write it anew|is not a properties file") as refused:
                start(rig)
            assert str(path) in str(refused.value)
            return
        manager = start(rig)
    log = manager.logs[A0]
    assert (served(manager), log.missing) == (expected, None)
    assert (log.log_start_offset, log.high_watermark) == (2, 12) or (name in CHECKPOINTS and str(path) in caplog.text)
    assert log.delete_old_segments(rig.clock.now_ms) == 0, "all records are of today"
    manager.shutdown()
    caplog.clear()
    manager = start(rig)
    assert str(path) not in caplog.text
    assert served(manager) == expected
    die(manager)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_mark_of_the_boot_costs_time_alone(rig, damage: str) -> None:
    manager = make(rig)
    expected = served(manager)
    die(manager)
    path = Path(rig.root, "data", RUNNING)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert served(start(rig)) == expected


def test_an_emptied_offset_index_of_a_large_segment_is_made_anew(rig) -> None:
    log = rig.log()
    for _ in range(5):
        rig.append(log, size=500_000)
    log.roll()
    log.close()
    path = Path(log.segments[0].path(".index"))
    path.write_bytes(b"")
    assert len(rig.reopen(log).segments[0].offset_index) == 4


@pytest.mark.parametrize("damage", ["zeroed", "garbage"])
def test_a_time_index_that_is_damaged_in_its_middle_hides_no_record(rig, damage: str, caplog) -> None:
    log = rig.log(index_interval_bytes=0)
    for number in range(40):
        rig.append(log, timestamp=rig.clock.now_ms + number)
    log.roll()
    log.close()
    path = Path(log.segments[0].path(".timeindex"))
    data = path.read_bytes()
    path.write_bytes(data[:120] + DAMAGES[damage](data[120:360]) + data[360:])
    log = rig.reopen(log)
    assert [log.offset_for_timestamp(rig.clock.now_ms + number).offset for number in range(40)] == list(range(40))
    assert str(path) in caplog.text
