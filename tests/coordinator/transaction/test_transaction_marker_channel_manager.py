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
