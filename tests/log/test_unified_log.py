"""The work of a log between opening and closing."""

import os
from pathlib import Path

import pytest

from barnabas.errors import CorruptMessage, OffsetOutOfRange, RecordListTooLarge
from barnabas.log.log_loader import Verification
from barnabas.log.unified_log import UnexpectedAppendOffset
from barnabas.records.batch import crc_of, read_header
from barnabas.records.record import Record
from log.log_files import contents


class TestAppend:
    def test_offsets_are_consecutive_and_only_the_prefix_changes(self, rig) -> None:
        log = rig.log()
        batches = [rig.batch(3), rig.batch(1), rig.batch(2)]
        infos = [log.append_as_leader(batch, 5) for batch in batches]
        assert [(info.first_offset, info.last_offset) for info in infos] == [(0, 2), (3, 3), (4, 5)]
        data, position = contents(log), 0
        for info, batch in zip(infos, batches, strict=True):
            header = read_header(data, position)
            assert (header.base_offset, header.partition_leader_epoch) == (info.first_offset, 5)
            whole = data[position : position + header.size_bytes]
            assert whole[16:] == batch.payload[16:]
            assert crc_of(whole) == header.crc
            position += header.size_bytes
        assert log.leader_epochs.entries == [(5, 0)]

    def test_memory_views_are_as_good_as_bytes(self, rig) -> None:
        log = rig.log()
        batch = rig.batch(2)
        batch.payload = memoryview(bytearray(batch.payload))
        log.append_as_leader(batch, 0)
        assert contents(log)[16:] == bytes(batch.payload[16:])

    def test_log_append_time_is_answered(self, rig) -> None:
        log = rig.log()
        assert rig.append(log).log_append_time == -1
        batch = rig.batch_of([Record(0, 5, b"k", b"v")], log_append_time=1234)
        assert log.append_as_leader(batch, 0).log_append_time == 1234

    def test_a_batch_larger_than_a_segment_is_refused(self, rig) -> None:
        log = rig.log(segment_bytes=200)
        with pytest.raises(RecordListTooLarge, match=r"segment\.bytes"):
            rig.append(log, size=300)
        rig.append(log)

    def test_a_follower_takes_batches_that_are_larger_than_a_segment_may_be_now(self, rig) -> None:
        source = rig.log()
        for size in (10, 500, 500, 10, 10):
            rig.append(source, size=size)
        records = source.active_segment.read(0, source.active_segment.size)
        source.truncate_fully_and_start_at(0)
        source.config = type(source.config)(segment_bytes=200)
        source.append_as_follower(records)
        assert [(s.base_offset, s.size > 200) for s in source.segments] == [
            (0, False), (1, True), (2, True), (3, False)
        ]  # fmt: skip
        assert rig.reopen(source).missing is None

    def test_the_smallest_segment_size_can_be_set(self, rig) -> None:
        log = rig.log(segment_bytes=14)
        with pytest.raises(RecordListTooLarge):
            rig.append(log)

    def test_epochs_begin_where_their_first_batch_is(self, rig) -> None:
        log = rig.log()
        for epoch in (0, 0, 2, 2, 7):
            rig.append(log, 2, epoch=epoch)
        assert log.leader_epochs.entries == [(0, 0), (2, 4), (7, 8)]
        assert log.offset_for_leader_epoch(0) == (0, 4)
        assert log.offset_for_leader_epoch(5) == (2, 8)
        assert log.offset_for_leader_epoch(7) == (7, 10)
        assert log.offset_for_leader_epoch(8) == (-1, -1)

    def test_flush_messages_moves_the_recovery_point(self, rig) -> None:
        log = rig.log(flush_messages=3)
        for expected in (0, 0, 3, 3, 3, 6):
            rig.append(log)
            assert log.recovery_point == expected


