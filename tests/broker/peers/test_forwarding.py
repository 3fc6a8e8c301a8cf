"""The broker that forwards: which controller it asks, when it asks again, and when it must not."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.broker.peers.forwarding import Forwarder, pack_host, unpack_host
from barnabas.broker.peers.peer_connections import Role
from barnabas.broker.peers.principals import decode_principal
from barnabas.broker.requests.request_context import RequestContext
from barnabas.errors import (
    Attempt,
    BrokerNotAvailable,
    ClientClosed,
    ConnectionLost,
    InvalidRequest,
    KafkaError,
    NotController,
    RequestTimedOut,
    UnknownServerError,
)
from barnabas.network.connection import Parts
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from broker.peers.conftest import SOON_S

OK = EnvelopeResponse(response_data=b"response")


class Client:
    """The connection of the client."""

    peer_host = "::1"


class Peers:
    """Answers envelopes with the results that a test gives, in order."""

    def __init__(self, *results: EnvelopeResponse | Exception) -> None:
        self.results = list(results)
        self.sent: list[tuple[int, EnvelopeRequest, Role]] = []

    def send(self, node_id: int, request: EnvelopeRequest, *, role: Role, timeout_s: float) -> "asyncio.Future[Any]":
        assert 0 < timeout_s <= SOON_S
        self.sent.append((node_id, request, role))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        result = self.results.pop(0)
        future.set_exception(result) if isinstance(result, Exception) else future.set_result(result)
        return future

    def nodes(self) -> list[int]:
        return [node_id for node_id, *_ in self.sent]


def lost(stage: str) -> ConnectionLost:
    attempt = Attempt("b:1", stage, "lost", "")
    return ConnectionLost(str(attempt), (attempt,))


def forward(peers: Peers, controller_id: Callable[[], int] = lambda: 1, timeout_s: float = SOON_S) -> Parts:
    context = RequestContext(ApiKey.CREATE_TOPICS, 7, 99, b"c", Client())  # type: ignore[arg-type]
    context.principal = "User:alice"
    frame = bytearray(b"request")

    def work() -> Coroutine[Any, Any, Parts]:
        forwarder = Forwarder(peers, 2, controller_id, timeout_s=timeout_s, rng=random.Random(1))  # type: ignore[arg-type]
        coroutine = forwarder.forward(memoryview(frame), context)
        frame[:] = b"changed"  # the buffer is used again
        return coroutine

    async def main() -> Parts:
        return await work()

    return asyncio.run(main())


def test_the_response_is_returned_as_it_is() -> None:
    peers = Peers(OK)
    assert forward(peers) == (b"\0\0\0\x08response",)
    ((node_id, envelope, role),) = peers.sent
    assert (node_id, role, envelope.request_data) == (1, Role.FORWARD, b"request")
    assert decode_principal(envelope.request_principal or b"") == "User:alice"
    assert unpack_host(envelope.client_host_address) == "::1"


@pytest.mark.parametrize(
    "first",
    [
        EnvelopeResponse(error_code=NotController.code),
        lost("tcp"),
        lost("sasl"),
        lost("introduction"),
        BrokerNotAvailable(),
    ],
)
def test_the_next_controller_is_asked_after_what_has_changed_nothing(first: Any) -> None:
    peers = Peers(first, OK)
    controllers = iter((1, -1, 3))
    assert forward(peers, lambda: next(controllers)) == (b"\0\0\0\x08response",)
    assert peers.nodes() == [1, 3]


@pytest.mark.parametrize("first", [lost("request"), ConnectionLost("lost"), ClientClosed("closed")])
def test_what_may_have_been_carried_out_is_not_sent_again(first: Exception) -> None:
    peers = Peers(first, OK)
    with pytest.raises(RequestTimedOut):
        forward(peers)
    assert peers.nodes() == [1]


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (EnvelopeResponse(error_code=InvalidRequest.code), InvalidRequest),
        (EnvelopeResponse(error_code=-1), UnknownServerError),
        (EnvelopeResponse(), UnknownServerError),
    ],
)
def test_a_refused_envelope_is_an_error(response: EnvelopeResponse, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        forward(Peers(response))


def test_a_cluster_without_controller_is_waited_for_in_vain() -> None:
    peers = Peers()
    with pytest.raises(RequestTimedOut, match=r"within 0\.1 s: no controller is known"):
        forward(peers, lambda: -1, timeout_s=0.1)
    assert peers.nodes() == []


def test_a_broker_that_becomes_the_controller_handles_the_request_itself() -> None:
    peers = Peers(EnvelopeResponse(error_code=NotController.code))
    controllers = iter((1, 2))
    with pytest.raises(NotController, match="this broker is the controller itself"):
        forward(peers, lambda: next(controllers))
    assert peers.nodes() == [1]


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "::1", "fe80::1", "2001:db8::2"])
def test_hosts(host: str) -> None:
    assert unpack_host(pack_host(host)) == host


def test_what_is_no_host() -> None:
    with pytest.raises(ValueError, match="4 or 16 bytes, not 5"):
        unpack_host(b"12345")
