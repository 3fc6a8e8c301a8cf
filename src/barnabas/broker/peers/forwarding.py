"""Forwards a client's request to the controller's broker in an Envelope, and returns the response as it is (KIP-590).

A request that may have been carried out is not sent again. Kafka's brokers send it to the next controller when the
connection is lost.
"""

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from barnabas.broker.peers.peer_connections import PeerConnections, Role
from barnabas.broker.peers.principals import encode_principal
from barnabas.broker.requests.request_context import RequestContext
from barnabas.connection.broker.client_request import body_of, client_id_field, request_frame
from barnabas.connection.timers import exponential_backoff
from barnabas.errors import (
    BarnabasError,
    BrokerNotAvailable,
    ClientError,
    ConnectionLost,
    NotController,
    RequestTimedOut,
    UnknownServerError,
    error_for,
)
from barnabas.network.connection import Parts
from barnabas.protocol.apis import message_classes
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.schema import Request

__all__ = ["Forwarder", "forward_part", "pack_host", "unpack_host"]

TIMEOUT_S: Final = 30.0
BACKOFF_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0


class Forwarder:
    """Forwards requests to the controller. Used on the event loop's thread."""

    def __init__(
        self,
        peers: PeerConnections,
        node_id: int,
        controller_id: Callable[[], int],
        *,
        timeout_s: float = TIMEOUT_S,
        rng: random.Random | None = None,
    ) -> None:
        """`controller_id` returns the node id of the controller as this broker knows it, below 0 for none."""
        self._peers = peers
        self._node_id = node_id
        self._controller_id = controller_id
        self._timeout_s = timeout_s
        self._rng = rng or random.Random()

    def forward(self, frame: memoryview, context: RequestContext) -> Coroutine[Any, Any, Parts]:
        """Returns a coroutine of the response's frame. `frame` is the request with its header, and may be reused when
        this returns.

        The coroutine raises NotController if this broker has become the controller, and another KafkaError if there is
        no response."""
        envelope = EnvelopeRequest(
            request_data=bytes(frame),
            request_principal=encode_principal(context.principal),
            client_host_address=pack_host(context.connection.peer_host),
        )
        return self._forward(envelope)

    async def _forward(self, envelope: EnvelopeRequest) -> Parts:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        failures = 0
        while True:
            controller_id = self._controller_id()
            if controller_id == self._node_id:
                raise NotController("this broker is the controller itself")
            error: BarnabasError = NotController("no controller is known")
            if controller_id >= 0:
                try:
                    return await self._send(controller_id, envelope, deadline - loop.time())
                except (NotController, BrokerNotAvailable, ConnectionLost) as failed:
                    error = failed
            failures += 1
            pause = exponential_backoff(failures, BACKOFF_S, BACKOFF_MAX_S, self._rng)
            if loop.time() + pause >= deadline:
                raise RequestTimedOut(f"the controller did not take the request within {self._timeout_s:g} s: {error}")
            await asyncio.sleep(pause)

    async def _send(self, controller_id: int, envelope: EnvelopeRequest, timeout_s: float) -> Parts:
        """Sends the envelope once. Raises ConnectionLost only if the request has not been sent."""
        try:
            response: EnvelopeResponse = await self._peers.send(
                controller_id, envelope, role=Role.FORWARD, timeout_s=max(timeout_s, 0.001)
            )
        except ConnectionLost as error:
            if error.attempts and error.attempts[-1].stage != "request":
                raise
            raise RequestTimedOut(
                f"no response of the controller, which may have done what was asked: {error}"
            ) from None
        except ClientError as error:
            raise RequestTimedOut(str(error)) from None
        if response.error_code:
            raise error_for(response.error_code, f"the controller refuses the forwarded request: {response}")
        data = response.response_data
        if data is None:
            raise UnknownServerError("the controller's response to a forwarded request is empty")
        return (len(data).to_bytes(4, "big") + data,)


async def forward_part(
    forward: Callable[[memoryview, RequestContext], Coroutine[Any, Any, Parts]], part: Request, context: RequestContext
) -> Any:
    """Returns the controller's response to a part of a client's request. `forward` is `Forwarder.forward`."""
    version = context.api_version
    frame = request_frame(part, version, context.correlation_id, client_id_field(context.client_id or ""))
    parts = await forward(memoryview(frame)[4:], context)
    data = b"".join(parts)  # type: ignore[arg-type]  # these APIs send no slices of files
    version, position = body_of(part.API_KEY, version, data, 4)
    return decode(message_classes(part.API_KEY)[1], version, data, position)[0]


def pack_host(host: str) -> bytes:
    """Returns the bytes of an IP address."""
    return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])


def unpack_host(data: bytes) -> str:
    """Returns the IP address of these bytes. Raises ValueError."""
    if len(data) not in (4, 16):
        raise ValueError(f"an IP address has 4 or 16 bytes, not {len(data)}")
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)
