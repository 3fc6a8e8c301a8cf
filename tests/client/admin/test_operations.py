"""Operations on several items at several brokers, in simulated time."""

from typing import Any

import pytest

from barnabas.client.admin.operations import AdminApiDriver
from barnabas.connection.flow import settle
from barnabas.connection.network_client import Node
from barnabas.connection.retry import Answer
from barnabas.errors import ItemsFailed, NotLeaderOrFollower, OperationTimedOut
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from simulation.cluster import SILENT, SingleClientCluster


@pytest.mark.parametrize("retries", [0, 5])
def test_an_item_whose_broker_is_silent_does_not_get_the_error_of_another(retries: int) -> None:
    cluster = SingleClientCluster(nodes=2)
    cluster.handlers[ApiKey.LIST_GROUPS] = lambda received: (
        ListGroupsResponse(error_code=NotLeaderOrFollower.code) if received.node_id == 1 else SILENT
    )
    driver = AdminApiDriver(
        cluster.network_client, "list_groups", timeout_s=3.0, request_timeout_s=30.0, retries=retries
    )

    def answers(response: Any, numbers: list[int]) -> list[Answer[int, None]]:
        return [(number, response.error_code, None) for number in numbers]

    cluster.result(cluster.network_client.refresh_metadata())
    with pytest.raises(ItemsFailed) as raised:
        cluster.result(settle(driver.run([1, 2], Node, lambda numbers: ListGroupsRequest(), answers)))
    assert isinstance(raised.value.failed[2], OperationTimedOut)
