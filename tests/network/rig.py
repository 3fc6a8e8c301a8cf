"""A connection or an acceptor on an event loop, a plain client socket at the other end, and a handler to script."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.errors import BarnabasError
from barnabas.network.acceptor import Acceptor, ConnectionLimits, open_listener
from barnabas.network.connection import NO_REPLY, Connection, Parts, PendingReply


def run(main: Coroutine[Any, Any, None], *, timeout_s: float = 120) -> None:
    """A test that waits for ever is a failing test. The timeout is on the loop's clock."""
    asyncio.run(asyncio.wait_for(main, timeout_s))


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class Script:
    """Answers by the request's text: `echo:x`, `later:x` (parked until `answer`), `none`, `die`, `size:n`."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.parked: dict[str, PendingReply] = {}
        self.others: dict[str, Callable[[Connection], Parts | PendingReply]] = {}

    def __call__(self, connection: Connection, frame: memoryview) -> Parts | PendingReply:
        text = bytes(frame).decode()
        self.seen.append(text)
        verb, _, rest = text.partition(":")
        if verb == "later":
            reply = connection.pending_reply()
            self.parked[rest] = reply
            return reply
        if verb == "none":
            return NO_REPLY
        if verb == "die":
            raise BarnabasError("told to")
        if verb == "size":
            return (framed(bytes(int(rest.partition(",")[0]))),)
        if verb in self.others:
            return self.others[verb](connection)
        return (framed(rest.encode()),)

    def answer(self, name: str) -> None:
        self.parked.pop(name).resolve((framed(name.encode()),))


class Rig:
    """An acceptor with one listener. Use as an async context manager."""

    def __init__(self, *, descriptors_max: Callable[[], int] | None = None, **limits: Any) -> None:
        self.script = Script()
        self.ends: list[str] = []
        """Why connections have ended."""
        self._descriptors_max = descriptors_max
        self._limits = limits

    async def __aenter__(self) -> "Rig":
        self.loop = asyncio.get_running_loop()
        self.acceptor = Acceptor(
            self.loop,
            self.script,
            ConnectionLimits(**self._limits),
            logging.getLogger("barnabas.network"),
            descriptors_max=self._descriptors_max,
            on_closed=lambda connection, reason: self.ends.append(reason),
        )
        self.listener = open_listener("127.0.0.1", 0, 1024)
        self.address = self.listener.getsockname()
        self.acceptor.listen(self.listener, "PLAINTEXT")
        self.clients: list[Client] = []
        return self

    async def __aexit__(self, *_: object) -> None:
        self.acceptor.close()
        for client in self.clients:
            client.socket.close()

    async def connect(self, **options: Any) -> "Client":
        client = Client(self.loop, **options)
        self.clients.append(client)
        await self.loop.sock_connect(client.socket, self.address)
        return client

    async def accepted(self, count: int) -> list[Connection]:
        """Once so many connections are there."""
        await self.until(lambda: len(self.acceptor.connections) == count)
        return list(self.acceptor.connections)

    async def connected(self) -> "tuple[Client, Connection]":
        """A client and the broker's end of it."""
        before = set(self.acceptor.connections)
        client = await self.connect()
        await self.until(lambda: len(self.acceptor.connections) > len(before))
        (connection,) = self.acceptor.connections.keys() - before
        return client, connection

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110  nobody sets an event for what a socket does
            await asyncio.sleep(0)

    async def turns(self, count: int = 20) -> None:
        """Give the loop the chance to do what it should not do."""
        for _ in range(count):
            await asyncio.sleep(0.0005)


class Client:
    def __init__(self, loop: asyncio.AbstractEventLoop, *, receive_buffer: int = 0, source: str | None = None) -> None:
        self._loop = loop
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source is not None:
            self.socket.bind((source, 0))

    async def send(self, *texts: str) -> None:
        await self.send_bytes(b"".join(framed(text.encode()) for text in texts))

    async def send_bytes(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = await self._loop.sock_recv(self.socket, min(size - len(data), 1 << 20))
            if not piece:
                raise EOFError(bytes(data))
            data += piece
        return bytes(data)

    async def receive(self) -> str:
        return (await self.receive_bytes()).decode()

    async def receive_bytes(self) -> bytes:
        return await self.read(int.from_bytes(await self.read(4), "big"))

    async def is_closed(self) -> bool:
        try:
            return await self._loop.sock_recv(self.socket, 1) == b""
        except ConnectionResetError:
            return True
