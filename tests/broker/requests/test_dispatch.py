"""From a frame to a handler: headers, versions, malformed frames. A bad frame costs its own connection and no other."""

import asyncio
import importlib
import logging
import struct
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.broker.requests.request_context import RequestContext
from barnabas.errors import BarnabasError, NotController, RequestTimedOut
from barnabas.network.connection import Parts
from barnabas.protocol.apis import SERVED, ApiKey, is_flexible, message_classes
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.testing import Broker
from broker.wire import Wire, frame, on_loop, server_of

ALL_VERSIONS = [(key, version) for key, served in SERVED.items() for version in range(served.first, served.last + 1)]


def header(key: int, version: int, client_id: bytes | None = b"test", *, flexible: bool = False) -> bytes:
    size = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 7, size) + (client_id or b"") + (b"\0" if flexible else b"")


def send(wire: Wire, body: bytes) -> None:
    wire.socket.sendall(len(body).to_bytes(4, "big") + body)


def is_well(wire: Wire) -> bool:
    return bool(wire.ask(MetadataRequest(topics=[]), 12).brokers)


@pytest.mark.parametrize("key", SERVED)
def test_every_api_that_is_advertised_has_a_handler(key: int) -> None:
    name = HANDLER_MODULES[ApiKey(key).name.lower()]
    module = importlib.import_module(name)
    assert hasattr(module, "handle") or hasattr(module, "handle_frame")
    source = Path(barnabas.__file__).parents[1] / f"{name.replace('.', '/')}.py"  # compiled modules have no docstring
    first = source.read_text().splitlines()[0]
    last = SERVED[key].last
    assert f"v{last}" in first, f"{first}: it is served up to v{last}"


def test_an_api_that_is_not_served_ends_the_connection(broker: Broker, wire: Wire) -> None:
    with Wire(broker) as hostile:
        send(hostile, header(9999, 0))
        assert hostile.is_closed()
    assert is_well(wire)


@pytest.mark.parametrize(("key", "version"), [(ApiKey.PRODUCE, 2), (ApiKey.FETCH, 99), (ApiKey.METADATA, -1)])
def test_a_version_that_is_not_served_ends_the_connection(
    broker: Broker, wire: Wire, key: ApiKey, version: int
) -> None:
    with Wire(broker) as hostile:
        send(hostile, header(key, version))
        assert hostile.is_closed()
    assert is_well(wire)


@pytest.mark.parametrize("version", [SERVED[ApiKey.API_VERSIONS].last + 1, 99, 32767])
def test_a_newer_client_learns_our_versions(wire: Wire, version: int) -> None:
    send(wire, header(ApiKey.API_VERSIONS, version, flexible=True) + b"whatever it may contain")
    data = wire.receive_frame()
    assert data[:4] == (7).to_bytes(4, "big")
    answer, end = wire_decode(ApiVersionsResponse, 0, data[4:])
    assert end == len(data) - 4
    assert answer.error_code == 35
    ours = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert ours[ApiKey.API_VERSIONS] == (SERVED[ApiKey.API_VERSIONS].first, SERVED[ApiKey.API_VERSIONS].last)
    assert is_well(wire)


def wire_decode(cls: type[Any], version: int, data: bytes) -> tuple[Any, int]:
    from barnabas.protocol.codec import decode

    return decode(cls, version, data, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        header(3, 1)[:9],
        header(3, 1, None)[:8],
        struct.pack(">hhih", 3, 1, 7, 100) + b"short",
        struct.pack(">hhih", 3, 12, 7, 0) + b"\1\0",  # a tagged field that is not there
        struct.pack(">hhih", 3, 12, 7, 0) + b"\xff\xff\xff\xff\x0f",
        header(3, 12, flexible=True) + b"\xff\xff\xff\xff\x07",  # topics without end
        header(3, 1) + b"\x7f\xff\xff\xff",
    ],
)
def test_malformed_frames_end_their_connection_alone(broker: Broker, wire: Wire, body: bytes) -> None:
    with Wire(broker) as hostile:
        send(hostile, body)
        assert hostile.is_closed()
    assert is_well(wire)


