"""End markers: when they are sent, what they say, how often, and what ends the transaction without them."""

from typing import Any

import pytest

from barnabas import errors
from barnabas.coordinator.transaction.transaction_metadata import TransactionState
from coordinator.transaction_rig import ORDERS, OTHER, TransactionRig, prepared_rig


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


class TestLeadersOnSeveralBrokers:
    """The answer for OTHER comes late; that for ORDERS does not wait for it."""

    def test_the_transaction_is_complete_with_the_last_answer(self) -> None:
        rig = TransactionRig()
        rig.markers.held_partitions = {OTHER}
        producer = rig.producer()
        rig.add(producer, ORDERS, OTHER)
        rig.end(producer)
        rig.advance(5)
        assert rig.describe().partitions == {OTHER}
        assert rig.state() == "PrepareCommit"
        assert len(rig.markers.sent) == 1, "what is in flight is not sent again"
        rig.markers.release()
        assert rig.state() == "CompleteCommit"

    def test_what_failed_is_tried_again_without_what_is_in_flight(self) -> None:
        rig = TransactionRig()
        rig.markers.held_partitions = {OTHER}
        rig.markers.errors[ORDERS] = [errors.NotLeaderOrFollower("moved")] * 2
        producer = rig.producer()
        rig.add(producer, ORDERS, OTHER)
        rig.end(producer)
        rig.advance(0.07)
        assert [set(m.partitions) for m in rig.markers.sent] == [{ORDERS, OTHER}, {ORDERS}, {ORDERS}]
        assert rig.describe().partitions == {OTHER}
        rig.markers.errors[OTHER] = [errors.NotLeaderOrFollower("lost")]
        rig.markers.release()
        assert rig.state() == "PrepareCommit"
        rig.advance(1)
        assert [set(m.partitions) for m in rig.markers.sent[3:]] == [{OTHER}]
        assert rig.state() == "CompleteCommit"

    def test_two_failures_are_one_retry(self) -> None:
        rig = TransactionRig()
        rig.markers.held_partitions = {OTHER}
        rig.markers.errors = {
            ORDERS: [errors.NotLeaderOrFollower("moved")] * 2,
            OTHER: [errors.NotLeaderOrFollower("moved")] * 2,
        }
        producer = rig.producer()
        rig.add(producer, ORDERS, OTHER)
        rig.end(producer)
        rig.settle()
        rig.markers.release()
        rig.advance(0.05)
        assert [set(m.partitions) for m in rig.markers.sent[1:]] == [{ORDERS, OTHER}]
        rig.advance(0.01)
        assert [set(m.partitions) for m in rig.markers.sent[2:]] == [{ORDERS, OTHER}]

    def test_a_late_answer_of_a_finished_attempt_changes_nothing(self) -> None:
        rig = TransactionRig()
        rig.markers.held_partitions = {OTHER}
        rig.markers.errors[ORDERS] = [errors.TransactionCoordinatorFenced("a later coordinator")]
        producer = rig.producer()
        rig.add(producer, ORDERS, OTHER)
        rig.end(producer)
        rig.settle()
        rig.markers.release()
        rig.advance(60)
        assert rig.state() == "PrepareCommit"
        assert len(rig.markers.sent) == 1


def test_a_coordinator_that_stood_still_completes_its_transactions() -> None:
    """The answers to its markers come before the controller's to its heartbeat."""
    rig, after = prepared_rig()
    rig.is_in_doubt = True
    rig.markers.release()
    rig.advance(1)
    rig.is_in_doubt = False
    rig.advance(1)
    assert rig.state() == "CompleteCommit"
    assert rig.add(after) is None


class TestNewLeaders:
    def test_markers_that_wait_are_sent_at_once(self) -> None:
        rig, _ = prepared_rig()
        rig.markers.errors[OTHER] = [errors.NotLeaderOrFollower("no leader")] * 20
        rig.markers.release()
        rig.advance(10)
        sent = len(rig.markers.sent)
        rig.markers.errors.clear()
        rig.transactions.leaders_changed()
        rig.settle()
        assert len(rig.markers.sent) == sent + 1
        assert rig.state() == "CompleteCommit"

    def test_the_waits_begin_anew(self) -> None:
        rig, _ = prepared_rig()
        rig.markers.errors[OTHER] = [errors.NotLeaderOrFollower("no leader")] * 20
        rig.markers.release()
        rig.advance(10)
        sent = len(rig.markers.sent)
        rig.transactions.leaders_changed()
        rig.advance(0.02)
        assert len(rig.markers.sent) == sent + 2

    def test_what_is_in_flight_is_not_sent_twice(self) -> None:
        rig, _ = prepared_rig()
        rig.transactions.leaders_changed()
        rig.advance(1)
        assert len(rig.markers.sent) == 1
