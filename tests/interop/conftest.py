"""Fixtures of the interoperability tests: one broker and one process per client for the whole session."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .harness import wire
from .harness.broker import Broker, LocalBroker, local_broker, outside_broker
from .harness.clients import CLIENTS, KAFKA_TOOLS, Client, chosen
from .harness.driver import Driver
from .harness.tools import KafkaTools

SESSION = f"{time.time_ns() // 1_000_000:x}"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = outside_broker() or local_broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def own_broker(broker: Broker) -> LocalBroker:
    """The session's broker, for tests that restart it or read its files."""
    if not isinstance(broker, LocalBroker):
        pytest.skip("BARNABAS_TEST_BROKER names a broker that is not ours to restart or to look into")
    return broker


class Drivers:
    """Starts each client when it is first wanted, and keeps it."""

    def __init__(self, bootstrap: str, logs: Path) -> None:
        self._bootstrap = bootstrap
        self._logs = logs
        self._running: dict[str, Driver] = {}

    def __call__(self, client: Client) -> Driver:
        known = self._running.get(client.name)
        if known is not None and known.is_busy:
            known.kill()
            del self._running[client.name]
        if client.name not in self._running:
            self._running[client.name] = self.fresh(client)
        return self._running[client.name]

    def fresh(self, client: Client) -> Driver:
        """A process of its own, which the caller stops."""
        if not chosen(client):
            pytest.skip(f"{client.name} is not among BARNABAS_TEST_CLIENTS")
        if reason := client.missing():
            pytest.skip(reason)
        log = self._logs / f"{client.name}-{next(_numbers)}.log"
        return Driver(client.name, client.command, self._bootstrap, log, client.env)

    def stop(self) -> None:
        for driver in self._running.values():
            driver.begin_stop()
        for driver in self._running.values():
            driver.stop()


@pytest.fixture(scope="session")
def drivers(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    drivers = Drivers(broker.bootstrap, tmp_path_factory.mktemp("clients"))
    # All at once, so that the slow ones start while the first tests run.
    for client in [*CLIENTS, KAFKA_TOOLS]:
        if chosen(client) and client.missing() is None:
            drivers(client)
    yield drivers
    drivers.stop()


@pytest.fixture
def driver(client: Client, drivers: Drivers) -> Driver:
    """The program of the parameter `client`."""
    return drivers(client)


@pytest.fixture(scope="session")
def tools(broker: Broker, drivers: Drivers) -> KafkaTools:
    return KafkaTools(drivers(KAFKA_TOOLS), broker.bootstrap)


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names for topics and groups that no other test uses."""
    test = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-")[:80]

    def name(kind: str) -> str:
        return f"{test}.{kind}.{SESSION}.{next(_numbers)}"

    return name


@pytest.fixture(autouse=True)
def _broker_survives(broker: Broker) -> Iterator[None]:
    """Whatever a test does, the broker is up afterwards."""
    yield
    broker.check_alive()


@pytest.fixture
def topic(unique: Callable[[str], str], broker: Broker) -> str:
    """A new topic with one partition."""
    name = unique("topic")
    wire.create_topic(broker.address, name)
    return name


def wait_for(
    what: str, condition: Callable[[], bool], timeout_s: float = 60.0, tell: Callable[[], str] = lambda: ""
) -> None:
    """Ask until it is so; fails with `what` and what `tell` says after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"within {timeout_s:g} s not seen: {what} {tell()}")
        time.sleep(0.02)
