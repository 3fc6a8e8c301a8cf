"""Stories about transactions: what the coordinator decides, in which order things happen, what survives what.

What every single request answers is compared with Kafka's own answers in `test_transaction_golden.py`.
"""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas import errors
from barnabas.coordinator.transaction.transaction_coordinator_shard import TransactionCoordinatorShard
from barnabas.types import TopicPartition
from coordinator.group_rig import Later
from coordinator.transaction_rig import ORDERS, OTHER, TransactionRig, prepared_rig


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

    def test_writes_that_fail_for_one_reason_are_told_once(self, caplog: pytest.LogCaptureFixture) -> None:
        rig = TransactionRig()
        for times, failure in ((3, errors.NotEnoughReplicas("one of two")), (1, None), (2, errors.NotEnoughReplicas())):
            rig.log.fail = failure
            for _ in range(times):
                rig.init()
        assert [record.getMessage().partition(" failed: ")[2] for record in caplog.records] == [
            "one of two",
            "NOT_ENOUGH_REPLICAS",
        ]

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


Asked = Callable[[], Later]


def _commits_nothing(rig: TransactionRig) -> Asked:
    producer = rig.producer()
    return lambda: rig.end_later(producer)


def _has_an_older_epoch(rig: TransactionRig) -> Asked:
    producer = rig.producer()
    rig.producer()
    return lambda: rig.add_later(producer)


def _has_an_unknown_id(rig: TransactionRig) -> Asked:
    return lambda: rig.end_later((1, 0), transactional_id="unknown")


def _is_not_in_the_transaction(rig: TransactionRig) -> Asked:
    producer = rig.producer()
    rig.add(producer, ORDERS)

    def ask() -> Later:
        later = Later()
        rig.transactions.verify_partitions("t", producer, [OTHER], reply=later)
        return later

    return ask


def _ends_the_next_transaction_as_the_last(rig: TransactionRig) -> Asked:
    """Without transaction.version 2, it looks like a retry."""
    producer = rig.producer()
    rig.add(producer, transaction_version=0)
    rig.end(producer, transaction_version=0)
    rig.settle()
    return lambda: rig.end_later(producer, transaction_version=0)


@pytest.mark.parametrize(
    ("prepare", "response"),
    [
        (_commits_nothing, errors.InvalidTxnState),
        (_has_an_older_epoch, errors.ProducerFenced),
        (_has_an_unknown_id, errors.InvalidProducerIdMapping),
        (_is_not_in_the_transaction, errors.TransactionAbortable),
        (_ends_the_next_transaction_as_the_last, tuple),
    ],
)
class TestCutOff:
    """A coordinator that followers have left knows less than the next one."""

    def _asked(self, prepare: Callable[[TransactionRig], Asked]) -> tuple[TransactionRig, Later]:
        rig = TransactionRig()
        ask = prepare(rig)
        rig.log.replicated = False
        answer = ask()
        rig.advance(1)
        assert not answer.done
        return rig, answer

    def test_what_ends_a_transaction_is_told_once_it_is_certain(self, prepare: Any, response: Any) -> None:
        rig, answer = self._asked(prepare)
        rig.transactions.on_high_watermark(0, rig.log.commit(0))
        found = answer.value[OTHER] if isinstance(answer.value, dict) else answer.value
        assert type(found) is response

    def test_the_next_coordinator_is_asked(self, prepare: Any, response: Any) -> None:
        rig, answer = self._asked(prepare)
        rig.transactions.on_resigned(0, rig.epoch + 1)  # type: ignore[arg-type]
        assert type(answer.value) is errors.NotCoordinator

    def test_the_producer_asks_again(self, prepare: Any, response: Any) -> None:
        rig, answer = self._asked(prepare)
        rig.advance(rig.config.commit_timeout_ms / 1000)
        assert answer.value.retriable


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


class TestRequestsThatDoNotWait:
    """Those of other brokers: one transaction must not hold up the others of the request."""

    def add(self, rig: TransactionRig, producer: tuple[int, int]) -> Later:
        later = Later()
        rig.transactions.add_partitions("t", producer, [ORDERS], transaction_version=2, waits=False, reply=later)
        return later

    def test_end_markers_that_are_being_written(self) -> None:
        rig, after = prepared_rig()
        assert isinstance(self.add(rig, after).value, errors.ConcurrentTransactions)
        rig.markers.release()
        assert self.add(rig, after).value is None

    def test_a_partition_that_is_being_loaded(self) -> None:
        rig = TransactionRig()
        producer = rig.producer()
        rig.transactions.on_elected(0, rig.epoch + 1)
        assert isinstance(self.add(rig, producer).value, errors.CoordinatorLoadInProgress)
        verified = Later()
        rig.transactions.verify_partitions("t", producer, [ORDERS], waits=False, reply=verified)
        assert isinstance(verified.value, errors.CoordinatorLoadInProgress)
        rig.settle()
        assert self.add(rig, producer).value is None
