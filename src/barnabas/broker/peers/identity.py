"""The identity by which brokers introduce themselves to each other, and the rules for two that fit together."""

import os
import socket
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.errors import InconsistentClusterId, KafkaError, UnsupportedVersion
from barnabas.printable import printable
from barnabas.protocol.peer_messages.peer_hello import PeerHelloRequest, PeerHelloResponse

__all__ = ["FIRST_LEVEL", "LAST_LEVEL", "PLACE_MAX", "PeerIdentity", "mismatch", "place_of"]

LAST_LEVEL: Final = 1
"""The newest protocol between brokers that this release speaks. It grows with a change that an older release would
misunderstand and that no version of an API shows."""
FIRST_LEVEL: Final = 1
"""The oldest protocol between brokers that this release still speaks: that of the release before."""
PLACE_MAX: Final = 300
"""The bound on the characters of a place: an introduction has to fit into a small frame."""


class PeerIdentity(NamedTuple):
    """A broker's introduction."""

    cluster_id: str
    node_id: int
    broker_epoch: int
    release: str
    first_level: int = FIRST_LEVEL
    last_level: int = LAST_LEVEL
    incarnation: str = ""
    """That of the broker's registry; releases before say none."""
    place: str = ""
    """The machine and the data directories of the broker, for people; releases before say none."""

    @classmethod
    def of(cls, hello: PeerHelloRequest | PeerHelloResponse) -> "PeerIdentity":
        return cls(**{name: getattr(hello, name) for name in cls._fields})

    def __str__(self) -> str:
        return f"broker {self.node_id} of release {self.release}"


def place_of(data_dirs: Iterable[str]) -> str:
    """Returns in words where a broker with these data directories is that runs here."""
    directories = ", ".join(map(os.path.abspath, data_dirs))
    return printable(f"machine {socket.gethostname()}, data in {directories}")[:PLACE_MAX]


def mismatch(ours: PeerIdentity, theirs: PeerIdentity) -> KafkaError | None:
    """Returns why this broker and another one cannot work together, with the way out; None if they can."""
    if ours.cluster_id != theirs.cluster_id:
        return InconsistentClusterId(
            f"{theirs} is of cluster {theirs.cluster_id}, {ours} of cluster {ours.cluster_id}: "
            "start both with the registry of one cluster, or correct the address in listeners"
        )
    if ours.incarnation != theirs.incarnation and ours.incarnation and theirs.incarnation:
        return InconsistentClusterId(
            f"{theirs} and {ours} do not share a registry: one of them has a copy of this cluster's registry, "
            f"incarnations {theirs.incarnation} and {ours.incarnation}; stop the one that is not to be here, or, if "
            "both are, name the same registry for both"
        )
    if ours.node_id == theirs.node_id:
        return InconsistentClusterId(
            f"{theirs} and {ours} have one node.id: stop the one that is a copy, or give it another"
        )
    if ours.last_level < theirs.first_level or theirs.last_level < ours.first_level:
        older, newer = sorted((ours, theirs), key=lambda identity: identity.last_level)
        return UnsupportedVersion(
            f"{theirs} speaks levels {theirs.first_level} to {theirs.last_level} of the protocol between brokers, "
            f"{ours} levels {ours.first_level} to {ours.last_level}: upgrade broker {older.node_id} to release "
            f"{newer.release}, by one between them if the cluster must go on serving"
        )
    return None
