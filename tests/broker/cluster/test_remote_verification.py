"""Questions to transaction coordinators on other brokers: the requests, and what each answer means for a producer."""

import logging
from typing import Any

import pytest

from barnabas.broker.cluster import peer_batches
from barnabas.broker.cluster.remote_verification import Outcomes, RemoteVerification
from barnabas.broker.process.failure_log import FailureLog
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import (
    BrokerNotAvailable,
    ClusterAuthorizationFailed,
    ConcurrentTransactions,
    ConnectionLost,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    NetworkException,
    NotCoordinator,
    OperationNotAttempted,
    ProducerFenced,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas.types import ProducerId, TopicPartition
from broker.cluster.fake_peers import FakePeers, Sent
from coordinator.group_rig import VirtualScheduler

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
RETRY_MAX_MS = 100


class Rig:
    def __init__(self) -> None:
        self.scheduler = VirtualScheduler()
        self.peers = FakePeers()
        self.remote = RemoteVerification(
            lambda: self.peers,
            self.scheduler,
            FailureLog(logging.getLogger("test"), SYSTEM_CLOCK),
            lambda: RETRY_MAX_MS,
        )
        self.replies: list[tuple[str, Outcomes]] = []

    def ask(
        self, transactional_id: str, *partitions: TopicPartition, verify_only: bool = True, node_id: int = 2
    ) -> None:
        self.remote.verify_or_add(
            node_id,
            transactional_id,
            ProducerId(7),
            3,
            partitions or (T0,),
            verify_only=verify_only,
            reply=lambda outcomes: self.replies.append((transactional_id, outcomes)),
        )

    def sent(self) -> Sent:
        self.scheduler.advance(0.0)
        return self.peers.take()

    def answer(self, codes: dict[str, dict[TopicPartition, int]]) -> None:
        self.sent().answer(response(codes))

    @property
    def errors(self) -> list[type | None]:
        ((_, outcomes),) = self.replies
        return [error if error is None else type(error) for error in outcomes.values()]


def response(codes: dict[str, dict[TopicPartition, int]]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=partition.topic,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=partition.partition, partition_error_code=code
                            )
                        ],
                    )
                    for partition, code in of_transaction.items()
                ],
            )
            for transactional_id, of_transaction in codes.items()
        ]
    )


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_one_request_asks_about_many_transactions(rig: Rig) -> None:
    rig.ask("x", T0, U0, T1)
    rig.ask("y", T0, verify_only=False)
    sent = rig.sent()
    assert sent.node_id == 2
    assert [
        (
            transaction.transactional_id,
            (transaction.producer_id, transaction.producer_epoch),
            transaction.verify_only,
            {topic.name: list(topic.partitions) for topic in transaction.topics},
        )
        for transaction in sent.request.transactions
    ] == [("x", (7, 3), True, {"t": [0, 1], "u": [0]}), ("y", (7, 3), False, {"t": [0]})]
    sent.answer(response({"x": {T0: 0, T1: TransactionAbortable.code, U0: 0}, "y": {T0: 0}}))
    (x, of_x), (y, of_y) = rig.replies
    assert (x, of_x[T0], of_x[U0], type(of_x[T1])) == ("x", None, None, TransactionAbortable)
    assert (y, of_y) == ("y", {T0: None})


