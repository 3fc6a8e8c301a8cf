"""A log with interleaved transactions against a plain list: what read_committed readers see, where the last stable
offset stands, which aborts they are told of; through cuts, deletions, restarts and crashes."""

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.config.log_config import LogConfig
from barnabas.log.log_loader import LogEnvironment, LogState, Verification, create_log, load_log
from barnabas.log.producers.verification_guards import Sender
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import iter_batches
from barnabas.records.builder import build_batch, build_control_batch
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.records.validation import own_batch
from barnabas.types import TopicPartition

START_MS = 1_700_000_000_000
TP = TopicPartition("flights", 0)
PRODUCERS = (1, 2, 3, 4)
WRITES = st.sampled_from(["plain", "transactional", "transactional", "commit", "abort"])
REPLICATED = st.sampled_from([0, 0, 1, 2, 100])
RAISED = (3, 4)
"""These have transaction version 2: their markers raise the epoch."""


class StoppedClock:
    def wall_ms(self) -> int:
        return START_MS

    def monotonic(self) -> float:
        return 0.0


@dataclass
class Transaction:
    """`end` is the marker's offset; None: open."""

    producer: int
    first: int
    batches: list[int] = field(default_factory=list)
    end: int | None = None
    committed: bool = False

    def is_decided(self, high_watermark: int) -> bool:
        return self.end is not None and self.end < high_watermark


@dataclass
class Batch:
    base: int
    values: list[bytes]
    transaction: Transaction | None = None

    @property
    def next(self) -> int:
        return self.base + max(len(self.values), 1)


class TransactionLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="barnabas-transaction-model"))
        self.batches: list[Batch] = []
        """Markers have no values."""
        self.transactions: list[Transaction] = []
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.number = 0
        self.patches = [
            mock.patch("barnabas.log.log_loader.TAIL_BYTES", 500),
            mock.patch("barnabas.log.unified_log._SNAPSHOT_DEBT_MAX", 8_000),
            mock.patch("barnabas.log.unified_log._PRODUCER_DEBT", 100),
        ]
        for patch in self.patches:
            patch.start()

    @initialize(segment_bytes=st.sampled_from([400, 900, 100_000]), interval=st.sampled_from([0, 150, 4096]))
    def create(self, segment_bytes: int, interval: int) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, retention_ms=-1)
        self.log: UnifiedLog = create_log(
            str(self.root / str(TP)), TP, self.config, LogEnvironment(StoppedClock()), None
        )

    def teardown(self) -> None:
        for patch in self.patches:
            patch.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def open_transaction(self, producer: int) -> Transaction | None:
        return next((t for t in self.transactions if t.producer == producer and t.end is None), None)

    # -- writing -------------------------------------------------------------------------------------------------------

    def records(self, count: int) -> list[Record]:
        self.number += 1
        return [Record(0, START_MS, b"k", b"%d-%d" % (self.number, index)) for index in range(count)]

    def note(self, base: int, records: list[Record], transaction: Transaction | None = None) -> None:
        self.batches.append(Batch(base, [record.value or b"" for record in records], transaction))

    def replicate(self, how_many: int) -> None:
        """The next batches are on all replicas."""
        mark = self.log.high_watermark
        ends = [batch.next for batch in self.batches if batch.next > mark][:how_many]
        if ends:
            self.log.update_high_watermark(ends[-1])

    @rule(steps=st.lists(st.tuples(WRITES, st.sampled_from(PRODUCERS), st.integers(1, 3), REPLICATED), min_size=8))
    def traffic(self, steps: list[tuple[str, int, int, int]]) -> None:
        """As much as comes between two disasters."""
        for what, producer, count, replicate in steps:
            if what == "plain":
                self.write_plainly(count, replicate)
            elif what == "transactional":
                self.write_in_transaction(producer, count, replicate)
            else:
                self.end(producer, what == "commit", replicate)
            self.the_last_stable_offset_is_right()

    def write_plainly(self, count: int, replicate: int) -> None:
        records = self.records(count)
        base = self.log.append_as_leader(own_batch(build_batch(records)), 0).first_offset
        self.note(base, records)
        self.replicate(replicate)

    def write_in_transaction(self, producer: int, count: int, replicate: int) -> None:
        records = self.records(count)
        batch = own_batch(
            build_batch(
                records,
                producer_id=producer,
                producer_epoch=self.epochs[producer],
                base_sequence=self.sequences[producer],
                transactional=True,
            )
        )
        guard = self.log.begin_verification(Sender.of(batch.header), starts_at_zero=producer in RAISED)
        transaction = self.open_transaction(producer)
        assert (guard is None) == (transaction is not None)
        base = self.log.append_as_leader(batch, 0, guard=guard).first_offset
        if transaction is None:
            transaction = Transaction(producer, base)
            self.transactions.append(transaction)
        transaction.batches.append(base)
        self.sequences[producer] += count
        self.note(base, records, transaction)
        self.replicate(replicate)

    def end(self, producer: int, commit: bool, replicate: int) -> None:
        if producer in RAISED:
            self.epochs[producer] += 1
            self.sequences[producer] = 0
        marker = build_control_batch(
            committed=commit,
            producer_id=producer,
            producer_epoch=self.epochs[producer],
            coordinator_epoch=0,
            timestamp=START_MS,
        )
        version = 2 if producer in RAISED else 1
        info = self.log.append_as_leader(own_batch(marker), 0, origin="coordinator", transaction_version=version)
        transaction = self.open_transaction(producer)
        if transaction is not None:
            transaction.end, transaction.committed = info.first_offset, commit
        self.note(info.first_offset, [])
        self.replicate(replicate)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def advance_high_watermark(self, data: st.DataObject) -> None:
        self.log.update_high_watermark(data.draw(st.sampled_from([batch.next for batch in self.batches])))

    @rule()
    def roll(self) -> None:
        self.log.roll()

    # -- losing --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(self.log.log_start_offset, self.batches[0].base), self.log.log_end_offset))
        self.log.truncate_to(offset)
        self.settle()
        self.forget_from(offset)

    def forget_from(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next <= offset]
        end = self.batches[-1].next if self.batches else 0
        for transaction in self.transactions:
            transaction.batches = [base for base in transaction.batches if base < end]
            if transaction.end is not None and transaction.end >= end:
                transaction.end, transaction.committed = None, False
        self.transactions = [t for t in self.transactions if t.batches]
        self.forget_open_ones_without_records()

    def settle(self) -> None:
        """A log that was read anew may have forgotten which markers were not replicated; the only replica of its
        partition has all that there is."""
        self.log.update_high_watermark(self.log.log_end_offset)

    def forget_open_ones_without_records(self) -> None:
        """When a log is read anew: of a transaction of which no batch is left it may know nothing, and of one that lost
        its first batches where the next begins."""
        known = self.log.producers.producers
        for transaction in [t for t in self.transactions if t.end is None]:
            entry = known.get(transaction.producer)
            first = -1 if entry is None else entry.current_txn_first_offset
            if first < 0:
                assert not self.has_records(transaction)
                self.transactions.remove(transaction)
            elif first != transaction.first:
                assert transaction.first < self.log.log_start_offset
                assert first in transaction.batches
                transaction.first = first
        self.take_over_producers()

    def has_records(self, transaction: Transaction, offset: int = 0, bound: int = 1 << 62) -> bool:
        """Within [offset, bound), and not deleted."""
        offset = max(offset, self.log.log_start_offset)
        own = (batch for batch in self.batches if batch.transaction is transaction)
        return any(batch.next > offset and batch.base < bound for batch in own)

    def take_over_producers(self) -> None:
        """Producers go on where the log says; of which it knows nothing any more with a new epoch."""
        for producer in PRODUCERS:
            entry = self.log.producers.producers.get(producer)
            if entry is None:
                self.epochs[producer] += 1
                self.sequences[producer] = 0
            else:
                self.epochs[producer] = entry.producer_epoch
                self.sequences[producer] = entry.last_sequence + 1

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.delete_records(data.draw(st.integers(self.log.log_start_offset, self.log.high_watermark)))

    @rule(keep=st.integers(0, 1500))
    def retention(self, keep: int) -> None:
        self.log.config = LogConfig(
            segment_bytes=self.config.segment_bytes,
            index_interval_bytes=self.config.index_interval_bytes,
            retention_ms=-1,
            retention_bytes=keep,
        )
        self.log.delete_old_segments(START_MS)
        self.log.config = self.config
        start = self.log.segments[0].base_offset
        self.batches = [batch for batch in self.batches if batch.next > start]

    # -- ends and starts -----------------------------------------------------------------------------------------------

    def reopen(self, verification: Verification, replicated: int = 1 << 62) -> None:
        log = self.log
        state = LogState(
            verification,
            verification is Verification.TAIL,
            log.recovery_point,
            log.log_start_offset,
            min(log.high_watermark, replicated),
        )
        self.log = load_log(log.directory, TP, self.config, LogEnvironment(StoppedClock()), state)
        assert self.log.missing is None
        self.settle()

    @rule(flush=st.booleans())
    def restart(self, flush: bool) -> None:
        self.log.close(flush=flush)
        self.reopen(Verification.NONE if flush else Verification.TAIL)
        self.forget_open_ones_without_records()

    @rule(torn=st.integers(0, 60), lost_index=st.booleans())
    def kill(self, torn: int, lost_index: bool) -> None:
        """In the last write, or between a marker and the note of its abort."""
        self.log.release()
        active = self.log.active_segment
        last = self.batches[-1] if self.batches else None
        replicated = 1 << 62
        if last is not None and last.base < self.log.recovery_point:
            torn = 0  # it was synced
        if last is not None and last.base >= active.base_offset:
            if torn:
                replicated = last.base  # nobody has it: the write has not returned
                os.truncate(active.path(".log"), active.size - torn)
            elif lost_index and not last.values and os.path.exists(active.path(".txnindex")):
                entries = active.transaction_index.entries
                if entries and entries[-1].last_offset == last.base:
                    os.truncate(active.path(".txnindex"), 34 * (len(entries) - 1))
        start = self.log.log_start_offset
        self.reopen(Verification.TAIL, replicated)
        if torn and last is not None and last.base >= active.base_offset:
            end = last.base
            if start > end:
                self.batches, self.transactions = [], []
            self.forget_from(end)
        self.forget_open_ones_without_records()

    @rule(data=st.data())
    def power_loss(self, data: st.DataObject) -> None:
        """Nothing is lost of the records, anything of the files that are built from them."""
        self.log.release()
        for segment in self.log.segments:
            unflushed = segment is self.log.active_segment or segment.base_offset >= self.log.recovery_point
            for suffix in (".index", ".timeindex", ".txnindex"):
                if unflushed and os.path.exists(segment.path(suffix)) and data.draw(st.booleans()):
                    os.unlink(segment.path(suffix))
        self.reopen(Verification.FULL)
        self.forget_open_ones_without_records()

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def the_last_stable_offset_is_right(self) -> None:
        if not hasattr(self, "log"):
            return
        mark = self.log.high_watermark
        unstable = [t.first for t in self.transactions if not t.is_decided(mark)]
        expected = max(self.log.log_start_offset, min([mark, *unstable]))
        assert self.log.last_stable_offset == expected
        self.log.offsets.check()

    def visible_values(self, offset: int, end: int) -> list[bytes]:
        return [
            value
            for batch in self.batches
            for place, value in enumerate(batch.values, batch.base)
            if offset <= place < end and (batch.transaction is None or batch.transaction.committed)
        ]

    @rule(data=st.data(), max_bytes=st.sampled_from([1, 150, 1000, 100_000]))
    def read_committed(self, data: st.DataObject, max_bytes: int) -> None:
        """As a consumer does: fetch by fetch up to the end, with the aborts that come along."""
        stable = self.log.last_stable_offset
        start = data.draw(st.integers(self.log.log_start_offset, stable))
        offset, seen = start, list[bytes]()
        while offset < stable:
            read = self.log.read(offset, max_bytes, upper_bound=stable, min_one_message=True)
            if read.file_slice is None:
                break
            aborted = self.log.aborted_in(offset, read.file_slice)
            values, offset = consume(read.file_slice.read(), offset, [(a.producer_id, a.first_offset) for a in aborted])
            seen += values
            assert offset <= stable
            self.aborts_touch_what_was_read(aborted, offset)
        assert seen == self.visible_values(start, stable)

    def aborts_touch_what_was_read(self, aborted: list, end: int) -> None:
        for entry in aborted:
            assert entry.first_offset < self.log.last_stable_offset
        if self.config.index_interval_bytes == 0:  # each batch but a segment's first has an entry
            following = [batch for batch in self.batches if batch.base >= end][:2]
            limit = following[-1].next if following else self.log.log_end_offset
            assert all(entry.first_offset < limit for entry in aborted)

    @rule(data=st.data())
    def aborted_transactions(self, data: st.DataObject) -> None:
        start = self.log.log_start_offset
        offset = data.draw(st.integers(start, self.log.log_end_offset))
        bound = data.draw(st.integers(offset, self.log.log_end_offset))
        found = {(a.producer_id, a.last_offset) for a in self.log.aborted_transactions(offset, bound)}
        aborted = [t for t in self.transactions if t.end is not None and not t.committed]
        touching = {(t.producer, t.end): t for t in aborted if t.end >= offset and t.first < bound}
        assert found <= touching.keys()
        missing = [touching[key] for key in touching.keys() - found]
        assert not any(self.has_records(transaction, offset, bound) for transaction in missing)


def consume(data: bytes, offset: int, aborted: list[tuple[int, int]]) -> tuple[list[bytes], int]:
    """Returns the records that Kafka's consumer delivers of a fetch, and its next offset."""
    coming = sorted(aborted, key=lambda pair: pair[1])
    skipped: set[int] = set()
    values: list[bytes] = []
    for header, batch in iter_batches(data):
        while coming and coming[0][1] <= header.last_offset:
            skipped.add(coming.pop(0)[0])
        if header.is_control:
            (record,) = read_records(batch)
            assert record.key is not None
            if record.key[2:4] == b"\0\0":
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            values += [record.value or b"" for record in read_records(batch) if record.offset >= offset]
        offset = max(offset, header.next_offset)
    return values, offset


TestTransactionLog = TransactionLog.TestCase
TestTransactionLog.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
