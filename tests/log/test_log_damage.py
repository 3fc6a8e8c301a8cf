"""A log of which something cannot be read: it says so once, with file and position, and serves the rest."""

import errno
import os

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.log_damage import MARK
from barnabas.log.log_loader import Verification
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import crc_of, pack_header, read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from log.conftest import START_MS
from log.log_files import fail_at, refuse


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
    log.roll()
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


def one_segment(rig, **settings: object) -> UnifiedLog:
    log = rig.log(**settings)
    for number in range(40):
        rig.send(log, 7, number)
    return log


def damage_batch(log: UnifiedLog, offset: int, *, header: bool) -> str:
    """Changes a byte of the records, or all of the header. Returns where."""
    segment = log.active_segment
    position, size = segment.locate(offset)
    overwrite(segment.path(".log"), position + (0 if header else size - 2), b"\xff" * (61 if header else 1))
    return f"{segment.path('.log')}: byte {position}: "


def has_mark(log: UnifiedLog) -> bool:
    return os.path.exists(f"{log.directory}/{MARK}")


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("preallocate", [False, True])
def test_a_dead_process_costs_no_batch_behind_a_damaged_one(rig, header: bool, preallocate: bool) -> None:
    """A write that was torn is the last one."""
    log = one_segment(rig, preallocate=preallocate, segment_bytes=1 << 30)
    places = [damage_batch(log, offset, header=header) for offset in (20, 30)]
    for _ in range(2):
        log = rig.reopen(log, Verification.TAIL)
        assert log.log_end_offset == 40
        assert log.damage.found.startswith(places[0])
        assert read(log, 31)
        assert rig.send(log, 7, 39).duplicate
        assert has_mark(log)


@pytest.mark.parametrize("header", [False, True])
def test_a_loss_of_power_takes_nothing_that_was_synced(rig, header: bool) -> None:
    log = one_segment(rig)
    log.flush(20)
    damage_batch(log, 10, header=header)
    damage_batch(log, 30, header=header)
    log = rig.reopen(log, Verification.FULL)
    assert log.log_end_offset == 30
    assert log.damage.found
    assert rig.reopen(log, Verification.FULL, recovery_point=0).log_end_offset == 30, "the damage is not forgotten"


def test_a_synced_batch_that_is_damaged_costs_no_segment_behind_it(rig) -> None:
    log = one_segment(rig)
    log.flush(30)
    for offset in range(39, 19, -1):
        damage_batch(log, offset, header=False)
    log.roll()
    rig.append(log)
    log = rig.reopen(log, Verification.FULL)
    assert (log.log_end_offset, log.segments[-1].base_offset) == (41, 40)
    assert log.damage.found
    assert read(log, 40)


@pytest.mark.parametrize("verification", list(Verification))
def test_of_a_log_that_is_marked_nothing_is_cut_but_its_end(rig, verification: Verification) -> None:
    log = one_segment(rig)
    log.close()
    log.mark_damaged()
    damage_batch(log, 20, header=True)
    os.truncate(log.active_segment.path(".log"), log.active_segment.size - 1)
    log = rig.load(log, verification, recovery_point=0)
    assert log.log_end_offset == 39
    assert log.damage.found
    assert has_mark(log)


def test_a_damaged_end_that_was_cut_is_not_forgotten(rig) -> None:
    log = one_segment(rig)
    damage_batch(log, 39, header=False)
    for _ in range(2):
        log = rig.reopen(log, Verification.TAIL)
        assert log.log_end_offset == 39
        assert "offsets 39 to 39" in log.lacks
    rig.append(log)
    assert rig.reopen(log).lacks
    log.delete_records(40)
    log = rig.reopen(log)
    assert not log.lacks
    assert not has_mark(log)


def several_closed(rig) -> UnifiedLog:
    log = rig.log(segment_bytes=2400, index_interval_bytes=0)
    for _ in range(140):
        rig.append(log)
    return log


