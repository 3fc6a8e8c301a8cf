"""The connection of a forwarded request: that of a client of another broker, which is not connected to this one."""

from collections.abc import Callable
from typing import Any

from barnabas.network.connection import Parts, PendingReply, RequestConnection

__all__ = ["ForwardedConnection"]


class ForwardedConnection:
    """Takes the response of one forwarded request. Each has a connection of its own, so none waits for another."""

    __slots__ = ("_carrier", "_done", "client_software", "peer_host", "state")

    def __init__(self, carrier: RequestConnection, peer_host: str, done: Callable[[Parts | None], None]) -> None:
        """`carrier` is the connection from the other broker. `done` is called with the frame of the response, or with
        None if there is none."""
        self._carrier = carrier
        self._done = done
        self.peer_host = peer_host
        self.client_software = ""
        self.state: dict[str, Any] | None = None

    @property
    def closed(self) -> bool:
        return self._carrier.closed

    @property
    def listener_name(self) -> str:
        return self._carrier.listener_name

    @property
    def peer_port(self) -> int:
        """The port of the client, which the other broker does not tell."""
        return 0

    @property
    def local_host(self) -> str:
        return self._carrier.local_host

    @property
    def local_port(self) -> int:
        return self._carrier.local_port

    def mute(self) -> None:
        """Does nothing: no further request comes by this connection."""

    def unmute(self) -> None:
        """Does nothing, like `mute`."""

    def pending_reply(self) -> PendingReply:
        return PendingReply(self)

    def reply_ready(self, reply: PendingReply) -> None:
        self._done(reply.parts)

    def close(self, reason: str) -> None:
        """Ends the request without a response, because its handler failed."""
        self._done(None)
