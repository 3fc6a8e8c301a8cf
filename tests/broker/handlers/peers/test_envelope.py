"""Requests that another broker forwards for its clients, by a connection made by hand."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.broker.handlers.peers import envelope
from barnabas.broker.peers.forwarding import pack_host
from barnabas.broker.peers.principals import encode_principal
from barnabas.broker.requests.request_context import RequestContext
from barnabas.errors import (
    ClusterAuthorizationFailed,
    InvalidRequest,
    NotController,
    PrincipalDeserializationFailure,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownServerError,
    UnsupportedVersion,
)
from barnabas.protocol.apis import message_classes, response_header_version
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.schema import Request
from broker.peers.conftest import Peer
from broker.wire import Wire, frame, on_loop, server_of

HOST = pack_host("10.1.2.3")
ALICE = encode_principal("User:alice")


def create(*names: str) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000)


def enveloped(request: Request, version: int, **fields: Any) -> EnvelopeRequest:
    values = {"request_principal": ALICE, "client_host_address": HOST, **fields}
    return EnvelopeRequest(request_data=frame(request, version, 99)[4:], **values)


def embedded(request: Request, version: int, data: bytes) -> Any:
    """Returns the response that an envelope brought."""
    assert int.from_bytes(data[:4], "big") == 99, "the correlation id of the client's request"
    start = 4 + response_header_version(request.API_KEY, version)
    response, end = decode(message_classes(request.API_KEY)[1], version, data, start)
    assert end == len(data)
    return response


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_for_a_client_of_another_broker(peer: Peer, wire: Wire, version: int) -> None:
    request = create("t")
    answer = wire.ask(enveloped(request, version), 0)
    assert answer.error_code == 0
    assert [topic.error_code for topic in embedded(request, version, answer.response_data).topics] == [0]
    assert peer.broker.topics() == ["t"]
    answer = wire.ask(enveloped(request, version), 0)
    codes = [topic.error_code for topic in embedded(request, version, answer.response_data).topics]
    assert codes == [TopicAlreadyExists.code]


@pytest.mark.source
def test_a_request_that_finds_no_memory_is_to_be_sent_again(
    peer: Peer, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def read(message: type[Any], version: int, data: memoryview) -> Any:
        if message is CreateTopicsRequest:
            raise MemoryError
        return decode(message, version, data)

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.broker.requests.dispatch.decode", read)
        assert wire.ask(enveloped(create("t"), 7), 0).error_code == RequestTimedOut.code
    assert peer.broker.topics() == []
    assert wire.ask(enveloped(create("t"), 7), 0).error_code == 0
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.source
def test_the_handler_sees_the_client_and_not_the_broker(
    peer: Peer, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[RequestContext] = []
    dispatcher = server_of(peer.broker).dispatcher
    handle = dispatcher.handle

    def record(context: RequestContext, frame: memoryview, position: int) -> Any:
        seen.append(context)
        return handle(context, frame, position)

    monkeypatch.setattr(dispatcher, "handle", record)
    wire.ask(enveloped(create("t"), 7), 0)
    wire.ask(enveloped(create("u"), 7, client_host_address=pack_host("fe80::1%eth0")), 0)
    assert [(context.principal, context.connection.peer_host) for context in seen] == [
        ("User:alice", "10.1.2.3"),
        ("User:alice", "fe80::1"),
    ]
    assert [(context.client_id, context.is_broker) for context in seen] == [("test", False)] * 2


def test_requests_of_several_clients_are_under_way_at_once(peer: Peer, wire: Wire) -> None:
    for number in range(20):
        wire.send(enveloped(create(f"t-{number}"), 7), 0)
    assert [wire.receive().error_code for _ in range(20)] == [0] * 20
    assert len(peer.broker.topics()) == 20


def test_a_long_response_comes_whole(peer: Peer, wire: Wire) -> None:
    """It is encoded in slices, as for a client."""
    request = DeleteTopicsRequest(topic_names=[f"{number:0200}" for number in range(5000)], timeout_ms=1000)
    answer = wire.ask(enveloped(request, 5), 0)
    assert len(answer.response_data) > envelope.SEARCHED_BYTES_MAX
    assert len(embedded(request, 5, answer.response_data).responses) == 5000


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (enveloped(ListGroupsRequest(), 4), InvalidRequest.code),
        (enveloped(enveloped(create("t"), 7), 0), UnsupportedVersion.code),
        (enveloped(create("t"), 7, client_host_address=b"abc"), InvalidRequest.code),
        (enveloped(create("t"), 7, request_principal=b"abc"), PrincipalDeserializationFailure.code),
        (enveloped(create("t"), 7, request_principal=None), PrincipalDeserializationFailure.code),
        (EnvelopeRequest(request_data=b"", request_principal=ALICE, client_host_address=HOST), InvalidRequest.code),
        (
            EnvelopeRequest(
                request_data=frame(create("t"), 7)[4:-9], request_principal=ALICE, client_host_address=HOST
            ),
            InvalidRequest.code,
        ),
        (
            EnvelopeRequest(
                request_data=b"\0\x13\0\x63" + frame(create("t"), 7)[8:],
                request_principal=ALICE,
                client_host_address=HOST,
            ),
            UnsupportedVersion.code,
        ),
    ],
)
def test_what_cannot_be_forwarded_gets_an_error_of_the_envelope(
    peer: Peer, wire: Wire, request_: EnvelopeRequest, code: int
) -> None:
    answer = wire.ask(request_, 0)
    assert (answer.error_code, answer.response_data) == (code, None)
    assert wire.ask(ListGroupsRequest(), 4).error_code == 0, "the connection goes on"
    assert peer.broker.topics() == []


def test_a_broker_that_is_not_the_controller(peer: Peer, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    image = server_of(peer.broker).image
    monkeypatch.setattr(image, "controller_id", 2)
    answer = wire.ask(enveloped(create("t"), 7), 0)
    assert (answer.error_code, answer.response_data) == (NotController.code, None)


def test_a_controller_that_loses_its_role_meanwhile(peer: Peer, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's broker looks for the next controller; the client never sees NOT_CONTROLLER."""

    def refuse(self: object, *_: object, **__: object) -> None:
        raise NotController

    monkeypatch.setattr("barnabas.controller.controller.Controller.create_topics", refuse)
    answer = wire.ask(enveloped(create("t", "u"), 7), 0)
    assert (answer.error_code, answer.response_data) == (NotController.code, None)


