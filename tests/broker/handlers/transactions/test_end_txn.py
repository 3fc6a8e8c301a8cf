"""EndTxn at every version: the producer's next epoch, retries, fenced producers."""

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import InvalidProducerEpoch, ProducerFenced
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.admin_rig import ask, versions
from broker.handlers.transactions.transactions_rig import add, producer
from broker.handlers.transactions.transactions_rig import broker as broker


def end(broker: Broker, sender: tuple[int, int], version: int, *, commit: bool = True) -> EndTxnResponse:
    request = EndTxnRequest(transactional_id="x", producer_id=sender[0], producer_epoch=sender[1], committed=commit)
    answer: EndTxnResponse = ask(broker, request, version)
    return answer


@pytest.mark.parametrize("version", versions(ApiKey.END_TXN))
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_once(broker: Broker, version: int, commit: bool) -> None:
    producer_id, epoch = producer(broker)
    add(broker, (producer_id, epoch), ("t", 0), ("t", 1))
    answer = end(broker, (producer_id, epoch), version, commit=commit)
    assert answer.error_code == 0
    raises_epoch = version >= 5
    assert (answer.producer_id, answer.producer_epoch) == ((producer_id, epoch + 1) if raises_epoch else (-1, -1))


@pytest.mark.parametrize("version", versions(ApiKey.END_TXN))
def test_a_producer_that_another_one_replaced(broker: Broker, version: int) -> None:
    producer_id, epoch = producer(broker)
    producer(broker)
    fenced = InvalidProducerEpoch if version < 2 else ProducerFenced
    assert end(broker, (producer_id, epoch), version).error_code == fenced.code
