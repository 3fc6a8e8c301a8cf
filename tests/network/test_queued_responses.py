"""Answers that nobody reads: a bound over all connections, nothing copied again, and the memory given back."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.network import queued_responses as module
from barnabas.network.connection import Connection
from barnabas.network.queued_responses import QueuedResponses, trim_memory
from barnabas.records.file_slice import FileSlice
from network.rig import Client, Rig, framed, run

MB = 1_000_000


async def stalled(rig: Rig, *requests: str) -> tuple[Client, Connection]:
    """A client that has asked and does not read, once its answers wait."""
    before = set(rig.acceptor.connections)
    client = await rig.connect(receive_buffer=4096)
    await client.send(*requests)
    await rig.until(lambda: any(one.queued_bytes for one in rig.acceptor.connections.keys() - before))
    (connection,) = rig.acceptor.connections.keys() - before
    return client, connection


def small_buffers(bytes_max: int) -> Rig:
    return Rig(queued_max_response_bytes=bytes_max, socket_send_buffer_bytes=8192)


def test_connections_that_have_not_read_for_longest_are_closed_when_all_together_hold_too_much(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with small_buffers(MB) as rig:
            well, _ = await rig.connected()
            reading, reader = await stalled(rig, f"size:{400_000}")
            _, idle = await stalled(rig, f"size:{400_000}")
            assert len(await reading.read(100_000)) == 100_000
            await rig.turns()
            newest, last = await stalled(rig, f"size:{400_000}")
            await rig.until(lambda: idle.closed)
            assert not reader.closed
            assert not last.closed
            await well.send("echo:still served")
            assert await well.receive() == "still served"
            assert rig.acceptor.queued_responses.size_bytes == 800_008
            assert len(await reading.read(300_004)) == 300_004
            assert len(await newest.receive_bytes()) == 400_000
            await rig.until(lambda: not rig.acceptor.queued_responses.size_bytes)

    with caplog.at_level(logging.WARNING):
        run(main())
    (record,) = caplog.records
    assert "queued.max.response.bytes is 1000000: closed 1 connections" in record.getMessage()


def test_requests_that_come_together_from_many_clients_hold_no_more_than_the_bound_and_an_answer() -> None:
    async def main() -> None:
        async with small_buffers(MB) as rig:
            held: list[int] = []

            def answer(connection: Connection) -> Any:
                held.append(rig.acceptor.queued_responses.size_bytes)
                return (framed(bytes(400_000)),)

            rig.script.others["large"] = answer
            clients = [await rig.connect(receive_buffer=4096) for _ in range(20)]
            await rig.accepted(20)
            for client in clients:  # all of them are readable in one turn of the loop
                await client.send("large:")
            await rig.until(lambda: len(rig.acceptor.connections) == 2)
            assert max(held) <= MB

    run(main())


def test_an_answer_that_is_larger_than_the_bound_closes_its_own_connection_alone() -> None:
    async def main() -> None:
        async with small_buffers(MB) as rig:
            client, other = await stalled(rig, f"size:{400_000}")
            too_large = await rig.connect(receive_buffer=4096)
            await too_large.send(f"size:{2 * MB}")
            with pytest.raises(EOFError):
                await too_large.receive_bytes()
            assert not other.closed
            assert len(await client.receive_bytes()) == 400_000

    run(main())


def test_answers_behind_one_that_is_not_ready_count_and_stop_the_reading(tmp_path: Path) -> None:
    async def main() -> None:
        async with small_buffers(100 * MB) as rig:
            client, connection = await stalled(
                rig, "later:first", f"size:{600_000}", "later:second", f"size:{600_000}", "echo:late"
            )
            await rig.until(lambda: connection.paused)
            assert connection.queued_bytes == rig.acceptor.queued_responses.size_bytes == 1_200_008
            assert "echo:late" not in rig.script.seen
            rig.script.answer("second")
            assert connection.queued_bytes == 1_200_008 + len(framed(b"second"))
            rig.script.answer("first")
            sizes = [len(await client.receive_bytes()) for _ in range(5)]
            assert sizes == [5, 600_000, 6, 600_000, 4]
            await rig.until(lambda: not connection.queued_bytes)
            assert not rig.acceptor.queued_responses.size_bytes
            _, closed = await stalled(rig, "later:x", f"size:{600_000}")
            closed.close("test")
            assert not rig.acceptor.queued_responses.size_bytes

    run(main())


def test_a_large_answer_is_sent_from_where_it_lies() -> None:
    answer = framed(os.urandom(3 * MB))

    async def main() -> None:
        async with small_buffers(100 * MB) as rig:
            rig.script.others["large"] = lambda connection: (answer,)
            client, connection = await stalled(rig, "large:", "large:")
            for _ in range(2):
                received = b""
                while len(received) < len(answer):
                    rest = connection._out[0] if connection._out else memoryview(answer)
                    assert (rest.obj if isinstance(rest, memoryview) else rest) is answer
                    received += await client.read(min(500_000, len(answer) - len(received)))
                assert received == answer
            await rig.until(lambda: not connection.queued_bytes)

    run(main())


def test_an_answer_of_thousands_of_small_parts_arrives_whole(tmp_path: Path) -> None:
    """As a Fetch of many partitions is answered: one system call takes 1,024 parts."""
    content = os.urandom(3000 * 20)
    (tmp_path / "file").write_bytes(content)
    file = os.open(tmp_path / "file", os.O_RDONLY)
    slices = [FileSlice(file, at, 20) for at in range(0, len(content), 20)]
    parts: list[Any] = [len(content).to_bytes(4, "big")]
    for number, part in enumerate(slices):
        parts.append(part if number % 2 else part.read())

    async def main() -> None:
        async with small_buffers(100 * MB) as rig:
            rig.script.others["parts"] = lambda connection: parts
            client = await rig.connect(receive_buffer=4096)
            for _ in range(2):
                await client.send("parts:")
                assert await client.receive_bytes() == content
            (connection,) = rig.acceptor.connections
            assert connection.queued_bytes == rig.acceptor.queued_responses.size_bytes == 0

    run(main())
    os.close(file)


class Holder:
    def __init__(self, queued_bytes: int) -> None:
        self.queued_bytes = queued_bytes


class Loop:
    """Keeps what was planned."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        assert delay_s > 0
        self.later.append(callback)


def test_memory_is_given_back_once_after_much_was_held() -> None:
    loop = Loop()
    trims: list[int] = []
    answers = QueuedResponses(
        cast(asyncio.AbstractEventLoop, loop), -1, logging.getLogger("test"), trim=lambda: trims.append(1)
    )
    much = module._TRIM_MIN_BYTES

    def hold_and_release(size: int) -> None:
        holder = cast(Connection, Holder(size))
        answers.add(holder, size)
        holder.queued_bytes = 0
        answers.remove(holder, size)

    for _ in range(100):
        hold_and_release(much // 2)
    assert not loop.later, "what is little is used again"
    for _ in range(3):
        hold_and_release(much)
    (give_back,) = loop.later
    give_back()
    assert trims == [1]
    hold_and_release(much // 2)
    assert len(loop.later) == 1
    hold_and_release(much)
    assert len(loop.later) == 2


def test_trimming_does_no_harm_where_it_is_called() -> None:
    trim_memory()
