"""A broker of a cluster in a process of its own, below a supervisor."""

import json
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Final
from uuid import UUID

from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.broker.process.serving import run
from barnabas.broker.supervisor.supervisor import NOT_YET, USAGE_ERROR, Facts
from barnabas.config.broker import BrokerConfig
from barnabas.errors import DirectoryUnusable, NotYet, UsageError

__all__ = ["BrokerProcess", "preload"]

_SHARED: Final = (
    "barnabas.broker.cluster.member",
    "barnabas.broker.handlers.peers.api_versions",
    "barnabas.broker.handlers.peers.fetch",
    "encodings.idna",  # by the first name or address that is looked up
    *(
        HANDLER_MODULES[name]
        for name in (
            *("sasl_handshake", "sasl_authenticate", "peer_hello", "push_metadata", "broker_heartbeat", "envelope"),
            *("alter_partition", "create_missing_topics", "create_topics", "api_versions", "metadata"),
            *("produce", "fetch", "list_offsets", "find_coordinator", "init_producer_id"),
        )
    ),
)
"""The modules that every broker of a cluster imports by the time of its first records."""


def preload() -> None:
    """Imports once, before the brokers are forked, what each of them would import by itself."""
    for name in _SHARED:
        import_module(name)


class BrokerProcess:
    """A broker that a Supervisor runs."""

    def __init__(
        self,
        config: BrokerConfig,
        start_logging: Callable[[], None],
        lost_directories: Collection[UUID] = (),
        accepted_directories: Collection[UUID] = (),
    ) -> None:
        self.name = f"broker {config.node_id}"
        self._config = config
        self._start_logging = start_logging
        self._lost_directories = lost_directories
        self._accepted_directories = accepted_directories

    def run(self) -> int:
        """Serves until a signal ends it."""
        self._start_logging()
        try:
            return run(
                self._config,
                ready_as_json=True,
                lost_directories=self._lost_directories,
                accepted_directories=self._accepted_directories,
            )
        except UsageError as error:
            of_directory = isinstance(error, DirectoryUnusable)
            facts = {"event": "usage-error", "message": str(error), "of_directory": of_directory}
            print(json.dumps(facts), flush=True)  # noqa: T201  for the supervisor
            return NOT_YET if isinstance(error, NotYet) else USAGE_ERROR

    def note_ready(self, facts: Facts) -> None:
        """Keeps the ports that the system chose: after a restart the broker must be found where it was."""
        ports = [address.rpartition(":")[2] for address in facts["addresses"]]
        by_name = {endpoint.name: port for endpoint, port in zip(self._config.endpoints, ports, strict=True)}
        listeners = []
        for text in self._config.listeners:
            name = text.partition("://")[0].strip().upper()
            address, _, port = text.rpartition(":")
            listeners.append(f"{address}:{by_name.get(name, port)}")
        self._config = BrokerConfig({**self._config.static, "listeners": ",".join(listeners)})
