"""The places between which a registry moves in tests: a file, and a path in a real ZooKeeper."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from barnabas.registry.content import Move, RegistryContent
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.embedded_store import EmbeddedStore
from barnabas.registry.migration import Moved, RegistryStore, StoredRegistry, move_registry
from barnabas.registry.registry import BrokerRegistration, Registry
from zookeeper_server import ZooKeeperServer

__all__ = ["FilePlace", "Place", "TrackedFile", "ZooKeeperPlace", "let_go", "move", "put", "read"]


class TrackedFile(EmbeddedRegistry):
    """A session of a broker whose process is only a text. Its lock goes with that process (`let_go`), which may begin
    another session."""

    process = ""
    opened: list["TrackedFile"]

    def register_broker(self, registration: BrokerRegistration, *, upon: int | None = None) -> int | None:
        let_go([each for each in self.opened if each is not self], registration.process)
        self.process = registration.process
        return super().register_broker(registration, upon=upon)


def let_go(opened: Iterable[TrackedFile], process: str) -> None:
    """Frees the locks that a process holds, as its end does."""
    for each in opened:
        if each.process == process:
            each._locks.release()


class Place(ABC):
    @abstractmethod
    def store(self) -> RegistryStore:
        """The registry as a whole."""

    @abstractmethod
    def registry(self) -> Registry:
        """A session of a broker, as one opens it whose data directories have been used."""


class FilePlace(Place):
    def __init__(self, path: Path, is_running: Callable[[str], bool] = bool) -> None:
        self.path = path
        self._is_running = is_running

    def store(self) -> RegistryStore:
        return EmbeddedStore(self.path, is_running=self._is_running)

    def registry(self) -> Registry:
        return EmbeddedRegistry(self.path, is_running=self._is_running)


class ZooKeeperPlace(Place):
    def __init__(self, zookeeper: ZooKeeperServer, is_running: Callable[[str], bool] = bool) -> None:
        self.connect = zookeeper.new_path()
        self._is_running = is_running

    def store(self) -> RegistryStore:
        from barnabas.registry.zookeeper.session import ZooKeeperAccess
        from barnabas.registry.zookeeper.zookeeper_store import ZooKeeperStore  # needs kazoo

        return ZooKeeperStore(ZooKeeperAccess(self.connect), is_running=self._is_running)

    def registry(self) -> Registry:
        from barnabas.registry.zookeeper.session import ZooKeeperAccess
        from barnabas.registry.zookeeper.zookeeper_registry import ZooKeeperRegistry

        return ZooKeeperRegistry(ZooKeeperAccess(self.connect), is_running=self._is_running)


def move(source: Place, target: Place) -> Moved:
    with closing(source.store()) as one, closing(target.store()) as other:
        return move_registry(one, other)


def read(place: Place) -> StoredRegistry | None:
    with closing(place.store()) as store:
        return store.read()


def put(place: Place, content: RegistryContent) -> None:
    """Makes a registry with this content, where there may be one that is not whole."""
    with closing(place.store()) as store:
        store.read()
        store.write(content, Move("put", "test", is_target=True))
        store.read()
        assert store.set_move(None)
