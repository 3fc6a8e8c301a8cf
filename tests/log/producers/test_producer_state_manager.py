"""Idempotent and transactional producers as the log sees them, through the log's own operations."""

import pytest

from barnabas.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from barnabas.log.log_loader import Verification
from barnabas.log.log_offsets import AppendInfo
from barnabas.log.producers.producer_state_manager import DEFAULT_PRODUCER_EXPIRATION_MS, fair_share


def offsets_of(info: AppendInfo) -> tuple[int, int]:
    return info.first_offset, info.last_offset


def test_any_of_the_last_five_batches_is_recognised(rig) -> None:
    log = rig.log()
    sent = [rig.send(log, 7, 2 * number, 2) for number in range(6)]
    for number in range(1, 6):
        again = rig.send(log, 7, 2 * number, 2)
        assert again.duplicate
        assert offsets_of(again) == offsets_of(sent[number])
    with pytest.raises(OutOfOrderSequenceNumber):
        rig.send(log, 7, 0, 2)
    assert log.log_end_offset == 12


def test_a_gap_is_refused_and_changes_nothing(rig) -> None:
    log = rig.log()
    rig.send(log, 7, 0)
    with pytest.raises(OutOfOrderSequenceNumber, match=r"2 \(incoming seq. number\), 0 \(current end"):
        rig.send(log, 7, 2)
    assert not rig.send(log, 7, 1).duplicate
    assert log.log_end_offset == 2


def test_an_unknown_producer_may_begin_anywhere(rig) -> None:
    log = rig.log()
    assert rig.send(log, 7, 100).first_offset == 0
    assert rig.send(log, 7, 101).first_offset == 1


def test_the_sequence_wraps_at_31_bits(rig) -> None:
    log = rig.log()
    rig.send(log, 7, 2**31 - 3, 2)
    across = rig.send(log, 7, 2**31 - 1, 3)
    assert log.active_producers()[0].last_sequence == 1
    assert offsets_of(rig.send(log, 7, 2**31 - 1, 3)) == offsets_of(across)
    rig.send(log, 7, 2)
    log = rig.reopen(log)
    assert rig.send(log, 7, 2).duplicate
    rig.send(log, 7, 3)


def test_zero_follows_the_largest_sequence(rig) -> None:
    log = rig.log()
    rig.send(log, 7, 2**31 - 1)
    assert not rig.send(log, 7, 0).duplicate


