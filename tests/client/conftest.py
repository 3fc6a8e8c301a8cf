"""One of our brokers in this process, with faults; and small servers that are no brokers."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from barnabas.testing import Broker

SOON_S = 0.4
"""Within which calls that are told to stop have to; a tenth of a second is the promise, and the machine may be busy."""

_numbers = itertools.count()


@pytest.fixture(scope="session")
def session_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(session_broker: Broker) -> Iterator[Broker]:
    yield session_broker
    session_broker.faults.clear()


@pytest.fixture
def name() -> str:
    """A topic or group name of this test alone."""
    return f"client-{next(_numbers)}"


@contextlib.contextmanager
def server(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that treats each connection as `behave` says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        behave(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
