"""What the tests of both drivers share: a network client at an address, a request, a silent server."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.connection.broker.addresses import split_address
from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.network_client import ANY, NetworkClient, NetworkClientSettings
from barnabas.connection.promise import Promise
from barnabas.connection.retry import send_with_retries
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.testing import Broker


def network_client_at(address: str, **connection: Any) -> NetworkClient:
    """With a wrong address it fails at once."""
    settings = NetworkClientSettings((split_address(address),), ConnectionSettings(**connection), bootstrap_timeout_s=0)
    return NetworkClient(settings, time.monotonic())


@pytest.fixture
def driver(broker: Broker) -> Iterator[SyncDriver]:
    driver = SyncDriver(network_client_at(broker.bootstrap_servers))
    yield driver
    driver.close()


def groups(driver: Any) -> Promise[Any]:
    promise: Promise[Any] = driver.run(lambda: send_with_retries(driver.client, ListGroupsRequest(), ANY, timeout_s=60))
    return promise


def silent(wait: threading.Event) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        wait.wait(60)

    return behave


def fails() -> None:
    raise AssertionError("made for this test")
