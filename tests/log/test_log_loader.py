"""Opening logs that a crash left: the named cases. The stateful model in tests/property covers the combinations."""

import errno
import os
from pathlib import Path
from struct import pack
from zlib import crc32

import pytest

from barnabas.errors import UsageError
from barnabas.log import log_loader as recovery
from barnabas.log.directories.checkpoints import read_epoch_checkpoint
from barnabas.log.log_loader import LogState, Verification, load_log
from barnabas.records.builder import build_batch
from barnabas.records.record import Record


@pytest.fixture
def long_log(rig):
    """1,000 batches in one segment, 100 bytes and more each."""
    log = rig.log(index_interval_bytes=400)
    for number in range(1000):
        rig.append(log, size=100, timestamp=rig.clock.now_ms + number)
    return log


def damage(path: str, position: int, data: bytes = b"\xff") -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("verification", [Verification.TAIL, Verification.FULL])
@pytest.mark.parametrize("torn", [1, 60, 61, 100, 170])
def test_a_torn_batch_is_cut_off(rig, long_log, verification: Verification, torn: int) -> None:
    path = long_log.active_segment.path(".log")
    size = len(rig.batch(size=100).payload)
    assert size > 170
    os.truncate(path, long_log.active_segment.size - torn)
    log = rig.reopen(long_log, verification)
    assert log.log_end_offset == 999
    assert os.path.getsize(path) == 999 * size
    assert rig.append(log).first_offset == 999


def test_rubbish_behind_the_last_batch_is_cut_off(rig, long_log) -> None:
    with open(long_log.active_segment.path(".log"), "ab") as file:
        file.write(os.urandom(5000))
    assert rig.reopen(long_log, Verification.TAIL).log_end_offset == 1000


def test_after_a_dead_process_only_the_tail_is_read(rig, long_log, monkeypatch) -> None:
    monkeypatch.setattr(recovery, "TAIL_BYTES", 10_000)
    path = long_log.active_segment.path(".log")
    damage(path, 70)
    assert rig.reopen(long_log, Verification.TAIL).log_end_offset == 1000
    assert rig.reopen(long_log, Verification.FULL).log_end_offset == 0


def test_below_the_recovery_point_nothing_is_read_again(rig) -> None:
    log = rig.log(segment_bytes=2000)
    while len(log.segments) < 4:
        rig.append(log)
    first, second = log.segments[:2]
    log.flush(second.base_offset)
    damage(first.path(".log"), 70)
    damage(second.path(".log"), 70)
    log = rig.reopen(log, Verification.FULL)
    assert log.log_end_offset == second.base_offset
    assert [segment.base_offset for segment in log.segments] == [0, second.base_offset]


@pytest.mark.parametrize("verification", list(Verification))
def test_an_index_behind_the_log_is_completed(rig, long_log, verification: Verification) -> None:
    expected = [
        long_log.active_segment.offset_index.entry_at(slot) for slot in range(len(long_log.active_segment.offset_index))
    ]
    log = rig.reopen(long_log, verification)
    found = log.active_segment.offset_index
    assert [found.entry_at(slot) for slot in range(len(found))] == expected
    for offset in range(0, 1000, 37):
        assert log.offset_for_timestamp(rig.clock.now_ms + offset).offset == offset


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("what", ["missing", "torn", "padded", "rubbish"])
def test_a_damaged_index_is_built_again_even_after_a_clean_end(rig, long_log, suffix: str, what: str) -> None:
    long_log.close()
    path = Path(long_log.active_segment.path(suffix))
    good = path.read_bytes()
    content = {"torn": good[:-3], "padded": good + bytes(48), "rubbish": b"\x7f" * len(good)}.get(what)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    log = rig.load(long_log, Verification.NONE)
    assert log.log_end_offset == 1000
    for offset in range(0, 1000, 37):
        assert log.offset_for_timestamp(rig.clock.now_ms + offset).offset == offset
        assert log.read(offset, 1, upper_bound=1000, min_one_message=True).size > 0


def test_a_clean_end_is_not_believed_after_a_power_loss(rig, long_log) -> None:
    """Closed without syncing, and then the machine went down."""
    long_log.close(flush=False)
    damage(long_log.active_segment.path(".log"), 70)
    state = LogState(Verification.NONE, trusted_boot=False, recovery_point=0)
    log = load_log(long_log.directory, rig.topic_partition, rig.config, rig.environment, state)
    assert log.log_end_offset == 0


