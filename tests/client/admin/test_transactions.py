"""Transactions and their producers, by both administrators."""

from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ItemsFailed,
    ProducerFenced,
    TransactionalIdNotFound,
    UsageError,
)
from barnabas.testing import Broker
from barnabas.types import TopicPartition


def test_transactions(admin: Any, broker: Broker, name: str) -> None:
    broker.create_topic(name)
    assert name not in {t.transactional_id for t in admin.list_transactions(states=["Ongoing"], pattern=name)}
    with pytest.raises(ItemsFailed) as caught:
        admin.describe_transactions(name)
    assert caught.value.only(TransactionalIdNotFound)
    with pytest.raises(UsageError, match="never in state Odd"):
        admin.list_transactions(states=["Odd"])
    assert admin.describe_producers([(name, 0)]) == {TopicPartition(name, 0): []}


@pytest.mark.parametrize("committed", [True, False])
def test_the_transaction_of_another_process_is_ended(admin: Any, broker: Broker, name: str, committed: bool) -> None:
    broker.create_topic(name)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"a").result(60)
        told = producer.metrics()
        who = {key: told[key] for key in ("producer_id", "producer_epoch")}
        producer.close(0)
    with pytest.raises(ProducerFenced, match=name):
        admin.end_transaction(name, **{**who, "producer_epoch": 77}, committed=committed)
    with pytest.raises(InvalidProducerIdMapping, match=name):
        admin.end_transaction(name, **{**who, "producer_id": 77_777}, committed=committed)
    for _ in range(2):
        admin.end_transaction(name, **who, committed=committed)
    with pytest.raises(InvalidTxnState if committed else ProducerFenced, match=name):
        admin.end_transaction(name, **who, committed=not committed)
    end = admin.list_offsets({(name, 0): "latest"}, isolation="read_committed")[TopicPartition(name, 0)].offset
    assert end == 2
    state = admin.describe_transactions(name)[name].state
    assert state == ("CompleteCommit" if committed else "CompleteAbort")


def test_a_marker_is_written_in_the_epoch_that_is_known(admin: Any, broker: Broker, name: str) -> None:
    broker.create_topic(name)
    where = TopicPartition(name, 0)
    admin.abort_transaction(where, producer_id=900_100, producer_epoch=3, coordinator_epoch=0)
    assert admin.list_offsets({where: "latest"})[where].offset == 1
    with pytest.raises(ItemsFailed) as caught:
        admin.abort_transaction(where, producer_id=900_100, producer_epoch=2, coordinator_epoch=0)
    assert caught.value.only(InvalidProducerEpoch)
