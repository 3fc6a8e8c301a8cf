"""Operations on several items at several brokers, in simulated time."""

from typing import Any

import pytest

from barnabas.client.admin.admin_client import KafkaAdminClient
from barnabas.client.admin.groups import GroupListing
from barnabas.client.admin.operations import AdminApiDriver
from barnabas.client.settings.admin import AdminSettings
from barnabas.connection.flow import settle
from barnabas.connection.network_client import Node
from barnabas.connection.retry import Answer
from barnabas.errors import BrokerNotAvailable, ItemsFailed, LeaderNotAvailable, NotLeaderOrFollower, OperationTimedOut
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.types import TopicPartition
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


def listed(cluster: SingleClientCluster) -> list[GroupListing]:
    admin = KafkaAdminClient(cluster.network_client, AdminSettings())
    groups: list[GroupListing] = cluster.result(settle(admin.list_groups()))
    return groups


@pytest.fixture
def cluster() -> SingleClientCluster:
    """Three brokers, each with a group of its own. Metadata names all of them."""
    cluster = SingleClientCluster(nodes=3)
    cluster.handlers[ApiKey.LIST_GROUPS] = lambda received: ListGroupsResponse(
        groups=[ListedGroup(group_id=f"g{received.node_id}")]
    )
    return cluster


def live(*node_ids: int) -> DescribeClusterResponse:
    brokers = [DescribeClusterBroker(broker_id=node_id, host=f"n{node_id}", port=9092) for node_id in node_ids]
    return DescribeClusterResponse(brokers=brokers)


def test_a_dead_broker_that_metadata_still_names_is_not_asked(cluster: SingleClientCluster) -> None:
    cluster.handlers[ApiKey.DESCRIBE_CLUSTER] = lambda received: live(1, 2)
    cluster.up.discard(3)
    assert [group.group_id for group in listed(cluster)] == ["g1", "g2"]
    assert "n3" not in cluster.connected


def test_a_broker_that_dies_meanwhile_is_told_by_name(cluster: SingleClientCluster) -> None:
    def dies(received: object) -> DescribeClusterResponse:
        cluster.up.discard(3)
        cluster.nodes = 2
        return live(1, 2, 3)

    cluster.handlers[ApiKey.DESCRIBE_CLUSTER] = dies
    began = cluster.now
    with pytest.raises(ItemsFailed, match="list_groups failed for 1 of 3: broker 3: it has left the cluster") as raised:
        listed(cluster)
    assert isinstance(raised.value.failed[3], BrokerNotAvailable)
    assert raised.value.succeeded.keys() == {1, 2}
    assert cluster.now - began < 5


def test_before_kafka_2_8_metadata_says_which_brokers_live(cluster: SingleClientCluster) -> None:
    del cluster.versions[ApiKey.DESCRIBE_CLUSTER]
    assert [group.group_id for group in listed(cluster)] == ["g1", "g2", "g3"]


def test_the_partition_without_a_leader_is_named_and_the_others_are_answered() -> None:
    cluster = SingleClientCluster({"t": 2}, nodes=2)
    cluster.topics["t"][1] = -1
    admin = KafkaAdminClient(cluster.network_client, AdminSettings())
    with pytest.raises(ItemsFailed, match=r"3 s at most: t-1 has no leader \(replicas on brokers 1, 2") as raised:
        cluster.result(settle(admin.list_offsets({("t", 0): "latest", ("t", 1): "latest"}, timeout=3)))
    assert raised.value.succeeded.keys() == {("t", 0)}
    assert isinstance(raised.value.failed[TopicPartition("t", 1)].__cause__, LeaderNotAvailable)


def test_a_change_without_an_answer_may_happen_yet() -> None:
    cluster = SingleClientCluster()
    cluster.handlers[ApiKey.CREATE_TOPICS] = lambda received: SILENT
    admin = KafkaAdminClient(cluster.network_client, AdminSettings())
    with pytest.raises(ItemsFailed, match="gave up after 2 s: no answer came; it may be carried out yet"):
        cluster.result(settle(admin.create_topics("t", timeout=2)))
    with pytest.raises(ItemsFailed, match=r"no answer came$"):
        cluster.result(settle(admin.create_topics("t", validate_only=True, timeout=2)))