def test_a_loss_of_power_in_an_unsynced_segment_without_indexes_is_no_damage(rig) -> None:
    """Neither its page nor its indexes had come to the device."""
    log = several_closed(rig)
    log.flush(log.segments[1].base_offset)
    segment = log.segments[-2]
    position, _ = segment.locate(segment.base_offset + 10)
    overwrite(segment.path(".log"), position, bytes(100))
    for suffix in (".index", ".timeindex"):
        os.truncate(segment.path(suffix), 0)
    log = rig.reopen(log, Verification.FULL)
    assert (log.log_end_offset, log.lacks, has_mark(log)) == (segment.base_offset + 10, "", False)


@pytest.mark.parametrize("lost", [".log", ".timeindex"])
def test_a_segment_that_cannot_be_read_keeps_no_log_with_other_damage_from_being_opened(rig, lost: str) -> None:
    log = several_closed(rig)
    log.close()
    refused = log.segments[0].path(".log")
    os.unlink(log.segments[2].path(".log"))
    if lost == ".timeindex":
        os.truncate(log.segments[0].path(".timeindex"), 0)
    pread = rig.disk.pread

    def read_or_fail(fd: int, size: int, position: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}") == refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO), refused)
        return bytes(pread(fd, size, position))

    rig.disk.pread = read_or_fail
    again = rig.load(log, Verification.NONE)
    assert again.missing is not None
    assert refused in again.missing


@pytest.mark.parametrize("change", [b"\x00\x03", b"\x01\x14"])
def test_an_offset_that_is_damaged_costs_no_batch_and_is_not_forgotten(rig, change: bytes) -> None:
    """The checksum of a batch does not cover it: 20 becomes 3, or 276."""
    log = one_segment(rig)
    position, _ = log.active_segment.locate(20)
    overwrite(log.active_segment.path(".log"), position + 6, change)
    for how in (Verification.TAIL, Verification.NONE, Verification.NONE):
        log = rig.reopen(log, how)
        assert log.log_end_offset == 40
        assert "which cannot follow" in log.lacks
        assert has_mark(log)


def nested(log: UnifiedLog, values: list[bytes]) -> bytes:
    """The batch that the log would have next, with these values."""
    return build_batch([Record(0, START_MS, None, value) for value in values], base_offset=log.log_end_offset)


def batch_in_a_record(offset: int, size: int = 10) -> bytes:
    return build_batch([Record(0, START_MS, b"nested", b"v" * size)], base_offset=offset)


def write_at_the_end(log: UnifiedLog, data: bytes) -> int:
    """Writes behind the last batch what the log does not know of. Returns where."""
    position = log.active_segment.size
    overwrite(log.active_segment.path(".log"), position, data)
    return position


@pytest.mark.parametrize("verification", [Verification.TAIL, Verification.FULL])
@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("torn", [1, 40, 150, 1000])
def test_a_batch_in_a_record_of_a_torn_write_is_none_of_the_log(
    rig, verification: Verification, preallocate: bool, torn: int
) -> None:
    """A mirror's topic, a backup: a value may be a part of another log, with offsets that fit."""
    log = one_segment(rig, preallocate=preallocate, segment_bytes=1 << 30)
    part_of_a_log = b"".join(batch_in_a_record(offset, 100) for offset in range(40, 60))
    batch = nested(log, [b"first", part_of_a_log, part_of_a_log[:-50], b"v" * 1500])
    write_at_the_end(log, batch[: -1500 - torn])
    log = rig.reopen(log, verification)
    assert log.log_end_offset == 40
    assert (log.lacks, has_mark(log)) == ("", False)


@pytest.mark.parametrize("behind", [False, True])
def test_a_batch_in_a_record_of_a_damaged_one_is_none_of_the_log(rig, behind: bool) -> None:
    """Also if the batch behind the damaged one is damaged."""
    log = one_segment(rig)
    value = batch_in_a_record(42)
    position = write_at_the_end(log, nested(log, [b"first", value, b"last"]))
    more = [build_batch([Record(0, START_MS, None, b"more")], base_offset=offset) for offset in (43, 44, 45)]
    overwrite(log.active_segment.path(".log"), position + 65, b"\xff")
    if behind:
        more[0] = more[0][:-1] + b"\xff"
    with open(log.active_segment.path(".log"), "ab") as file:
        file.write(b"".join(more))
    log = rig.reopen(log, Verification.TAIL)
    assert log.log_end_offset == 46
    assert [offset for offset in offsets_of_valid(log) if offset >= 40] == ([44, 45] if behind else [43, 44, 45])


