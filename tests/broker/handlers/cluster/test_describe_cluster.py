"""DescribeCluster: the brokers and the controllers that clients see."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.broker.handlers.topics.metadata import CLUSTER_OPERATIONS, NOT_ASKED
from barnabas.broker.server import Broker
from barnabas.errors import (
    MismatchedEndpointType,
    UnsupportedEndpointType,
)
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.registry.registry import LeaderChange
from barnabas.types import BrokerId
from broker import admin_rig
from broker.admin_rig import ask, versions
from broker.admin_rig import broker as broker


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_this_broker_at_the_address_where_the_client_arrived(broker: Broker, version: int) -> None:
    answer = ask(broker, DescribeClusterRequest(), version)
    assert (answer.error_code, answer.error_message, answer.cluster_id) == (0, None, broker.cluster_id)
    assert answer.controller_id == 1
    assert [(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers] == [(1, "10.0.0.9", 9092, None)]
    assert answer.cluster_authorized_operations == NOT_ASKED
    asked = ask(broker, DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


def test_an_empty_rack_is_none(tmp_path: Path) -> None:
    """As a container has it where nobody says in which zone it is."""
    with admin_rig.running_broker(tmp_path, broker_rack="") as broker:
        assert [each.rack for each in ask(broker, DescribeClusterRequest()).brokers] == [None]


def test_endpoints_of_controllers(broker: Broker) -> None:
    for version in (1, 2):
        assert ask(broker, DescribeClusterRequest(endpoint_type=2), version).error_code == MismatchedEndpointType.code
        assert ask(broker, DescribeClusterRequest(endpoint_type=9), version).error_code == UnsupportedEndpointType.code


def test_fenced_brokers_are_shown_to_those_who_ask() -> None:
    image = MetadataImage(
        "c", controller_id=2, brokers={1: BrokerImage(1, 1, ()), 2: BrokerImage(2, 1, (), fenced=True)}
    )

    def advertised_brokers(connection: object, *, include_fenced: bool) -> list[tuple[int, str, int, str | None]]:
        live: list[tuple[int, str, int, str | None]] = [(1, "one", 9092, "r1")]
        return [*live, (2, "two", 9092, None)] if include_fenced else live

    broker = SimpleNamespace(cluster_id="c", image=image, advertised_brokers=advertised_brokers)
    hidden = ask(broker, DescribeClusterRequest(), 2)
    assert [(b.broker_id, b.rack, b.is_fenced) for b in hidden.brokers] == [(1, "r1", False)]
    assert hidden.controller_id == -1
    shown = ask(broker, DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(b.broker_id, b.is_fenced) for b in shown.brokers] == [(1, False), (2, True)]
    assert shown.controller_id == 2


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_the_history_of_leaders_is_for_those_who_ask(broker: Broker, version: int) -> None:
    assert ask(broker, DescribeClusterRequest(), version).leader_changes is None
    asked = ask(broker, DescribeClusterRequest(leader_changes_max=5), version)
    assert (asked.error_code, asked.leader_changes, len(asked.brokers)) == (0, b"[]", 1)


def test_the_whole_history_of_leaders_is_told(broker: Broker) -> None:
    rows = [LeaderChange(n, "t", n, BrokerId(1), BrokerId(2), 7, "a broker has stopped", 5) for n in range(10_001)]
    assert broker.registry.write([], controller_epoch=broker.image.controller_epoch, leader_changes=rows)
    told = json.loads(ask(broker, DescribeClusterRequest(leader_changes_max=10_000)).leader_changes)
    assert [LeaderChange(**row) for row in told] == rows[1:]


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_the_peers_that_are_not_reached_are_for_those_who_ask(broker: Broker, version: int) -> None:
    assert ask(broker, DescribeClusterRequest(), version).unreached_peers is None
    asked = ask(broker, DescribeClusterRequest(unreached_peers_wait_ms=5), version)
    assert (asked.error_code, asked.unreached_peers, asked.leader_changes, len(asked.brokers)) == (0, "[]", None, 1)
    assert asked.refused_brokers is None, "it listens for no others"


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_the_epochs_of_registrations_are_for_our_own_clients(
    broker: Broker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [b.broker_epoch for b in ask(broker, DescribeClusterRequest(), version).brokers] == [0]
    monkeypatch.setattr(admin_rig.CONNECTION, "client_software", "barnabas 1")
    asked = ask(broker, DescribeClusterRequest(), version)
    assert [b.broker_epoch for b in asked.brokers] == [broker.image.brokers[BrokerId(1)].epoch] != [0]
