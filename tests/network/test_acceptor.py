"""Listeners: limits, rates, idle connections, too few file descriptors, busy ports."""

import asyncio
import errno
import logging
import socket
from typing import Any

import pytest

from barnabas.errors import UsageError
from barnabas.network import acceptor as module
from barnabas.network.acceptor import ConnectionLimits, open_listener
from barnabas.network.connection import CLIENT_CLOSED
from network.rig import Rig, run


def test_a_thousand_connections_are_served_and_forgotten() -> None:
    async def main() -> None:
        async with Rig() as rig:
            clients = [await rig.connect() for _ in range(1000)]
            for number, client in enumerate(clients):
                await client.send(f"echo:{number}")
            for number, client in enumerate(clients):
                assert await client.receive() == str(number)
            assert len(rig.acceptor.connections) == 1000
            for client in clients:
                client.socket.close()
            await rig.accepted(0)
            assert not rig.acceptor._per_ip
            assert rig.ends == [CLIENT_CLOSED] * 1000

    run(main())


def test_connections_beyond_the_limit_wait_for_room(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Rig(max_connections=2) as rig:
            first, _ = await rig.connected()
            await rig.connected()
            third = await rig.connect()
            await third.send("echo:patient")
            await rig.turns()
            assert len(rig.acceptor.connections) == 2
            first.socket.close()
            assert await third.receive() == "patient"
            fourth = await rig.connect()
            await fourth.send("echo:raised")
            await rig.turns()
            rig.acceptor.set_limits(ConnectionLimits(max_connections=3))
            assert await fourth.receive() == "raised"

    with caplog.at_level(logging.WARNING):
        run(main())
    assert caplog.messages == ["max.connections is 2: further connections wait"]


@pytest.mark.parametrize("limits", [{"max_connections": 1}, {"max_connections_of_listeners": {"PLAINTEXT": 1}}])
def test_a_full_listener_for_which_nobody_waits_is_not_warned_of(
    caplog: pytest.LogCaptureFixture, limits: dict[str, Any]
) -> None:
    async def main() -> None:
        async with Rig(**limits) as rig:
            await rig.connected()
            await rig.turns()
            assert caplog.messages == []
            waiting = await rig.connect()
            await waiting.send("echo:patient")
            await rig.turns()
            assert len(caplog.messages) == 1

    with caplog.at_level(logging.WARNING):
        run(main())


def test_connections_of_a_full_listener_wait_and_those_of_others_do_not(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Rig(max_connections_of_listeners={"PLAINTEXT": 1}) as rig:
            first, _ = await rig.connected()
            second, third = await rig.connect(), await rig.connect()
            await second.send("echo:patient")
            await third.send("echo:raised")
            other = open_listener("127.0.0.1", 0, 1024)
            rig.acceptor.listen(other, "INTERNAL")
            full, rig.address = rig.address, other.getsockname()
            await rig.connected()
            assert len(rig.acceptor.connections) == 2
            first.socket.close()
            assert await second.receive() == "patient"
            rig.acceptor.set_limits(ConnectionLimits(max_connections_of_listeners={"PLAINTEXT": 2}))
            assert await third.receive() == "raised"
            assert full != rig.address

    with caplog.at_level(logging.WARNING):
        run(main())
    assert set(caplog.messages) == {"listener.name.plaintext.max.connections is 1: further connections wait"}


def test_connections_beyond_the_descriptors_wait_and_leave_a_reserve(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Rig(descriptors_max=lambda: 2) as rig:
            first, _ = await rig.connected()
            await rig.connected()
            waiting = [await rig.connect() for _ in range(5)]
            for client in waiting:
                await client.send("echo:patient")
            await rig.turns()
            assert len(rig.acceptor.connections) == 2
            first.socket.close()
            for client in waiting:
                assert await client.receive() == "patient"
                client.socket.close()

    with caplog.at_level(logging.WARNING):
        run(main())
    (line,) = caplog.messages
    assert "the limit on open files is exhausted: 2 connections are open" in line
    assert "ulimit -n" in line


def test_a_limit_on_open_files_that_is_raised_meanwhile_counts() -> None:
    limits = [1]

    async def main() -> None:
        async with Rig(descriptors_max=lambda: limits[0]) as rig:
            await rig.connected()
            waiting = await rig.connect()
            await waiting.send("echo:patient")
            await rig.turns()
            assert len(rig.acceptor.connections) == 1
            limits[0] = 2
            assert await waiting.receive() == "patient"

    run(main())


def test_connections_of_one_address_beyond_its_limit_are_closed() -> None:
    async def main() -> None:
        async with Rig(max_connections_per_ip=1, max_connections_per_ip_overrides={"127.0.0.3": 2}) as rig:
            counts = {}
            for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
                clients = [await rig.connect(source=source) for _ in range(3)]
                served = 0
                for client in clients:
                    try:
                        await client.send("echo:x")
                        served += await client.receive() == "x"
                    except OSError:
                        pass
                    except EOFError:
                        pass
                counts[source] = served
            assert counts == {"127.0.0.1": 1, "127.0.0.2": 1, "127.0.0.3": 2}

    run(main())


def test_an_ipv4_client_of_an_ipv6_socket_counts_under_its_ipv4_address() -> None:
    async def main() -> None:
        async with Rig(max_connections_per_ip=0, max_connections_per_ip_overrides={"127.0.0.1": 1}) as rig:
            listener = open_listener("::", 0, 10)
            rig.acceptor.listen(listener, "OTHER")
            rig.address = ("127.0.0.1", listener.getsockname()[1])
            client, connection = await rig.connected()
            await client.send("echo:x")
            assert await client.receive() == "x"
            assert (connection.peer_host, connection.local_host) == ("127.0.0.1", "127.0.0.1")
            assert await (await rig.connect()).is_closed()

    run(main())


class Time:
    """The loop's clock, which can be moved on by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loop: asyncio.AbstractEventLoop) -> None:
        self._ahead = 0.0
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self._ahead)

    def move(self, seconds: float) -> None:
        self._ahead += seconds


def test_new_connections_come_at_no_more_than_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Rig(max_connection_creation_rate=5) as rig:
            time = Time(monkeypatch, rig.loop)
            for _ in range(12):
                await rig.connect()
            for accepted in (5, 10, 12):
                await rig.accepted(accepted)
                await rig.turns()
                assert len(rig.acceptor.connections) == accepted
                time.move(1.0)
            # A rate of nothing keeps everybody waiting until it is changed.
            rig.acceptor.set_limits(ConnectionLimits(max_connection_creation_rate=0))
            await rig.connect()
            time.move(5.0)
            await rig.turns()
            assert len(rig.acceptor.connections) == 12
            rig.acceptor.set_limits(ConnectionLimits())
            await rig.accepted(13)

    run(main())


def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Rig(connections_max_idle_ms=60_000) as rig:
            time = Time(monkeypatch, rig.loop)
            idle, idle_connection = await rig.connected()
            busy, busy_connection = await rig.connected()
            waiting, waiting_connection = await rig.connected()
            await waiting.send("later:x")
            await rig.until(lambda: "x" in rig.script.parked)
            for _ in range(7):
                time.move(10.0)
                await busy.send("echo:x")
                assert await busy.receive() == "x"
            await rig.until(lambda: idle_connection.closed)
            assert await idle.is_closed()
            assert not busy_connection.closed
            assert not waiting_connection.closed, "whoever is owed an answer is not idle"

    run(main(), timeout_s=120)


def test_without_file_descriptors_the_broker_looks_away_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Exhausted:
        """A listener whose process has no descriptor left."""

        def __init__(self, sock: socket.socket) -> None:
            self._sock = sock
            self.asked = 0
            self.empty = True

        def accept(self) -> Any:
            self.asked += 1
            if self.empty:
                raise OSError(errno.EMFILE, "Too many open files")
            return self._sock.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._sock, name)

    monkeypatch.setattr(module, "_RETRY_S", 0.02)

    async def main() -> None:
        async with Rig() as rig:
            listener = Exhausted(open_listener("127.0.0.1", 0, 10))
            rig.address = listener.getsockname()
            rig.acceptor.listen(listener, "PLAINTEXT")  # type: ignore[arg-type]
            client = await rig.connect()
            await client.send("echo:at last")
            await rig.until(lambda: listener.asked >= 3)
            assert listener.asked < 10, "the loop must not spin on what cannot be accepted"
            listener.empty = False
            assert await client.receive() == "at last"

    with caplog.at_level(logging.WARNING):
        run(main())
    (message,) = caplog.messages
    assert "Too many open files" in message
    assert "ulimit -n" in message


def test_the_end_of_the_acceptor_closes_everything() -> None:
    async def main() -> None:
        async with Rig() as rig:
            client, connection = await rig.connected()
            await client.send("later:x")
            await rig.until(lambda: "x" in rig.script.parked)
            rig.acceptor.close()
            assert connection.closed
            assert await client.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await rig.connect()

    run(main())


def test_a_busy_port_is_named() -> None:
    with open_listener("127.0.0.1", 0, 1) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}: the port is in use"):
            open_listener("127.0.0.1", port, 1)


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(UsageError, match=r"203\.0\.113\.7:9092: cannot listen there"):
        open_listener("203.0.113.7", 9092, 1)
    with pytest.raises(UsageError, match=r"no\.such\.host\.invalid:9092: cannot listen there"):
        open_listener("no.such.host.invalid", 9092, 1)