def test_a_handler_that_fails_costs_its_own_request(
    peer: Peer, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: object, *_: object, **__: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr("barnabas.controller.controller.Controller.create_topics", fail)
    answer = wire.ask(enveloped(create("t"), 7), 0)
    assert (answer.error_code, answer.response_data) == (UnknownServerError.code, None)
    monkeypatch.undo()
    assert wire.ask(enveloped(create("t"), 7), 0).error_code == 0
    assert "CREATE_TOPICS" in caplog.text


def test_only_a_broker_forwards(peer: Peer) -> None:
    server = server_of(peer.broker)

    class Anybody:
        is_broker = False

    answer = on_loop(peer.broker, lambda: envelope.handle(server, enveloped(create("t"), 7), Anybody()))  # type: ignore[arg-type]
    assert answer.error_code == ClusterAuthorizationFailed.code


@given(st.binary(max_size=100))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hostile_bytes_in_an_envelope(peer: Peer, wire: Wire, data: bytes) -> None:
    head = frame(create("t"), 7)[4:14]
    for request_data in (data, head + data):
        request = EnvelopeRequest(request_data=request_data, request_principal=ALICE, client_host_address=HOST)
        answer = wire.ask(request, 0)
        assert answer.error_code or isinstance(answer.response_data, bytes)
        if not answer.error_code:
            assert isinstance(embedded_or_none(answer.response_data), CreateTopicsResponse)


def embedded_or_none(data: bytes) -> Any:
    return decode(CreateTopicsResponse, 7, data, 5)[0]