@pytest.mark.parametrize(("key", "version"), ALL_VERSIONS)
def test_bodies_cut_short_are_refused(broker: Broker, key: int, version: int) -> None:
    """Half of an empty request, and no request at all: answered (ApiVersions has no fields) or cut, never left open."""
    request_class = message_classes(key)[0]
    body = encode(request_class(), version)
    head = header(key, version, flexible=is_flexible(key, version))
    for length in {0, len(body) // 2, max(0, len(body) - 1)}:
        if length == len(body):
            continue
        with Wire(broker) as hostile:
            send(hostile, head + body[:length])
            assert hostile.is_closed(), (ApiKey(key).name, version, length)


@pytest.mark.parametrize("client_id", [None, b"", b"kafka", "käse".encode(), b"\xff\xfe", b"x" * 32767])
def test_any_client_id_will_do(wire: Wire, client_id: bytes | None) -> None:
    send(wire, header(ApiKey.METADATA, 1, client_id) + b"\0\0\0\0")
    assert wire.receive_frame()[:4] == (7).to_bytes(4, "big")


def test_tagged_fields_of_a_newer_header_are_skipped(wire: Wire) -> None:
    plain = frame(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)[4:]
    at = 10 + len("test")
    assert plain[at] == 0
    tagged = plain[:at] + b"\2\0\3abc\x81\1\1z" + plain[at + 1 :]
    send(wire, tagged)
    assert wire.receive_frame()[4:6] == b"\0\0"


def test_answers_leave_in_the_order_of_requests(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    poll = FetchRequest(
        max_wait_ms=300,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
    )
    wire.send(poll, 11)
    wire.send(MetadataRequest(topics=[]), 12)
    wire.send(ApiVersionsRequest(), 0)
    assert wire.is_silent()
    answers = [wire.receive() for _ in range(3)]
    assert [type(answer).__name__ for answer in answers] == [
        "FetchResponse",
        "MetadataResponse",
        "ApiVersionsResponse",
    ]


def test_a_bug_in_a_handler_costs_one_connection_and_is_logged(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def buggy(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    is_well(wire)  # the handler is loaded
    handlers = on_loop(broker, lambda: server_of(broker).dispatcher._frame_handlers)
    monkeypatch.setitem(handlers, ApiKey.METADATA, buggy)
    with caplog.at_level(logging.ERROR), Wire(broker) as other:
        other.send(MetadataRequest(topics=[]), 12)
        assert other.is_closed()
    assert "METADATA v12 failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    assert is_well(wire)


# --- requests for the controller -------------------------------------------------------------------------------------


class OnAnotherBroker:
    """A membership of a broker that is not the controller. `answers` are the responses of the controller."""

    is_controller = False
    duties = None

    def __init__(self, broker: Broker, *answers: bytes | BarnabasError) -> None:
        self.answers = list(answers)
        self.frames: list[bytes] = []
        self.waiting: asyncio.Future[None] = server_of(broker).loop.create_future()

    def forward(self, frame: memoryview, context: RequestContext) -> Coroutine[Any, Any, Parts]:
        self.frames.append(bytes(frame))
        return self._forward(context)

    async def _forward(self, context: RequestContext) -> Parts:
        await self.waiting
        answer = self.answers.pop(0)
        if isinstance(answer, BarnabasError):
            raise answer
        return (answer,)


CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1000)


def forwarding(broker: Broker, monkeypatch: pytest.MonkeyPatch, *answers: bytes | BarnabasError) -> OnAnotherBroker:
    cluster = on_loop(broker, lambda: OnAnotherBroker(broker, *answers))
    monkeypatch.setattr(server_of(broker), "_cluster", cluster)
    return cluster


def response_frame(response: CreateTopicsResponse, correlation_id: int) -> bytes:
    body = correlation_id.to_bytes(4, "big") + b"\0" + encode(response, 7)
    return len(body).to_bytes(4, "big") + body


def test_a_change_of_metadata_is_answered_by_the_controller(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = CreateTopicsResponse(topics=[CreatableTopicResult(name="told", error_code=41)])
    cluster = forwarding(broker, monkeypatch, response_frame(told, 1))
    wire.send(CREATE, 7)
    wire.send(ListGroupsRequest(), 4)
    with Wire(broker) as other:
        assert other.ask(ListGroupsRequest(), 4).groups == [], "only one connection waits"
    on_loop(broker, lambda: cluster.waiting.set_result(None))
    assert [(topic.name, topic.error_code) for topic in wire.receive().topics] == [("told", 41)]
    assert wire.receive().groups == [], "the requests of a connection are handled in their order"
    assert cluster.frames == [frame(CREATE, 7, 1)[4:]]


def test_a_broker_that_has_become_the_controller_answers(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = forwarding(broker, monkeypatch, NotController("this broker is"))
    wire.send(CREATE, 7)
    on_loop(broker, lambda: cluster.waiting.set_result(None))
    assert [(topic.name, topic.error_code) for topic in wire.receive().topics] == [("t", 0)]
    assert on_loop(broker, lambda: "t" in server_of(broker).image.topics)


def test_a_controller_out_of_reach_is_told_in_the_form_of_the_api(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = forwarding(broker, monkeypatch, RequestTimedOut("no answer"))
    wire.send(CREATE, 7)
    on_loop(broker, lambda: cluster.waiting.set_result(None))
    assert [(t.name, t.error_code, t.error_message) for t in wire.receive().topics] == [("t", 7, "no answer")]
    assert on_loop(broker, lambda: "t" not in server_of(broker).image.topics), "it may be on its way at the controller"


def test_a_client_that_leaves_does_not_hold_up_others(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = response_frame(CreateTopicsResponse(topics=[]), 1)
    cluster = forwarding(broker, monkeypatch, told, told)
    with Wire(broker) as leaves:
        leaves.send(CREATE, 7)
        broker.wait_for(lambda: cluster.frames)
    wire.send(CREATE, 7)
    broker.wait_for(lambda: len(cluster.frames) == 2)
    on_loop(broker, lambda: cluster.waiting.set_result(None))
    assert wire.receive().topics == []
    assert wire.ask(ListGroupsRequest(), 4).error_code == 0
