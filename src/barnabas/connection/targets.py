"""Whom a request is for."""

from typing import Final, NamedTuple

__all__ = ["ANY", "CONTROLLER", "COORDINATOR_ROLE", "GROUP", "TRANSACTION", "Coordinator", "Node", "Target"]

GROUP: Final = 0
TRANSACTION: Final = 1
COORDINATOR_ROLE: Final = 1
"""Coordinators have connections of their own: heartbeats must not wait behind a parked Fetch."""


class Node(NamedTuple):
    """A broker by its id. Each role is a connection of its own: 0 for most, 1 for coordinators; a client that parks
    requests (Fetch) takes another one."""

    node_id: int
    role: int = 0


class Coordinator(NamedTuple):
    """Whoever coordinates a group (key_type 0) or a transactional id (1) now."""

    key: str
    key_type: int = GROUP


class _Any(NamedTuple):
    """Whichever broker answers soonest."""


class _Controller(NamedTuple):
    """The controller of the last metadata answer."""


ANY: Final = _Any()
CONTROLLER: Final = _Controller()
Target = Node | Coordinator | _Any | _Controller
