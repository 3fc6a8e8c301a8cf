"""The broker addresses that clients get, over real connections from several addresses of this machine."""

import logging
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas import Admin, Producer
from barnabas.broker.connections.advertised_addresses import (
    AdvertisedAddresses,
    NamedBroker,
    problem_with,
    with_host_name,
)
from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import Endpoint
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.network.connection import RequestConnection
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.testing import Broker
from barnabas.types import BrokerId
from broker.wire import Wire, server_of
from zookeeper_server import ZooKeeperServer


def advertised_to(broker: Broker, at: str, *, from_address: str | None = None) -> tuple[str, int]:
    """Returns the address that a client gets which connects to the broker at one of its addresses."""
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    with Wire((at, port)) as wire:
        if from_address is not None:
            wire.socket.close()
            wire.socket = socket.create_connection((at, port), 10, (from_address, 0))
        (node,) = wire.ask(MetadataRequest(topics=[]), 12).brokers
        (same,) = wire.ask(DescribeClusterRequest(), 1).brokers
        assert (same.host, same.port) == (node.host, node.port)
        coordinator = wire.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        assert (coordinator.host, coordinator.port) == (node.host, node.port)
        return node.host, node.port


def port_of(broker: Broker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


def test_a_client_is_told_the_address_that_its_connection_arrived_on() -> None:
    with Broker(host="0.0.0.0") as broker:
        for address in ("127.0.0.1", "127.0.0.2", "127.1.2.3"):
            assert advertised_to(broker, address) == (address, port_of(broker))


@pytest.mark.parametrize(
    ("listen", "told_locally"),
    [("127.0.0.2:0", "127.0.0.2:"), ("0.0.0.0:0", "127.0.0.1:"), ("[::]:0", "[::1]:"), ("[::1]:0", "[::1]:")],
)
def test_the_ready_line_and_file_name_an_address_to_connect_to(tmp_path: Path, listen: str, told_locally: str) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(tmp_path / "data"), "--listen", listen]
    with subprocess.Popen([*command, "--ready-file", str(ready)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            (address,) = ready.read_text().splitlines()
            assert f"is ready on {address} (" in line
            assert address.startswith(told_locally)
            with Admin(bootstrap_servers=address, bootstrap_timeout_ms=0) as admin:
                admin.describe_cluster()
        finally:
            process.terminate()


def test_clients_of_a_network_are_told_what_their_rule_says() -> None:
    settings = {"advertise": "127.0.0.8/30=outside.example:19092,127.0.0.16/32=inside.example,auto"}
    with Broker(host="0.0.0.0", settings=settings) as broker:
        assert advertised_to(broker, "127.0.0.1", from_address="127.0.0.9") == ("outside.example", 19092)
        assert advertised_to(broker, "127.0.0.1", from_address="127.0.0.16") == ("inside.example", port_of(broker))
        assert advertised_to(broker, "127.0.0.1", from_address="127.0.0.20") == ("127.0.0.1", port_of(broker))


def test_advertised_listeners_come_before_the_rules() -> None:
    settings = {"advertised.listeners": "PLAINTEXT://kafka.example:7777", "advertise": "127.0.0.0/8=other"}
    with Broker(settings=settings) as broker:
        assert advertised_to(broker, "127.0.0.1") == ("kafka.example", 7777)


def test_names_that_lead_back_here_are_no_problem() -> None:
    assert problem_with("advertise", "localhost") is None
    assert problem_with("advertise", "127.0.0.1") is None


@pytest.mark.parametrize(
    ("host", "reason"), [("203.0.113.7", "no address of this machine"), ("no.such.host.invalid", "cannot be resolved")]
)
def test_a_name_that_does_not_lead_back_here_is_one_line(host: str, reason: str) -> None:
    problem = problem_with("advertised.listeners", host)
    assert problem is not None
    assert problem.startswith(f"advertised.listeners: clients are told {host}")
    assert reason in problem
    assert "\n" not in problem


def test_the_broker_warns_once_at_its_start(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"advertised.listeners": "PLAINTEXT://203.0.113.7:9092"}
    with caplog.at_level(logging.WARNING), Broker(settings=settings) as broker:
        broker.wait_for(lambda: caplog.messages, what="the warning")
        assert [message for message in caplog.messages if "203.0.113.7" in message] == caplog.messages
    assert len(caplog.messages) == 1


# --- other brokers ---------------------------------------------------------------------------------------------------

HERE = Endpoint("PLAINTEXT", "PLAINTEXT", "0.0.0.0", 9092)
LOCAL = SimpleNamespace(listener_name="PLAINTEXT", peer_host="10.0.0.5", local_host="10.0.0.1", local_port=9092)


def addresses(**settings: object) -> AdvertisedAddresses:
    config = BrokerConfig.of({"node.id": 1, **{name.replace("_", "."): value for name, value in settings.items()}})
    return AdvertisedAddresses(config, (HERE,), lambda: None)


def told(of: AdvertisedAddresses, *brokers: BrokerImage, include_fenced: bool = False) -> list[NamedBroker]:
    image = MetadataImage("c", brokers={broker.node_id: broker for broker in brokers})
    return of.brokers(image, cast(RequestConnection, LOCAL), include_fenced=include_fenced)


def another(host: str, port: int = 9093, name: str = "PLAINTEXT", **changes: Any) -> BrokerImage:
    return BrokerImage(BrokerId(2), 5, (Endpoint(name, "PLAINTEXT", host, port),))._replace(**changes)


def test_another_broker_is_told_by_what_it_has_registered() -> None:
    me = BrokerImage(BrokerId(1), 4, (HERE,), rack="r1")
    assert told(addresses(), me, another("kafka.example", rack="r2")) == [
        (1, "10.0.0.1", 9092, "r1"),
        (2, "kafka.example", 9093, "r2"),
    ]
    assert told(addresses(), another("kafka.example", name="OTHER")) == [], "it could not be reached"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_another_broker_on_every_interface_is_told_where_this_one_was_reached(host: str) -> None:
    """The brokers share a registry, so it is on this machine."""
    assert told(addresses(), another(host)) == [(2, "10.0.0.1", 9093, None)]
    rules = addresses(advertise="10.0.0.0/24=outside.example,auto")
    assert told(rules, another(host)) == [(2, "outside.example", 9093, None)]


def test_fenced_brokers_are_told_to_those_who_ask() -> None:
    me, other = BrokerImage(BrokerId(1), 4, (HERE,), fenced=True), another("kafka.example", fenced=True)
    assert told(addresses(), me, other) == []
    assert [node_id for node_id, *_ in told(addresses(), me, other, include_fenced=True)] == [1, 2]
    announced = BrokerImage(BrokerId(3), 0, (), fenced=True)
    assert told(addresses(), announced, include_fenced=True) == [], "it has no address yet"


# --- several machines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("full_name", "own_name", "told"),
    [
        ("kafka1.example.org", "kafka1", "kafka1.example.org"),
        ("kafka1", "kafka1", "kafka1"),
        # what a line "127.0.0.1 localhost kafka1" in /etc/hosts makes of the name
        ("localhost", "kafka1", "kafka1"),
        ("localhost.localdomain", "kafka1", "kafka1"),
    ],
)
@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_other_machines_are_told_this_machines_name_for_every_interface(
    monkeypatch: pytest.MonkeyPatch, host: str, full_name: str, own_name: str, told: str
) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: full_name)
    monkeypatch.setattr(socket, "gethostname", lambda: own_name)
    assert with_host_name(HERE._replace(host=host)) == HERE._replace(host=told)


