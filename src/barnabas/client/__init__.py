"""Clients of any Kafka broker over the wire, synchronous and small: what the command line and the test kit speak.

Main classes: `Connection` (one socket, versions negotiated), `Cluster` (metadata, leaders, retries), `Admin`,
`SimpleProducer`, `SimpleConsumer`, `GroupMember`. It must never import the broker. Names are imported at first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.cluster import Cluster
    from barnabas.client.connection import Connection
    from barnabas.client.errors import Attempt, BrokerUnreachable, ClientError, ConnectionLost, OperationTimedOut
    from barnabas.client.group_member import GroupMember
    from barnabas.client.simple_consumer import SimpleConsumer
    from barnabas.client.simple_producer import SimpleProducer

__all__ = [
    "Admin",
    "Attempt",
    "BrokerUnreachable",
    "ClientError",
    "Cluster",
    "Connection",
    "ConnectionLost",
    "GroupMember",
    "OperationTimedOut",
    "SimpleConsumer",
    "SimpleProducer",
]

_HOME = {
    "Admin": "admin",
    "Cluster": "cluster",
    "Connection": "connection",
    "GroupMember": "group_member",
    "SimpleConsumer": "simple_consumer",
    "SimpleProducer": "simple_producer",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'errors')}"), name)
