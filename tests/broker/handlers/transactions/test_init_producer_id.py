"""InitProducerId over the wire, at every version."""

from typing import Any

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.testing import Broker
from broker.admin_rig import versions
from broker.wire import Wire, name_of


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_producer_ids_are_new_each_time(wire: Wire, version: int) -> None:
    def ask(**fields: Any) -> Any:
        return wire.ask(InitProducerIdRequest(transaction_timeout_ms=1000, **fields), version)

    answers = [ask(transactional_id=None) for _ in range(3)]
    assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [(0, 0)] * 3
    assert len({answer.producer_id for answer in answers}) == 3
    refused = ask(transactional_id="mine")  # of whose coordinator nobody has asked yet
    assert name_of(refused.error_code) == "NotCoordinator"
    assert (refused.producer_id, refused.producer_epoch) == (-1, -1)
    if version >= 3:
        assert name_of(ask(transactional_id=None, producer_id=5).error_code) == "InvalidRequest"


def test_producer_ids_are_never_given_twice_even_after_restarts() -> None:
    given: list[int] = []
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    with Broker() as broker:
        for _ in range(3):
            with Wire(broker) as wire:
                given += [wire.ask(request, 4).producer_id for _ in range(50)]
            broker.restart()
    assert len(set(given)) == 150
