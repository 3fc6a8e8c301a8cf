"""A connection: ordered replies, partial sends, back-pressure, bounds, its end."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from barnabas.network import connection as module
from barnabas.network import time_slicing as turns
from barnabas.network.connection import NO_REPLY, OUTGOING_BYTES_MAX, SENDFILE_MIN, Connection, Parts, PendingReply
from barnabas.records.file_slice import FileSlice
from network.rig import Rig, framed, run


def test_replies_leave_in_the_order_of_requests_whenever_they_are_ready() -> None:
    async def main() -> None:
        async with Rig() as rig:
            client, _ = await rig.connected()
            await client.send("later:a", "echo:b", "later:c", "none:", "echo:d", "later:e")
            await rig.until(lambda: len(rig.script.seen) == 6)
            rig.script.answer("c")
            rig.script.answer("e")
            await rig.turns()
            with pytest.raises(BlockingIOError):
                client.socket.recv(1)
            rig.script.answer("a")
            assert [await client.receive() for _ in range(5)] == ["a", "b", "c", "d", "e"]

    run(main())


def test_a_reply_that_is_ready_before_the_handler_returns_is_sent() -> None:
    def ready(connection: Connection) -> PendingReply:
        reply = connection.pending_reply()
        reply.resolve((framed(b"at once"),))
        return reply

    async def main() -> None:
        async with Rig() as rig:
            rig.script.others["ready"] = ready
            client, connection = await rig.connected()
            await client.send("ready:", "later:x", "ready:")
            assert await client.receive() == "at once"
            await rig.until(lambda: "x" in rig.script.parked)
            rig.script.answer("x")
            assert [await client.receive() for _ in range(2)] == ["x", "at once"]
            assert connection.idle

    run(main())


@pytest.mark.source
@pytest.mark.parametrize("count", [2, 15, 16, 17, 40])
def test_answers_to_requests_that_came_together_leave_together(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send_now = Connection._send_now

    def counting(connection: Connection, parts: Parts) -> None:
        sent.append(len(parts))
        send_now(connection, parts)

    monkeypatch.setattr(Connection, "_send_now", counting)
    monkeypatch.setattr(module, "SLICE_S", 60.0)  # a slow machine must not end the slice between two requests

    async def main() -> None:
        async with Rig() as rig:
            client, connection = await rig.connected()
            await client.send(*[f"echo:{number}" for number in range(count)], "size:5000", "echo:last", "later:x")
            assert [await client.receive() for _ in range(count)] == [str(number) for number in range(count)]
            assert len(await client.receive_bytes()) == 5000
            assert await client.receive() == "last"
            assert len(sent) == count // 16 + 2
            await client.send("echo:behind", "echo:it")
            await rig.until(lambda: len(rig.script.seen) == count + 5)
            rig.script.answer("x")
            assert [await client.receive() for _ in range(3)] == ["x", "behind", "it"]
            assert connection.idle

    run(main())


def test_what_was_answered_before_a_handler_closes_the_connection_is_sent() -> None:
    def close(connection: Connection) -> Parts:
        connection.close("an acks=0 produce failed")
        return NO_REPLY

    async def main() -> None:
        async with Rig() as rig:
            rig.script.others["close"] = close
            client, _ = await rig.connected()
            await client.send("echo:a", "echo:b", "close:", "echo:c")
            assert [await client.receive() for _ in range(2)] == ["a", "b"]
            with pytest.raises(EOFError):
                await client.read(1)

    run(main())


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 1000])
def test_requests_arrive_in_pieces(piece: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            client, _ = await rig.connected()
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            data = b"".join(framed(b"echo:" + b"x" * size) for size in (0, 1, 100))
            for start in range(0, len(data), piece):
                await client.send_bytes(data[start : start + piece])
                await asyncio.sleep(0)
            assert [len(await client.receive()) for _ in range(3)] == [0, 1, 100]

    run(main())


def slice_of(path: Path, size: int) -> tuple[FileSlice, bytes]:
    content = os.urandom(size)
    path.write_bytes(b"before" + content + b"behind")
    return FileSlice(os.open(path, os.O_RDONLY), 6, size), content


@pytest.mark.parametrize("size", [1, 1000, SENDFILE_MIN - 1, SENDFILE_MIN, 3 * 1024**2])
def test_slices_and_bytes_arrive_whole_at_a_client_that_reads_slowly(tmp_path: Path, size: int) -> None:
    first, first_content = slice_of(tmp_path / "first", size)
    second, second_content = slice_of(tmp_path / "second", size)
    expected = b"head" + first_content + b"between" * 1000 + second_content + first_content + b"tail"

    def answer(connection: Connection) -> Parts:
        parts = (b"head", first, bytearray(b"between" * 1000), second, first, b"tail")
        return (len(expected).to_bytes(4, "big"), *parts)

    async def main() -> None:
        async with Rig(socket_send_buffer_bytes=8192) as rig:
            rig.script.others["slices"] = answer
            client = await rig.connect(receive_buffer=4096)
            (connection,) = await rig.accepted(1)
            await client.send("slices:", "echo:after", "slices:")
            assert await client.receive_bytes() == expected
            assert await client.receive() == "after"
            assert await client.receive_bytes() == expected
            await rig.until(lambda: connection.idle)
            assert connection.out_bytes == 0

    run(main())
    for part in (first, second):
        os.close(part.fd)


def test_a_slice_of_a_file_that_became_shorter_ends_the_connection(tmp_path: Path) -> None:
    part, _ = slice_of(tmp_path / "file", 200_000)
    os.truncate(tmp_path / "file", 100_000)

    async def main() -> None:
        async with Rig() as rig:
            rig.script.others["slice"] = lambda connection: ((200_000).to_bytes(4, "big"), part)
            client, connection = await rig.connected()
            await client.send("slice:")
            with pytest.raises(EOFError):
                await client.receive_bytes()
            assert connection.closed

    run(main())
    os.close(part.fd)


@pytest.mark.source
def test_a_client_that_does_not_read_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replies that it does not take are bounded, also those to requests that came in one piece."""
    monkeypatch.setattr(module, "OUTGOING_BYTES_MAX", 1_000_000)

    async def main() -> None:
        async with Rig(socket_send_buffer_bytes=8192) as rig:
            client = await rig.connect(receive_buffer=4096)
            (connection,) = await rig.accepted(1)
            reply = 50_000
            await client.send(*[f"size:{reply},{number}" for number in range(400)])
            await rig.until(lambda: connection.paused)
            await rig.turns()
            assert connection.out_bytes <= 1_000_000 + reply
            handled = len(rig.script.seen)
            assert handled < 40
            # As it reads, the broker goes on, and in order.
            for _ in range(400):
                assert len(await client.receive_bytes()) == reply
                assert connection.out_bytes <= 1_000_000 + reply
            assert [text.partition(",")[2] for text in rig.script.seen] == [str(number) for number in range(400)]

    run(main())


