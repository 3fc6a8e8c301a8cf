"""A broker process under requests that are made to cost it memory or time."""

import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.protocol.apis import SERVED, ApiKey, is_flexible
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.primitives import uvarint
from stopwatch import Stopwatch

FRAME_MAX = 100 * 1024 * 1024
CONNECTIONS = 200
MEGABYTE = 1_000_000


class Process:
    """`barnabas serve`, and what the kernel says of it."""

    def __init__(self, data_dir: Path) -> None:
        ready = data_dir / "ready"
        command = [sys.executable, "-m", "barnabas", "serve", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", str(data_dir / "data"), "--ready-file", str(ready)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, line
        self.port = int(found[1])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def memory(self) -> int:
        """Bytes of its own that are resident."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    def memory_peak(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Process]:
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc here")
    process = Process(tmp_path)
    ask_versions(process)
    yield process
    process.stop()


def header(api_key: ApiKey, version: int) -> bytes:
    tags = b"\0" if is_flexible(api_key, version) else b""
    return struct.pack(">hhih", api_key, version, 1, -1) + tags


def framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


def ask_versions(broker: Process) -> None:
    """A small request, and its answer."""
    with broker.connect() as sock:
        sock.sendall(framed(header(ApiKey.API_VERSIONS, 0) + encode(ApiVersionsRequest(), 0)))
        assert sock.recv(4)


def test_announced_frames_cost_nothing(broker: Process) -> None:
    before = broker.memory()
    sockets = [broker.connect() for _ in range(CONNECTIONS)]
    for number, sock in enumerate(sockets):
        sock.sendall(struct.pack(">i", FRAME_MAX) + bytes(number * 40))
    for _ in range(3):
        ask_versions(broker)
    grown = broker.memory() - before
    for sock in sockets:
        sock.close()
    assert grown < 20 * MEGABYTE, f"{grown} bytes for {CONNECTIONS} frames that were announced"


TAGS = b"\x80\x80\x80\x01" + b"\x7f\0" * 1_000_000
TINY_ELEMENTS = {
    "metadata of many topics": (ApiKey.METADATA, 1, struct.pack(">i", 999_999) + b"\0\0" * 50_000_000),
    "offsets of many partitions": (
        ApiKey.OFFSET_FETCH,
        7,
        b"\x02g" + uvarint(190_001) + (b"\x02t" + uvarint(101) + bytes(400) + b"\0") * 240_000,
    ),
    "topics without partitions": (ApiKey.CREATE_TOPICS, 5, uvarint(100_001) + bytes(100_000_000)),
    "topics with many configs": (
        ApiKey.CREATE_TOPICS,
        5,
        uvarint(190_001) + (b"\x02t" + bytes(6) + b"\x01" + uvarint(101) + b"\x02c\0\0" * 100 + b"\0") * 240_000,
    ),
    "tagged fields": (ApiKey.API_VERSIONS, 3, b"\x02a\x02b" + TAGS),
    "partitions to write to": (
        ApiKey.PRODUCE,
        3,
        b"\xff\xff" + struct.pack(">hii", 1, 100, 1) + b"\0\1t" + struct.pack(">i", 12_000_000) + bytes(99_000_000),
    ),
    "partitions to write to, flexibly": (
        ApiKey.PRODUCE,
        9,
        b"\0" + struct.pack(">hi", 1, 100) + b"\x02\x02t" + uvarint(16_000_001) + bytes(99_000_000),
    ),
    "partitions to read from": (
        ApiKey.FETCH,
        12,
        struct.pack(">iiiibii", -1, 0, 1, 1_000_000, 0, 0, -1) + b"\x02\x02t" + uvarint(900_001) + bytes(99_000_000),
    ),
}


@pytest.mark.parametrize("name", TINY_ELEMENTS)
def test_a_frame_full_of_tiny_elements_is_refused_at_once(broker: Process, name: str, stopwatch: Stopwatch) -> None:
    api_key, version, body = TINY_ELEMENTS[name]
    assert SERVED[api_key].first <= version <= SERVED[api_key].last
    request = header(api_key, version) + body
    assert len(request) <= FRAME_MAX
    with broker.connect() as sock:
        sock.sendall(framed(request)[:-1])
        ask_versions(broker)
        before, peak_before = broker.cpu_seconds(), broker.memory_peak()
        sock.sendall(request[-1:])
        assert sock.recv(1) == b"", "the connection ends"
    spent, grown = broker.cpu_seconds() - before, broker.memory_peak() - peak_before
    print(f"{name}: {len(request)} bytes, {spent:.2f} s, {grown / len(request):.1f} times its size")
    assert spent < 3.0, f"{spent} s of CPU"
    assert grown < 4 * len(request)
    began = stopwatch()
    ask_versions(broker)
    assert stopwatch() - began < 5


def test_the_most_elements_that_are_taken(broker: Process) -> None:
    """The dearest request there is: the most elements, each of them a topic that nobody knows."""
    names = b"".join(b"\0\7t%06d" % number for number in range(149_999))
    topics = b"".join(b"\0\7t%06d\0\0\0\1\0\0\0\0" % number for number in range(74_999))
    for api_key, version, body in (
        (ApiKey.METADATA, 4, struct.pack(">i", 149_999) + names + b"\0"),
        (ApiKey.OFFSET_FETCH, 5, b"\0\1g" + struct.pack(">i", 74_999) + topics),
    ):
        with broker.connect() as sock:
            before = broker.cpu_seconds()
            sock.sendall(framed(header(api_key, version) + body))
            assert len(sock.recv(4)) == 4
            spent = broker.cpu_seconds() - before
        print(f"{api_key.name}: {spent:.2f} s")
        assert spent < 15
