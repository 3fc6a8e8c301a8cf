"""Stories about transactions: what the coordinator decides, in which order things happen, what survives what.

What every single request answers is compared with Kafka's own answers in `test_transaction_golden.py`.
"""

from typing import Any

import pytest

from barnabas import errors
from barnabas.coordinator.transaction.transaction_coordinator_shard import TransactionCoordinatorShard
from barnabas.coordinator.transaction.transaction_metadata import (
    EPOCH_MAX,
    NO_TIMEOUT,
    VALID_PREVIOUS,
    TransactionMetadata,
    TransactionState,
)
from barnabas.types import TopicPartition
from coordinator.group_rig import Later
from coordinator.transaction_rig import ORDERS, OTHER, TransactionRig


def prepared_rig(commit: bool = True) -> tuple[TransactionRig, tuple[int, int]]:
    """A transaction whose end markers are held back."""
    rig = TransactionRig()
    producer = rig.producer()
    rig.add(producer, ORDERS, OTHER)
    rig.markers.held = True
    after = rig.end(producer, commit)
    rig.settle()
    assert rig.state() == ("PrepareCommit" if commit else "PrepareAbort")
    return rig, after


class TestOrder:
    def test_the_answer_comes_before_the_markers_and_the_completion_before_any_input(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.add(producer)
        answer = rig.end_later(producer)
        assert answer.value == (producer[0], producer[1] + 1)
        assert rig.markers.sent == []
        rig.settle()
        assert len(rig.markers.sent) == 1
        assert rig.state() == "CompleteCommit"

    def test_no_marker_before_the_decision_is_replicated(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.add(producer)
        rig.log.replicated = False
        answer = rig.end_later(producer)
        rig.advance(1)
        assert not answer.done
        assert rig.markers.sent == []
        rig.transactions.on_high_watermark(0, rig.log.commit(0))
        assert answer.done
        rig.settle()
        assert len(rig.markers.sent) == 1

    def test_a_decision_that_cannot_be_written_is_none(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.add(producer)
        rig.log.fail = errors.NotEnoughReplicas("one of two")
        assert isinstance(rig.end(producer), errors.CoordinatorNotAvailable)
        rig.log.fail = None
        rig.settle()
        assert rig.state() == "Ongoing"
        assert rig.markers.sent == []
        assert rig.end(producer) == (producer[0], 1)

    @pytest.mark.parametrize(
        ("failure", "answer"),
        [
            (errors.NotEnoughReplicas, errors.CoordinatorNotAvailable),
            (errors.NotEnoughReplicasAfterAppend, errors.CoordinatorNotAvailable),
            (errors.UnknownTopicOrPartition, errors.CoordinatorNotAvailable),
            (errors.NotLeaderOrFollower, errors.NotCoordinator),
            (errors.KafkaStorageError, errors.NotCoordinator),
            (errors.RecordListTooLarge, errors.UnknownServerError),
        ],
    )
    def test_how_a_failed_write_is_told(self, failure: Any, answer: Any) -> None:
        rig = TransactionRig()
        rig.log.fail = failure("no")
        assert type(rig.init()) is answer


class TestEpochs:
    def test_every_transaction_of_version_2_has_an_epoch_of_its_own(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        for epoch in range(5):
            assert producer[1] == epoch
            rig.add(producer)
            producer = rig.end(producer, commit=epoch % 2 == 0)
            rig.settle()
        assert [(m.producer_epoch, m.commit) for m in rig.markers.sent] == [
            (1, True), (2, False), (3, True), (4, False), (5, True),
        ]  # fmt: skip

    def test_older_clients_keep_theirs(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        for _ in range(3):
            rig.add(producer, transaction_version=0)
            rig.end(producer, transaction_version=0)
            rig.settle()
        assert [(m.producer_epoch, m.transaction_version) for m in rig.markers.sent] == [(0, 0)] * 3

    def test_the_next_producer_id_is_known_while_the_markers_are_under_way(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.put("t", producer_epoch=EPOCH_MAX - 1)
        last = (producer[0], EPOCH_MAX - 1)
        assert rig.add(last) is None
        rig.markers.held = True
        successor = rig.end(last)
        assert successor[0] != producer[0]
        assert successor[1] == 0
        # The client heard of its new id with the answer: whatever it asks next is too early, not wrong.
        assert isinstance(rig.init(expected=successor), errors.ConcurrentTransactions)
        assert isinstance(rig.end(successor, commit=False), errors.ConcurrentTransactions)
        adding = rig.add_later(successor, OTHER)
        rig.markers.release()
        rig.advance(1.0)
        assert adding.value is None or isinstance(adding.value, errors.ConcurrentTransactions)
        assert rig.add(successor, OTHER) is None
        assert rig.state() == "Ongoing"

    def test_a_new_producer_id_when_they_run_out(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.put("t", producer_epoch=EPOCH_MAX - 1)
        last = (producer[0], EPOCH_MAX - 1)
        rig.add(last)
        following = rig.end(last)
        assert following == (producer[0] + 1, 0)
        assert isinstance(rig.end(last), errors.ConcurrentTransactions)
        rig.settle()
        assert rig.markers.sent[0].producer_id == producer[0]
        assert rig.markers.sent[0].producer_epoch == EPOCH_MAX
        assert rig.end(last) == following, "a repetition that comes late"
        rig.restart()
        assert rig.end(last) == following, "and after a restart"
        assert rig.add(following) is None

    def test_no_producer_id_no_decision(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.put("t", producer_epoch=EPOCH_MAX - 1)
        last = (producer[0], EPOCH_MAX - 1)
        rig.add(last)
        rig.no_producer_ids = errors.RequestTimedOut("the registry is away")
        assert isinstance(rig.end(last), errors.CoordinatorNotAvailable)
        assert isinstance(rig.init("new"), errors.CoordinatorNotAvailable)
        assert rig.state() == "Ongoing"
        rig.no_producer_ids = None
        assert rig.end(last) == (producer[0] + 1, 0)

    def test_a_repetition_while_the_epochs_are_used_up_is_no_mystery(self) -> None:
        """Kafka answers UNKNOWN_SERVER_ERROR to both."""
        rig = TransactionRig()
        producer_id, _ = rig.producer()
        rig.put("t", producer_epoch=EPOCH_MAX - 1, last_producer_epoch=EPOCH_MAX - 2)
        again = rig.init(expected=(producer_id, EPOCH_MAX - 2))
        assert (again.producer_id, again.producer_epoch) == (producer_id, EPOCH_MAX - 1)
        assert isinstance(rig.init(expected=(producer_id, 5)), errors.ProducerFenced)


class TestFencing:
    def test_a_second_producer_ends_the_first_ones_transaction(self) -> None:
        rig = TransactionRig()
        first = rig.producer()
        rig.add(first)
        assert isinstance(rig.init(), errors.ConcurrentTransactions)
        rig.settle()
        assert rig.state() == "CompleteAbort"
        assert rig.markers.sent[0].commit is False
        second = rig.producer()
        assert second == (first[0], first[1] + 2)
        for answer in (rig.add(first), rig.end(first), rig.end(first, transaction_version=0)):
            assert isinstance(answer, errors.ProducerFenced)
        assert rig.add(second) is None

    def test_a_producer_has_to_wait_for_the_markers(self) -> None:
        rig, _ = prepared_rig()
        assert isinstance(rig.init(), errors.ConcurrentTransactions)
        rig.markers.release()
        assert rig.init().producer_epoch == 2

    def test_fencing_that_cannot_be_written_changes_nothing(self) -> None:
        rig = TransactionRig()
        first = rig.producer()
        rig.add(first)
        rig.log.fail = errors.KafkaStorageError("full")
        assert isinstance(rig.init(), errors.NotCoordinator)
        rig.log.fail = None
        assert rig.end(first) == (first[0], 1), "the producer that is still there may go on"


class TestMarkers:
    def test_what_they_say(self) -> None:
        rig, _ = prepared_rig()
        (markers,) = rig.markers.sent
        assert markers._replace(partitions=tuple(sorted(markers.partitions))) == (
            1000, 1, True, rig.epoch, 2, (ORDERS, OTHER),
        )  # fmt: skip

    def test_described_are_the_partitions_without_one(self) -> None:
        rig, _ = prepared_rig()
        assert rig.describe().partitions == {ORDERS, OTHER}
        rig.markers.errors[OTHER] = [errors.NotLeaderOrFollower("moved")]
        rig.markers.release()
        assert rig.describe().partitions == {OTHER}
        assert rig.describe().state is TransactionState.PREPARE_COMMIT
        rig.advance(0.02)
        assert rig.describe().partitions == frozenset()
        assert rig.state() == "CompleteCommit"

    @pytest.mark.parametrize(
        "failure",
        [
            errors.NotLeaderOrFollower, errors.NotEnoughReplicas, errors.NotEnoughReplicasAfterAppend,
            errors.RequestTimedOut, errors.KafkaStorageError, errors.UnknownServerError,
        ],
    )  # fmt: skip
    def test_only_what_failed_is_tried_again(self, failure: Any) -> None:
        rig, _ = prepared_rig()
        rig.markers.errors[OTHER] = [failure("not now")] * 3
        rig.markers.release()
        assert [set(m.partitions) for m in rig.markers.sent] == [{ORDERS, OTHER}]
        rig.advance(0.02 + 0.04)
        assert [set(m.partitions) for m in rig.markers.sent[1:]] == [{OTHER}] * 2
        assert rig.state() == "PrepareCommit"
        rig.advance(0.08)
        assert rig.state() == "CompleteCommit"
        rig.advance(60)
        assert len(rig.markers.sent) == 4

    def test_the_waits_have_a_bound(self) -> None:
        rig, _ = prepared_rig()
        rig.markers.errors[OTHER] = [errors.NotLeaderOrFollower("gone for long")] * 70
        rig.markers.release()
        rig.advance(60)
        assert 60 < len(rig.markers.sent) < 70
        rig.advance(20)
        assert rig.state() == "CompleteCommit"

    @pytest.mark.parametrize(
        "failure", [errors.UnknownTopicOrPartition, errors.UnsupportedForMessageFormat, errors.InvalidProducerEpoch]
    )
    def test_where_nothing_is_left_to_end_none_is_needed(self, failure: Any) -> None:
        rig, _ = prepared_rig()
        rig.markers.errors[OTHER] = [failure("nothing there")]
        rig.markers.release()
        assert rig.state() == "CompleteCommit"

    def test_an_older_coordinator_keeps_still(self) -> None:
        rig, _ = prepared_rig()
        rig.markers.errors[OTHER] = [errors.TransactionCoordinatorFenced("epoch 9 has written here")]
        rig.markers.release()
        rig.advance(60)
        assert len(rig.markers.sent) == 1
        assert rig.state() == "PrepareCommit"

    def test_a_transaction_without_partitions_needs_none(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        assert rig.end(producer, commit=False) == (producer[0], 1)
        rig.settle()
        assert rig.markers.sent == []
        assert rig.state() == "CompleteAbort"

    @pytest.mark.parametrize("failure", [errors.NotEnoughReplicas, errors.KafkaStorageError])
    def test_a_completion_that_cannot_be_written_is_tried_again(self, failure: Any) -> None:
        rig, after = prepared_rig()
        rig.log.fail = failure("not now")
        rig.markers.release()
        rig.advance(1)
        assert rig.state() == "PrepareCommit"
        rig.log.fail = None
        rig.advance(1)
        assert rig.state() == "CompleteCommit"
        assert len(rig.markers.sent) == 1, "the markers were written"
        assert rig.add(after) is None

    def test_resigned_while_they_are_under_way(self) -> None:
        rig, _ = prepared_rig()
        rig.transactions.on_resigned(0, rig.epoch + 1)
        rig.markers.release()
        rig.advance(5)
        assert rig.transactions.runtime.peek(0) is None
        assert len(rig.markers.sent) == 1

    def test_elected_again_while_they_are_under_way(self) -> None:
        rig, after = prepared_rig()
        rig.transactions.on_elected(0, rig.epoch + 1)
        rig.advance(1)
        assert [m.coordinator_epoch for m in rig.markers.sent] == [1, 2]
        rig.markers.release()
        rig.advance(1)
        assert rig.state() == "CompleteCommit"
        assert rig.metadata().client_producer == after


class TestWaiting:
    def test_the_next_transaction_waits_for_the_last_ones_markers(self) -> None:
        rig, after = prepared_rig()
        answer = rig.add_later(after)
        assert not answer.done
        rig.advance(0.05)
        rig.markers.release()
        assert answer.value is None
        assert rig.state() == "Ongoing"

    def test_not_for_ever(self) -> None:
        rig, after = prepared_rig()
        answer = rig.add_later(after)
        rig.advance(0.099)
        assert not answer.done
        rig.advance(0.001)
        assert isinstance(answer.value, errors.ConcurrentTransactions)
        rig.markers.release()

    def test_a_bug_in_the_second_attempt_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody but a timer calls it: a Produce that asks, and all behind it in its line, would wait for ever."""

        def broken(*_: object) -> None:
            raise RuntimeError("a bug")

        rig, after = prepared_rig()
        answers: list[Any] = []
        rig.transactions.verify_or_add("t", *after, [ORDERS], verify_only=False, reply=answers.append)
        monkeypatch.setattr(TransactionCoordinatorShard, "add_partitions", broken)
        assert answers == []
        rig.markers.release()
        (answer,) = answers
        assert isinstance(answer[ORDERS], errors.UnknownServerError)

    def test_not_at_all_if_told_so(self) -> None:
        rig = TransactionRig(add_wait_max_ms=0)
        producer = rig.producer()
        rig.add(producer)
        rig.markers.held = True
        after = rig.end(producer)
        rig.settle()
        assert isinstance(rig.add(after), errors.ConcurrentTransactions)

    def test_a_zombie_does_not_wait(self) -> None:
        rig, after = prepared_rig()
        assert isinstance(rig.add((after[0], after[1] - 1)), errors.ProducerFenced)

    def test_who_waits_is_told_of_a_new_coordinator(self) -> None:
        rig, after = prepared_rig()
        answer = rig.add_later(after)
        rig.transactions.on_resigned(0, rig.epoch + 1)
        assert isinstance(answer.value, errors.NotCoordinator)

    def test_who_waits_is_told_of_a_shutdown(self) -> None:
        rig, after = prepared_rig()
        answer = rig.add_later(after)
        rig.transactions.shutdown()
        assert isinstance(answer.value, errors.NotCoordinator)
        rig.markers.release()
        assert rig.scheduler.pending() == 0

    def test_there_is_a_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("barnabas.coordinator.transaction.transaction_marker_channel_manager.WAITERS_MAX", 2)
        rig, after = prepared_rig()
        waiting = [rig.add_later(after) for _ in range(3)]
        assert [answer.done for answer in waiting] == [False, False, True]
        assert isinstance(waiting[2].value, errors.ConcurrentTransactions)


class TestVerification:
    def test_what_a_partitions_leader_asks(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.add(producer, ORDERS, transaction_version=0)
        answer = rig.verify_or_add(producer, ORDERS, OTHER, verify_only=True)
        assert answer[ORDERS] is None
        assert isinstance(answer[OTHER], errors.TransactionAbortable)
        zombie = (producer[0], producer[1] - 1)
        answer = rig.verify_or_add(zombie, ORDERS, verify_only=True)
        assert type(answer[ORDERS]) is errors.InvalidProducerEpoch, "what producers expect of Produce"
        answer = rig.verify_or_add((7, 7), ORDERS, verify_only=True)
        assert isinstance(answer[ORDERS], errors.InvalidProducerIdMapping)
        answer = rig.verify_or_add(producer, ORDERS, verify_only=True, transactional_id="nobody")
        assert isinstance(answer[ORDERS], errors.InvalidProducerIdMapping)
        rig.end(producer, transaction_version=0)
        answer = rig.verify_or_add(producer, ORDERS, verify_only=True)
        assert isinstance(answer[ORDERS], errors.ConcurrentTransactions)
        rig.settle()
        answer = rig.verify_or_add(producer, ORDERS, verify_only=True)
        assert isinstance(answer[ORDERS], errors.TransactionAbortable)

    def test_records_make_their_partition_join(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        assert rig.verify_or_add(producer, ORDERS, verify_only=False) == {ORDERS: None}
        assert rig.verify_or_add(producer, ORDERS, OTHER, verify_only=False) == {ORDERS: None, OTHER: None}
        assert rig.metadata().partitions == {ORDERS, OTHER}
        assert rig.metadata().client_transaction_version == 2
        zombie = (producer[0], producer[1] + 1)
        assert type(rig.verify_or_add(zombie, ORDERS, verify_only=False)[ORDERS]) is errors.InvalidProducerEpoch

    def test_a_partition_that_is_in_costs_no_write(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.add(producer, ORDERS, OTHER)
        appends = rig.log.appends
        rig.add(producer, OTHER)
        assert rig.log.appends == appends


class TestTimeouts:
    def test_an_open_transaction_is_aborted_on_time(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=2_000)
        rig.add(producer)
        rig.advance(2.0)
        assert rig.state() == "Ongoing"
        rig.advance(0.002)
        assert rig.state() == "CompleteAbort"
        assert rig.markers.sent[0].commit is False
        assert isinstance(rig.end(producer), errors.InvalidTxnState)
        assert isinstance(rig.end(producer, transaction_version=0), errors.ProducerFenced)
        assert rig.end(producer, commit=False) == (producer[0], producer[1] + 1), "that is what happened"
        assert rig.producer(timeout_ms=2_000) == (producer[0], producer[1] + 2)

    def test_every_transaction_has_its_own_time(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=2_000)
        for _ in range(4):
            rig.add(producer)
            rig.advance(1.5)
            producer = rig.end(producer)
            rig.settle()
        rig.add(producer)
        rig.advance(1.9)
        assert rig.state() == "Ongoing"
        rig.advance(0.2)
        assert rig.state() == "CompleteAbort"

    def test_more_partitions_do_not_prolong_it(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=2_000)
        rig.add(producer, ORDERS)
        rig.advance(1.5)
        rig.add(producer, OTHER)
        rig.advance(0.6)
        assert rig.state() == "CompleteAbort"

    def test_nothing_ticks_where_nothing_is_open(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=2_000)
        rig.add(producer)
        rig.end(producer)
        rig.advance(10)
        assert rig.state() == "CompleteCommit"
        assert rig.scheduler.pending() == 0

    def test_an_abort_that_cannot_be_written_is_tried_again(self) -> None:
        rig = TransactionRig(abort_interval_ms=3_000)
        producer = rig.producer(timeout_ms=1_000)
        rig.add(producer)
        rig.log.fail = errors.NotEnoughReplicas("not now")
        rig.advance(5)
        rig.log.fail = None
        assert rig.state() == "Ongoing"
        rig.advance(3)
        assert rig.state() == "CompleteAbort"

    def test_out_of_epochs_and_of_producer_ids(self) -> None:
        rig = TransactionRig(abort_interval_ms=3_000)
        producer = rig.producer(timeout_ms=1_000)
        rig.put("t", producer_epoch=EPOCH_MAX - 1)
        rig.add((producer[0], EPOCH_MAX - 1))
        rig.no_producer_ids = errors.RequestTimedOut("the registry is away")
        rig.advance(2)
        assert rig.state() == "Ongoing"
        rig.no_producer_ids = None
        rig.advance(3)
        assert rig.state() == "CompleteAbort"
        assert rig.metadata().client_producer == (producer[0] + 1, 0)

    def test_after_a_restart(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=10_000)
        rig.add(producer)
        rig.advance(6)
        rig.restart()
        rig.advance(3.9)
        assert rig.state() == "Ongoing"
        rig.advance(0.2)
        assert rig.state() == "CompleteAbort"

    def test_overdue_at_a_restart(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=10_000)
        rig.add(producer)
        rig.transactions.shutdown()
        rig.advance(60)
        rig.restart()
        rig.settle()
        assert rig.state() == "CompleteAbort"


class TestReload:
    @pytest.mark.parametrize("commit", [True, False])
    def test_what_was_decided_gets_its_markers(self, commit: bool) -> None:
        rig, after = prepared_rig(commit)
        rig.markers.sent.clear()
        rig.restart()
        rig.advance(0.01)
        (markers,) = rig.markers.sent
        assert (markers.commit, markers.coordinator_epoch, markers.producer_epoch) == (commit, 2, 1)
        assert set(markers.partitions) == {ORDERS, OTHER}
        assert rig.state() == ("CompleteCommit" if commit else "CompleteAbort")
        assert rig.add(after) is None

    def test_but_only_once_it_is_known_to_be_committed(self) -> None:
        """A leader that has the decision and dies before its followers do must not have told anybody."""
        rig = TransactionRig()
        producer = rig.producer()
        rig.add(producer)
        rig.log.replicated = False
        rig.end_later(producer)
        rig.restart()
        rig.advance(1)
        assert rig.markers.sent == []
        rig.transactions.on_high_watermark(0, rig.log.commit(0))
        rig.settle()
        assert len(rig.markers.sent) == 1

    def test_the_same_state(self) -> None:
        rig = TransactionRig()
        for name in ("empty", "ongoing", "committed", "aborted", "kept"):
            producer = rig.producer(name)
            if name != "empty":
                rig.add(producer, ORDERS, OTHER, transactional_id=name)
            if name in ("committed", "aborted"):
                rig.end(producer, name == "committed", transactional_id=name)
        rig.init("kept", keep_prepared=True)
        rig.settle()
        before = {
            name: metadata._replace(last_producer_epoch=-1) for name, metadata in rig.shard().transactions.items()
        }
        rig.restart()
        assert rig.shard().transactions == before

    def test_an_empty_partition_is_ready_at_once(self) -> None:
        rig = TransactionRig(partitions=50)
        assert rig.log.reads == 0
        assert rig.init("any").producer_epoch == 0


class TestExpiration:
    def test_ids_that_nobody_uses(self) -> None:
        rig = TransactionRig(id_expiration_ms=1_000)
        for name in ("idle", "done", "open"):
            producer = rig.producer(name)
            if name != "idle":
                rig.add(producer, transactional_id=name)
            if name == "done":
                rig.end(producer, transactional_id=name)
        rig.advance(0.5)
        rig.transactions.expire_transactional_ids()
        assert len(rig.shard().transactions) == 3
        rig.producer("young")
        rig.advance(0.5)
        rig.transactions.expire_transactional_ids()
        assert set(rig.shard().transactions) == {"open", "young"}
        assert isinstance(rig.describe("idle"), errors.TransactionalIdNotFound)
        rig.restart()
        assert set(rig.shard().transactions) == {"open", "young"}

    def test_many_take_more_than_one_batch(self) -> None:
        rig = TransactionRig(id_expiration_ms=1_000)
        for number in range(100):
            rig.producer(f"id-{number}")
        rig.log.max_bytes = 300
        rig.advance(1)
        appends = rig.log.appends
        rig.transactions.expire_transactional_ids()
        assert rig.shard().transactions == {}
        assert rig.log.appends - appends > 3

    def test_an_expired_id_is_a_new_one(self) -> None:
        rig = TransactionRig(id_expiration_ms=1_000)
        before = rig.producer()
        rig.advance(1)
        rig.transactions.expire_transactional_ids()
        after = rig.producer()
        assert after[0] != before[0]
        assert after[1] == 0

    def test_a_failure_is_for_the_next_time(self) -> None:
        rig = TransactionRig(id_expiration_ms=1_000)
        rig.producer()
        rig.advance(1)
        rig.log.fail = errors.KafkaStorageError("full")
        rig.transactions.expire_transactional_ids()
        assert rig.state() == "Empty"
        rig.log.fail = None
        rig.transactions.expire_transactional_ids()
        assert rig.shard().transactions == {}


class TestTwoPhaseCommit:
    """KIP-939. Kafka 4.3 has the protocol, and the part without KeepPreparedTxn."""

    @pytest.fixture
    def rig(self) -> TransactionRig:
        return TransactionRig(two_phase_commit_enable=True)

    def open(self, rig: TransactionRig) -> tuple[int, int]:
        producer = rig.producer(timeout_ms=5, two_phase_commit=True)
        rig.add(producer, ORDERS, OTHER)
        return producer

    def test_has_to_be_allowed(self) -> None:
        rig = TransactionRig()
        assert isinstance(rig.init(two_phase_commit=True), errors.TransactionalIdAuthorizationFailed)

    def test_never_times_out(self, rig: TransactionRig) -> None:
        self.open(rig)
        assert rig.metadata().timeout_ms == NO_TIMEOUT
        rig.advance(1e9)
        assert rig.state() == "Ongoing"
        rig.restart()
        rig.advance(1e9)
        assert rig.state() == "Ongoing"
        rig.transactions.expire_transactional_ids()
        assert rig.state() == "Ongoing"

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_successor_finishes_what_was_prepared(self, rig: TransactionRig, commit: bool) -> None:
        producer = self.open(rig)
        answer = rig.init(two_phase_commit=True, keep_prepared=True)
        successor = (answer.producer_id, answer.producer_epoch)
        assert successor == (producer[0], producer[1] + 1)
        assert (answer.ongoing_producer_id, answer.ongoing_producer_epoch) == producer
        assert rig.state() == "Ongoing"
        following = rig.end(successor, commit)
        assert following == (producer[0], producer[1] + 2)
        rig.settle()
        (markers,) = rig.markers.sent
        assert (markers.producer_id, markers.producer_epoch, markers.commit) == (producer[0], producer[1] + 1, commit)
        assert rig.end(successor, commit) == following, "a repetition"
        assert rig.add(following) is None

    def test_the_predecessor_is_fenced_and_the_successor_adds_nothing(self, rig: TransactionRig) -> None:
        producer = self.open(rig)
        answer = rig.init(two_phase_commit=True, keep_prepared=True)
        successor = (answer.producer_id, answer.producer_epoch)
        assert isinstance(rig.end(producer), errors.ProducerFenced)
        assert isinstance(rig.add(producer), errors.ProducerFenced)
        assert type(rig.verify_or_add(producer, ORDERS, verify_only=True)[ORDERS]) is errors.InvalidProducerEpoch
        assert isinstance(rig.add(successor, ORDERS), errors.InvalidTxnState)
        answers = rig.verify_or_add(successor, ORDERS, verify_only=True)
        assert isinstance(answers[ORDERS], errors.InvalidTxnState)

    def test_every_successor_learns_the_same_transaction(self, rig: TransactionRig) -> None:
        producer = self.open(rig)
        for number in range(1, 4):
            answer = rig.init(two_phase_commit=True, keep_prepared=True)
            assert answer.producer_epoch == producer[1] + number
            assert (answer.ongoing_producer_id, answer.ongoing_producer_epoch) == producer
            rig.restart()
        assert rig.metadata().timeout_ms == NO_TIMEOUT
        assert rig.end((producer[0], producer[1] + 3)) == (producer[0], producer[1] + 4)
        rig.settle()
        assert rig.state() == "CompleteCommit"

    def test_nothing_to_keep(self, rig: TransactionRig) -> None:
        answer = rig.init(two_phase_commit=True, keep_prepared=True)
        assert (answer.producer_epoch, answer.ongoing_producer_id, answer.ongoing_producer_epoch) == (0, -1, -1)
        producer = (answer.producer_id, 0)
        rig.add(producer)
        rig.end(producer)
        rig.settle()
        assert rig.init(two_phase_commit=True, keep_prepared=True).ongoing_producer_id == -1

    def test_a_successor_that_does_not_keep_it_aborts_it(self, rig: TransactionRig) -> None:
        producer = self.open(rig)
        rig.init(two_phase_commit=True, keep_prepared=True)
        assert isinstance(rig.init(two_phase_commit=True), errors.ConcurrentTransactions)
        rig.settle()
        assert rig.state() == "CompleteAbort"
        assert rig.markers.sent[0].producer_epoch == producer[1] + 1
        assert rig.producer(two_phase_commit=True) == (producer[0], producer[1] + 3)

    def test_epochs_run_out_of_successors(self, rig: TransactionRig) -> None:
        producer_id, _ = self.open(rig)
        rig.put("t", next_producer_id=producer_id, next_producer_epoch=EPOCH_MAX - 2)
        one = rig.init(two_phase_commit=True, keep_prepared=True)
        assert (one.producer_id, one.producer_epoch) == (producer_id, EPOCH_MAX - 1)
        two = rig.init(two_phase_commit=True, keep_prepared=True)
        assert (two.producer_id, two.producer_epoch) == (producer_id + 1, 0)
        assert (two.ongoing_producer_id, two.ongoing_producer_epoch) == (producer_id, 0)
        assert isinstance(rig.end((producer_id, EPOCH_MAX - 1)), errors.ProducerFenced)
        assert rig.end((producer_id + 1, 0)) == (producer_id + 1, 1)
        rig.settle()
        assert rig.markers.sent[0][:2] == (producer_id, 1)
        assert rig.metadata().client_producer == (producer_id + 1, 1)

    def test_epochs_run_out_at_the_end(self, rig: TransactionRig) -> None:
        producer_id, _ = self.open(rig)
        rig.put("t", next_producer_id=producer_id, next_producer_epoch=EPOCH_MAX - 1)
        successor = (producer_id, EPOCH_MAX - 1)
        following = rig.end(successor)
        assert following == (producer_id + 1, 0)
        assert isinstance(rig.end(successor), errors.ConcurrentTransactions)
        rig.settle()
        assert rig.end(successor) == following
        rig.restart()
        assert rig.end(successor) == following

    def test_a_transaction_with_a_timeout_may_be_kept_too(self, rig: TransactionRig) -> None:
        producer = rig.producer(timeout_ms=2_000)
        rig.add(producer)
        rig.advance(1)
        answer = rig.init(timeout_ms=60_000, keep_prepared=True)
        assert answer.ongoing_producer_id == producer[0]
        rig.advance(1.1)
        assert rig.state() == "CompleteAbort", "its time is what it was"
        assert rig.metadata().client_producer == (producer[0], producer[1] + 2)

    def test_an_older_end_transaction_ends_it_as_well(self, rig: TransactionRig) -> None:
        producer = self.open(rig)
        answer = rig.init(two_phase_commit=True, keep_prepared=True)
        successor = (answer.producer_id, answer.producer_epoch)
        rig.end(successor, transaction_version=0)
        rig.settle()
        assert rig.metadata().client_producer == successor
        assert rig.end(successor, transaction_version=0) == successor
        assert rig.markers.sent[0][:2] == producer


class TestLeadership:
    def test_requests_for_others(self) -> None:
        rig = TransactionRig()
        rig.transactions.on_resigned(0)
        assert isinstance(rig.init(), errors.NotCoordinator)
        assert isinstance(rig.describe(), errors.NotCoordinator)
        later = Later()
        rig.transactions.list_transactions(lambda *_: True, reply=later)
        assert later.value == []

    def test_while_loading(self) -> None:
        rig = TransactionRig()
        rig.producer()
        rig.transactions.on_elected(0, rig.epoch + 1)
        initialised, listed = rig.init_later(), Later()
        rig.transactions.list_transactions(lambda *_: True, reply=listed)
        assert not initialised.done
        assert not listed.done
        rig.settle()
        assert initialised.value.producer_epoch == 1
        assert [transactional_id for transactional_id, _ in listed.value] == ["t"]

    def test_a_commit_meets_a_coordinator_that_has_just_come_back(self) -> None:
        """KafkaJS gives up a transaction whose EndTxn is answered with COORDINATOR_LOAD_IN_PROGRESS."""
        rig = TransactionRig()
        producer = rig.producer()
        rig.add(producer)
        rig.transactions.on_elected(0, rig.epoch + 1)
        ended = rig.end_later(producer)
        assert not ended.done
        rig.settle()
        assert ended.value == (producer[0], producer[1] + 1)
        assert rig.state() == "CompleteCommit"

    def test_repeated_and_older_elections_change_nothing(self) -> None:
        rig, _ = prepared_rig()
        rig.transactions.on_elected(0, rig.epoch)
        rig.transactions.on_elected(0, rig.epoch - 1)
        rig.transactions.on_resigned(0, rig.epoch - 1)
        rig.markers.release()
        assert rig.state() == "CompleteCommit"
        assert [m.coordinator_epoch for m in rig.markers.sent] == [rig.epoch]


class TestState:
    def test_no_state_without_a_way_to_it(self) -> None:
        assert set(VALID_PREVIOUS) == set(TransactionState)
        assert all(VALID_PREVIOUS.values())

    @pytest.mark.parametrize("state", sorted(VALID_PREVIOUS, key=lambda state: state.number))
    def test_moves_that_the_table_does_not_have(self, state: TransactionState) -> None:
        for before in TransactionState:
            metadata = TransactionMetadata(1, 1, 0, 0, state=before)
            if before in VALID_PREVIOUS[state]:
                assert metadata.to(state, 5).state is state
            else:
                with pytest.raises(AssertionError, match=state.kafka_name):
                    metadata.to(state, 5)

    def test_kafkas_numbers(self) -> None:
        assert {state.kafka_name: state.number for state in TransactionState} == {
            "Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4, "CompleteAbort": 5,
            "Dead": 6, "PrepareEpochFence": 7,
        }  # fmt: skip

    def test_partitions_grow_until_the_end(self) -> None:
        metadata = TransactionMetadata(1, 1, 0, 0)
        one, two = TopicPartition("a", 0), TopicPartition("a", 1)
        ongoing = metadata.with_partitions(frozenset((one,)), 10, 2).with_partitions(frozenset((two,)), 20, 2)
        assert ongoing.partitions == {one, two}
        assert (ongoing.start_timestamp_ms, ongoing.last_update_timestamp_ms) == (10, 20)


class TestNames:
    @pytest.mark.parametrize("name", ["x" * 32_768, "é" * 16_384])
    def test_too_long_for_a_key(self, name: str) -> None:
        assert isinstance(TransactionRig().init(name), errors.InvalidRequest)

    def test_as_long_as_can_be(self) -> None:
        rig = TransactionRig()
        assert rig.init("é" * 16_383).producer_epoch == 0
        rig.restart()
        assert rig.init("é" * 16_383).producer_epoch == 1

    def test_more_partitions_than_a_batch_can_hold(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.log.max_bytes = 1_000
        many = [TopicPartition("orders", index) for index in range(1_000)]
        assert isinstance(rig.add(producer, *many), errors.UnknownServerError)
        assert rig.state() == "Empty"
