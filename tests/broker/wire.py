"""Requests by hand over a real socket: any version, any bytes."""

import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from barnabas.broker import server
from barnabas.controller.controller import Controller
from barnabas.errors import error_for
from barnabas.protocol.apis import ApiKey, is_flexible, message_classes, response_header_version
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.schema import Request, Response
from barnabas.testing import Broker

R = TypeVar("R", bound=Response)


def api_key_of(request: Request) -> ApiKey:
    return next(key for key in ApiKey if message_classes(key)[0] is type(request))


def frame(request: Request, version: int, correlation_id: int = 7, client_id: str | None = "test") -> bytes:
    """A whole request frame, its size included."""
    key = api_key_of(request)
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    body = struct.pack(">hhi", key, version, correlation_id) + name
    if is_flexible(key, version):
        body += b"\0"
    body += encode(request, version)
    return struct.pack(">i", len(body)) + body


class Wire:
    """One connection. Everything waits at most `timeout_s`."""

    def __init__(self, broker: Broker | tuple[str, int], timeout_s: float = 60.0, *, receive_buffer: int = 0) -> None:
        if isinstance(broker, Broker):
            host, _, port = broker.bootstrap_servers.rpartition(":")
            broker = host, int(port)
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        self.socket.connect(broker)
        self._correlation_id = 0
        self._expected: list[tuple[int, int, int]] = []

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, request: Request, version: int) -> None:
        self._correlation_id += 1
        self._expected.append((api_key_of(request), version, self._correlation_id))
        self.socket.sendall(frame(request, version, self._correlation_id))

    def receive(self) -> Any:
        """The next response. Raises EOFError where the broker closed the connection."""
        key, version, correlation_id = self._expected.pop(0)
        data = self.receive_frame()
        assert int.from_bytes(data[:4], "big") == correlation_id, "answers leave in the order of their requests"
        start = 4 + (response_header_version(key, version) == 1)
        response, end = decode(message_classes(ApiKey(key))[1], version, data, start)
        assert end == len(data)
        return response

    def ask(self, request: Request, version: int) -> Any:
        self.send(request, version)
        return self.receive()

    def receive_frame(self) -> bytes:
        return self.read(int.from_bytes(self.read(4), "big"))

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise EOFError("the broker closed the connection")
            data += piece
        return bytes(data)

    def is_closed(self) -> bool:
        """Waits until the broker closes the connection; False if it says something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def is_silent(self, seconds: float = 0.05) -> bool:
        """Whether nothing comes for so long."""
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) is None
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)


def on_loop(broker: Broker, function: Callable[[], Any]) -> Any:
    """Runs a function on the thread of a test's broker."""
    return broker._on_loop(function)


def on_controller(broker: Broker, action: Callable[[Controller], Any]) -> Any:
    """Has the controller of a test's broker run an action."""
    return broker._on_controller(action)


def server_of(broker: Broker) -> server.Broker:
    """Returns the server of a test's broker. This, `on_loop` and `on_controller` are the only doors for tests."""
    return broker._running()


def name_of(code: int) -> str:
    """The name of an error; empty for none."""
    return type(error_for(code)).__name__ if code else ""