def test_an_address_of_its_own_is_told_as_it_is() -> None:
    assert with_host_name(HERE._replace(host="10.0.0.1")) == HERE._replace(host="10.0.0.1")


def test_brokers_on_every_interface_of_several_machines_reach_each_other_by_name(zookeeper: ZooKeeperServer) -> None:
    name = with_host_name(HERE).host
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        pytest.skip(f"this machine's name, {name}, cannot be resolved")
    connect = zookeeper.new_path()
    settings = {"zookeeper.connect": connect, "default.replication.factor": 2, "min.insync.replicas": 2}
    first, second = ({**settings, "node.id": node_id} for node_id in (1, 2))
    with (
        Broker(host="0.0.0.0", settings=first, machine="one") as one,
        Broker(host="0.0.0.0", settings=second, machine="two") as two,
    ):
        one.wait_for(lambda: server_of(one).image.is_active(BrokerId(2)), what="the other broker")
        with Wire(("127.0.0.1", port_of(one))) as wire:
            seen = {node.node_id: (node.host, node.port) for node in wire.ask(MetadataRequest(topics=[]), 12).brokers}
        assert seen == {1: ("127.0.0.1", port_of(one)), 2: (name, port_of(two))}
        registered = [broker.peer_endpoint for broker in server_of(one).image.brokers.values()]
        assert [endpoint.host for endpoint in registered if endpoint is not None] == [name, name]
        with Producer(bootstrap_servers=one.bootstrap_servers) as producer:
            producer.send("t", b"on both").result(timeout=30)
