"""The synchronous consumer as applications have it, on the simulated cluster's network and clock."""

import contextlib
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

from barnabas.client.consumer import front_base, reading, threads
from barnabas.client.consumer.calls import ConsumerCalls
from barnabas.client.consumer.front import Consumer
from barnabas.client.consumer.kafka_consumer import KafkaConsumer
from barnabas.errors import ClientClosed
from simulation.cluster import Client, Cluster

T = TypeVar("T")


@contextlib.contextmanager
def virtual_time(cluster: Cluster) -> Iterator[None]:
    """The consumers' clock is the cluster's."""
    modules = front_base, reading, threads
    for module in modules:
        module.time = SimpleNamespace(monotonic=lambda: cluster.now)  # type: ignore[assignment]
    try:
        yield
    finally:
        for module in modules:
            module.time = time


class Driver:
    """Turns the network client by letting the cluster live."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.network_client = client.network_client
        self.lock = contextlib.nullcontext()
        self.closed = False
        self.background_turn_due = False

    def turn_soon(self) -> None:
        """As the background thread, only at once."""
        self.client.turn()

    def turn(self) -> None:
        self.run(lambda: None)

    def run(self, action: Callable[[], T]) -> T:
        self._check_open()
        self.network_client.now = self.client.cluster.now
        result = action()
        self.client.turn()
        self._call_back()
        return result

    def run_before_wait(self, action: Callable[[], T]) -> T:
        return self.run(action)

    def wait(
        self,
        done: Callable[[], bool],
        timeout_s: float | None = None,
        *,
        may_leave: Callable[[], bool] | None = None,
        has_turned: bool = False,
    ) -> bool:
        """Every answer is followed by a turn, whether the caller needs it or not."""
        self._check_open()
        self.network_client.now = self.client.cluster.now
        self.client.turn()
        found = self.client.cluster.run(done, seconds=3600.0 if timeout_s is None else timeout_s)
        self._call_back()
        self._check_open()
        assert found or timeout_s is not None, "this would wait for ever"
        return found

    def _call_back(self) -> None:
        while self.network_client.completions:
            self.network_client.completions.popleft()()

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosed("the consumer is closed")

    def wakeup(self) -> None:
        """Nobody waits in another thread."""

    def close(self) -> None:
        self.closed = True
        self.network_client.close()
        self.client.turn()


class SimulatedConsumer(Consumer):
    """`Consumer(...)` with the cluster and this client's name in front."""

    def __init__(self, cluster: Cluster, name: str, *topics: Any, **named: Any) -> None:
        self.cluster, self.name = cluster, name
        super().__init__(*topics, **{"bootstrap_servers": "boot:9092", "auto_offset_reset": "earliest"} | named)

    def _open(self) -> None:
        self.client = self.cluster.client(self.name)
        wall_ms = self.cluster.scheduler.wall_ms
        self._state = KafkaConsumer(self.client.network_client, self.settings, wall_ms)
        self._calls = ConsumerCalls(self._state)
        self._driver = Driver(self.client)  # type: ignore[assignment]
        if self._subscribed is not None:
            self._driver.run(self._subscribed)

    def crash(self) -> None:
        """As SIGKILL does it."""
        self._driver.closed = True
        self.client.crash()
