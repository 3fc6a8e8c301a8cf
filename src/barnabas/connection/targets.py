"""The targets of requests, and the Protocol of what sends a request to its target."""

from typing import Final, NamedTuple, Protocol

from barnabas.connection.broker.client_request import ClientRequest

__all__ = [
    "ANY",
    "CONTROLLER",
    "COORDINATOR_ROLE",
    "GROUP",
    "TRANSACTION",
    "Coordinator",
    "Node",
    "RequestSender",
    "Target",
]

GROUP: Final = 0
TRANSACTION: Final = 1
COORDINATOR_ROLE: Final = 1
"""Coordinators have connections of their own: heartbeats must not wait behind a Fetch that its broker holds."""


class Node(NamedTuple):
    """A broker. Each role has its own connection to it: 0 for most requests, 1 for coordinators, others for clients
    whose requests (Fetch) a broker may hold."""

    node_id: int
    role: int = 0


class Coordinator(NamedTuple):
    """The coordinator of a group (key_type 0) or of a transactional id (1), whichever broker that is."""

    key: str
    key_type: int = GROUP


class _Any(NamedTuple):
    """The broker that is likely to answer soonest."""


class _Controller(NamedTuple):
    """The controller by the last metadata."""


ANY: Final = _Any()
CONTROLLER: Final = _Controller()
Target = Node | Coordinator | _Any | _Controller


class RequestSender(Protocol):
    """The part of the network client that sends requests."""

    def send(self, request: ClientRequest, target: Target) -> None: ...
