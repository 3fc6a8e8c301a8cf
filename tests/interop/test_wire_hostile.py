"""Frames that no honest client sends: answered or closed as Apache Kafka does, and everybody else is served."""

from __future__ import annotations

import contextlib
import itertools
import random
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from stopwatch import Stopwatch

from .harness import wire
from .harness.broker import Broker, LocalBroker
from .harness.wire import API_VERSIONS, FETCH, METADATA, PRODUCE, array, frame, header, int32, string, varint

UNSUPPORTED_VERSION, INVALID_REQUEST = 35, 42
MAX_REQUEST_BYTES = 104_857_600
ANSWER_S = 30.0


@pytest.fixture(autouse=True)
def serves_others(broker: Broker) -> Iterator[None]:
    """A connection opened before the attack works afterwards, and so does a new one."""
    with wire.Connection(broker.address) as before:
        wire.api_versions(before)
        yield
        wire.api_versions(before)
    with wire.Connection(broker.address) as after:
        wire.api_versions(after)


@pytest.fixture
def connection(broker: Broker) -> Iterator[wire.Connection]:
    with wire.Connection(broker.address) as connection:
        yield connection


def ping(correlation: int = 1) -> bytes:
    return frame(header(API_VERSIONS, 0, correlation))


# Sizes


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(int32(-1), id="minus one"),
        pytest.param(int32(-(2**31)), id="the least"),
        pytest.param(int32(0), id="zero"),
        pytest.param(int32(MAX_REQUEST_BYTES + 1), id="above socket.request.max.bytes"),
        pytest.param(int32(2**31 - 1), id="the most"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="HTTP"),
        pytest.param(bytes.fromhex("160301020001000001fc0303") + bytes(600), id="TLS"),
        pytest.param(frame(b"x"), id="a frame of one byte"),
        pytest.param(frame(struct.pack(">hhi", 3, 1, 7)), id="a header without client id"),
    ],
)
def test_a_frame_that_cannot_be_closes_the_connection(connection: wire.Connection, data: bytes) -> None:
    connection.send(data)
    assert connection.wait_closed() == b""


def test_a_request_may_come_byte_by_byte(connection: wire.Connection) -> None:
    for byte in ping(5):
        connection.send(bytes([byte]))
    correlation, reader = connection.response()
    assert correlation == 5
    assert reader.take("h") == 0


def test_a_request_cut_off_by_the_end_is_dropped(connection: wire.Connection) -> None:
    connection.send(ping()[:-3])
    connection.half_close()
    assert connection.wait_closed() == b""


def test_a_large_claim_is_not_believed_before_the_bytes_come(broker: Broker, own_broker: LocalBroker) -> None:
    if own_broker.name != "barnabas":
        pytest.skip("Apache Kafka does allocate what a frame claims")
    before = own_broker.resident_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            claimant = stack.enter_context(wire.Connection(broker.address))
            claimant.send(int32(MAX_REQUEST_BYTES) + bytes(1000))
        with wire.Connection(broker.address) as other:
            wire.api_versions(other)
        assert own_broker.resident_bytes() - before < 100_000_000


# Versions and keys


@pytest.mark.parametrize(
    ("key", "version"),
    [(999, 0), (-1, 0), (METADATA, 99), (METADATA, -1), (PRODUCE, 99), (FETCH, 0), (7, 3), (58, 0)],
    ids=lambda value: str(value),
)
def test_an_unknown_request_closes_the_connection(connection: wire.Connection, key: int, version: int) -> None:
    connection.send(frame(header(key, version, 1) + bytes(20)))
    assert connection.wait_closed() == b""


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_is_advertised_but_not_served(
    connection: wire.Connection, version: int, topic: str, broker: Broker
) -> None:
    """Advertised from version 0 for librdkafka's sake, which decides by it what compression a broker knows."""
    assert wire.api_versions(connection)[PRODUCE][0] == 0
    # The body that these versions had: without a transactional id.
    connection.send(frame(header(PRODUCE, version, 1) + wire.produce_body(topic, 0, wire.simple_batch(b"x"))[2:]))
    assert connection.wait_closed() == b""
    with wire.Connection(broker.address) as other:
        assert wire.end_offset(other, topic, 0) == (0, 0)


