"""AddOffsetsToTxn: the partition of a group's offsets joins the transaction."""

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import InvalidProducerEpoch, ProducerFenced
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
