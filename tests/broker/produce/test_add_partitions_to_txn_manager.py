"""When a partition's leader asks the transactions' coordinator, and what the answer and the guard do."""

from pathlib import Path

import pytest

from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
    TransactionAbortable,
)
from barnabas.log.producers.verification_guards import Sender
from barnabas.types import TopicPartition
from broker.produce_rig import ProduceRig, produce_rig
from broker.produce_rig import rig as rig
from broker.sent_requests import batch


@pytest.mark.parametrize("version", range(3, 14))
def test_the_first_batch_of_a_transaction_asks_its_coordinator(rig: ProduceRig, version: int) -> None:
    first = rig.send(rig.batch(0), version)
    assert first.waits
    ask = rig.coordinator.last
    assert (ask.transactional_id, ask.producer) == ("mine", (7, 0))
    assert ask.partitions == [TopicPartition("t", 0)]
    assert ask.verify_only == (version < 12)
    assert rig.log().log_end_offset == 0
    ask.grant()
    assert (first.errors, first.offsets) == ([""], [0])
    assert rig.log().last_stable_offset == 0
    assert rig.send(rig.batch(1), version).offsets == [1]
    assert rig.send(rig.batch(2), version).offsets == [2]
    assert len(rig.coordinator.asks) == 1


def test_an_answer_that_is_there_at_once_parks_nobody(rig: ProduceRig) -> None:
    rig.coordinator.at_once = None
    assert rig.send(rig.batch(0)).offsets == [0]
    assert rig.broker.produce_queues.waiting == {}


def test_each_transaction_asks_anew(rig: ProduceRig) -> None:
    rig.begin(0)
    assert rig.end(commit=True) is None
    assert rig.send(rig.batch(1), 11).waits
    assert len(rig.coordinator.asks) == 2


def test_a_higher_epoch_asks_anew(rig: ProduceRig) -> None:
    rig.begin(0)
    assert rig.send(rig.batch(0, epoch=1)).waits


def test_partitions_of_a_request_are_asked_for_together(rig: ProduceRig) -> None:
    rig.begin(0)
    sent = rig.send({0: rig.batch(1), 1: rig.batch(0), 2: batch(b"plain")})
    assert rig.coordinator.last.partitions == [TopicPartition("t", 1)]
    assert [rig.log(index).log_end_offset for index in range(3)] == [1, 0, 0]
    rig.coordinator.last.grant()
    assert (sent.errors, sent.offsets) == (["", "", ""], [1, 0, 0])


def test_refused_partitions_fail_alone(rig: ProduceRig) -> None:
    sent = rig.send({0: rig.batch(0), 1: rig.batch(0), 2: batch(b"plain"), 9: rig.batch(0)})
    rig.coordinator.last.refuse(TransactionAbortable("not yours"), 1)
    assert sent.errors == ["", "TransactionAbortable", "", "UnknownTopicOrPartition"]
    assert [rig.log(index).log_end_offset for index in range(3)] == [1, 0, 1]
    assert sent.results[1].log_start_offset == -1