class TestFollower:
    def batches(self, rig, *bases: int, epoch: int = 4) -> bytes:
        return b"".join(rig.batch(2, base_offset=base, partition_leader_epoch=epoch).payload for base in bases)

    def test_batches_are_stored_as_they_are(self, rig) -> None:
        log = rig.log(segment_bytes=300)
        data = self.batches(rig, 0, 2, 4, 6, 8, 10)
        info = log.append_as_follower(data + self.batches(rig, 12)[:-5])
        assert (info.first_offset, info.last_offset) == (0, 11)
        assert contents(log) == data
        assert len(log.segments) > 1
        assert log.leader_epochs.entries == [(4, 0)]
        assert log.log_end_offset == 12
        assert log.high_watermark == 0

    def test_gaps_of_a_compacted_leader_are_kept(self, rig) -> None:
        log = rig.log()
        log.append_as_follower(self.batches(rig, 0, 10))
        result = log.read(5, 1000, upper_bound=12, min_one_message=True)
        assert read_header(result.file_slice.read()).base_offset == 10

    @pytest.mark.parametrize("preallocate", [True, False])
    def test_a_leader_that_begins_far_up_leaves_an_empty_segment(self, rig, preallocate: bool) -> None:
        log = rig.log(preallocate=preallocate, segment_bytes=5000)
        log.append_as_follower(self.batches(rig, 2**31))
        for verification in Verification:
            log = rig.reopen(log, verification)
            assert [segment.base_offset for segment in log.segments] == [0, 2**31]
            assert log.log_end_offset == 2**31 + 2
            assert log.read(0, 1, upper_bound=2**31 + 2, min_one_message=True).size > 0

    def test_going_back_is_refused(self, rig) -> None:
        log = rig.log()
        log.append_as_follower(self.batches(rig, 0, 2))
        with pytest.raises(UnexpectedAppendOffset) as caught:
            log.append_as_follower(self.batches(rig, 2, 4))
        assert (caught.value.first_offset, caught.value.last_offset) == (2, 5)
        assert log.log_end_offset == 4

    def test_damage_is_refused(self, rig) -> None:
        log = rig.log()
        data = bytearray(self.batches(rig, 0, 2))
        data[-1] ^= 1
        with pytest.raises(CorruptMessage):
            log.append_as_follower(data)
        assert log.log_end_offset == 0

    def test_nothing_is_nothing(self, rig) -> None:
        log = rig.log()
        assert log.append_as_follower(b"").last_offset == -1

    def test_producers_are_known_to_the_next_leader(self, rig) -> None:
        log = rig.log()
        batch = rig.batch(2, producer_id=7, producer_epoch=0, base_sequence=0, partition_leader_epoch=0)
        log.append_as_follower(batch.payload)
        assert rig.send(log, 7, 0, 2).duplicate

    def test_batches_of_a_later_epoch_than_the_fetch_are_left_out(self, rig) -> None:
        log = rig.log()
        data = self.batches(rig, 0, epoch=4) + self.batches(rig, 2, epoch=6) + self.batches(rig, 4, epoch=5)
        assert log.append_as_follower(data, 5).last_offset == 1
        assert log.append_as_follower(data[len(self.batches(rig, 0)) :]).last_offset == 5

    @pytest.mark.parametrize("leads_again", [False, True])
    def test_every_batch_is_found_whoever_led_when_it_was_written(self, rig, leads_again: bool) -> None:
        log = rig.log()
        rig.append(log, 2)
        rig.append(log, 2)
        log.append_as_follower(self.batches(rig, 4, 6))
        if leads_again:
            rig.append(log, 2)
        for offset in range(log.log_end_offset):
            read = log.read(offset, 1, upper_bound=log.log_end_offset, min_one_message=True)
            assert read_header(read.file_slice.read()).base_offset == offset - offset % 2


class TestRead:
    def test_reads_start_at_the_batch_that_holds_the_offset(self, rig, offsets_in) -> None:
        log = rig.log()
        for _ in range(5):
            rig.append(log, 3)
        for offset in range(15):
            result = log.read(offset, 100_000, upper_bound=15, min_one_message=False)
            found = offsets_in(result.file_slice.read())
            assert found == list(range(offset - offset % 3, 15, 3))

    def test_reads_end_at_the_bound(self, rig, offsets_in) -> None:
        log = rig.log()
        for _ in range(5):
            log.append_as_leader(rig.batch(3), 0)
        log.update_high_watermark(9)
        for _ in range(2):
            result = log.read(0, 100_000, upper_bound=log.high_watermark, min_one_message=True)
            assert offsets_in(result.file_slice.read()) == [0, 3, 6]
        assert log.read(9, 1000, upper_bound=9, min_one_message=True).size == 0

    @pytest.mark.parametrize("offset", [-1, 1, 6])
    def test_outside_is_out_of_range(self, rig, offset: int) -> None:
        log = rig.log()
        rig.append(log, 5)
        log.delete_records(2)
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, upper_bound=5, min_one_message=True)

    def test_slices_outlive_deletion_and_eviction(self, rig) -> None:
        log = rig.log(segment_bytes=400)
        rig.environment.pool.limit = 1
        for _ in range(10):
            rig.append(log, 2)
        data = contents(log)
        piece = log.read(0, 100_000, upper_bound=20, min_one_message=True).file_slice
        log.truncate_fully_and_start_at(100)
        rig.environment.deletions.remove_due(rig.clock.now_ms + 60_000)
        assert [name for name in os.listdir(log.directory) if name.endswith(".log")] == [f"{100:020d}.log"]
        assert piece.read() == data[: piece.size]

    def test_a_closed_slice_closes_its_file(self, rig) -> None:
        log = rig.log()
        rig.append(log)
        piece = log.read(0, 100, upper_bound=1, min_one_message=True).file_slice
        fd = piece.fd
        log.close()
        os.fstat(fd)
        del piece
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