def test_pending_replies_are_bounded() -> None:
    async def main() -> None:
        async with Rig(queued_max_requests=10) as rig:
            client, connection = await rig.connected()
            await client.send(*[f"later:{number}" for number in range(25)])
            await rig.until(lambda: connection.paused)
            await rig.turns()
            assert len(rig.script.seen) == 10
            for number in range(25):
                await rig.until(lambda number=number: str(number) in rig.script.parked)  # type: ignore[misc]
                assert len(rig.script.parked) <= 10
                rig.script.answer(str(number))
                assert await client.receive() == str(number)

    run(main())


def test_requests_held_for_later_answers_are_bounded_over_all_connections() -> None:
    async def main() -> None:
        async with Rig(queued_max_request_bytes=100) as rig:
            one, first = await rig.connected()
            two, second = await rig.connected()
            await one.send("later:" + "a" * 94)  # 100 bytes
            await rig.until(lambda: first.paused)
            await two.send("echo:still served", "later:b", "later:c")
            assert await two.receive() == "still served"
            await rig.until(lambda: second.paused)
            await rig.turns()
            assert "later:c" not in rig.script.seen
            rig.script.answer("a" * 94)
            assert len(await one.receive()) == 94
            await rig.until(lambda: "c" in rig.script.parked)
            await one.send("later:" + "d" * 94)
            await rig.until(lambda: first.paused)
            first.close("gone")  # what it held is free again
            await two.send("later:e")
            await rig.until(lambda: "e" in rig.script.parked)
            for name in "bce":
                rig.script.answer(name)
                assert await two.receive() == name
            held = rig.acceptor.queued_requests
            assert held is not None
            assert held.size_bytes == 0

    run(main())


