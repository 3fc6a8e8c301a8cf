"""A coordinator that reads its partition for as long as a test wants."""

from collections.abc import Callable
from typing import Any

from barnabas.broker import server
from barnabas.testing import Broker
from broker.wire import on_loop, server_of


class Held:
    """The coordinator of `name`, chosen among the broker's, begins to read its partition, which must not be empty, and
    gets no further until `go_on`."""

    def __init__(self, broker: Broker, choose: Callable[[server.Broker], Any], name: str) -> None:
        self._broker = broker
        self._coordinator = choose(server_of(broker))
        self._partition = self._coordinator.partition_for(name)
        on_loop(broker, self._begin)

    def _begin(self) -> None:
        coordinator, partition = self._coordinator, self._partition
        leader = server_of(self._broker).replica_manager.leader_of(coordinator.runtime.topic, partition)
        coordinator.on_resigned(partition)
        coordinator.on_elected(partition, leader.leader_epoch)
        coordinator.runtime._load_handle.cancel()

    def someone_waits(self) -> bool:
        return bool(
            on_loop(self._broker, lambda: self._coordinator.runtime._contexts[self._partition].waiters._waiting)
        )

    def go_on(self) -> None:
        on_loop(self._broker, self._coordinator.runtime._load_chunk)