class TestRoll:
    def test_by_size(self, rig) -> None:
        log = rig.log(segment_bytes=1000)
        while len(log.segments) < 4:
            rig.append(log)
        assert all(900 < segment.size <= 1000 for segment in log.segments[:-1])
        names = sorted(os.listdir(log.directory))
        for segment in log.segments[:-1]:
            for suffix in (".log", ".index", ".timeindex"):
                assert f"{segment.base_offset:020d}{suffix}" in names

    def test_by_request_only_when_due(self, rig) -> None:
        log = rig.log(segment_ms=1000)
        assert not log.maybe_roll(rig.clock.now_ms + 5000)
        rig.append(log)
        assert not log.maybe_roll(rig.clock.now_ms + 1000)
        assert log.maybe_roll(rig.clock.now_ms + 1001)

    def test_an_empty_segment_is_not_rolled(self, rig) -> None:
        log = rig.log()
        assert log.roll() is log.active_segment
        assert len(log.segments) == 1

    def test_the_producers_are_written_down(self, rig) -> None:
        log = rig.log()
        rig.send(log, 7, 0, 3)
        log.roll()
        assert (Path(log.directory) / "00000000000000000003.snapshot").exists()

    def test_changed_settings_apply_at_once(self, rig) -> None:
        log = rig.log()
        rig.append(log)
        log.config = type(log.config)(segment_bytes=100)
        rig.append(log)
        assert len(log.segments) == 2


class TestTruncate:
    def test_a_batch_goes_whole(self, rig) -> None:
        log = rig.log()
        for count in (10, 1, 20, 70):
            rig.append(log, count)
        assert log.truncate_to(35)
        assert log.log_end_offset == 31
        assert log.high_watermark == 31
        assert log.truncate_to(31) is False

    def test_a_slice_that_is_still_being_sent_gets_no_later_batches(self, rig) -> None:
        log = rig.log()
        for epoch in (1, 1, 2):
            rig.append(log, epoch=epoch)
        read = log.read(1, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True)
        log.truncate_to(2)
        for _ in range(3):
            rig.append(log, epoch=3)
        with pytest.raises(EOFError):
            read.file_slice.read()
        assert len(log.read(0, 1 << 20, upper_bound=5, min_one_message=True).file_slice.read()) == log.size_bytes

    def test_an_epoch_that_began_at_the_end_without_a_record_goes_with_a_truncation_to_the_end(self, rig) -> None:
        log = rig.log()
        rig.append(log, 2, epoch=3)
        log.leader_epochs.assign(5, 2)
        assert log.truncate_to(2) is False
        assert log.leader_epochs.entries == [(3, 0)]

    def test_below_the_first_segment_all_goes(self, rig) -> None:
        log = rig.log()
        log.truncate_fully_and_start_at(100)
        rig.append(log, 5)
        log.truncate_to(50)
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (50, 50, 0)

    def test_starting_anew_forgets_all(self, rig) -> None:
        log = rig.log()
        rig.send(log, 7, 0, 5)
        log.truncate_fully_and_start_at(1000)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1000, 1000, 1000)
        assert log.active_producers() == []
        assert log.leader_epochs.entries == []
        assert rig.send(log, 7, 9).first_offset == 1000


class TestMarks:
    def test_delete_records_stops_at_the_high_watermark(self, rig) -> None:
        log = rig.log()
        for _ in range(5):
            log.append_as_leader(rig.batch(), 0)
        log.update_high_watermark(3)
        with pytest.raises(OffsetOutOfRange):
            log.delete_records(4)
        assert log.delete_records(3) == 3
        assert log.delete_records(1) == 3

    def test_the_high_watermark_never_goes_back(self, rig) -> None:
        log = rig.log()
        log.append_as_leader(rig.batch(5), 0)
        assert log.update_high_watermark(3) == 3
        assert log.update_high_watermark(2) == 3
        assert log.update_high_watermark(99) == 5