def test_epochs_are_found_in_the_batches(rig) -> None:
    log = rig.log()
    for epoch in (0, 3, 3, 5):
        rig.append(log, 2, epoch=epoch)
    os.unlink(log.leader_epochs.path)
    assert rig.reopen(log, Verification.FULL).leader_epochs.entries == [(0, 0), (3, 2), (5, 6)]


def test_epochs_behind_the_end_are_dropped(rig) -> None:
    log = rig.log()
    for epoch in (0, 1, 2):
        rig.append(log, 2, epoch=epoch)
    os.truncate(log.active_segment.path(".log"), len(rig.batch(2).payload) + 10)
    assert rig.reopen(log, Verification.FULL).leader_epochs.entries == [(0, 0), (1, 2)]


STALE = {
    "as it is": [(0, 0), (3, 2), (5, 6)],
    "without the last": [(0, 0), (3, 2)],
    "without one in between": [(0, 0), (5, 6)],
    "without the first": [(3, 2), (5, 6)],
    "with one that no batch has": [(0, 0), (3, 2), (4, 4), (5, 6)],
    "with a later one that begins too early": [(0, 0), (3, 2), (5, 4)],
    "with one that no batch has at the end": [(0, 0), (3, 2), (5, 6), (9, 7)],
    "of another log": [(7, 1), (8, 3)],
    "with one beyond the end": [(0, 0), (3, 2), (5, 6), (9, 20)],
}


@pytest.mark.parametrize("verification", [Verification.TAIL, Verification.FULL])
@pytest.mark.parametrize("stale", STALE.values(), ids=STALE)
def test_epochs_that_contradict_the_batches_are_not_believed(
    rig, verification: Verification, stale: list[tuple[int, int]]
) -> None:
    """An old copy of the file would have a follower cut its log in the wrong place."""
    log = rig.log()
    for epoch in (0, 3, 3, 5):
        rig.append(log, 2, epoch=epoch)
    log.leader_epochs.replace_all(stale)
    log = rig.reopen(log, verification)
    expected = [(0, 0), (3, 2), (5, 6)]
    assert log.leader_epochs.entries == expected
    assert read_epoch_checkpoint(log.leader_epochs.path) == expected


@pytest.mark.parametrize("verification", Verification)
def test_epochs_that_an_old_copy_of_the_file_lacks_are_found(rig, verification: Verification) -> None:
    """Also those that begin before what is verified."""
    log = rig.log(segment_bytes=200)
    for epoch in (0, 3, 3, 5, 5):
        rig.append(log, 2, epoch=epoch)
    log.flush(log.active_segment.base_offset)
    log.leader_epochs.replace_all([(0, 0)])
    assert log.active_segment.base_offset > 6
    log = rig.reopen(log, verification)
    assert log.leader_epochs.entries == [(0, 0), (3, 2), (5, 6)]


@pytest.mark.parametrize("verification", Verification)
def test_an_empty_active_segment_does_not_hide_that_the_epochs_are_old(rig, verification: Verification) -> None:
    """A full disk can refuse the append for which a segment was rolled."""
    log = rig.log()
    for epoch in (0, 3, 3, 5):
        rig.append(log, 2, epoch=epoch)
    log.roll()
    log.leader_epochs.replace_all([(0, 0)])
    log = rig.reopen(log, verification)
    assert log.leader_epochs.entries == [(0, 0), (3, 2), (5, 6)]


def test_a_log_that_was_closed_does_not_take_one_without_epochs_for_its_own(rig) -> None:
    log = rig.log()
    for epoch in (0, 3, 3, 5):
        rig.append(log, 2, epoch=epoch)
    os.unlink(log.leader_epochs.path)
    log = rig.reopen(log, Verification.NONE)
    assert log.leader_epochs.entries == [(0, 0), (3, 2), (5, 6)]


def test_a_segment_that_cannot_be_read_does_not_hide_the_epochs_of_the_others(rig) -> None:
    log = rig.log(segment_bytes=200)
    for epoch in (0, 3, 3, 5, 5):
        rig.append(log, 2, epoch=epoch)
    log.leader_epochs.replace_all([(0, 0)])
    refused, pread = log.segments[1].path(".log"), rig.disk.pread

    def read_or_fail(fd: int, size: int, position: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}") == refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO), refused)
        return bytes(pread(fd, size, position))

    rig.disk.pread = read_or_fail
    log = rig.reopen(log, Verification.TAIL)
    assert log.leader_epochs.entries == [(0, 0), (5, log.active_segment.base_offset)]


