"""AddPartitionsToTxn: all partitions of a transaction or none, one transaction or many."""

from typing import Any

import pytest

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.server import Broker
from barnabas.errors import (
    InvalidProducerEpoch,
    OperationNotAttempted,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from broker.admin_rig import ask
from broker.handlers.transactions.transactions_rig import add, codes, producer, topics
from broker.handlers.transactions.transactions_rig import broker as broker

OLD, NEW = range(4), range(4, 6)


def many(broker: Broker, *transactions: AddPartitionsToTxnTransaction, version: int = 5) -> dict[str, dict[Any, int]]:
    answer = ask(broker, AddPartitionsToTxnRequest(transactions=transactions), version)
    return {result.transactional_id: codes(result.topic_results) for result in answer.results_by_transaction}


@pytest.mark.parametrize("version", OLD)
def test_one_partition_that_cannot_join_keeps_the_others_out(broker: Broker, version: int) -> None:
    sender = producer(broker)
    refused = add(broker, sender, ("t", 0), ("t", 9), ("__consumer_offsets", 0), version=version)
    assert refused == {
        ("t", 0): OperationNotAttempted.code,
        ("t", 9): UnknownTopicOrPartition.code,
        ("__consumer_offsets", 0): TopicAuthorizationFailed.code,
    }
    assert add(broker, sender, ("t", 0), ("t", 2), version=version) == {("t", 0): 0, ("t", 2): 0}
    fenced = InvalidProducerEpoch if version < 2 else ProducerFenced
    assert add(broker, (sender[0], sender[1] + 1), ("t", 0), version=version) == {("t", 0): fenced.code}


@pytest.mark.parametrize("version", NEW)
def test_each_transaction_of_a_brokers_request_has_its_own_answer(broker: Broker, version: int) -> None:
    one, two = producer(broker, "x"), producer(broker, "y")
    add(broker, one, ("t", 0))
    asked = [
        AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=sender[0], producer_epoch=sender[1], verify_only=verify, topics=places
        )
        for name, sender, verify, places in (
            ("x", one, True, topics(("t", 0), ("t", 1))),
            ("y", two, False, topics(("t", 0))),
            ("x", one, False, topics(("t", 2))),
        )
    ]
    assert many(broker, *asked, version=version) == {
        "x": {("t", 0): 0, ("t", 1): TransactionAbortable.code},
        "y": {("t", 0): 0},
    }
    assert many(broker, version=version) == {}


@pytest.mark.parametrize("is_broker", [False, True])
@pytest.mark.parametrize("verify_only", [False, True])
def test_requests_of_brokers_wait_for_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, verify_only: bool, is_broker: bool
) -> None:
    """They have many transactions, and one must not hold up the others."""
    asked: list[bool] = []

    def note(*_: Any, waits: bool, reply: Any, **__: Any) -> None:
        asked.append(waits)
        reply(None if not verify_only else {})

    monkeypatch.setattr(RequestContext, "is_broker", is_broker)
    monkeypatch.setattr(broker.transactions, "verify_partitions" if verify_only else "add_partitions", note)
    transaction = AddPartitionsToTxnTransaction(transactional_id="x", verify_only=verify_only, topics=topics(("t", 0)))
    many(broker, transaction)
    assert asked == [not is_broker]
