"""The targets of requests, and the Protocol of what sends a request to its target."""

from typing import Final, NamedTuple, Protocol

from barnabas.connection.broker.client_request import ClientRequest
from barnabas.types import BrokerId

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
"""The role of connections to coordinators: a heartbeat must not wait behind a Fetch that the broker holds."""


class Node(NamedTuple):
    """A broker, and the role of the connection to it: 0 for most requests, 1 for coordinators, others for clients whose
    requests (Fetch) a broker may hold. Each role has a connection of its own."""

    node_id: BrokerId
    role: int = 0


class Coordinator(NamedTuple):
    """The coordinator of a group (key_type 0) or of a transactional id (key_type 1)."""

    key: str
    key_type: int = GROUP


class _Any(NamedTuple):
    """The broker that is likely to answer soonest."""


class _Controller(NamedTuple):
    """The controller that the last metadata names."""


ANY: Final = _Any()
CONTROLLER: Final = _Controller()
Target = Node | Coordinator | _Any | _Controller


class RequestSender(Protocol):
    """The part of the network client that sends requests."""

    def send(self, request: ClientRequest, target: Target) -> None: ...
