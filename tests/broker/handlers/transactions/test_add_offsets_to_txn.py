"""AddOffsetsToTxn: the partition of a group's offsets joins the transaction."""

import pytest

from barnabas.broker.server import Broker
from barnabas.controller.controller import Controller
from barnabas.errors import CoordinatorLoadInProgress, InvalidProducerEpoch, InvalidReplicationFactor, ProducerFenced
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from broker.admin_rig import ask, versions
from broker.handlers.transactions.transactions_rig import broker as broker
from broker.handlers.transactions.transactions_rig import producer


@pytest.mark.parametrize("version", versions(ApiKey.ADD_OFFSETS_TO_TXN))
def test_the_groups_partition_joins(broker: Broker, version: int) -> None:
    producer_id, epoch = producer(broker)

    def add(epoch: int) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id="g"
        )
        return int(ask(broker, request, version).error_code)

    assert add(epoch) == add(epoch) == 0
    (state,) = ask(broker, DescribeTransactionsRequest(transactional_ids=["x"])).transaction_states
    assert [(topic.topic, list(topic.partitions)) for topic in state.topics] == [
        ("__consumer_offsets", [broker.groups.partition_for("g")])
    ]
    fenced = InvalidProducerEpoch if version < 2 else ProducerFenced
    assert add(epoch + 1) == fenced.code


def test_the_topic_of_the_offsets_is_created_first(broker: Broker) -> None:
    """A partition that no broker has would be taken for a deleted one when the transaction ends."""
    assert "__consumer_offsets" not in broker.image.topics
    producer_id, epoch = producer(broker)
    request = AddOffsetsToTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id="g")
    assert ask(broker, request).error_code == 0
    assert "__consumer_offsets" in broker.image.topics


def test_without_the_topic_nothing_joins(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Controller, names: object) -> None:
        raise InvalidReplicationFactor("too few brokers")

    monkeypatch.setattr(Controller, "auto_create_topics", refuse)
    producer_id, epoch = producer(broker)
    request = AddOffsetsToTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id="g")
    assert ask(broker, request).error_code == CoordinatorLoadInProgress.code
    (state,) = ask(broker, DescribeTransactionsRequest(transactional_ids=["x"])).transaction_states
    assert state.transaction_state == "Empty"