@pytest.mark.parametrize("version", [6, 99, -1])
def test_api_versions_of_the_future_are_answered_in_the_oldest_form(connection: wire.Connection, version: int) -> None:
    known = wire.api_versions(connection)
    connection.send(frame(header(API_VERSIONS, version, 77) + bytes(3)))
    correlation, reader = connection.response()
    assert correlation == 77
    assert reader.take("h") == UNSUPPORTED_VERSION
    assert reader.take("i") == 1
    assert reader.take("hhh") == (API_VERSIONS, *known[API_VERSIONS])
    assert reader.left == 0
    wire.api_versions(connection)


def test_api_versions_wants_a_proper_software_name(connection: wire.Connection) -> None:
    body = b"\0" + varint(3) + b"a!" + varint(2) + b"1" + b"\0"
    connection.send(frame(header(API_VERSIONS, 3, 8) + body))
    assert connection.response()[1].take("h") == INVALID_REQUEST


# Bodies


def test_unknown_tagged_fields_are_skipped(connection: wire.Connection) -> None:
    tags = b"".join(varint(tag) + varint(3) + b"abc" for tag in range(100, 1100))
    request = struct.pack(">hhi", API_VERSIONS, 3, 8) + string("wire") + varint(1000) + tags
    request += varint(5) + b"name" + varint(4) + b"1.0" + varint(1000) + tags
    connection.send(frame(request))
    correlation, reader = connection.response()
    assert correlation == 8
    assert reader.take("h") == 0


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(header(API_VERSIONS, 3, 8) + b"\xff\xff\xff\xff\x0f", id="four billion tagged fields"),
        pytest.param(header(METADATA, 9, 8, flexible=True) + b"\xff" * 12, id="a varint without end"),
        pytest.param(
            header(METADATA, 9, 8, flexible=True) + varint(2**31) + b"\0" * 8, id="two billion topics, compact"
        ),
        pytest.param(header(METADATA, 1, 8) + int32(2**31 - 1), id="two billion topics"),
        pytest.param(header(METADATA, 1, 8) + int32(1) + struct.pack(">h", -5), id="a string of negative length"),
        pytest.param(header(METADATA, 1, 8) + int32(1) + struct.pack(">h", 500) + b"abc", id="a string past the end"),
        pytest.param(
            header(PRODUCE, 7, 8) + string(None) + bytes(6) + int32(2**31 - 1), id="produce of two billion topics"
        ),
        pytest.param(header(FETCH, 4, 8) + bytes(17) + int32(2**30), id="fetch of a billion topics"),
    ],
)
def test_a_body_that_lies_closes_the_connection(connection: wire.Connection, request_bytes: bytes) -> None:
    connection.send(frame(request_bytes))
    assert connection.wait_closed() == b""


def test_bytes_after_the_body_do_no_harm(connection: wire.Connection) -> None:
    connection.send(frame(header(API_VERSIONS, 0, 4) + b"trailing"))
    assert connection.response()[0] == 4
    wire.api_versions(connection)


@pytest.mark.parametrize("client", [None, ""])
def test_a_client_id_may_be_missing(connection: wire.Connection, client: str | None) -> None:
    connection.send(frame(header(API_VERSIONS, 0, 4, client)))
    assert connection.response()[0] == 4


def test_every_request_survives_hostile_bodies(broker: Broker) -> None:
    """Each API at its oldest and newest version with bodies of one byte repeated, and of noise."""
    with wire.Connection(broker.address) as connection:
        served = wire.api_versions(connection)
    noise = random.Random(12)
    bodies = [b"", b"\x7f\xff\xff\xff" * 32, b"\xff" * 128, b"\x01" * 128, *(noise.randbytes(100) for _ in range(3))]
    for key, versions in served.items():
        with contextlib.ExitStack() as stack:
            attackers = [
                stack.enter_context(wire.Connection(broker.address)) for _ in range(len(set(versions)) * len(bodies))
            ]
            for attacker, (version, body) in zip(attackers, itertools.product(set(versions), bodies), strict=True):
                attacker.send(frame(header(key, version, 1) + body))
            # Some are answered, some closed, some left to wait for records that never come.
            select.select(attackers, [], [], 0.1)
    with wire.Connection(broker.address) as after:
        assert wire.api_versions(after) == served


# Order, halves, slowness


def test_pipelined_requests_are_answered_in_order(connection: wire.Connection, topic: str) -> None:
    requests = []
    for index in range(60):
        if index % 20 == 3:
            requests.append(frame(header(FETCH, 4, index) + wire.fetch_body(topic, 0, 0, wait_ms=150)))
        elif index > 45 and index % 3 == 0:
            requests.append(frame(header(PRODUCE, 7, index) + wire.produce_body(topic, 0, wire.simple_batch(b"x"))))
        elif index % 3 == 0:
            requests.append(ping(index))
        else:
            requests.append(frame(header(METADATA, 1, index) + array([string(topic)])))
    connection.send(b"".join(requests))
    assert [connection.response()[0] for _ in requests] == list(range(60))


