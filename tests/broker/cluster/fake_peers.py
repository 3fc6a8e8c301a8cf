"""Other brokers, played by the test: requests to them wait until it answers."""

from collections import deque
from typing import Any

from barnabas.broker.peers.peer_connections import Role
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.schema import Request, Response


class Sent:
    """A request to a broker, as that broker reads it."""

    def __init__(self, node_id: int, request: ClientRequest, role: Role) -> None:
        self.node_id = node_id
        self.role = role
        self.asked = request
        self.version = request.api.LAST_VERSION
        assert request.build is not None
        made = request.build(self.version)
        self.request: Any = decode(request.api, self.version, bytes(encode(made, self.version)))[0]

    def answer(self, response: Response) -> None:
        data = bytes(encode(response, self.version))
        self.asked.done(decode(type(response), self.version, data)[0], None)

    def fail(self, error: Error) -> None:
        self.asked.done(None, error)


class FakePeers:
    """Stands in for `PeerConnections`. With `refusal` requests fail before they are sent."""

    def __init__(self) -> None:
        self.sent: deque[Sent] = deque()
        self.refusal: Error | None = None

    def send_request(self, node_id: int, request: ClientRequest, *, role: Role) -> None:
        if self.refusal is not None:
            request.done(None, self.refusal)
            return
        self.sent.append(Sent(node_id, request, role))

    def take(self) -> Sent:
        """The oldest request without an answer."""
        return self.sent.popleft()

    def requests(self) -> list[tuple[int, type[Request]]]:
        return [(sent.node_id, sent.asked.api) for sent in self.sent]
