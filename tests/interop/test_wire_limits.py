"""The limits of a broker against its clients, each set low: size of a request, connections, idleness."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import wait_for
from .harness import wire
from .harness.broker import Broker, LocalBroker, local_broker
from .harness.wire import int32

REQUEST_BYTES, CONNECTIONS, IDLE_MS = 100_000, 20, 1500


@contextlib.contextmanager
def started(directory: Path, settings: dict[str, str]) -> Iterator[LocalBroker]:
    broker = local_broker(directory, settings)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[LocalBroker]:
    settings = {"socket.request.max.bytes": str(REQUEST_BYTES), "max.connections.per.ip": str(CONNECTIONS)}
    with started(tmp_path_factory.mktemp("strict"), settings) as strict:
        yield strict


def test_a_request_above_the_limit_closes_the_connection(strict: LocalBroker) -> None:
    with wire.Connection(strict.address) as connection:
        connection.send(int32(REQUEST_BYTES + 1))
        assert connection.wait_closed() == b""


def test_a_request_at_the_limit_is_read(strict: LocalBroker) -> None:
    request = wire.header(wire.API_VERSIONS, 0, 3)
    with wire.Connection(strict.address) as connection:
        connection.send(wire.frame(request + bytes(REQUEST_BYTES - len(request))))
        assert connection.response()[0] == 3


def test_connections_above_the_limit_are_closed_and_the_others_served(strict: LocalBroker) -> None:
    with contextlib.ExitStack() as stack:
        inside = [stack.enter_context(admitted(strict)) for _ in range(CONNECTIONS)]
        with wire.Connection(strict.address) as outside:
            outside.wait_closed()
        for each in inside:
            wire.api_versions(each)
    # When they have gone, there is room again.
    wait_for("room for a connection", lambda: answers(strict))


def answers(broker: LocalBroker) -> bool:
    with wire.Connection(broker.address) as connection:
        return answered(connection)


def answered(connection: wire.Connection) -> bool:
    try:
        return bool(wire.api_versions(connection))
    except wire.Closed:
        return False


def admitted(broker: LocalBroker) -> wire.Connection:
    """A connection that has been answered; those that have just gone may still be counted."""
    found: list[wire.Connection] = []

    def is_answered() -> bool:
        with contextlib.ExitStack() as refused:
            connection = refused.enter_context(wire.Connection(broker.address))
            with contextlib.suppress(wire.Closed):
                wire.api_versions(connection)
                refused.pop_all()
                found.append(connection)
        return bool(found)

    wait_for("an answer", is_answered)
    return found[0]


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(tmp_path: Path, broker: Broker) -> None:
    with started(tmp_path, {"connections.max.idle.ms": str(IDLE_MS)}) as impatient:
        while not told_apart(impatient):
            pass


def told_apart(impatient: LocalBroker) -> bool:
    """Only if this process went on all the time: what it lets lie for so long is not busy."""
    with wire.Connection(impatient.address) as idle, wire.Connection(impatient.address) as busy:
        wire.api_versions(idle)
        start = asked = time.monotonic()
        while asked - start < 2.5 * IDLE_MS / 1000:
            is_answered = answered(busy)
            before, asked = asked, time.monotonic()
            if asked - before > IDLE_MS / 2000:
                return False
            assert is_answered, "a busy connection was closed"
            time.sleep(0.1)
        assert idle.wait_closed() == b""
    return True