@pytest.mark.source
def test_connections_that_pipeline_many_requests_do_not_hold_up_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has handled a slice at a time: one request here."""
    monkeypatch.setattr(module, "SLICE_S", 0)
    monkeypatch.setattr(turns, "TURN_S", 0)

    async def main() -> None:
        async with Rig() as rig:
            greedy = [await rig.connect() for _ in range(10)]
            other = await rig.connect()
            await rig.accepted(11)
            for number, client in enumerate(greedy):
                await client.send(*[f"echo:{number}-{count}" for count in range(100)])
            await other.send("echo:other")
            assert await other.receive() == "other"
            assert rig.script.seen.index("echo:other") <= 20
            await other.send("echo:again")
            assert await other.receive() == "again"
            assert rig.script.seen.index("echo:again") <= 60
            for number, client in enumerate(greedy):
                assert [await client.receive() for _ in range(100)] == [f"{number}-{count}" for count in range(100)]
                await client.send("echo:read on")
                assert await client.receive() == "read on"

    run(main())


def test_requests_wait_while_one_before_them_mutes_the_connection() -> None:
    replies: list[PendingReply] = []

    def mute(connection: Connection) -> PendingReply:
        connection.mute()
        replies.append(connection.pending_reply())
        return replies[-1]

    async def main() -> None:
        async with Rig() as rig:
            rig.script.others["mute"] = mute
            client, connection = await rig.connected()
            for round_ in range(2):
                await client.send("echo:before", "mute:", f"echo:{round_}", "mute:", "echo:after")
                await client.send("echo:a piece of its own")
                assert await client.receive() == "before"
                for answer in ("first", "second"):
                    await rig.until(lambda: replies)
                    await rig.turns()
                    assert rig.script.seen[-1] == "mute:"
                    replies.pop().resolve((framed(answer.encode()),))
                    await rig.turns()
                    assert rig.script.seen[-1] == "mute:", "the answer alone lets nobody in"
                    connection.unmute()
                    assert await client.receive() == answer
                    if answer == "first":
                        assert await client.receive() == str(round_)
                assert [await client.receive() for _ in range(2)] == ["after", "a piece of its own"]

    run(main())


@pytest.mark.source
@pytest.mark.parametrize("unmuted", ["before its turn", "after its turn"])
def test_a_connection_may_be_muted_and_unmuted_while_its_requests_stand_in_line(
    unmuted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that turns out to be long mutes its connection between two slices of the others' requests."""
    monkeypatch.setattr(module, "SLICE_S", 0)

    async def main() -> None:
        async with Rig() as rig:

            def mute_next(connection: Connection) -> Parts:
                # before the turn in which the requests behind this one are handled
                rig.loop.call_soon(connection.mute)
                rig.loop.call_soon(connection.mute)
                rig.loop.call_soon(connection.unmute)
                if unmuted == "before its turn":
                    rig.loop.call_soon(connection.unmute)
                return (framed(b"muted"),)

            rig.script.others["mute"] = mute_next
            client, connection = await rig.connected()
            line = connection._time_slicer
            await client.send("mute:", *map("echo:{}".format, range(20)))
            assert await client.receive() == "muted"
            if unmuted == "after its turn":
                await rig.turns()
                assert rig.script.seen == ["mute:"]
                connection.unmute()
            assert len(line._queue) <= 1, "a connection stands in line once"
            assert [await client.receive() for _ in range(20)] == [str(number) for number in range(20)]
            await client.send("echo:read on")
            assert await client.receive() == "read on"

    run(main())


