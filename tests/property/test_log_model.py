"""A log against a plain list: any sequence of appends, reads, rolls, cuts, retention, crashes and restarts."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.config.log_config import LogConfig
from barnabas.errors import OffsetOutOfRange, OutOfOrderSequenceNumber
from barnabas.log.log_loader import LogEnvironment, LogState, Verification, create_log, load_log
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import PREFIX
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import AppendPolicy, ValidatedBatch, validate_produce
from barnabas.types import TopicPartition

START_MS = 1_700_000_000_000
TP = TopicPartition("flights", 3)


class HandClock:
    def __init__(self) -> None:
        self.now_ms = START_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


@dataclass
class Stored:
    """A batch as the list knows it."""

    base_offset: int
    timestamps: list[int]
    data: bytes
    epoch: int
    producer: tuple[int, int] | None  # id, base sequence
    sent: ValidatedBatch

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.timestamps)


class LogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="barnabas-log-model"))
        self.clock = HandClock()
        self.batches: list[Stored] = []
        self.start = 0
        self.flushed = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.patches = [
            mock.patch("barnabas.log.log_loader.TAIL_BYTES", 700),
            mock.patch("barnabas.log.indexes.sparse_index.TAIL_ENTRIES", 3),
            mock.patch("barnabas.log.unified_log._SNAPSHOT_DEBT_MAX", 20_000),
            mock.patch("barnabas.log.unified_log._PRODUCER_DEBT", 100),
        ]
        for patch in self.patches:
            patch.start()

    @initialize(
        segment_bytes=st.sampled_from([600, 1500, 100_000]),
        interval=st.sampled_from([0, 150, 400]),
        preallocate=st.booleans(),
    )
    def create(self, segment_bytes: int, interval: int, preallocate: bool) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_ms=100_000,
            retention_ms=-1,
            file_delete_delay_ms=1000,
            preallocate=preallocate,
        )
        self.environment = LogEnvironment(self.clock)
        self.environment.pool.limit = 3
        self.log: UnifiedLog = create_log(str(self.root / str(TP)), TP, self.config, self.environment, None)

    def teardown(self) -> None:
        for patch in self.patches:
            patch.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    # -- appending -----------------------------------------------------------------------------------------------------

    @rule(
        deltas=st.lists(st.integers(-2000, 2000), min_size=1, max_size=4),
        size=st.sampled_from([0, 10, 100, 300]),
        producer=st.none() | st.integers(1, 3),
        compression=st.sampled_from(["none", "gzip"]),
        pause=st.sampled_from([0, 0, 50, 60_000]),
    )
    def append(self, deltas: list[int], size: int, producer: int | None, compression: str, pause: int) -> None:
        self.clock.now_ms += pause
        timestamps = [self.clock.now_ms + delta for delta in deltas]
        sequence = self.sequences.get(producer, 0) if producer else -1
        identity = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence} if producer else {}
        sent = build_batch(
            [Record(0, timestamp, b"k", b"v" * size) for timestamp in timestamps], compression=compression, **identity
        )
        batch = validate_produce(sent, AppendPolicy(), self.clock.now_ms)
        if len(sent) > self.config.segment_bytes:
            return
        expected = self.end
        info = self.log.append_as_leader(batch, self.epoch)
        assert (info.first_offset, info.last_offset) == (expected, expected + len(deltas) - 1)
        assert not info.duplicate
        data = PREFIX.pack(expected, len(sent) - 12, self.epoch, 2, batch.header.crc) + sent[21:]
        key = (producer, sequence) if producer else None
        self.batches.append(Stored(expected, timestamps, data, self.epoch, key, batch))
        if producer:
            self.sequences[producer] = sequence + len(deltas)

    @precondition(lambda self: any(b.producer for b in self.batches))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(sorted({b.producer[0] for b in self.batches if b.producer})))
        # the last five of a producer are known for certain while they are in the log
        known = [b for b in self.batches if b.producer and b.producer[0] == producer][-5:]
        batch = data.draw(st.sampled_from(known))
        if producer not in self.log.producers.producers:
            return
        try:
            info = self.log.append_as_leader(batch.sent, self.epoch)
        except OutOfOrderSequenceNumber:
            # after a restart the cache holds at least the last one
            assert batch is not known[-1]
            return
        assert info.duplicate
        assert (info.first_offset, info.last_offset) == (batch.base_offset, batch.next_offset - 1)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule(offset=st.integers(0, 50))
    def advance_high_watermark(self, offset: int) -> None:
        boundaries = [b.next_offset for b in self.batches]
        if boundaries:
            self.log.update_high_watermark(boundaries[offset % len(boundaries)])

    # -- structure -----------------------------------------------------------------------------------------------------

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(self.start, self.batches[0].base_offset), self.end))
        self.log.truncate_to(offset)
        self.batches = [b for b in self.batches if b.next_offset <= offset]
        expected_end = max(self.batches[-1].next_offset if self.batches else 0, self.start)
        assert self.end == max(expected_end, min(offset, self.end))
        self.flushed = min(self.flushed, self.end)
        self.forget_sequences()

    @rule(gap=st.integers(0, 10))
    def start_over(self, gap: int) -> None:
        self.log.truncate_fully_and_start_at(self.end + gap)
        self.batches, self.start, self.flushed = [], self.end, self.end
        self.forget_sequences()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.log.high_watermark))
        self.start = max(self.start, offset)
        assert self.log.delete_records(offset) == self.start

    @rule(bytes_kept=st.none() | st.integers(0, 3000), age=st.none() | st.integers(0, 200_000))
    def retention(self, bytes_kept: int | None, age: int | None) -> None:
        keep = -1 if bytes_kept is None else bytes_kept
        limits = {"retention_bytes": keep, "retention_ms": -1 if age is None else age}
        fields = {name: getattr(self.config, name) for name in self.config.__slots__}
        self.log.config = LogConfig(**(fields | limits))
        before, segments = self.log.size_bytes, self.log.segments
        start_passed_one = len(segments) > 1 and self.start >= segments[1].base_offset
        self.log.delete_old_segments(self.clock.now_ms)
        self.log.config = self.config
        self.start = self.log.log_start_offset
        assert self.start <= self.log.high_watermark
        if bytes_kept is not None and age is None and not start_passed_one:
            assert self.log.size_bytes >= min(before, bytes_kept)
        self.batches = [b for b in self.batches if b.next_offset > self.log.segments[0].base_offset]

    @rule()
    def remove_deleted(self) -> None:
        self.clock.now_ms += 1000
        self.environment.deletions.remove_due(self.clock.now_ms)
        assert not [name for name in os.listdir(self.log.directory) if name.endswith(".deleted")]

    # -- ends and starts -----------------------------------------------------------------------------------------------

    def reopen(self, verification: Verification) -> None:
        self.environment = LogEnvironment(self.clock)
        self.environment.pool.limit = 3
        state = LogState(
            verification,
            verification is Verification.TAIL,
            self.log.recovery_point,
            self.log.log_start_offset,
            self.log.high_watermark,
        )
        self.log = load_log(self.log.directory, TP, self.config, self.environment, state)
        assert self.log.missing is None
        self.forget_sequences()

    def forget_sequences(self) -> None:
        """A producer goes on behind its last batch that is still there; without any, where a snapshot says or
        anywhere."""
        self.sequences = {p: entry.last_sequence + 1 for p, entry in self.log.producers.producers.items()}
        for batch in self.batches:
            if batch.producer:
                self.sequences[batch.producer[0]] = batch.producer[1] + len(batch.timestamps)

    def epochs_in_use(self) -> list[tuple[int, int]]:
        return [(epoch, offset) for epoch, offset in self.log.leader_epochs.entries if offset < self.end]

    @rule(flush=st.booleans())
    def restart(self, flush: bool) -> None:
        end, epochs = self.end, self.epochs_in_use()
        self.log.close(flush=flush)
        if flush:
            self.flushed = end
        self.reopen(Verification.NONE if flush else Verification.TAIL)
        assert self.end == end
        assert self.epochs_in_use() == epochs

    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        """The process dies in its last write: what was written before is all there."""
        self.log.release()
        active = self.log.active_segment
        last = self.batches[-1] if self.batches else None
        whole = max(self.log.high_watermark, self.log.recovery_point)
        """What was synced, and what others have, was written before."""
        if last and last.base_offset >= max(active.base_offset, whole):
            torn = data.draw(st.integers(0, len(last.data)))
            if self.config.preallocate:
                with open(active.path(".log"), "r+b") as file:
                    file.seek(active.size - torn)
                    file.write(bytes(torn))
            else:
                os.truncate(active.path(".log"), active.size - torn)
            # the zeros of a preallocated file can be what was to be written
            if torn and not (self.config.preallocate and not any(last.data[-torn:])):
                self.batches.pop()
        expected = self.batches[-1].next_offset if self.batches else active.base_offset
        self.flushed = min(self.flushed, expected)
        self.start = min(self.start, expected) if self.start <= expected else self.start
        self.reopen(Verification.TAIL)
        if self.start > expected:  # the log's start had moved into what was lost
            self.batches = []
            expected = self.start
        assert self.end == expected

    @rule(data=st.data())
    def power_loss(self, data: st.DataObject) -> None:
        """The machine dies: anything that was not flushed may be missing or damaged."""
        self.log.release()
        # the recovery point may be lower: a start that rebuilds indexes sets it back
        durable = max(self.log.recovery_point, self.flushed)
        lost = [b for b in self.batches if b.next_offset > durable]
        if lost:
            victim = data.draw(st.sampled_from(lost))
            segment = [s for s in self.log.segments if s.base_offset <= victim.base_offset][-1]
            with open(segment.path(".log"), "rb") as file:
                position = file.read().index(victim.data)
            with open(segment.path(".log"), "r+b") as file:
                if data.draw(st.booleans()):
                    file.truncate(position + data.draw(st.integers(1, len(victim.data) - 1)))
                else:
                    place = data.draw(st.integers(8, len(victim.data) - 1).filter(lambda n: not 12 <= n < 16))
                    file.seek(position + place)
                    file.write(bytes([victim.data[place] ^ 0xFF]))
            for suffix in (".index", ".timeindex"):
                if os.path.exists(segment.path(suffix)) and data.draw(st.booleans()):
                    os.unlink(segment.path(suffix))
            self.batches = [b for b in self.batches if b.next_offset <= victim.base_offset]
            expected = victim.base_offset
        else:
            expected = self.end
        self.reopen(Verification.FULL)
        if self.start > expected:
            self.batches, expected = [], self.start
        assert self.end >= self.flushed or self.end == self.start
        assert self.end == expected
        self.flushed = min(self.flushed, self.end)

    # -- what must hold at any time ------------------------------------------------------------------------------------

    @invariant()
    def marks_are_in_order(self) -> None:
        if hasattr(self, "log"):
            self.log.offsets.check()
            assert self.log.log_start_offset == self.start
            assert self.log.recovery_point <= self.end

    @rule(data=st.data(), max_bytes=st.sampled_from([1, 200, 1000, 100_000]), whole=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, whole: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        bound = data.draw(st.sampled_from([self.end, self.log.high_watermark, self.log.last_stable_offset]))
        result = self.log.read(offset, max_bytes, upper_bound=bound, min_one_message=whole)
        visible = [b for b in self.batches if b.next_offset > offset and b.next_offset <= bound]
        if offset >= bound or not visible or (not whole and len(visible[0].data) > max_bytes):
            assert result.size == 0
            return
        assert result.file_slice is not None
        found = result.file_slice.read()
        wanted = b"".join(b.data for b in visible)
        assert found == wanted[: len(found)]
        assert len(found) == result.size
        if whole:
            assert len(found) >= min(len(visible[0].data), max(max_bytes, len(visible[0].data)))
        assert len(found) <= max(max_bytes, len(visible[0].data) if whole else 0)

    @rule()
    def read_all(self) -> None:
        offset, found = self.start, b""
        while offset < self.end:
            result = self.log.read(offset, 1, upper_bound=self.end, min_one_message=True)
            if result.file_slice is None:
                break
            data = result.file_slice.read()
            batch = next(b for b in self.batches if b.data == data)
            assert batch.next_offset > offset
            found += data
            offset = batch.next_offset
        assert found == b"".join(b.data for b in self.batches if b.next_offset > self.start)

    @rule(delta=st.integers(-3000, 3000), data=st.data())
    def search_by_time(self, delta: int, data: st.DataObject) -> None:
        around = data.draw(st.sampled_from([t for b in self.batches for t in b.timestamps] or [START_MS]))
        target = around + delta
        stored = ((t, b.base_offset + i, b.epoch) for b in self.batches for i, t in enumerate(b.timestamps))
        records = [record for record in stored if record[1] >= self.start]
        wanted = next((record for record in records if record[0] >= target), None)
        found = self.log.offset_for_timestamp(target)
        assert (tuple(found) if found else None) == wanted

    @rule(epoch=st.integers(0, 6))
    def search_by_epoch(self, epoch: int) -> None:
        found, end = self.log.offset_for_leader_epoch(epoch)
        epochs = [b.epoch for b in self.batches if b.next_offset > self.start]
        if epochs and epoch == epochs[-1] == self.log.leader_epochs.latest:
            assert (found, end) == (epoch, self.end)
        if epoch in epochs:
            after = [b.base_offset for b in self.batches if b.epoch > epoch and b.next_offset > self.start]
            assert found == epoch
            assert end == (after[0] if after else self.end)

    @rule(offset=st.sampled_from([-1, 1]))
    def read_outside(self, offset: int) -> None:
        outside = self.start - 1 if offset < 0 else self.end + 1
        with pytest.raises(OffsetOutOfRange):
            self.log.read(outside, 100, upper_bound=self.end, min_one_message=True)


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
