"""Producer ids, and their epochs."""

from typing import Any

import pytest

from barnabas.client.producer.producer_id import EPOCH_MAX, ProducerIds
from barnabas.errors import ClusterAuthorizationFailed
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from simulation.cluster import LATER, SingleClientCluster


@pytest.fixture
def cluster() -> SingleClientCluster:
    return SingleClientCluster()


def test_one_request_at_a_time_gives_an_id(cluster: SingleClientCluster) -> None:
    ids = ProducerIds(cluster.network_client)
    ids.request()
    ids.request()
    assert not ids.is_known
    assert cluster.run(lambda: ids.is_known, seconds=5)
    assert cluster.count(ApiKey.INIT_PRODUCER_ID) == 1
    assert ids.current.producer_epoch == 0


def test_an_epoch_goes_up_until_another_id_is_needed(cluster: SingleClientCluster) -> None:
    ids = ProducerIds(cluster.network_client)
    ids.take_response(InitProducerIdResponse(producer_id=77, producer_epoch=EPOCH_MAX - 1))
    ids.bump_epoch()
    assert ids.current == (77, EPOCH_MAX)
    ids.bump_epoch()
    assert not ids.is_known
    assert cluster.run(lambda: ids.is_known, seconds=5)
    assert ids.current.producer_id != 77


def test_an_error_that_stays_is_kept_and_nothing_more_is_asked(cluster: SingleClientCluster) -> None:
    code = ClusterAuthorizationFailed.code
    cluster.handlers[ApiKey.INIT_PRODUCER_ID] = lambda received: InitProducerIdResponse(error_code=code)
    ids = ProducerIds(cluster.network_client)
    ids.request()
    assert cluster.run(lambda: ids.error is not None, seconds=5)
    assert isinstance(ids.error, ClusterAuthorizationFailed)
    ids.request()
    cluster.run(seconds=5)
    assert cluster.count(ApiKey.INIT_PRODUCER_ID) == 1


def test_a_request_that_finds_nobody_may_be_made_again(cluster: SingleClientCluster) -> None:
    answers: list[Any] = []

    def later(received: Any) -> Any:
        answers.append(received)
        return LATER

    cluster.handlers[ApiKey.INIT_PRODUCER_ID] = later
    ids = ProducerIds(cluster.network_client)
    ids.request()
    cluster.run(seconds=100)
    assert ids.error is None
    before = len(answers)
    ids.request()
    assert cluster.run(lambda: len(answers) > before, seconds=5)
