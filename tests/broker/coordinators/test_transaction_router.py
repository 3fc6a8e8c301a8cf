"""Partition leaders ask the coordinator of a transactional id wherever it is."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.handlers.transactions.txn_offset_commit import handle
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.server import Broker
from barnabas.errors import InvalidTxnState, NotEnoughReplicas, TransactionAbortable, error_for
from barnabas.metadata.image import NO_LEADER
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.types import TopicPartition
from broker.admin_rig import CONNECTION, ask, create, running_broker
from broker.cluster.fake_peers import FakePeers
from broker.cluster.moved_partitions import OTHER, connect, disconnect, move, turn
from broker.cluster.test_remote_verification import response
from broker.produce_rig import ProduceRig, Sent

T0 = TopicPartition("t", 0)


class Rig:
    """The coordinator of "mine" is on another broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        ask(broker, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        ask(broker, FindCoordinatorRequest(key_type=1, coordinator_keys=["mine"]))
        self.producers = ProduceRig(broker)
        self.peers: FakePeers = connect(broker)
        self.elect(OTHER)

    def elect(self, coordinator: int) -> None:
        for index in range(2):
            move(self.broker, "__transaction_state", index, coordinator)

    def produce(self, version: int = 12) -> Sent:
        sent = self.producers.send(self.producers.batch(0), version)
        turn(self.broker)
        return sent

    def answer(self, code: int = 0, place: TopicPartition = T0) -> None:
        self.peers.take().answer(response({"mine": {place: code}}))
        turn(self.broker)

    def commit(self, version: int) -> "asyncio.Future[TxnOffsetCommitResponse]":
        """Commits an offset in the transaction."""
        partition = TxnOffsetCommitRequestPartition(partition_index=0)
        request = TxnOffsetCommitRequest(
            transactional_id="mine",
            group_id="g",
            producer_id=7,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        context = RequestContext(ApiKey.TXN_OFFSET_COMMIT, version, 1, b"", CONNECTION)  # type: ignore[arg-type]
        answer = handle(self.broker, request, context)
        assert isinstance(answer, asyncio.Future)
        turn(self.broker)
        return answer


def error_of(answer: "asyncio.Future[TxnOffsetCommitResponse]") -> str:
    code = answer.result().topics[0].partitions[0].error_code
    return type(error_for(code)).__name__ if code else ""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    settings = {"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 2}
    with running_broker(tmp_path, **settings) as broker:
        create(broker, "t", 3)
        real = broker.transactions
        rig = Rig(broker)
        rig.producers.coordinator.partition_for = real.partition_for  # type: ignore[attr-defined]
        try:
            yield rig
        finally:
            disconnect(broker)
            broker.transactions = real


@pytest.mark.parametrize(("version", "verify_only"), [(11, True), (12, False)])
def test_a_coordinator_on_another_broker_is_asked(rig: Rig, version: int, verify_only: bool) -> None:
    sent = rig.produce(version)
    assert sent.waits
    (transaction,) = rig.peers.sent[0].request.transactions
    assert (rig.peers.sent[0].node_id, transaction.transactional_id) == (OTHER, "mine")
    assert (transaction.producer_id, transaction.verify_only) == (7, verify_only)
    rig.answer()
    assert (sent.errors, sent.offsets) == ([""], [0])


@pytest.mark.parametrize(
    ("version", "error"), [(10, InvalidTxnState), (11, TransactionAbortable), (12, TransactionAbortable)]
)
def test_clients_get_the_error_that_they_know(rig: Rig, version: int, error: type[Exception]) -> None:
    sent = rig.produce(version)
    rig.answer(TransactionAbortable.code)
    assert sent.errors == [error.__name__]


def test_an_end_marker_overtakes_the_answer_of_the_other_broker(rig: Rig) -> None:
    sent = rig.produce(11)
    assert rig.producers.end() is None
    rig.answer()
    assert sent.errors == ["InvalidTxnState"]
    assert rig.producers.values() == []


def test_a_coordinator_here_is_asked_here(rig: Rig) -> None:
    rig.elect(rig.broker.node_id)
    sent = rig.produce()
    assert not rig.peers.sent
    rig.producers.coordinator.last.grant()
    assert sent.errors == [""]


@pytest.mark.parametrize("coordinator", [NO_LEADER, 5])
def test_without_a_live_coordinator_producers_try_again(rig: Rig, coordinator: int) -> None:
    rig.elect(coordinator)
    assert rig.produce().errors == ["NotEnoughReplicas"]
    assert rig.produce(11).errors == ["NotEnoughReplicas"]


def test_without_room_for_the_code_that_asks_producers_try_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.broker.coordinators.transaction_router.import_late", refuse)
        assert rig.produce().errors == ["NotEnoughReplicas"]
    sent = rig.produce()
    rig.answer()
    assert sent.errors == [""]


def test_a_coordinator_that_is_fenced_meanwhile_is_not_waited_for(rig: Rig) -> None:
    sent = rig.produce()
    connect(rig.broker, fenced=True)
    rig.broker._transaction_router.brokers_changed()
    turn(rig.broker)
    assert sent.errors == [NotEnoughReplicas.__name__]
    assert len(rig.producers.log().producers.guards) == 1, "the producer sends the batch again"


@pytest.mark.parametrize(
    ("version", "code", "error"),
    [
        (3, 0, ""),
        (5, 0, ""),
        (3, TransactionAbortable.code, "InvalidTxnState"),
        (4, TransactionAbortable.code, "TransactionAbortable"),
    ],
)
def test_offsets_in_a_transaction(rig: Rig, version: int, code: int, error: str) -> None:
    answer = rig.commit(version)
    place = TopicPartition("__consumer_offsets", rig.broker.groups.partition_for("g"))
    (transaction,) = rig.peers.sent[0].request.transactions
    assert transaction.verify_only == (version < 5)
    rig.answer(code, place)
    assert error_of(answer) == error


def test_offsets_whose_coordinator_cannot_be_asked(rig: Rig) -> None:
    answer = rig.commit(5)
    connect(rig.broker, fenced=True)
    rig.broker._transaction_router.brokers_changed()
    turn(rig.broker)
    assert error_of(answer) == "CoordinatorLoadInProgress"
