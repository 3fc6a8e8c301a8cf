"""Sessions with one registry in a real ZooKeeper, and the means to let them end."""

import json
import threading
import time
from typing import Any
from uuid import UUID

from kazoo.client import KazooClient

from barnabas.config.endpoints import Endpoint
from barnabas.metadata.image import PartitionImage
from barnabas.registry.registry import BrokerRegistration
from barnabas.registry.zookeeper.session import ZooKeeperAccess
from barnabas.registry.zookeeper.zookeeper_registry import ZooKeeperRegistry
from registry import conformance
from zookeeper_server import end_session

__all__ = [
    "PARTITION",
    "TOPIC",
    "ExpiringHarness",
    "TrackedRegistry",
    "ZooKeeperHarness",
    "client_of",
    "controller",
    "expire",
    "json_of",
    "path_in",
    "registered",
]

PARTITION = PartitionImage(1, 0, (1, 2), (1,), 0)
TOPIC = UUID(int=1)


class TrackedRegistry(ZooKeeperRegistry):
    """Knows the process for which it registered last."""

    process = ""

    def register_broker(self, registration: BrokerRegistration, *, upon: int | None = None) -> int | None:
        self.process = registration.process
        return super().register_broker(registration, upon=upon)


class ZooKeeperHarness(conformance.Processes):
    """Lets sessions end by what the kernel tells of processes."""

    def __init__(self, connect: str, session_timeout_s: float = 10) -> None:
        super().__init__()
        self.connect = connect
        self._session_timeout_s = session_timeout_s
        self.opened: list[TrackedRegistry] = []

    def open(self) -> TrackedRegistry:
        access = ZooKeeperAccess(self.connect, session_timeout_s=self._session_timeout_s)
        registry = TrackedRegistry(access, is_running=self.is_running)
        self.opened.append(registry)
        return registry

    def close(self) -> None:
        for registry in self.opened:
            registry.abandon()


class ExpiringHarness(ZooKeeperHarness):
    """Lets sessions end in ZooKeeper, which tells nothing of the processes."""

    def is_running(self, process: str) -> bool:
        return True

    def kill(self, process: str) -> None:
        for registry in self.opened:
            if registry.process == process:
                expire(registry)


def client_of(registry: ZooKeeperRegistry) -> KazooClient:
    return registry._session._client


def expire(registry: ZooKeeperRegistry) -> None:
    """Has ZooKeeper end the session: another connection takes it over and closes it, while its owner is held back."""
    client, ended = client_of(registry), threading.Event()
    number, connect = client.client_id, client.handler.create_connection
    assert number is not None

    def connect_then(*arguments: Any, **options: Any) -> Any:
        assert ended.wait(30)
        return connect(*arguments, **options)

    client.handler.create_connection = connect_then
    try:
        end_session(":".join(map(str, client.hosts[0])), number[0])
    finally:
        ended.set()
        client.handler.create_connection = connect
    deadline = time.monotonic() + 30
    while client.client_id in (None, number):
        assert time.monotonic() < deadline, "no other session was begun"
        time.sleep(0.005)


def registered(harness: ZooKeeperHarness, node_id: int = 1) -> tuple[TrackedRegistry, int]:
    registry = harness.open()
    endpoints = (Endpoint("PLAINTEXT", "PLAINTEXT", "host", 9092), Endpoint("V6", "PLAINTEXT", "::1", 9093))
    directories = {UUID(int=node_id): "/data"}
    peers = Endpoint("BROKERS", "SASL_PLAINTEXT", "host", 9094)
    epoch = registry.register_broker(
        BrokerRegistration(node_id, directories, endpoints, "r", peers, process=f"p{node_id}")
    )
    assert epoch is not None
    return registry, epoch


def controller(harness: ZooKeeperHarness) -> tuple[TrackedRegistry, int]:
    registry, _ = registered(harness)
    epoch = registry.elect_controller()
    assert epoch is not None
    return registry, epoch


def path_in(harness: ZooKeeperHarness, path: str) -> str:
    return "/" + harness.connect.partition("/")[2] + path


def json_of(harness: ZooKeeperHarness, path: str) -> Any:
    """What other programs find there."""
    return json.loads(client_of(harness.opened[0]).get(path_in(harness, path))[0])