@pytest.mark.parametrize("verification", [Verification.TAIL, Verification.FULL])
def test_epochs_that_the_batches_do_not_tell_are_kept(rig, verification: Verification) -> None:
    """One begins at the end, the records of another are compacted, and of a third one a part is deleted."""
    log = rig.log(cleanup_policy=("compact",))
    for epoch, offset in ((0, 0), (0, 1), (3, 4), (5, 7)):
        record = Record(0, rig.clock.now_ms, b"k", b"v")
        log.append_as_follower(build_batch([record], base_offset=offset, partition_leader_epoch=epoch))
    log.update_high_watermark(log.log_end_offset)
    log.delete_records(1)
    entries = [(0, 1), (2, 2), (3, 3), (5, 6), (6, 8)]
    log.leader_epochs.replace_all(entries)
    assert rig.reopen(log, verification).leader_epochs.entries == entries


def test_the_marks_come_back_from_the_checkpoints(rig) -> None:
    log = rig.log()
    for _ in range(10):
        rig.append(log)
    log.delete_records(4)
    log = rig.reopen(log, high_watermark=7)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 7, 10)


def test_a_start_behind_the_end_empties_the_log(rig) -> None:
    log = rig.log()
    rig.append(log, 5)
    log = rig.reopen(log, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert rig.append(log).first_offset == 50


def test_leftovers_are_removed(rig) -> None:
    log = rig.log()
    rig.append(log)
    directory = Path(log.directory)
    for name in (f"{9:020d}.index", f"{9:020d}.timeindex", f"{0:020d}.log.deleted", f"{0:020d}.log.cleaned", "x.tmp"):
        (directory / name).write_bytes(b"x")
    rig.reopen(log)
    assert not {path.suffix for path in directory.iterdir()} & {".deleted", ".cleaned", ".tmp"}
    assert not (directory / f"{9:020d}.index").exists()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("verification", list(Verification))
def test_older_formats_are_refused_and_not_cut(rig, magic: int, verification: Verification) -> None:
    log = rig.log()
    log.close()
    checked = bytes([magic, 0]) + bytes(8 * magic) + pack(">ii", -1, 1) + b"v"
    message = pack(">qiI", 0, len(checked) + 4, crc32(checked)) + checked
    path = Path(log.active_segment.path(".log"))
    path.write_bytes(message)
    with pytest.raises(UsageError, match=f"message format {magic}"):
        load_log(log.directory, rig.topic_partition, rig.config, rig.environment, LogState(verification))
    assert path.read_bytes() == message


def test_an_empty_directory_is_an_empty_log(rig) -> None:
    path = rig.root / "flights-3"
    path.mkdir()
    log = load_log(str(path), rig.topic_partition, rig.config, rig.environment, LogState(log_start_offset=7))
    assert rig.append(log).first_offset == 7


@pytest.mark.parametrize("damage_at", ["snapshot", "all"])
def test_damaged_snapshots_only_cost_time(rig, damage_at: str) -> None:
    log = rig.log()
    for number in range(9):
        rig.send(log, 7, number)
        if number % 3 == 2:
            log.take_snapshot()
    for offset in log.producers.snapshots if damage_at == "all" else log.producers.snapshots[-1:]:
        Path(log.producers.snapshot_path(offset)).write_bytes(b"rubbish")
    log = rig.reopen(log, Verification.TAIL)
    for number in range(4, 9):
        assert rig.send(log, 7, number).duplicate
    assert not rig.send(log, 7, 9).duplicate


def test_an_end_below_its_segment_is_not_believed(rig) -> None:
    """A base offset is outside the checksum: this one, damaged, would have the next roll go back."""
    log = rig.log()
    for _ in range(3):
        rig.append(log)
        log.roll()
    rig.append(log)
    log.close()
    damage(log.active_segment.path(".log"), 0, bytes(8))
    log = rig.load(log, Verification.NONE)
    assert log.log_end_offset == 3
    rig.append(log)
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3, 4]
