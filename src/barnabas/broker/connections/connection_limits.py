"""Updates the limits on connections from the settings, at the start and at every change.

`max.connections.per.ip.overrides` may name hosts. The start asks the DNS before it changes anything. Later changes ask
it in a thread, because that may take half a minute; until it has answered the former addresses apply.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping

from barnabas.config.broker import BrokerConfig
from barnabas.config.connection_quotas import parse_overrides
from barnabas.errors import UsageError
from barnabas.network.acceptor import ConnectionLimits
from barnabas.network.connection_quotas import is_address, resolve_overrides

__all__ = ["ConnectionLimitsUpdater"]


class ConnectionLimitsUpdater:
    """Gives the acceptor its limits: `start` once, then `follow` with each change. Used on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
        self._loop = loop
        self._log = log
        self._overrides: Mapping[str, int] = {}
        self._resolved_for = ""
        self._config: BrokerConfig | None = None
        """The current settings. A late response of the DNS for older ones is dropped."""

    def start(self, config: BrokerConfig) -> ConnectionLimits:
        """Returns the first limits. Blocks while the DNS is asked. Raises UsageError for an unknown name."""
        self._config = config
        self._take(config, resolve_overrides(parse_overrides(config.max_connections_per_ip_overrides)))
        return self._limits(config)

    def follow(self, config: BrokerConfig, apply: Callable[[ConnectionLimits], None]) -> None:
        """Calls `apply` now, and again after names had to be resolved."""
        self._config = config
        text = config.max_connections_per_ip_overrides
        overrides = parse_overrides(text)
        if text != self._resolved_for and all(map(is_address, overrides)):
            self._take(config, resolve_overrides(overrides))
        apply(self._limits(config))
        if text != self._resolved_for:
            resolve = threading.Thread(
                target=self._resolve, args=(config, overrides, apply), name="barnabas-names", daemon=True
            )
            try:
                resolve.start()  # a daemon: not even a stop of the broker waits for the DNS
            except RuntimeError as error:  # the settings that change with these hold all the same
                self._log.error("the names in max.connections.per.ip.overrides are not looked up: %s", error)

    def _resolve(
        self, config: BrokerConfig, overrides: dict[str, int], apply: Callable[[ConnectionLimits], None]
    ) -> None:
        try:
            resolved = resolve_overrides(overrides)
        except UsageError as error:
            self._log.error("%s", error)
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._resolved, config, resolved, apply)

    def _resolved(
        self, config: BrokerConfig, overrides: dict[str, int], apply: Callable[[ConnectionLimits], None]
    ) -> None:
        now = self._config
        assert now is not None
        if config.max_connections_per_ip_overrides == now.max_connections_per_ip_overrides:
            self._take(config, overrides)
            apply(self._limits(now))

    def _take(self, config: BrokerConfig, overrides: Mapping[str, int]) -> None:
        self._resolved_for, self._overrides = config.max_connections_per_ip_overrides, overrides

    def _limits(self, config: BrokerConfig) -> ConnectionLimits:
        return ConnectionLimits(
            socket_request_max_bytes=config.socket_request_max_bytes,
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            max_connections_per_ip_overrides=self._overrides,
            max_connections_of_listeners=config.max_connections_of_listeners,
            max_connection_creation_rate=config.max_connection_creation_rate,
            connections_max_idle_ms=config.connections_max_idle_ms,
            socket_send_buffer_bytes=config.socket_send_buffer_bytes,
            socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
            queued_max_requests=config.queued_max_requests,
            queued_max_request_bytes=config.queued_max_request_bytes,
            queued_max_response_bytes=config.queued_max_response_bytes,
        )
