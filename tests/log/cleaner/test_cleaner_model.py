"""A compacted log against a plain list: appends of every kind, transactions that interleave, rolls, cleanings, those
that are cut short, and restarts, in any order. What a consumer reads is what was written, without records that a later
one of their key supersedes."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.log.cleaner.cleaner_protocol import CleanerConfig
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from log.cleaner.cleaner_rig import CleanerRig

RETENTION_MS = 1000
KEYS = st.sampled_from(("a", "b", "c", "d", "e" * 260))
VALUES = st.sampled_from((None, "", "1", "2" * 40))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)
CODECS = st.sampled_from(("none", "none", "gzip", "lz4"))


@dataclass
class Transaction:
    producer_id: int
    first_offset: int
    outcome: str = "open"


@dataclass
class Written:
    offset: int
    key: bytes
    value: bytes | None
    timestamp: int
    transaction: Transaction | None

    @property
    def is_committed(self) -> bool:
        return self.transaction is None or self.transaction.outcome == "committed"

    @property
    def seen(self) -> tuple[int, bytes, bytes | None, int]:
        return self.offset, self.key, self.value, self.timestamp


class CompactionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="barnabas-cleaner-model"))
        self.written: list[Written] = []
        self.sequences: dict[int, int] = {}
        self.last_sent: dict[int, tuple[bytes, int]] = {}
        self.open: dict[int, Transaction] = {}
        self.mapped_to = 0
        """Nothing at or above has ever been in a map: a later cleaning cannot have known of it."""
        self.first_covered_ms: dict[int, int] = {}
        self.last_pass_ms = 0

    @initialize(segment_bytes=st.sampled_from([1600, 3000, 100_000]), append_time=st.booleans())
    def create(self, segment_bytes: int, append_time: bool) -> None:
        self.rig = CleanerRig(self.root, segment_bytes=segment_bytes, delete_retention_ms=RETENTION_MS)
        self.append_time = append_time

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.release()
        shutil.rmtree(self.root, ignore_errors=True)

    # -- writing -------------------------------------------------------------------------------------------------------

    def _batch(self, pairs: list[tuple[str, str | None]], **options: Any) -> bytes:
        now = self.rig.clock.now_ms
        records = [
            Record(0, now - 7 * number, key.encode(), None if value is None else value.encode())
            for number, (key, value) in enumerate(pairs)
        ]
        return build_batch(records, log_append_time=now if self.append_time else None, **options)

    def _append(self, data: bytes, pairs: list[tuple[str, str | None]], transaction: Transaction | None = None) -> int:
        first = self.rig.append(data).first_offset
        now = self.rig.clock.now_ms
        for number, (key, value) in enumerate(pairs):
            timestamp = now if self.append_time else now - 7 * number
            text = None if value is None else value.encode()
            self.written.append(Written(first + number, key.encode(), text, timestamp, transaction))
        return first

    @rule(pairs=PAIRS, compression=CODECS)
    def put(self, pairs: list[tuple[str, str | None]], compression: str) -> None:
        self._append(self._batch(pairs, compression=compression), pairs)

    @rule(producer_id=st.sampled_from([1, 2]), pairs=PAIRS, compression=CODECS)
    def send(self, producer_id: int, pairs: list[tuple[str, str | None]], compression: str) -> None:
        sequence = self.sequences.get(producer_id, 0)
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        data = self._batch(pairs, compression=compression, **options)
        self.last_sent[producer_id] = data, self._append(data, pairs)
        self.sequences[producer_id] = sequence + len(pairs)

    @rule(producer_id=st.sampled_from([11, 12]), pairs=PAIRS, compression=CODECS)
    def send_in_transaction(self, producer_id: int, pairs: list[tuple[str, str | None]], compression: str) -> None:
        sequence = self.sequences.get(producer_id, 0)
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        data = self._batch(pairs, compression=compression, **options)
        transaction = self.open.get(producer_id)
        if transaction is None:
            transaction = self.open[producer_id] = Transaction(producer_id, self.rig.log.log_end_offset)
        self.last_sent[producer_id] = data, self._append(data, pairs, transaction)
        self.sequences[producer_id] = sequence + len(pairs)

    @rule(producer_id=st.sampled_from([11, 12, 13]), commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        self.rig.marker(producer_id, commit=commit)
        transaction = self.open.pop(producer_id, None)
        if transaction is not None:
            transaction.outcome = "committed" if commit else "aborted"

    @precondition(lambda self: self.last_sent)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """A producer whose answer was lost sends its last batch again."""
        producer_id = data.draw(st.sampled_from(sorted(self.last_sent)))
        sent, first_offset = self.last_sent[producer_id]
        if producer_id > 10 and producer_id not in self.open:
            return  # a transaction that has ended sends nothing again
        end = self.rig.log.log_end_offset
        info = self.rig.append(sent)
        assert info.duplicate
        assert info.first_offset == first_offset
        assert self.rig.log.log_end_offset == end

    @rule()
    def roll(self) -> None:
        self.rig.roll()

    @rule()
    def new_leader_epoch(self) -> None:
        self.rig.epoch += 1

    @rule(ms=st.sampled_from([1, 400, RETENTION_MS, 5000]))
    def pass_time(self, ms: int) -> None:
        self.rig.clock.now_ms += ms

    @rule(share=st.sampled_from([0.3, 1.0]))
    def delete_records(self, share: float) -> None:
        log = self.rig.log
        # what a producer is in the middle of stays: a log that loses that forgets the producer
        needed = [offset for _, offset in self.last_sent.values()] + [t.first_offset for t in self.open.values()]
        end = min((log.high_watermark, *needed))
        if end > log.log_start_offset:
            log.delete_records(log.log_start_offset + int(share * (end - log.log_start_offset)))
        log.delete_old_segments(self.rig.clock.now_ms)

    # -- cleaning ------------------------------------------------------------------------------------------------------

    @rule(keys=st.sampled_from([2, 4, 1000]), io_bytes=st.sampled_from([0, 150, 4096]))
    def clean(self, keys: int, io_bytes: int) -> None:
        self._clean(keys, io_bytes)

    def _clean(self, keys: int, io_bytes: int) -> None:
        self.rig.limits = CleanerConfig(
            dedupe_buffer_size=24 * keys, io_buffer_load_factor=1.0, io_buffer_size=io_bytes
        )
        self.rig.worker.before_event = self._watch
        self.rig.clean()
        state = self.rig.cleaner.state(self.rig.log.topic_partition)
        assert not state.uncleanable, state

    def _watch(self, event: dict[str, Any]) -> None:
        if event["event"] == "mapped":
            now = self.rig.clock.now_ms
            self.mapped_to = max(self.mapped_to, event["next_dirty_offset"])
            self.last_pass_ms = now
            for record in self.written:
                if record.offset < self.mapped_to:
                    self.first_covered_ms.setdefault(record.offset, now)

    @rule(after=st.integers(0, 12), at_event=st.booleans())
    def cut_short(self, after: int, at_event: bool) -> None:
        """The process dies in the middle of its work: at a block, or just when it tells of something."""
        worker, left = self.rig.worker, [after]

        def count(_: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                worker.kill()

        def watch(event: dict[str, Any]) -> None:
            self._watch(event)
            if at_event:
                count(event)

        worker.before_event = watch
        if not at_event:
            worker.on_spend = count
        self.rig.limits = CleanerConfig(io_buffer_size=200)
        self.rig.cleaner.run()
        worker.on_spend = lambda size: None
        state = self.rig.cleaner.state(self.rig.log.topic_partition)
        state.deaths = state.retry_ms = 0
        state.uncleanable = ""

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        self.rig.manager.checkpoint_high_watermarks()
        self.rig.manager.checkpoint_log_start_offsets()
        end = self.rig.log.log_end_offset
        self.rig.restart(crash=crash)
        assert self.rig.log.log_end_offset == end

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _superseded(self, record: Written, below: int, committed: list[Written]) -> bool:
        return any(later.key == record.key and record.offset < later.offset < below for later in committed)

    def _may_be_gone(self, record: Written, committed: list[Written]) -> bool:
        if self._superseded(record, self.mapped_to, committed):
            return True
        covered_ms = self.first_covered_ms.get(record.offset)
        return record.value is None and covered_ms is not None and self.last_pass_ms >= covered_ms + RETENTION_MS

    @invariant()
    def consumers_see_what_stands(self) -> None:
        if not hasattr(self, "rig"):
            return
        log = self.rig.log
        stable = min((t.first_offset for t in self.open.values()), default=log.log_end_offset)
        assert log.last_stable_offset == max(stable, log.log_start_offset)
        committed = [
            r for r in self.written if r.is_committed and log.log_start_offset <= r.offset < log.last_stable_offset
        ]
        seen = [tuple(record) for record in self.rig.read()]
        written = {r.seen for r in committed}
        assert set(seen) <= written, "something that nobody wrote, or wrote otherwise, or that was aborted"
        assert [s[0] for s in seen] == sorted({s[0] for s in seen})
        gone = [r for r in committed if r.seen not in set(seen)]
        assert all(self._may_be_gone(r, committed) for r in gone), gone
        cleaned = log.cleaned_offset or 0
        left = [r for r in committed if r.seen in set(seen) and self._superseded(r, cleaned, committed)]
        assert not left, "superseded, and still there"

    @invariant()
    def aborted_records_are_gone(self) -> None:
        if not hasattr(self, "rig"):
            return
        log = self.rig.log
        aborted = {r.offset for r in self.written if r.transaction is not None and r.transaction.outcome == "aborted"}
        everything = {record.offset for record in self.rig.read(committed=False)}
        assert not {offset for offset in aborted & everything if offset < (log.cleaned_offset or 0)}

    @invariant()
    def any_offset_can_be_asked_for(self) -> None:
        if not hasattr(self, "rig"):
            return
        log = self.rig.log
        seen = self.rig.read()
        for start in range(log.log_start_offset, log.last_stable_offset, 3):
            assert self.rig.read(start=start) == [record for record in seen if record.offset >= start]

    @invariant()
    def producers_are_known(self) -> None:
        if not hasattr(self, "rig"):
            return
        log = self.rig.log
        known = {entry.producer_id: entry.last_sequence for entry in log.active_producers()}
        for producer_id, (_, offset) in self.last_sent.items():
            if offset >= log.log_start_offset:
                assert known.get(producer_id) == self.sequences[producer_id] - 1, producer_id


TestCompaction = CompactionModel.TestCase
TestCompaction.settings = settings(
    max_examples=int(os.environ.get("BARNABAS_CLEANER_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
