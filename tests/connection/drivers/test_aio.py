"""The asyncio driver with real sockets: against a broker of ours, and against ports that are none."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from typing import Any

import pytest

from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.connection.drivers.aio import AioDriver
from barnabas.connection.drivers.channel import Address, resolve
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.network_client import NetworkClient, NetworkClientSettings
from barnabas.connection.promise import Promise
from barnabas.errors import BootstrapResolutionFailed, BrokerUnreachable, ClientClosed, OperationTimedOut
from barnabas.testing import Broker
from client.conftest import SOON_S, server
from connection.drivers.conftest import fails, groups, network_client_at, silent
from stopwatch import Stopwatch


def test_asyncio_requests_and_errors(broker: Broker) -> None:
    async def main() -> None:
        driver = AioDriver(network_client_at(broker.bootstrap_servers))
        answers = await asyncio.gather(*(driver.wait_for(groups(driver), 60) for _ in range(20)))
        assert {answer.error_code for answer in answers} == {0}
        with pytest.raises(OperationTimedOut):
            await driver.wait_for(Promise[None](), 0.01)
        driver.close()
        with pytest.raises(ClientClosed):
            groups(driver)
        driver = AioDriver(network_client_at("127.0.0.1:1"))
        with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1: tcp: connection refused"):
            await driver.wait_for(groups(driver), 60)
        driver.close()

    asyncio.run(main())


@pytest.mark.parametrize("host", ["a..b", "nul\0", "x" * 70])
def test_a_host_that_is_none_is_told_at_once(host: str) -> None:
    """Not every refusal of an address is an OSError."""
    settings = NetworkClientSettings(((host, 9092),), ConnectionSettings(), bootstrap_timeout_s=0)

    async def ask_it() -> None:
        driver = AioDriver(NetworkClient(settings, time.monotonic()))
        try:
            await driver.wait_for(groups(driver), 60)
        finally:
            driver.close()

    with pytest.raises(BrokerUnreachable):
        asyncio.run(ask_it())
    driver = SyncDriver(NetworkClient(settings, time.monotonic()))
    try:
        with pytest.raises(BrokerUnreachable):
            driver.wait_for(groups(driver), 60)
    finally:
        driver.close()


def test_a_name_that_resolves_later_than_is_allowed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """bootstrap.resolve.timeout.ms, while the look-up itself stands still; an address needs none."""
    settings = NetworkClientSettings((("later.invalid", 1),), bootstrap_resolve_timeout_s=0.05)
    answered = threading.Event()

    def look_up(host: str, *_: object, flags: int = 0, **__: object) -> list[Address]:
        if not flags & socket.AI_NUMERICHOST:
            answered.wait(30)
        raise socket.gaierror("later")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def ask_it() -> None:
        driver = AioDriver(NetworkClient(settings, time.monotonic()))
        try:
            await driver.wait_for(groups(driver), 60)
        finally:
            driver.close()

    with pytest.raises(BootstrapResolutionFailed):
        asyncio.run(ask_it())
    driver = SyncDriver(NetworkClient(settings, time.monotonic()))
    try:
        with pytest.raises(BootstrapResolutionFailed):
            driver.wait_for(groups(driver), 60)
    finally:
        driver.close()
        answered.set()


def test_an_address_counts_as_a_name_that_is_resolved() -> None:
    settings = NetworkClientSettings((("127.0.0.1", 1),), bootstrap_timeout_s=0, bootstrap_resolve_timeout_s=60)
    client = NetworkClient(settings, time.monotonic())

    async def ask_it() -> None:
        driver = AioDriver(client)
        try:
            await driver.wait_for(groups(driver), 60)
        finally:
            driver.close()

    with pytest.raises(BrokerUnreachable):
        asyncio.run(ask_it())
    assert client.connections.has_resolved
    client = NetworkClient(settings, time.monotonic())
    with contextlib.closing(SyncDriver(client)) as driver, pytest.raises(BrokerUnreachable):
        driver.wait_for(groups(driver), 60)
    assert client.connections.has_resolved


def test_a_host_that_tls_cannot_name_is_told_at_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """wrap_socket raises ValueError for it, after the connection stands."""
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    settings = NetworkClientSettings(((".invalid", port),), ConnectionSettings(), bootstrap_timeout_s=0)
    found = resolve("127.0.0.1", port)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    context = ssl.create_default_context()

    async def ask_it() -> None:
        driver = AioDriver(NetworkClient(settings, time.monotonic()), ssl_context=context)
        try:
            await driver.wait_for(groups(driver), 60)
        finally:
            driver.close()

    with pytest.raises(BrokerUnreachable, match="tls: "):
        asyncio.run(ask_it())
    driver = SyncDriver(NetworkClient(settings, time.monotonic()), ssl_context=context)
    try:
        with pytest.raises(BrokerUnreachable, match="tls: "):
            driver.wait_for(groups(driver), 60)
    finally:
        driver.close()


def test_asyncio_close_and_cancel_end_waits_at_once(stopwatch: Stopwatch) -> None:
    async def main(port: int) -> None:
        driver = AioDriver(network_client_at(f"127.0.0.1:{port}"))
        waiting = asyncio.ensure_future(driver.wait_for(groups(driver), 30))
        cancelled = asyncio.ensure_future(driver.wait_for(groups(driver), 30))
        await asyncio.sleep(0)
        started = stopwatch()
        cancelled.cancel()
        driver.close()
        with pytest.raises(ClientClosed):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert stopwatch() - started < SOON_S

    release = threading.Event()
    with server(silent(release)) as port:
        asyncio.run(main(port))
        release.set()


def test_asyncio_hears_of_a_connection_that_is_lost_in_its_first_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else only the timeout of the requests would tell."""

    async def main(port: int) -> None:
        driver = AioDriver(network_client_at(f"127.0.0.1:{port}"))
        loop = asyncio.get_running_loop()
        create = loop.create_connection

        async def and_lose(*arguments: Any, **named: Any) -> Any:
            transport, protocol = await create(*arguments, **named)
            lost, hear = asyncio.Event(), protocol.connection_lost
            protocol.connection_lost = lambda error: (hear(error), lost.set())
            await asyncio.wait_for(lost.wait(), 60)
            return transport, protocol

        monkeypatch.setattr(loop, "create_connection", and_lose)
        with pytest.raises(BrokerUnreachable, match=r"closed by the broker|reset"):
            await driver.wait_for(groups(driver), 60)
        driver.close()

    with server(lambda connection: None) as port:
        asyncio.run(main(port))


