"""Segments: when they are due, how they are written, what is found in them."""

import errno
import os
import random
import sys
import threading

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.log_loader import Verification
from log.log_files import contents, refuse


def test_a_file_that_another_thread_holds_stays_open(rig) -> None:
    """As while it is synced in a thread, and the pool closes it for another one."""
    segment = rig.log().active_segment
    closed: list[OSError] = []
    is_over = threading.Event()

    def hold() -> None:
        while not is_over.is_set():
            held = segment.held_file
            if held is not None:
                try:
                    os.fstat(held.fd)
                except OSError as error:
                    closed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    holder = threading.Thread(target=hold)
    holder.start()
    try:
        for _ in range(2000):
            segment.open_file()
            segment.release()
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        holder.join()
    assert closed == []


def test_short_writes_are_completed(rig) -> None:
    log = rig.log()
    rig.disk.chunk = 13
    rig.append(log, 3)
    rig.append(log, 2)
    assert len(contents(log)) == len(rig.batch(3).payload) + len(rig.batch(2).payload)
    assert rig.reopen(log, Verification.FULL).log_end_offset == 5


def test_a_segment_that_was_made_by_half_does_not_end_the_log(rig, monkeypatch) -> None:
    """It is named after the offset that the old segment gets next: a start would hide what stands there."""
    log = rig.log(segment_bytes=300)
    rig.append(log, size=100)
    with monkeypatch.context() as patch:
        patch.setattr("barnabas.log.indexes.sparse_index.SparseIndex.reset", refuse(errno.EIO))
        with pytest.raises(KafkaStorageError, match="no new segment"):
            rig.append(log, size=200)
    assert rig.append(log, size=10).first_offset == 1
    assert rig.reopen(log, Verification.TAIL).log_end_offset == 2


def test_a_segment_that_cannot_be_removed_again_stops_the_log(rig, monkeypatch) -> None:
    log = rig.log(segment_bytes=300)
    rig.append(log, size=100)
    with monkeypatch.context() as patch:
        patch.setattr("barnabas.log.indexes.sparse_index.SparseIndex.reset", refuse(errno.EIO))
        patch.setattr(os, "unlink", refuse(errno.EIO))
        with pytest.raises(KafkaStorageError):
            rig.append(log, size=200)
    with pytest.raises(KafkaStorageError, match="takes no more writes"):
        rig.append(log, size=10)
    log = rig.reopen(log, Verification.TAIL)
    assert rig.append(log, size=10).first_offset == 1


def test_a_file_that_is_gone_does_not_come_back_empty(rig) -> None:
    log = rig.log()
    rig.append(log)
    log.release()
    os.unlink(log.active_segment.path(".log"))
    with pytest.raises(KafkaStorageError, match="No such file"):
        rig.append(log)
    assert not os.path.exists(log.active_segment.path(".log"))


def test_a_preallocated_full_disk_is_a_storage_error(rig, monkeypatch) -> None:
    log = rig.log(preallocate=True, segment_bytes=300)
    rig.append(log, 9)
    rig.disk.fails = {"ftruncate"}
    with pytest.raises(KafkaStorageError):
        rig.append(log, 9)
    rig.disk.fails = set()
    assert rig.append(log, 9).first_offset == 9


class TestRead:
    def test_what_does_not_fit_is_cut_where_the_index_knows_a_batch_to_begin(self, rig) -> None:
        """A part of a batch would be sent twice: it is of no use to its reader."""
        log = rig.log(index_interval_bytes=0)
        size = len(rig.batch(1, size=1000).payload)
        for _ in range(6):
            rig.append(log, size=1000)
        sizes = [log.read(0, limit, upper_bound=6, min_one_message=False).size for limit in range(0, 7 * size, 100)]
        assert sizes == [min(limit // size, 6) * size for limit in range(0, 7 * size, 100)]
        found = log.read(2, 2 * size + 1, upper_bound=5, min_one_message=False)
        assert (found.file_slice.position, found.size) == (2 * size, 2 * size)

    def test_the_first_batch_is_whole_or_not_there(self, rig) -> None:
        log = rig.log()
        size = len(rig.batch(1, size=1000).payload)
        rig.append(log, size=1000)
        assert log.read(0, 10, upper_bound=1, min_one_message=True).size == size
        assert log.read(0, 10, upper_bound=1, min_one_message=False).size == 0
        assert log.read(0, size, upper_bound=1, min_one_message=False).size == size
        rig.append(log, size=1000)
        assert log.read(0, size + 10, upper_bound=2, min_one_message=False).size == size + 10


class TestRoll:
    def test_by_the_records_time(self, rig) -> None:
        log = rig.log(segment_ms=1000)
        for age in (0, 500, 1000):
            rig.append(log, timestamp=rig.clock.now_ms + age)
            assert len(log.segments) == 1
        rig.append(log, timestamp=rig.clock.now_ms + 1001)
        assert [segment.base_offset for segment in log.segments] == [0, 3]

    def test_by_the_clock_where_records_have_no_time(self, rig) -> None:
        log = rig.log(segment_ms=1000)
        rig.append(log, timestamp=-1)
        rig.clock.now_ms += 1001
        rig.append(log, timestamp=-1)
        assert len(log.segments) == 2

    def test_time_counts_across_a_restart(self, rig) -> None:
        log = rig.log(segment_ms=1000)
        rig.append(log)
        log = rig.reopen(log)
        rig.append(log, timestamp=rig.clock.now_ms + 1001)
        assert len(log.segments) == 2

    def test_jitter_rolls_earlier(self, rig, monkeypatch) -> None:
        monkeypatch.setattr(random, "randrange", lambda stop: stop - 1)
        log = rig.log(segment_ms=1000, segment_jitter_ms=900)
        assert log.active_segment.roll_ms == 101

    def test_by_a_full_index(self, rig) -> None:
        log = rig.log(index_interval_bytes=0, segment_index_bytes=120)
        for _ in range(40):
            rig.append(log)
        assert len(log.segments) > 3
        assert all(os.path.getsize(s.path(".timeindex")) <= 120 for s in log.segments[:-1])

    def test_by_offsets_that_the_index_cannot_express(self, rig) -> None:
        log = rig.log()
        first, far = (rig.batch(1, base_offset=base, partition_leader_epoch=0).payload for base in (0, 2**31))
        log.append_as_follower(first)
        log.append_as_follower(far)
        assert [segment.base_offset for segment in log.segments] == [0, 1]

    def test_preallocated_files_are_trimmed(self, rig) -> None:
        log = rig.log(preallocate=True, segment_bytes=5000)
        rig.append(log)
        first = log.active_segment
        assert os.path.getsize(first.path(".log")) == 5000
        log.roll()
        assert os.path.getsize(first.path(".log")) == first.size
        rig.append(log)
        log = rig.reopen(log)
        assert os.path.getsize(log.active_segment.path(".log")) == log.active_segment.size
