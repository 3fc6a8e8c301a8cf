"""A broker with its listener for brokers open, and the connections that another broker would make to it."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from barnabas.broker.cluster.member import ClusterMember
from barnabas.broker.peers.identity import PeerIdentity
from barnabas.broker.peers.peer_connections import PeerAddress, PeerConnections
from barnabas.broker.process.failure_log import FailureLog
from barnabas.clock import SYSTEM_CLOCK
from barnabas.config.endpoints import Endpoint
from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.testing import Broker
from broker.wire import on_controller, on_loop, server_of

T = TypeVar("T")

SOON_S = 60.0
QUICK = ConnectionSettings(backoff_s=0.001, backoff_max_s=0.01)


def run_on(broker: Broker, work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the loop of a test's broker."""
    return asyncio.run_coroutine_threadsafe(work, server_of(broker).loop).result(SOON_S)


class Peer(NamedTuple):
    """A broker that listens for brokers, as the test knows it."""

    broker: Broker
    endpoint: Endpoint
    secret: bytes
    cluster_id: str

    @property
    def address(self) -> tuple[str, int]:
        return self.endpoint.host, self.endpoint.port

    def identity(self, **changes: Any) -> PeerIdentity:
        """That of another broker of the same cluster."""
        return PeerIdentity(self.cluster_id, 2, 7, "0.0.9")._replace(**changes)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The loop of the broker stands still, as if the process were stopped."""
        goes_on, stands = threading.Event(), threading.Event()

        def stand() -> None:
            stands.set()
            assert goes_on.wait(SOON_S)

        server_of(self.broker).loop.call_soon_threadsafe(stand)
        assert stands.wait(SOON_S)
        try:
            yield
        finally:
            goes_on.set()

    @contextlib.asynccontextmanager
    async def connected(
        self,
        *,
        secret: bytes | None = None,
        identity: Callable[[], PeerIdentity] | None = None,
        address_of: Callable[[int], PeerAddress | None] | None = None,
        settings: ConnectionSettings = QUICK,
    ) -> AsyncIterator[PeerConnections]:
        """The connections of another broker."""
        peers = PeerConnections(
            address_of or (lambda node_id: PeerAddress(self.endpoint, 1)),
            identity or self.identity,
            secret or self.secret,
            FailureLog(logging.getLogger("test.peer"), SYSTEM_CLOCK),
            settings,
        )
        try:
            yield peers
        finally:
            peers.close()


def member(directory: Path, node_id: int = 1, **settings: object) -> Broker:
    """Returns a broker, not started, that is ready for others: they may share the registry in the directory."""
    return Broker(
        data_dir=directory / str(node_id),
        settings={"node.id": node_id, "registry.file": str(directory / "registry.db"), **settings},
    )


def member_of(broker: Broker) -> ClusterMember:
    """Returns the membership of a broker in its cluster."""
    member = server_of(broker).cluster
    assert member is not None
    return member


def cluster_secret(broker: Broker) -> bytes:
    """Has the controller, whose thread alone uses the registry of a running broker, read the secret of its cluster."""
    secret = on_controller(broker, lambda _: server_of(broker).registry.cluster_secret())
    assert isinstance(secret, bytes)
    return secret


def peer_of(broker: Broker) -> Peer:
    return Peer(
        broker,
        member_of(broker).endpoint,
        cluster_secret(broker),
        on_loop(broker, lambda: server_of(broker).cluster_id),
    )


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with member(tmp_path_factory.mktemp("cluster")) as broker:
        yield broker


@pytest.fixture
def peer(broker: Broker) -> Peer:
    return peer_of(broker)