def offsets_of_valid(log: UnifiedLog) -> list[int]:
    """The offsets of the batches that can be read."""
    found = []
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            data = log.read(offset, 1, upper_bound=log.log_end_offset, min_one_message=True).file_slice
        except KafkaStorageError:
            continue
        header = read_header(data.read()) if data is not None else None
        if header is not None and header.base_offset == offset and crc_of(data.read()) == header.crc:
            found.append(offset)
    return found


@pytest.mark.parametrize("claimed", [200, 1 << 30])
@pytest.mark.parametrize(("records_too", "torn"), [(False, 0), (False, 5), (True, 0)])
def test_a_length_that_is_damaged_hides_no_batch_behind_it(rig, claimed: int, records_too: bool, torn: int) -> None:
    """Even one that is large, and other damage, or a torn write at the end."""
    log = one_segment(rig)
    position, size = log.active_segment.locate(20)
    overwrite(log.active_segment.path(".log"), position + 8, claimed.to_bytes(4, "big"))
    if records_too:
        overwrite(log.active_segment.path(".log"), position + size - 2, b"\xff")
    os.truncate(log.active_segment.path(".log"), log.active_segment.size - torn)
    log = rig.reopen(log, Verification.TAIL)
    assert log.log_end_offset == (39 if torn else 40)
    assert offsets_of_valid(log) == [offset for offset in range(log.log_end_offset) if offset != 20]


def test_rubbish_that_looks_like_many_large_batches_is_kept_and_costs_no_time(rig) -> None:
    """Each would be read and checked up to the end of the file."""
    log = one_segment(rig)
    header = read_header(batch_in_a_record(50))
    count = 5000
    rest = [header._replace(batch_length=61 * (count - number) - 12) for number in range(count)]
    write_at_the_end(log, b"\xff" * 61 + b"".join(map(pack_header, rest)))
    read_bytes = 0
    pread = rig.disk.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        nonlocal read_bytes
        read_bytes += size
        return bytes(pread(fd, size, position))

    rig.disk.pread = counted
    before = os.path.getsize(log.active_segment.path(".log"))
    first = log.active_segment
    for _ in range(2):
        log = rig.reopen(log, Verification.TAIL)
        assert os.path.getsize(first.path(".log")) == before
        assert log.log_end_offset == 51
        assert "byte" in log.lacks
    assert read_bytes < 100 * before
    rig.append(log)
    log = rig.reopen(log, Verification.TAIL)
    assert log.log_end_offset == 52
    assert read(log, 51)
    assert read(log, 39)


def test_what_is_lost_at_the_end_twice_is_told_twice_and_not_what_is_between(rig) -> None:
    log = one_segment(rig)
    for offset in (39, 38):
        damage_batch(log, offset, header=False)
        log = rig.reopen(log, Verification.TAIL)
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(38, 40)], "the two touch"
    for _ in range(5):  # the offsets are given again
        rig.append(log)
    damage_batch(log, 42, header=False)
    log = rig.reopen(log, Verification.TAIL)
    for _ in range(2):
        assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(38, 40), (42, 43)]
        log = rig.reopen(log)
    log.delete_records(40)
    log = rig.reopen(log)
    assert [hole.first_offset for hole in log.holes] == [42]


def test_zeros_at_the_end_are_told_as_zeros(rig, caplog: pytest.LogCaptureFixture) -> None:
    log = one_segment(rig)
    write_at_the_end(log, bytes(5000))
    rig.reopen(log, Verification.TAIL)
    assert "only zeros follow; 5000 bytes are gone" in caplog.text


def test_a_log_is_not_opened_before_its_damage_is_on_the_disk(rig, monkeypatch) -> None:
    """Of what was cut the next start would know nothing, and the replica could lead."""
    log = one_segment(rig)
    damage_batch(log, 39, header=False)
    with monkeypatch.context() as patch:
        fail_at(patch, "replace", MARK)
        with pytest.raises(OSError, match="Input/output error"):
            rig.reopen(log, Verification.TAIL)
    assert "offsets 39 to 39" in rig.reopen(log, Verification.TAIL).lacks