@pytest.mark.parametrize("version", [9, 10, 11, 12, 13])
@pytest.mark.parametrize(
    ("error", "known"),
    [
        (TransactionAbortable("x"), {9: "InvalidTxnState", 11: "TransactionAbortable"}),
        (InvalidTxnState("x"), {9: "InvalidTxnState"}),
        (InvalidProducerEpoch("x"), {9: "InvalidProducerEpoch"}),
        (InvalidProducerIdMapping("x"), {9: "InvalidProducerIdMapping"}),
        (ConcurrentTransactions("x"), {9: "NotEnoughReplicas", 12: "ConcurrentTransactions"}),
        (CoordinatorLoadInProgress("x"), {9: "NotEnoughReplicas"}),
        (CoordinatorNotAvailable("x"), {9: "NotEnoughReplicas"}),
        (NotCoordinator("x"), {9: "NotEnoughReplicas"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_as_each_version_knows_them(
    rig: ProduceRig, version: int, error: KafkaError, known: dict[int, str]
) -> None:
    rig.coordinator.at_once = error
    expected = known[max(first for first in known if first <= version)]
    assert rig.send(rig.batch(0), version).errors == [expected]
    assert rig.log().log_end_offset == 0


class TestTheGuard:
    def test_an_end_marker_overtakes_the_answer(self, rig: ProduceRig) -> None:
        """The coordinator agreed, then ended the transaction: the batch would belong to none, and hang for ever."""
        sent = rig.send(rig.batch(0), 11)
        assert rig.end() is None
        rig.coordinator.last.grant()
        assert sent.errors == ["InvalidTxnState"]
        assert sent.results[0].log_start_offset == 0
        assert (rig.log().log_end_offset, rig.log().last_stable_offset) == (1, 1)

    @pytest.mark.parametrize(
        ("version", "transaction_version", "error"),
        [(12, 2, ""), (12, 1, "InvalidTxnState"), (11, 2, "InvalidTxnState")],
    )
    def test_the_marker_of_the_last_transaction_comes_after_the_first_batch_of_the_next_one(
        self, rig: ProduceRig, version: int, transaction_version: int, error: str
    ) -> None:
        """The coordinator is on another broker: its marker is under way while the producer goes on. The epoch of the
        marker tells the transactions apart, where each has its own."""
        rig.begin(0)
        sent = rig.send(rig.batch(0, epoch=1), version)
        assert rig.end(epoch=1, transaction_version=transaction_version) is None
        rig.coordinator.last.grant()
        assert sent.errors == [error]
        assert rig.log().last_stable_offset == 2, "the next transaction begins behind the marker"

    def test_the_marker_of_its_own_transaction_ends_the_guard(self, rig: ProduceRig) -> None:
        sent = rig.send(rig.batch(0, epoch=1))
        assert rig.end(epoch=2, transaction_version=2) is None
        rig.coordinator.last.grant()
        assert sent.errors == ["InvalidProducerEpoch"]
        assert len(rig.log().producers.guards) == 0

    def test_a_marker_in_the_highest_epoch_ends_the_guard(self, rig: ProduceRig) -> None:
        """No epoch follows it, so it may be that of the guard's own transaction."""
        sent = rig.send(rig.batch(0, epoch=32767))
        assert rig.end(epoch=32767, transaction_version=2) is None
        rig.coordinator.last.grant()
        assert sent.errors == ["InvalidTxnState"]

    def test_an_old_answer_does_not_serve_the_next_transaction(self, rig: ProduceRig) -> None:
        old = rig.send(rig.batch(0), 11)
        rig.end()
        late = rig.coordinator.last
        other = rig.send(rig.batch(0), 11)
        late.grant()
        assert old.errors == ["InvalidTxnState"]
        assert other.waits, "it has to be asked for itself"
        assert rig.coordinator.last is not late
        rig.coordinator.last.grant()
        assert other.offsets == [1]

    def test_a_marker_of_another_producer_takes_nothing_away(self, rig: ProduceRig) -> None:
        sent = rig.send(rig.batch(0))
        rig.end(producer_id=8)
        rig.coordinator.last.grant()
        assert sent.errors == [""]

    def test_a_marker_with_a_raised_epoch_fences_who_waits(self, rig: ProduceRig) -> None:
        sent = rig.send(rig.batch(0))
        rig.end(epoch=1)
        rig.coordinator.last.grant()
        assert sent.errors == ["InvalidProducerEpoch"]

    def test_a_stale_epoch_is_not_asked_for(self, rig: ProduceRig) -> None:
        rig.end(epoch=5)
        assert rig.send(rig.batch(0, epoch=4)).errors == ["InvalidProducerEpoch"]
        assert rig.coordinator.asks == []

    def test_batches_behind_a_refused_one_do_not_get_in_before_it(self, rig: ProduceRig) -> None:
        sent = [rig.send(rig.batch(sequence), 11) for sequence in range(3)]
        rig.coordinator.at_once = None
        rig.coordinator.last.refuse(NotCoordinator("not here"))
        assert [one.errors for one in sent] == [
            ["NotEnoughReplicas"],
            ["OutOfOrderSequenceNumber"],
            ["OutOfOrderSequenceNumber"],
        ]
        again = [rig.send(rig.batch(sequence), 11) for sequence in range(3)]
        assert [one.errors for one in again] == [[""]] * 3
        assert rig.values() == [b"v0", b"v1", b"v2"]

    def test_a_refused_transaction_does_not_keep_the_next_one_out(self, rig: ProduceRig) -> None:
        """A producer never repeats a batch that was refused for good: the next transaction may begin after it."""
        refused = rig.send({0: rig.batch(0), 1: rig.batch(0)}, 11)
        rig.coordinator.last.refuse(TransactionAbortable("not yours"), 0)
        assert refused.errors == ["TransactionAbortable", ""]
        assert [len(rig.log(index).producers.guards) for index in range(2)] == [0, 0]
        rig.coordinator.at_once = None
        assert rig.send(rig.batch(1), 11).errors == [""]

    def test_what_may_come_again_keeps_its_guard(self, rig: ProduceRig) -> None:
        rig.coordinator.at_once = ConcurrentTransactions("markers under way")
        rig.send(rig.batch(0), 11)
        assert len(rig.log().producers.guards) == 1

    def test_a_refusal_takes_no_younger_guard_away(self, rig: ProduceRig) -> None:
        """An end marker has taken the first guard; another request of the producer has one of its own."""
        rig.send(rig.batch(0), 11)
        rig.end()
        younger = rig.log().begin_verification(Sender(7, 0, 0), starts_at_zero=False)
        assert younger is not None
        rig.coordinator.last.refuse(TransactionAbortable("over"))
        assert rig.log().producers.guards.holds(7, younger)

    @pytest.mark.parametrize(("version", "error"), [(11, ""), (12, "OutOfOrderSequenceNumber")])
    def test_sequences_of_raised_epochs_begin_with_0(self, rig: ProduceRig, version: int, error: str) -> None:
        """Without records here an older producer may begin anywhere: its first ones may have been deleted."""
        rig.coordinator.at_once = None
        assert rig.send(rig.batch(5), version).errors == [error]


def test_verification_can_be_switched_off(tmp_path: Path) -> None:
    with produce_rig(tmp_path, transaction_partition_verification_enable=False) as rig:
        assert rig.send(rig.batch(0), 11).offsets == [0]
        assert rig.coordinator.asks == []
        assert rig.send({1: rig.batch(0)}, 12).waits, "the partition has to join the transaction all the same"