def test_one_request_is_in_flight_to_each_broker(rig: Rig) -> None:
    rig.ask("x")
    first = rig.sent()
    rig.ask("y")
    rig.ask("z", node_id=3)
    assert rig.sent().node_id == 3
    assert not rig.peers.sent
    first.answer(response({"x": {T0: 0}}))
    rig.answer({"y": {T0: 0}})
    assert [name for name, _ in rig.replies] == ["x", "y"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (TransactionAbortable.code, TransactionAbortable),
        (InvalidTxnState.code, InvalidTxnState),
        (InvalidProducerEpoch.code, InvalidProducerEpoch),
        (ProducerFenced.code, InvalidProducerEpoch),
        (InvalidProducerIdMapping.code, InvalidProducerIdMapping),
        (CoordinatorLoadInProgress.code, CoordinatorLoadInProgress),
        (NotCoordinator.code, NotCoordinator),
        (UnknownTopicOrPartition.code, CoordinatorNotAvailable),
        (OperationNotAttempted.code, CoordinatorNotAvailable),
    ],
)
def test_errors_of_the_coordinator(rig: Rig, code: int, error: type[KafkaError]) -> None:
    rig.ask("x")
    rig.answer({"x": {T0: code}})
    assert rig.errors == [error]


def test_what_is_not_answered_is_not_verified(rig: Rig) -> None:
    rig.ask("x", T0, T1)
    rig.answer({"x": {T0: 0}})
    assert rig.errors == [None, CoordinatorNotAvailable]
    rig.replies.clear()
    rig.ask("x")
    rig.answer({})
    assert rig.errors == [CoordinatorNotAvailable]


def test_a_refused_request_verifies_nothing(rig: Rig) -> None:
    rig.ask("x")
    rig.sent().answer(AddPartitionsToTxnResponse(error_code=ClusterAuthorizationFailed.code))
    assert rig.errors == [ClusterAuthorizationFailed]


@pytest.mark.parametrize("error", [ConnectionLost("lost"), BrokerNotAvailable("not registered")])
def test_a_broker_that_cannot_be_asked(rig: Rig, error: Any) -> None:
    rig.ask("x", T0, T1)
    rig.sent().fail(error)
    assert rig.errors == [NetworkException] * 2


def test_a_broker_that_is_not_active_any_more(rig: Rig) -> None:
    rig.ask("x")
    rig.sent()
    rig.ask("y")
    rig.ask("z", node_id=3)
    rig.remote.brokers_changed(lambda node_id: node_id == 3)
    assert [(name, type(outcomes[T0])) for name, outcomes in rig.replies] == [
        ("x", NetworkException),
        ("y", NetworkException),
    ]


def test_too_many_questions(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_batches, "QUEUED_MAX", 1)
    rig.ask("x")
    rig.ask("y")
    assert rig.errors == [CoordinatorNotAvailable]


class TestWhileTheLastTransactionIsBeingEnded:
    BUSY = ConcurrentTransactions.code

    def test_a_partition_that_joins_the_next_one_is_sent_again(self, rig: Rig) -> None:
        rig.ask("x", verify_only=False)
        rig.answer({"x": {T0: self.BUSY}})
        rig.scheduler.advance(0.001)
        assert not rig.peers.sent
        rig.scheduler.advance(0.001)
        rig.answer({"x": {T0: 0}})
        assert rig.errors == [None]

    def test_others_do_not_wait_for_it(self, rig: Rig) -> None:
        rig.ask("x", verify_only=False)
        rig.ask("y")
        rig.answer({"x": {T0: self.BUSY}, "y": {T0: 0}})
        assert [name for name, _ in rig.replies] == ["y"]

    def test_it_is_not_sent_for_ever(self, rig: Rig) -> None:
        rig.ask("x", verify_only=False)
        begun, asked_ms = rig.scheduler.now, []
        while not rig.replies:
            while not rig.peers.sent:
                rig.scheduler.advance(0.001)
            asked_ms.append(round((rig.scheduler.now - begun) * 1000))
            rig.answer({"x": {T0: self.BUSY}})
        assert rig.errors == [ConcurrentTransactions]
        assert [ms - asked_ms[0] for ms in asked_ms] == [0, 2, 6, 14, 30, 50, 70, 90]

    def test_a_verification_is_not_sent_again(self, rig: Rig) -> None:
        rig.ask("x")
        rig.answer({"x": {T0: self.BUSY}})
        assert rig.errors == [ConcurrentTransactions]