def test_a_half_closed_connection_still_gets_its_answers(connection: wire.Connection, topic: str) -> None:
    waiting = frame(header(FETCH, 4, 2) + wire.fetch_body(topic, 0, 0, wait_ms=300))
    connection.send(ping(1) + waiting + ping(3))
    connection.half_close()
    assert [connection.response()[0] for _ in range(3)] == [1, 2, 3]
    assert connection.wait_closed() == b""


def test_many_slow_senders_do_not_stop_the_others(broker: Broker, stopwatch: Stopwatch) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(wire.Connection(broker.address)) for _ in range(100)]
        request = ping(9)
        for byte in request[:-1]:
            for connection in slow:
                connection.send(bytes([byte]))
        start = stopwatch()
        with wire.Connection(broker.address) as other:
            wire.api_versions(other)
        assert stopwatch() - start < ANSWER_S
        for connection in slow:
            connection.send(request[-1:])
        assert [connection.response()[0] for connection in slow] == [9] * 100


def test_a_reader_that_does_not_read_is_held_back(
    broker: Broker, unique: Callable[[str], str], stopwatch: Stopwatch
) -> None:
    """Requests without reading answers: the broker stops taking them, and sends all answers once they are read."""
    wide = unique("wide")
    wire.create_topic(broker.address, wide, partitions=100)
    request = frame(header(METADATA, 1, 1) + array([string(wide)]))
    with socket.create_connection(broker.address, timeout=45) as greedy:
        greedy.setblocking(False)
        sent = 0
        data = request * 50
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and select.select([], [greedy], [], 0.5)[1]:
            with contextlib.suppress(BlockingIOError):
                sent += greedy.send(data[sent % len(request) :])
            # Each answer is twenty times as long: 200 MB of answers would have to be held by now.
            assert sent < 10_000_000, f"the broker took {sent} bytes of requests with no answer read"
        with wire.Connection(broker.address) as other:
            start = stopwatch()
            wire.api_versions(other)
            assert stopwatch() - start < ANSWER_S
        greedy.settimeout(45)
        received = 0
        answer_size = 0
        while answer_size == 0 or received < sent // len(request) * answer_size:
            chunk = greedy.recv(1 << 20)
            assert chunk, "the broker closed the connection of a slow reader"
            answer_size = answer_size or 4 + struct.unpack_from(">i", chunk)[0]
            received += len(chunk)


def test_connections_reset_while_their_fetch_waits(broker: Broker, topic: str) -> None:
    request = frame(header(FETCH, 4, 1) + wire.fetch_body(topic, 0, 0, wait_ms=20_000))
    for _ in range(50):
        with socket.create_connection(broker.address, timeout=45) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(ping(1) + request)
            connection.recv(4)
    with wire.Connection(broker.address) as other:
        assert wire.produce(other, topic, 0, wire.simple_batch(b"x")) == (0, 0)


# Requests without answers


def test_a_produce_without_acknowledgement_has_no_answer(connection: wire.Connection, topic: str) -> None:
    connection.send(frame(header(PRODUCE, 7, 1) + wire.produce_body(topic, 0, wire.simple_batch(b"x"), acks=0)))
    connection.send(ping(2))
    assert connection.response()[0] == 2


@pytest.mark.parametrize(
    ("partition", "batch"),
    [pytest.param(9, wire.simple_batch(b"x"), id="unknown partition"), pytest.param(0, bytes(80), id="corrupt")],
)
def test_a_failed_produce_without_acknowledgement_closes_the_connection(
    connection: wire.Connection, topic: str, partition: int, batch: bytes
) -> None:
    connection.send(frame(header(PRODUCE, 7, 1) + wire.produce_body(topic, partition, batch, acks=0)))
    assert connection.wait_closed() == b""


def test_empty_requests_get_empty_answers(connection: wire.Connection) -> None:
    connection.send(frame(header(PRODUCE, 7, 1) + string(None) + struct.pack(">hi", -1, 1000) + array([])))
    _, reader = connection.response()
    assert reader.take("ii") == (0, 0)
    connection.send(frame(header(FETCH, 4, 2) + struct.pack(">iiiib", -1, 50, 1, 100, 0) + array([])))
    _, reader = connection.response()
    assert reader.take("ii") == (0, 0)
