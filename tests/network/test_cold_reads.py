"""Slices that are not in the page cache: a thread waits for the disk, the event loop does not."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.log.directories.disk import HeldSlice, OpenFile
from barnabas.network.acceptor import Acceptor, ConnectionLimits, open_listener
from barnabas.network.connection import SENDFILE_MIN, Connection, Parts
from barnabas.network.page_cache import CHUNK_SIZE, bring_in
from barnabas.records.file_slice import FileSlice
from network.cold_files import FILE_SIZE

LARGE = 2 * CHUNK_SIZE + 12_345
SMALL = 3_000
PATIENCE_S = 60


class SlowDisk:
    """A thread pool of which the test decides when a read is through."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], asyncio.Future[None]]] = []
        self.asked = asyncio.Event()
        self.reads = 0

    def __call__(self, read: Callable[[], None]) -> "asyncio.Future[None]":
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((read, future))
        self.reads += 1
        self.asked.set()
        return future

    def finish_one(self) -> None:
        read, future = self.waiting.pop(0)
        if not self.waiting:
            self.asked.clear()
        read()
        future.set_result(None)

    async def finish_all(self) -> None:
        while True:
            await self.asked.wait()
            self.finish_one()


class Server:
    """An acceptor whose answers are what the test put in front of each request's first byte."""

    def __init__(self, disk: SlowDisk | None) -> None:
        self.answers: dict[bytes, Parts] = {}
        loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(loop, self._answer, ConnectionLimits(), logging.getLogger("test"), in_thread=disk)
        listener = open_listener("127.0.0.1", 0, 10)
        self.port = listener.getsockname()[1]
        self._acceptor.listen(listener, "TEST")

    def _answer(self, connection: Connection, frame: memoryview) -> Parts:
        return self.answers[bytes(frame[:1])]

    @property
    def connections(self) -> list[Connection]:
        return list(self._acceptor.connections)

    async def client(self) -> "Client":
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return Client(sock)

    def close(self) -> None:
        self._acceptor.close()


class Client:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    async def ask(self, name: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, len(name).to_bytes(4, "big") + name)

    async def read(self, size: int) -> bytes:
        data = bytearray()
        loop = asyncio.get_running_loop()
        while len(data) < size:
            more = await asyncio.wait_for(loop.sock_recv(self.sock, size - len(data)), PATIENCE_S)
            assert more, f"the server closed after {len(data)} of {size} bytes"
            data += more
        return bytes(data)

    async def closed_by_server(self) -> bool:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.sock, 1), PATIENCE_S) == b""

    def close(self) -> None:
        self.sock.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 3 * PATIENCE_S))


