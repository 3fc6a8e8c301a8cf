"""What a handler is given beside the broker: who asks, in which version, over which connection."""

from barnabas.network.connection import Connection

__all__ = ["RequestContext"]

ANONYMOUS = "User:ANONYMOUS"


class RequestContext:
    """One request's circumstances."""

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
