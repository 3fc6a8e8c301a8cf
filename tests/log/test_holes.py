"""What a log says that is missing, after files of it were removed or cut while it was closed."""

import errno
import logging
import os
from pathlib import Path
from struct import pack
from zlib import crc32

import pytest

from barnabas.errors import CorruptMessage, KafkaError
from barnabas.log.log_loader import Verification
from log.log_files import refuse


@pytest.fixture
def log(rig):
    """Six segments of five batches each."""
    log = rig.log()
    for _ in range(6):
        log.roll()
        for _ in range(5):
            rig.append(log)
    log.flush()
    return log


def remove(log, number: int) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        os.unlink(log.segments[number].path(suffix))


HOW = [Verification.NONE, Verification.TAIL]


@pytest.mark.parametrize("how", list(Verification))
def test_a_whole_log_has_no_damage(rig, log, how: Verification) -> None:
    log.delete_records(7)
    log.delete_old_segments(rig.clock.now_ms)
    log = rig.reopen(log, how)
    assert (log.log_start_offset, log.missing) == (7, None)


@pytest.mark.parametrize("how", list(Verification))
def test_an_index_with_an_entry_now_and_then_is_whole(rig, how: Verification, caplog) -> None:
    log = rig.log(index_interval_bytes=400, segment_bytes=3000)
    for _ in range(100):
        rig.append(log, timestamp=rig.clock.now_ms - log.log_end_offset)
    assert rig.reopen(log, how).missing is None
    assert not caplog.text


@pytest.mark.parametrize("how", list(Verification))
@pytest.mark.parametrize("number", [1, 3, 4])
def test_a_segment_that_was_removed_is_missed(rig, log, number: int, how: Verification, caplog) -> None:
    log.close()
    remove(log, number)
    with caplog.at_level(logging.ERROR):
        log = rig.load(log, how)
    assert f"offsets {5 * number} to {5 * number + 4}" in (log.missing or "")
    assert log.holes[0].first_offset == 5 * number
    assert [r.message for r in caplog.records].count(caplog.messages[0]) == len(caplog.records) == 1
    log = rig.reopen(log, how)
    assert log.missing is not None, "one start does not make it good"


@pytest.mark.parametrize("how", HOW)
def test_a_first_segment_that_may_have_been_removed_is_told(rig, log, how: Verification, caplog) -> None:
    """No more than that: retention on a full disk leaves the same files."""
    log.close()
    remove(log, 0)
    with caplog.at_level(logging.WARNING):
        log = rig.load(log, how)
    assert "records may be missing before" in caplog.text
    assert (log.missing, log.log_start_offset) == (None, 5)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("number", [0, -1])
def test_a_batch_that_is_torn_keeps_no_log_from_being_opened(rig, how: Verification, number: int) -> None:
    log = rig.log(index_interval_bytes=500, segment_bytes=4000)
    for _ in range(60):
        rig.append(log, timestamp=rig.clock.now_ms + log.log_end_offset, size=100)
    torn = log.segments[number]
    log.close()
    os.truncate(torn.path(".log"), torn.size - 1)
    log = rig.load(log, how)
    assert log.missing is not None
    assert log.log_end_offset == (60 if number == 0 else 59)


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_batch_that_was_read_hides_none_behind_it(rig, how: Verification) -> None:
    log = rig.log(index_interval_bytes=500)
    positions = []
    for _ in range(400):
        positions.append(log.active_segment.size)
        rig.append(log, size=200)
    log = rig.reopen(log)
    with open(log.active_segment.path(".log"), "r+b") as file:
        file.seek(positions[40])
        file.write(b"\xff" * 12)
    with pytest.raises(KafkaError):
        log.read(41, 100, upper_bound=log.log_end_offset, min_one_message=True)
    assert log.read(300, 100, upper_bound=log.log_end_offset, min_one_message=True).size
    assert rig.reopen(log, how).log_end_offset == 400


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_last_segment_that_was_removed_is_missed(rig, log, how: Verification, policy: str) -> None:
    log.close()
    remove(log, 5)
    rig.config = rig.config.__class__(cleanup_policy=frozenset((policy,)))
    log = rig.load(log, how)
    assert "offsets 25 to 29" in log.missing
    assert log.log_end_offset == 25


def test_what_a_loss_of_power_takes_is_no_damage(rig, log) -> None:
    log.close(flush=False)
    os.truncate(log.active_segment.path(".log"), 20)
    assert rig.load(log, Verification.NONE, trusted_boot=False, recovery_point=25).missing is None