def test_a_new_epoch_starts_at_sequence_zero(rig) -> None:
    log = rig.log()
    rig.send(log, 7, 0, 5)
    with pytest.raises(OutOfOrderSequenceNumber, match="new epoch"):
        rig.send(log, 7, 5, producer_epoch=1)
    rig.send(log, 7, 0, producer_epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        rig.send(log, 7, 1, producer_epoch=0)


def test_coordinators_write_without_sequences(rig) -> None:
    log = rig.log()
    batch = rig.batch(producer_id=7, producer_epoch=0, base_sequence=-1, transactional=True)
    for _ in range(2):
        guard = rig.guard(log, batch)
        assert not log.append_as_leader(batch, 0, origin="coordinator", guard=guard).duplicate


def test_idle_producers_expire(rig) -> None:
    log = rig.log()
    rig.send(log, 7, 0)
    rig.clock.now_ms += DEFAULT_PRODUCER_EXPIRATION_MS
    rig.send(log, 8, 0)
    assert log.producers.remove_expired(rig.clock.now_ms) == 1
    assert [producer.producer_id for producer in log.active_producers()] == [8]
    assert not rig.send(log, 7, 50).duplicate


@pytest.fixture
def five_at_most(monkeypatch) -> None:
    monkeypatch.setattr("barnabas.log.producers.producer_state_manager.PRODUCERS_MAX", 5)


def ids(log) -> list[int]:
    return [producer.producer_id for producer in log.active_producers()]


@pytest.mark.source
@pytest.mark.usefixtures("five_at_most")
def test_of_too_many_producers_those_that_wrote_longest_ago_are_forgotten(rig, caplog) -> None:
    """A producer at work keeps its last batches, however many ids others make up."""
    log = rig.log()
    rig.send(log, 7, 0)
    for number in range(50):
        rig.send(log, 2**63 - 1 - number, 0)
        if number % 3 == 0:
            assert rig.send(log, 7, number // 3).duplicate
            assert not rig.send(log, 7, number // 3 + 1).duplicate
    assert len(ids(log)) == 5
    assert rig.send(log, 7, 17).duplicate
    assert not rig.send(log, 2**63 - 1, 9).duplicate  # as after producer.id.expiration.ms
    assert len([record for record in caplog.records if "too many producers" in record.message]) == 1


@pytest.mark.source
@pytest.mark.usefixtures("five_at_most")
@pytest.mark.parametrize("how", [Verification.NONE, Verification.TAIL, Verification.FULL])
def test_producers_are_bounded_after_a_restart_too(rig, how: Verification) -> None:
    log = rig.log()
    for number in range(20):
        rig.send(log, number, 0)
        if number == 12:
            log.take_snapshot()
    log = rig.reopen(log, how)
    assert ids(log) == [15, 16, 17, 18, 19]
    assert rig.send(log, 15, 0).duplicate


@pytest.mark.source
def test_of_a_snapshot_with_too_many_producers_the_last_count(rig, monkeypatch) -> None:
    """Kafka writes them in no order."""
    log = rig.log()
    order = [3, 9, 1, 8, 2, 7, 4, 6, 5, 0]
    for producer_id in order:
        rig.send(log, producer_id, 0)
    entries = [entry.to_snapshot() for entry in sorted(log.active_producers(), key=lambda entry: entry.producer_id)]
    monkeypatch.setattr("barnabas.log.producers.producer_state_manager.PRODUCERS_MAX", 5)
    log.producers.restore(entries, 10)
    assert ids(log) == order[5:]


def test_what_small_logs_leave_over_is_for_the_large_ones() -> None:
    assert fair_share([3, 100, 50], 60) == 28
    assert fair_share([30, 30], 60) == 30
    assert fair_share([5, 5, 5], 2) == 1
    assert fair_share([], 60) == 60


def test_a_producer_of_old_records_does_not_expire(rig) -> None:
    log = rig.log()
    rig.send_old(log, 0)
    assert log.producers.remove_expired(rig.clock.now_ms + DEFAULT_PRODUCER_EXPIRATION_MS - 1) == 0
    assert rig.send_old(log, 0).duplicate
    assert log.producers.remove_expired(rig.clock.now_ms + DEFAULT_PRODUCER_EXPIRATION_MS) == 1


def test_snapshots_are_bounded_in_number(rig) -> None:
    log = rig.log()
    for number in range(20):
        rig.send(log, 7, number)
        log.take_snapshot()
        if number == 10:
            log.roll()
    assert log.producers.snapshots == (11, 19, 20)
    log.delete_records(12)
    assert log.producers.snapshots == (19, 20)


@pytest.mark.source
def test_the_bytes_between_snapshots_are_bounded(rig, monkeypatch) -> None:
    monkeypatch.setattr("barnabas.log.unified_log._SNAPSHOT_DEBT_MAX", 50_000)
    log = rig.log()
    for number in range(100):
        rig.send(log, 7, 10 * number, 10)
    assert len(log.producers.snapshots) == 2
    assert log.producers.snapshots[-1] > 800


class TestTransactions:
    def begin(self, rig, log, producer_id: int = 7, sequence: int = 0):
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        return rig.append(log, **options)

    def end(self, rig, log, producer_id: int = 7, **options):
        info = log.append_as_leader(rig.marker(producer_id, **options), 0, origin="coordinator")
        log.update_high_watermark(log.log_end_offset)
        return info

    def test_an_open_transaction_holds_the_last_stable_offset(self, rig) -> None:
        log = rig.log()
        rig.append(log)
        self.begin(rig, log)
        rig.append(log)
        assert (log.last_stable_offset, log.high_watermark) == (1, 3)
        self.end(rig, log, committed=True)
        assert log.last_stable_offset == 4
        assert log.aborted_transactions(0, 4) == []

    def test_the_first_open_transaction_counts(self, rig) -> None:
        log = rig.log()
        self.begin(rig, log, 7)
        self.begin(rig, log, 8)
        self.end(rig, log, 7, committed=False)
        assert log.last_stable_offset == 1
        self.end(rig, log, 8, committed=True)
        assert log.last_stable_offset == 4
        aborted = log.aborted_transactions(0, 4)
        assert [tuple(item) for item in aborted] == [(7, 0, 2, 1)]

    def test_a_marker_above_the_high_watermark_does_not_decide_yet(self, rig) -> None:
        log = rig.log()
        self.begin(rig, log)
        log.append_as_leader(rig.marker(7, committed=True), 0, origin="coordinator")
        assert log.last_stable_offset == 0
        log.update_high_watermark(2)
        assert log.last_stable_offset == 2

    @pytest.mark.parametrize("how", [Verification.NONE, Verification.TAIL, Verification.FULL])
    def test_transactions_survive_a_restart(self, rig, how: Verification) -> None:
        log = rig.log()
        self.begin(rig, log, 7)
        self.end(rig, log, 7, committed=False)
        self.begin(rig, log, 8)
        rig.append(log)
        aborted = log.aborted_transactions(0, 4)
        if how is not Verification.NONE:
            with open(log.active_segment.path(".txnindex"), "wb"):
                pass  # the process died between the marker and its entry
        log = rig.reopen(log, how)
        assert (log.last_stable_offset, log.high_watermark) == (2, 4)
        assert log.aborted_transactions(0, 4) == aborted
        assert len(aborted) == 1

    def test_a_damaged_transaction_index_is_built_again(self, rig) -> None:
        log = rig.log()
        self.begin(rig, log, 7)
        self.end(rig, log, 7, committed=False)
        aborted = log.aborted_transactions(0, 2)
        log.close()
        with open(log.active_segment.path(".txnindex"), "ab") as file:
            file.write(b"rubbish")
        log = rig.load(log, Verification.NONE)
        assert log.aborted_transactions(0, 2) == aborted

    def test_plain_records_of_a_producer_in_a_transaction_are_refused(self, rig) -> None:
        log = rig.log()
        self.begin(rig, log)
        with pytest.raises(InvalidTxnState):
            rig.send(log, 7, 1)

    def test_fenced_coordinators_and_producers_cannot_end_it(self, rig) -> None:
        log = rig.log()
        self.begin(rig, log)
        self.end(rig, log, committed=True, coordinator_epoch=5)
        with pytest.raises(TransactionCoordinatorFenced):
            self.end(rig, log, committed=True, coordinator_epoch=4)
        self.end(rig, log, committed=True, coordinator_epoch=5, producer_epoch=3)
        with pytest.raises(InvalidProducerEpoch):
            self.end(rig, log, committed=True, coordinator_epoch=5, producer_epoch=2)

    @pytest.mark.source
    def test_an_open_transaction_is_not_forgotten_for_others(self, rig, monkeypatch) -> None:
        monkeypatch.setattr("barnabas.log.producers.producer_state_manager.PRODUCERS_MAX", 3)
        log = rig.log()
        self.begin(rig, log)
        for number in range(10, 20):
            rig.send(log, number, 0)
        assert sorted(ids(log)) == [7, 18, 19]
        assert log.last_stable_offset == 0
        self.end(rig, log, committed=True)
        for number in range(20, 23):
            rig.send(log, number, 0)
        assert ids(log) == [20, 21, 22]

    def test_an_open_transaction_keeps_its_producer(self, rig) -> None:
        log = rig.log()
        self.begin(rig, log)
        assert log.producers.remove_expired(rig.clock.now_ms + 10**9) == 0
