"""Tells the broker that has a node id of another one that was refused for it, most likely a copy of its directories.

The refused one has read that in the registry and ends. So the one that runs would not notice anything, and nobody who
looks at the cluster would.
"""

import contextlib
import socket
import time
from types import TracebackType
from typing import Any, Final

from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import Endpoint
from barnabas.errors import BarnabasError
from barnabas.registry.registry import NodeIdInUse, Registry

__all__ = ["tell_who_has_the_node_id"]

_TELL_MAX_S: Final = 1.0
"""The longest wait. Nobody answers if the other process hangs, or has ended."""


def tell_who_has_the_node_id(
    config: BrokerConfig,
    registry: Registry,
    _kind: type[BaseException] | None,
    error: BaseException | None,
    _traceback: TracebackType | None,
) -> None:
    """Introduces this broker to the one that has its node id, which refuses it and remembers that. Called with the
    error that ends a start; does nothing after others."""
    if not isinstance(error, NodeIdInUse):
        return
    with contextlib.suppress(BarnabasError, OSError):
        image = registry.load().image
        other = image.brokers.get(config.node_id)
        if other is not None and other.peer_endpoint is not None:
            _introduce(config, registry, image.cluster_id, other.peer_endpoint)


def _introduce(config: BrokerConfig, registry: Registry, cluster_id: str, endpoint: Endpoint) -> None:
    from barnabas.broker.peers.identity import PeerIdentity, place_of
    from barnabas.broker.peers.session import USERNAME
    from barnabas.connection.broker.broker_connection import BrokerConnection
    from barnabas.connection.broker.sasl import ScramSha256
    from barnabas.protocol.peer_messages.peer_hello import PeerHelloRequest
    from barnabas.version import __version__

    class Introduction:
        def request(self) -> PeerHelloRequest:
            identity = PeerIdentity(
                *(cluster_id, config.node_id, -1, __version__),
                incarnation=registry.incarnation(),
                place=place_of(config.data_dirs),
            )
            return PeerHelloRequest(**identity._asdict())

        def check(self, response: Any) -> str:
            return "it was told"

    password = registry.cluster_secret().hex()
    connection = BrokerConnection(
        endpoint.local_address,
        client_id=f"broker-{config.node_id}",
        request_timeout_s=_TELL_MAX_S,
        mechanism=lambda: ScramSha256(USERNAME, password),
        introduction=Introduction(),
    )
    with socket.create_connection((endpoint.host, endpoint.port), _TELL_MAX_S) as sock:
        began = time.monotonic()
        connection.start(began)
        while connection.broken is None and time.monotonic() < began + _TELL_MAX_S:
            sock.sendall(b"".join(connection.take_output()))
            data = sock.recv(65536)
            if not data:
                return
            connection.received(data, time.monotonic())