@pytest.mark.parametrize("cut", [1, 100])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_closed_segment_that_was_cut_short_is_missed(rig, log, cut: int, policy: str) -> None:
    log.close()
    segment = log.segments[2]
    os.truncate(segment.path(".log"), segment.size - cut)
    rig.config = rig.config.__class__(cleanup_policy=frozenset((policy,)))
    log = rig.load(log, Verification.TAIL)
    assert log.holes[0].first_offset == 14 - cut // 60


def test_what_was_cut_or_deleted_behind_a_hole_heals_it(rig, log) -> None:
    log.close()
    remove(log, 1)
    remove(log, 3)
    log = rig.load(log, Verification.NONE)
    assert log.missing.count("offsets") == 2
    log.delete_records(10)
    assert log.holes[0].first_offset == 15
    log.truncate_to(20)
    assert log.missing is not None
    log.truncate_to(log.holes[0].first_offset)
    assert (log.missing, log.log_end_offset) == (None, 15)


def test_gaps_that_compaction_leaves_are_no_damage(rig, log) -> None:
    log.close()
    remove(log, 1)
    remove(log, 3)
    assert rig.load(log, Verification.NONE, cleaned_offset=10).missing.count("offsets") == 1
    rig.config = rig.config.__class__(cleanup_policy=frozenset(("compact",)))
    assert rig.load(log, Verification.NONE).missing is None


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_topic_that_is_compacted_no_more_is_whole(rig, is_compacted: bool) -> None:
    """The follower has cleaned nothing, and a release before this one had its segments begin behind the gaps."""
    source = rig.log()
    for _ in range(30):
        rig.append(source, size=200)
    data = [source.read(n, 1, upper_bound=30, min_one_message=True).file_slice.read() for n in range(30)]
    source.release()
    os.rename(source.directory, source.directory + ".old")
    follower = rig.log()
    for offset in (0, 1, 4 if is_compacted else 2, 20, 21):
        if offset == 20:
            follower.roll(offset)
        follower.append_as_follower(data[offset])
    assert (rig.reopen(follower).missing is None) is is_compacted


def test_a_follower_of_a_compacted_log_rolls_without_a_gap(rig) -> None:
    source = rig.log()
    for _ in range(10):
        rig.append(source, size=200)
    data = [source.read(n, 1, upper_bound=10, min_one_message=True).file_slice.read() for n in (0, 3, 4, 9)]
    rig.topic_partition = rig.topic_partition._replace(partition=4)
    source.release()
    os.rename(source.directory, source.directory + ".old")
    follower = rig.log(segment_bytes=400)
    for batch in data:
        follower.append_as_follower(batch)
    assert [segment.base_offset for segment in follower.segments] == [0, 1, 4, 5]
    assert rig.reopen(follower).missing is None


@pytest.mark.parametrize("how", HOW)
def test_a_segment_of_an_older_format_is_whole_without_an_index(rig, log, how: Verification, caplog) -> None:
    """Kafka empties the index of one that it cannot read."""
    log.close()
    checked = bytes([1, 0]) + bytes(8) + pack(">ii", -1, 1) + b"v"
    Path(log.segments[2].path(".log")).write_bytes(pack(">qiI", 10, len(checked) + 4, crc32(checked)) + checked)
    for suffix in (".index", ".timeindex"):
        os.truncate(log.segments[2].path(suffix), 0)
    assert rig.load(log, how).missing is None
    assert not caplog.text


@pytest.mark.parametrize("how", HOW)
def test_a_segment_without_timestamps_has_no_time_index(rig, how: Verification, caplog) -> None:
    log = rig.log(segment_bytes=1000)
    for _ in range(40):
        rig.append(log, timestamp=-1)
    with caplog.at_level(logging.WARNING):
        log = rig.reopen(log, how)
    assert len(log.segments) > 2
    assert not caplog.text


def test_an_index_is_replaced_only_by_a_whole_one(rig, monkeypatch) -> None:
    log = rig.log(index_interval_bytes=400, segment_bytes=3000)
    for _ in range(100):
        rig.append(log, size=100)
    segment = log.segments[0]
    entries = [segment.offset_index.entry_at(slot) for slot in range(len(segment.offset_index))]
    for how, error in (("no batch", CorruptMessage), ("no read", OSError)):
        if how == "no batch":
            with open(segment.path(".log"), "r+b") as file:
                file.seek(segment.size // 2)
                file.write(b"\xff" * 300)
        else:
            monkeypatch.setattr(rig.disk, "pread", refuse(errno.EIO))
        with pytest.raises(error):
            segment.rebuild_indexes()
        assert [segment.offset_index.entry_at(slot) for slot in range(len(segment.offset_index))] == entries