@pytest.mark.parametrize("size", [SMALL, SENDFILE_MIN, LARGE])
def test_another_connection_is_served_while_the_disk_is_slow(file: OpenFile, content: bytes, size: int) -> None:
    async def story() -> None:
        disk = SlowDisk()
        server = Server(disk)
        server.answers = {b"c": (b"head", HeldSlice(file, 100, size), b"tail"), b"p": (b"pong",)}
        reader, other = await server.client(), await server.client()
        await reader.ask(b"c")
        await asyncio.wait_for(disk.asked.wait(), PATIENCE_S)
        for _ in range(3):
            await other.ask(b"p")
            assert await other.read(4) == b"pong"
        finishing = asyncio.create_task(disk.finish_all())
        assert await reader.read(size + 8) == b"head" + content[100 : 100 + size] + b"tail"
        assert 1 <= disk.reads <= -(-size // CHUNK_SIZE), "once a chunk, or less: reading ahead brings the next one"
        finishing.cancel()
        server.close()

    run(story)


def test_replies_keep_their_order_behind_a_cold_one(file: OpenFile, content: bytes) -> None:
    async def story() -> None:
        disk = SlowDisk()
        server = Server(disk)
        server.answers = {
            b"c": (HeldSlice(file, 0, LARGE),),
            b"s": (b"small", HeldSlice(file, LARGE, SMALL)),
            b"p": (b"pong",),
        }
        client = await server.client()
        await client.ask(b"c")
        await asyncio.wait_for(disk.asked.wait(), PATIENCE_S)
        await client.ask(b"p")
        await client.ask(b"s")
        await client.ask(b"p")
        finishing = asyncio.create_task(disk.finish_all())
        expected = content[:LARGE] + b"pong" + b"small" + content[LARGE : LARGE + SMALL] + b"pong"
        assert await client.read(len(expected)) == expected
        finishing.cancel()
        server.close()

    run(story)


def test_a_connection_that_ends_meanwhile_leaves_nothing_behind(file: OpenFile) -> None:
    async def story() -> None:
        disk = SlowDisk()
        server = Server(disk)
        server.answers = {b"c": (b"head", HeldSlice(file, 0, LARGE)), b"p": (b"pong",)}
        client = await server.client()
        await client.ask(b"c")
        await asyncio.wait_for(disk.asked.wait(), PATIENCE_S)
        server.connections[0].close("the test says so")
        assert await client.read(4) == b"head"
        assert await client.closed_by_server()
        client.close()
        # The next connection gets the same descriptor: what ends late must not touch it.
        other = await server.client()
        await other.ask(b"p")
        assert await other.read(4) == b"pong"
        disk.finish_one()
        await other.ask(b"p")
        assert await other.read(4) == b"pong"
        assert not disk.waiting
        server.close()

    run(story)


def test_the_slice_keeps_its_file_open_while_a_thread_reads(file: OpenFile, tmp_path: Path, content: bytes) -> None:
    async def story() -> None:
        disk = SlowDisk()
        server = Server(disk)
        held = OpenFile(os.dup(file.fd))
        server.answers = {b"c": (HeldSlice(held, 0, SMALL),)}
        client = await server.client()
        await client.ask(b"c")
        await asyncio.wait_for(disk.asked.wait(), PATIENCE_S)
        fd = held.fd
        server.answers.clear()
        del held
        server.connections[0].close("the test says so")
        os.fstat(fd)  # still open: the thread has it
        disk.finish_one()
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        server.close()

    run(story)


@pytest.mark.source
def test_pages_that_do_not_stay_are_sent_all_the_same(
    file: OpenFile, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under memory pressure what a thread brought in may be gone again: one try a chunk, then the loop reads."""

    async def story() -> None:
        disk = SlowDisk()
        server = Server(disk)
        server.answers = {b"c": (HeldSlice(file, 0, LARGE),), b"s": (HeldSlice(file, LARGE, SMALL),)}
        client = await server.client()
        for name, expected in ((b"c", content[:LARGE]), (b"s", content[LARGE : LARGE + SMALL])):
            await client.ask(name)
            finishing = asyncio.create_task(disk.finish_all())
            assert await client.read(len(expected)) == expected
            finishing.cancel()
        assert disk.reads == 4
        server.close()

    monkeypatch.setattr("barnabas.network.connection.is_resident", lambda *_: False)
    monkeypatch.setattr("barnabas.network.connection.read_resident", lambda *_: None)
    run(story)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_file_that_ends_early_ends_the_connection(file: OpenFile, size: int) -> None:
    async def story() -> None:
        disk = SlowDisk()
        server = Server(disk)
        server.answers = {b"c": (HeldSlice(file, FILE_SIZE - 10, size),)}
        client = await server.client()
        await client.ask(b"c")
        await asyncio.wait_for(disk.asked.wait(), PATIENCE_S)
        disk.finish_one()
        while True:
            try:
                if await client.closed_by_server():
                    break
            except ConnectionResetError:
                break
        assert not server.connections
        server.close()

    run(story)


def test_what_is_in_the_page_cache_needs_no_thread(file: OpenFile, content: bytes) -> None:
    async def story() -> None:
        bring_in(FileSlice(file.fd, 0, FILE_SIZE), 0, FILE_SIZE)
        disk = SlowDisk()
        server = Server(disk)
        server.answers = {b"c": (HeldSlice(file, 0, LARGE), HeldSlice(file, LARGE, SMALL))}
        client = await server.client()
        await client.ask(b"c")
        assert await client.read(LARGE + SMALL) == content[: LARGE + SMALL]
        assert disk.reads == 0
        server.close()

    run(story)


def test_without_threads_all_is_sent_from_the_loop(file: OpenFile, content: bytes) -> None:
    async def story() -> None:
        server = Server(None)
        server.answers = {b"c": (HeldSlice(file, 0, LARGE), HeldSlice(file, LARGE, SMALL))}
        client = await server.client()
        await client.ask(b"c")
        assert await client.read(LARGE + SMALL) == content[: LARGE + SMALL]
        server.close()

    run(story)
