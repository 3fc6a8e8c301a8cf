"""What a handler is given: the request's context, and the broker as handlers see it."""

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from barnabas.clock import Clock
from barnabas.network.connection import Connection

if TYPE_CHECKING:
    from barnabas.broker.purgatory import Purgatory
    from barnabas.config.broker import BrokerConfig
    from barnabas.controller.controller import Controller
    from barnabas.log.log_manager import LogManager
    from barnabas.metadata.image import MetadataImage
    from barnabas.replication.replica_manager import ReplicaManager

__all__ = ["Broker", "RequestContext"]

ANONYMOUS = "User:ANONYMOUS"


class RequestContext:
    """Who asks, in which version, over which connection."""

    __slots__ = ("api_key", "api_version", "client_id", "connection", "correlation_id", "principal")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, connection: Connection
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.principal = ANONYMOUS