@pytest.mark.parametrize("tls", [False, True])
def test_asyncio_leaves_no_connection_that_was_given_up_while_it_opened(
    tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def behave(connection: socket.socket) -> None:
        connection.settimeout(30)
        while connection.recv(1000):
            pass
        ended.set()

    async def main(port: int) -> None:
        context = ssl.create_default_context() if tls else None
        driver = AioDriver(network_client_at(f"127.0.0.1:{port}"), ssl_context=context)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        create = loop.create_connection

        async def and_close(*arguments: Any, **named: Any) -> Any:
            loop.call_soon(driver.close)  # comes before all that the transport will do
            return await create(*arguments, **named)

        monkeypatch.setattr(loop, "create_connection", and_close)
        with pytest.raises(ClientClosed):
            await driver.wait_for(groups(driver), 60)
        assert await asyncio.to_thread(ended.wait, 30)

    faults: list[Any] = []
    with server(behave) as port:
        asyncio.run(main(port))
    assert not faults


@pytest.mark.source
def test_asyncio_goes_on_where_one_go_was_not_enough(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        driver = AioDriver(network_client_at(broker.bootstrap_servers))
        left, flush = 250, driver._flush

        def flush_often() -> bool:
            nonlocal left
            left -= 1
            return flush() or left > 0

        monkeypatch.setattr(driver, "_flush", flush_often)
        assert await driver.wait(lambda: left <= 0, 0.01) is False, "nothing has turned it yet"
        driver.run(lambda: None)
        assert left > 0, "the loop gets its turn between them"
        assert await driver.wait(lambda: left <= 0, 30)
        driver.close()

    asyncio.run(main())


def test_asyncio_who_waits_hears_of_a_mistake(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        driver = AioDriver(network_client_at(broker.bootstrap_servers))
        driver.run(lambda: driver.client.at(time.monotonic() + 0.1, fails))
        with pytest.raises(ClientClosed, match=r"mistake of its own: AssertionError\('made for this test'\)"):
            await driver.wait(lambda: False, 30)
        driver = AioDriver(network_client_at(broker.bootstrap_servers))
        await driver.wait_for(groups(driver), 30)
        with pytest.raises(AssertionError, match="made for this test"):
            driver.run(lambda: driver.client.at(time.monotonic(), fails))
        with pytest.raises(ClientClosed, match="mistake of its own"):
            groups(driver)

    asyncio.run(main())
    assert "the network client of the barnabas client fails" in caplog.text


def test_asyncio_timers_and_reconnects(broker: Broker) -> None:
    async def main() -> None:
        driver = AioDriver(network_client_at(broker.bootstrap_servers))
        await driver.wait_for(groups(driver), 60)
        done = asyncio.Event()
        driver.run(lambda: driver.client.at(time.monotonic() + 0.02, done.set))
        await asyncio.wait_for(done.wait(), 60)
        broker.faults.disconnect("LIST_GROUPS")
        assert (await driver.wait_for(groups(driver), 60)).error_code == 0
        driver.close()

    asyncio.run(main())
