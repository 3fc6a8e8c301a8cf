"""The context of a request: the API, its version, the client and its connection."""

from barnabas.network.connection import PendingReply, RequestConnection

__all__ = ["RequestContext"]

ANONYMOUS = "User:ANONYMOUS"


class RequestContext:
    """The context of one request."""

    __slots__ = ("_client_id", "api_key", "api_version", "connection", "correlation_id", "principal", "reply")

    is_broker = False
    """Whether the request comes from another broker, by a connection on which it has authenticated."""

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: bytes | None,
        connection: RequestConnection,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self._client_id = client_id
        self.connection = connection
        self.principal = ANONYMOUS
        self.reply: PendingReply | None = None
        """The late reply to the request, if there is one."""

    @property
    def client_id(self) -> str | None:
        """The client id. It is decoded at the first use, because hot requests never use it."""
        return None if self._client_id is None else str(self._client_id, "utf-8", "replace")

    def pending_reply(self) -> PendingReply:
        if self.reply is None:
            self.reply = self.connection.pending_reply()
        return self.reply
