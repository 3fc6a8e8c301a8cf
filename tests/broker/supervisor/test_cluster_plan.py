"""The settings of each broker of a cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.broker.supervisor.cluster_plan import (
    check_directories,
    cluster_defaults,
    left_out,
    plan_brokers,
    registry_file,
)
from barnabas.config.broker import BrokerConfig
from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import METADATA_COPY
from barnabas.log.directories.data_directory import parse_directory_name
from barnabas.registry.embedded import EmbeddedRegistry
from log.log_files import fail_at


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


def use(directory: Path, node_id: str) -> None:
    """Leaves what a broker has left behind that used the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.properties").write_text(f"version=1\nnode.id={node_id}\n")


def test_a_broker_that_has_run_alone_goes_on_as_broker_1(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    use(old, "1")
    EmbeddedRegistry(old / "registry.db").close()
    base = config(log_dirs=f"{new},{old}")
    planned = plan_brokers(base, 2)
    assert [each.data_dirs for each in planned] == [
        (str(new), str(old)),
        (f"{new}/brokers/broker-2", f"{old}/brokers/broker-2"),
    ]
    assert {each.registry_file for each in planned} == {str(old / "registry.db")}
    check_directories(base, planned)
    assert parse_directory_name("brokers") is None, "no topic can have a log of this name"


def test_a_broker_with_another_id_cannot_be_broker_1(tmp_path: Path) -> None:
    use(tmp_path, "2")
    base = config(log_dirs=str(tmp_path))
    with pytest.raises(UsageError, match=r"belongs to broker 2, and --brokers starts brokers 1 to 3"):
        check_directories(base, plan_brokers(base, 3))


def test_a_directory_of_one_broker_and_of_a_cluster_is_not_used(tmp_path: Path) -> None:
    use(tmp_path, "1")
    use(tmp_path / "broker-3", "3")
    base = config(log_dirs=str(tmp_path))
    with pytest.raises(UsageError, match=r"both .* and .*broker-3 belong to a broker"):
        check_directories(base, plan_brokers(base, 3))


def test_while_the_one_broker_runs_nobody_joins_it(tmp_path: Path) -> None:
    use(tmp_path, "1")
    EmbeddedRegistry(tmp_path / "registry.db").close()
    base = config(log_dirs=str(tmp_path))
    running = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", running, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(UsageError, match="in use by another broker"):
            check_directories(base, plan_brokers(base, 3))


@pytest.mark.parametrize("member", [False, True], ids=["alone", "in a cluster"])
def test_no_registry_is_made_for_several_from_the_logs_of_one(tmp_path: Path, member: bool) -> None:
    use(tmp_path, "1")
    if member:
        (tmp_path / METADATA_COPY).touch()
    base = config(log_dirs=str(tmp_path))
    told = "cluster recover" if member else f"start it alone first by `barnabas serve --data-dir {tmp_path}`"
    with pytest.raises(UsageError, match=told):
        check_directories(base, plan_brokers(base, 3))


def test_brokers_that_are_not_started_are_found(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        use(tmp_path / f"broker-{number}", str(number))
    base = config(log_dirs=str(tmp_path))
    assert left_out(base, 1) == [f"{tmp_path}/broker-2", f"{tmp_path}/broker-10"]
    assert left_out(base, 10) == []
    use(tmp_path, "1")
    use(tmp_path / "brokers" / "broker-3", "3")
    assert left_out(base, 2) == [f"{tmp_path}/brokers/broker-3"]


def test_no_empty_registry_is_founded_upon_records(tmp_path: Path) -> None:
    base = config(log_dirs=str(tmp_path))
    planned = plan_brokers(base, 2)
    use(tmp_path / "broker-2", "2")
    told = r"broker-2, but their registry is missing: name .* with --registry, .* --data-dir .*broker-2`"
    with pytest.raises(UsageError, match=told):
        check_directories(base, planned)
    EmbeddedRegistry(registry_file(base)).close()
    check_directories(base, planned)


def test_a_disk_that_does_not_tell_whether_a_broker_has_used_it_is_no_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 1 would begin in another directory, without its records."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    base = config(log_dirs=str(tmp_path))
    assert plan_brokers(base, 2, [])[0].data_dirs == (str(tmp_path),)
    fail_at(monkeypatch, "stat", "meta.properties")
    with pytest.raises(UsageError, match=r"meta.properties cannot be read: Input/output error"):
        plan_brokers(base, 2, [])
