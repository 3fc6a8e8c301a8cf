"""The settings of each broker of a cluster."""

from pathlib import Path

import pytest

from barnabas.broker.supervisor.cluster_plan import check_directories, cluster_defaults, plan_brokers, registry_file
from barnabas.config.broker import BrokerConfig
from barnabas.errors import UsageError
from barnabas.registry.embedded import EmbeddedRegistry


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig({name.replace("_", "."): text for name, text in settings.items()})


@pytest.mark.parametrize(
    ("brokers", "factor", "min_isr", "transactions"), [(1, 1, 1, 1), (2, 2, 1, 2), (3, 3, 2, 2), (5, 3, 2, 2)]
)
def test_replicas_are_as_many_as_brokers_and_at_most_three(
    brokers: int, factor: int, min_isr: int, transactions: int
) -> None:
    planned = BrokerConfig(cluster_defaults(brokers))
    assert planned.default_replication_factor == factor
    assert planned.offsets_topic_replication_factor == factor
    assert planned.transaction_state_log_replication_factor == factor
    assert planned.min_insync_replicas == min_isr
    assert planned.transaction_state_log_min_isr == transactions


def test_each_broker_has_its_own_id_ports_directories_and_rack() -> None:
    base = config(
        listeners="PLAINTEXT://127.0.0.1:9092,OUT://:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
        advertised_listeners="PLAINTEXT://kafka.example.org:19092,OUT://10.0.0.1:5000",
        log_dirs="/a,/b",
        num_partitions="4",
    )
    planned = plan_brokers(base, 3, ["x", "y", "x"])
    assert [each.node_id for each in planned] == [1, 2, 3]
    assert [each.broker_rack for each in planned] == ["x", "y", "x"]
    assert [each.data_dirs for each in planned] == [(f"/a/broker-{i}", f"/b/broker-{i}") for i in (1, 2, 3)]
    assert [[endpoint.port for endpoint in each.endpoints] for each in planned] == [[9092, 0], [9093, 0], [9094, 0]]
    assert [[endpoint.port for endpoint in each.advertised_endpoints] for each in planned] == [
        [19092, 5000],
        [19093, 5001],
        [19094, 5002],
    ]
    assert {each.registry_file for each in planned} == {"/a/registry.db"}
    assert {each.num_partitions for each in planned} == {4}


def test_the_registry_may_be_elsewhere() -> None:
    base = config(log_dirs="/a", registry_file="/r/cluster.db")
    assert registry_file(base) == Path("/r/cluster.db")
    assert plan_brokers(base, 1)[0].registry_file == "/r/cluster.db"
    assert plan_brokers(base, 1)[0].broker_rack is None


@pytest.mark.parametrize(
    ("settings", "racks", "told"),
    [
        ({"node_id": "5"}, [], "node.id: --brokers gives"),
        ({"broker_id": "0"}, [], "node.id: --brokers gives"),
        ({}, ["a", "b"], "--racks: 2 racks for 3 brokers"),
        ({"listeners": "PLAINTEXT://:65534"}, [], "listeners: PLAINTEXT://:65534 leaves no port for broker 3"),
        (
            {"advertised_listeners": "PLAINTEXT://h:65535"},
            [],
            "advertised.listeners: PLAINTEXT://h:65535 leaves no port for broker 2",
        ),
        (
            {
                "listeners": "PLAINTEXT://:9092,OUT://:9094",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
            },
            [],
            "listeners: 3 brokers take 3 ports each from 9092 and from 9094 on",
        ),
    ],
)
def test_what_cannot_be_planned_is_told(settings: dict[str, str], racks: list[str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_brokers(config(**settings), 3, racks)
    assert str(caught.value).startswith(told)


def test_the_directory_of_one_broker_is_not_taken(tmp_path: Path) -> None:
    base = config(log_dirs=str(tmp_path))
    planned = plan_brokers(base, 3)
    check_directories(base, planned)
    (tmp_path / "meta.properties").touch()
    with pytest.raises(UsageError, match="belongs to one broker"):
        check_directories(base, planned)


def test_no_empty_registry_is_founded_upon_records(tmp_path: Path) -> None:
    base = config(log_dirs=str(tmp_path))
    planned = plan_brokers(base, 2)
    (tmp_path / "broker-2").mkdir()
    (tmp_path / "broker-2" / "meta.properties").touch()
    with pytest.raises(UsageError, match=r"broker-2, but their registry is missing.* --data-dir .*broker-2`"):
        check_directories(base, planned)
    EmbeddedRegistry(registry_file(base)).close()
    check_directories(base, planned)
