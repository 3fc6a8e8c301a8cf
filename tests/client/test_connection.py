import socket
import struct
import time

import pytest

from barnabas.client.connection import Connection
from barnabas.client.core.addresses import foreign_protocol, split_address
from barnabas.client.deadline import Deadline
from barnabas.client.errors import ConnectionLost, OperationTimedOut
from barnabas.errors import UnsupportedVersion
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.testing import Broker
from client.conftest import server


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host:1234", ("host", 1234)),
        ("host", ("host", 9092)),
        ("[::1]:1234", ("::1", 1234)),
        ("::1", ("::1", 9092)),
        ("PLAINTEXT://host:1", ("host", 1)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", ":9092", "host:0", "host:99999", "host:x"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        split_address(text)


def read_frame(connection: socket.socket) -> bytes:
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    return connection.recv(size, socket.MSG_WAITALL)


def send_frame(connection: socket.socket, data: bytes) -> None:
    connection.sendall(struct.pack(">i", len(data)) + data)


def attempt_of(port: int, timeout_s: float = 2.0) -> tuple[str, str, str]:
    with pytest.raises(ConnectionLost) as raised:
        Connection.open("127.0.0.1", port, timeout_s=timeout_s)
    attempt = raised.value.attempts[-1]
    return attempt.stage, attempt.error, attempt.hint


def test_the_stage_tells_what_went_wrong() -> None:
    assert attempt_of(1)[:2] == ("tcp", "connection refused")
    with pytest.raises(ConnectionLost) as raised:
        Connection.open("no-such-host.invalid", 1)
    assert raised.value.attempts[0].stage == "dns"
    with server(lambda connection: None) as port:
        assert attempt_of(port)[0] == "version"
    with server(lambda connection: (connection.recv(1000), time.sleep(0.5))[0:0] and None) as port:
        stage, error, hint = attempt_of(port, timeout_s=0.2)
        assert (stage, error) == ("version", "timed out")
        assert "not a Kafka broker" in hint


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"-ERR unknown command\r\n", "Redis"),
    ],
)
def test_what_answers_instead_of_a_broker(answer: bytes, words: str) -> None:
    assert words in foreign_protocol(answer)
    with server(lambda connection: (connection.recv(1000), connection.sendall(answer))[0:0] and None) as port:
        stage, _, hint = attempt_of(port)
        assert stage == "version"
        assert words in hint


def test_a_broker_that_knows_older_versions_only() -> None:
    asked = []

    def behave(connection: socket.socket) -> None:
        while True:
            frame = read_frame(connection)
            version, correlation_id = frame[2:4], frame[4:8]
            asked.append(int.from_bytes(version, "big"))
            known = [ApiVersion(api_key=ApiKey.API_VERSIONS, max_version=2)]
            if asked[-1] > 2:
                body = encode(ApiVersionsResponse(error_code=35, api_keys=known), 0)
            else:
                body = encode(ApiVersionsResponse(api_keys=known), asked[-1])
            send_frame(connection, correlation_id + body)

    with server(behave) as port, Connection.open("127.0.0.1", port) as connection:
        assert asked == [4, 2]
        assert connection.versions == {ApiKey.API_VERSIONS: (0, 2)}
        assert connection.version_of(ApiVersionsRequest) == 2
        with pytest.raises(UnsupportedVersion, match="does not serve Metadata"):
            connection.version_of(MetadataRequest)


def test_answers_come_in_the_order_of_the_requests(broker: Broker) -> None:
    host, port = split_address(broker.bootstrap_servers)
    with Connection.open(host, port) as connection:
        version = connection.version_of(MetadataRequest)
        sent = [connection.send(MetadataRequest(topics=[]), version, Deadline(5)) for _ in range(10)]
        assert connection.in_flight == 10
        assert [connection.receive(Deadline(5))[0] for _ in range(10)] == sent
        with pytest.raises(UnsupportedVersion, match="CreateTopics v2"):
            connection.version_of(CreateTopicsRequest, at_most=1)


def test_a_late_answer_ends_the_connection(broker: Broker) -> None:
    host, port = split_address(broker.bootstrap_servers)
    broker.faults.delay("Metadata", 1.0)
    with Connection.open(host, port) as connection:
        began = time.monotonic()
        with pytest.raises(OperationTimedOut):
            connection.call(MetadataRequest(topics=[]), Deadline(0.1))
        assert time.monotonic() - began < 0.5
        assert not connection.is_open
        with pytest.raises(ConnectionLost, match="closed"):
            connection.call(MetadataRequest(topics=[]), Deadline(1))


def test_an_answer_to_another_request_is_refused() -> None:
    def behave(connection: socket.socket) -> None:
        frame = read_frame(connection)
        number = int.from_bytes(frame[4:8], "big") + 1
        send_frame(connection, number.to_bytes(4, "big") + encode(ApiVersionsResponse(), 4))
        connection.recv(1)

    with server(behave) as port:
        assert "answer to request 2, expected 1" in attempt_of(port)[1]