def test_the_bound_on_frames_changes_with_the_connection() -> None:
    async def main() -> None:
        async with Rig(socket_request_max_bytes=100) as rig:
            trusted, connection = await rig.connected()
            stranger, _ = await rig.connected()
            connection.set_request_size_max(2000)
            for client in (trusted, stranger):
                await client.send(f"echo:{'x' * 1000}")
            assert await trusted.receive() == "x" * 1000
            assert await stranger.is_closed()
            assert rig.ends == ["a frame claims 1005 bytes; the limit is 100 (socket.request.max.bytes)"]

    run(main())


def test_a_frame_that_is_too_large_ends_this_connection_alone() -> None:
    async def main() -> None:
        async with Rig(socket_request_max_bytes=1000) as rig:
            client, _ = await rig.connected()
            other, _ = await rig.connected()
            await client.send("x" * 1001)
            assert await client.is_closed()
            hostile, _ = await rig.connected()
            await hostile.send_bytes(b"\xff\xff\xff\xff")
            assert await hostile.is_closed()
            await other.send("echo:" + "x" * 995)
            assert len(await other.receive()) == 995
            assert len(rig.acceptor.connections) == 1

    run(main())


def test_an_error_of_the_handler_ends_the_connection_after_the_answers_before_it() -> None:
    async def main() -> None:
        async with Rig() as rig:
            client, connection = await rig.connected()
            await client.send("echo:1", "die:", "echo:2")
            assert await client.receive() == "1"
            assert await client.is_closed()
            assert connection.closed
            assert rig.script.seen == ["echo:1", "die:"]

    run(main())


def test_a_handler_may_close_the_connection() -> None:
    def cut(connection: Connection) -> Parts:
        connection.close("cut")
        return NO_REPLY

    async def main() -> None:
        async with Rig() as rig:
            rig.script.others["cut"] = cut
            client, _ = await rig.connected()
            await client.send("later:1", "cut:", "echo:2")
            assert await client.is_closed()
            assert rig.script.seen == ["later:1", "cut:"]
            rig.script.answer("1")  # into the void

    run(main())


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with Rig() as rig:
            client, connection = await rig.connected()
            await client.send("later:1", "size:900000")
            await rig.until(lambda: len(rig.script.seen) == 2)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.socket.close()
            await rig.until(lambda: connection.closed)
            assert connection.idle
            assert connection.out_bytes == 0
            rig.script.answer("1")
            assert not rig.acceptor.connections

    run(main())


def test_a_client_that_says_it_will_send_no_more_still_gets_its_answers() -> None:
    """As in Kafka: what was asked before the end of the client's stream is answered, then the connection ends."""

    async def main() -> None:
        async with Rig() as rig:
            client, connection = await rig.connected()
            await client.send("echo:1", "later:2")
            client.socket.shutdown(socket.SHUT_WR)
            assert await client.receive() == "1"
            assert not connection.closed
            rig.script.answer("2")
            assert await client.receive() == "2"
            assert await client.is_closed()
            assert connection.closed

    run(main())


def test_a_client_that_is_owed_nothing_is_gone_when_it_sends_no_more() -> None:
    async def main() -> None:
        async with Rig() as rig:
            client, connection = await rig.connected()
            await client.send("echo:1")
            assert await client.receive() == "1"
            client.socket.shutdown(socket.SHUT_WR)
            assert await client.is_closed()
            assert connection.closed

    run(main())


def test_the_bound_on_what_a_client_does_not_take() -> None:
    assert OUTGOING_BYTES_MAX == 1024**2
