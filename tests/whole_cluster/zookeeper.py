"""A simulated ZooKeeper, in place of kazoo's client: what brokers read and write there, sessions, watches and faults.

Each session is with a server that may be behind the others. What it reads without `sync` may be old, but never older
than what it has seen, and it is told of a change before it sees what came later. A broker without a connection gets
errors at once, and the answer to its last write may be lost. Any request may lose the connection.

What a broker does in one call of its registry takes no time, so no other one writes meanwhile.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from unittest import mock

from kazoo.client import KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType

from barnabas.registry.zookeeper import session
from whole_cluster.world import Host, World, in_thread_of

__all__ = ["Ensemble"]

SESSION_S: Final = 3.0
TICK_S: Final = 0.1
LAGS_S: Final = (0.0, 0.0, 0.005, 0.05, 0.5)
"""How far servers are behind the others."""


class _Znode(NamedTuple):
    data: bytes
    version: int = 0
    owner: int = 0
    created_ms: int = 0


_Tree = Mapping[str, _Znode]


class _Answer:
    """What kazoo gives for a request. All has happened by then."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        try:
            self._value, self._error = ask(), None
        except KazooException as error:
            self._value, self._error = None, error

    def get(self, timeout: float) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class Ensemble:
    """The servers: each state of the tree since the beginning of a simulation, and the sessions."""

    on_several_machines = True

    def __init__(self, world: World) -> None:
        self.world = world
        self.states: list[tuple[float, _Tree]] = [(world.now, {"": _Znode(b"")})]
        """The state after each write, with its time. They are numbered from 0 on."""
        self.clients: list[_Client] = []
        self.cut: set[str] = set()
        """The hosts that reach no server."""
        self.has_quorum = True
        self.lost_share = 0.0
        """The share of requests with which the connection is lost."""
        self.numbers = count()
        """The numbers of nodes whose path gets one."""
        self._sessions = 0
        world.after(TICK_S, self._tick)

    @property
    def settings(self) -> Mapping[str, object]:
        """Those of a broker."""
        return {"zookeeper.connect": "zookeeper:2181/kafka", "zookeeper.session.timeout.ms": int(SESSION_S * 1000)}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The context in which brokers find this ensemble."""
        threads = SimpleNamespace(Event=_Event, Thread=_Thread)
        with (
            mock.patch.object(session, "KazooClient", partial(_Client, self)),
            mock.patch.object(session, "threading", threads),
        ):
            yield

    def new_session(self) -> int:
        self._sessions += 1
        return self._sessions

    @property
    def tree(self) -> _Tree:
        return self.states[-1][1]

    def in_sync_replicas(self) -> list[set[str]]:
        """Returns the node ids of the in-sync replicas of each partition."""
        return [
            {str(node_id) for node_id in json.loads(node.data)["isr"]}
            for path, node in self.tree.items()
            if path.endswith("/state") and "/partitions/" in path
        ]

    def apply(self, changes: dict[str, _Znode | None]) -> None:
        """Makes one write: the next state."""
        tree = {**self.tree, **changes}
        self.states.append((self.world.now, {path: node for path, node in tree.items() if node is not None}))
        number = len(self.states) - 1
        for client in self.clients:
            client.written(number, changes)

    # --- faults -----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Servers and clients notice which sessions live."""
        for client in tuple(self.clients):
            client.tick()
        self.world.after(TICK_S, self._tick)

    def expire(self, number: int) -> None:
        """Ends a session: its nodes are gone."""
        owned: dict[str, _Znode | None] = {path: None for path, node in self.tree.items() if node.owner == number}
        if owned:
            self.apply(owned)

    def end_session_of(self, host: str) -> None:
        """Ends the session of a live broker from outside."""
        for client in self.clients:
            if client.host.name == host and client.host.alive:
                client.end_session()

    def go_back(self, number: int) -> None:
        """Puts the state of this number back, as from a copy of the disk: sessions of then have ended. Clients do not
        notice by themselves."""
        tree = {path: node for path, node in self.states[number][1].items() if not node.owner}
        self.states.append((self.world.now, tree))
        for client in self.clients:
            client.lose_session()

    def delete(self, path: str) -> None:
        """Deletes a node, as another program does."""
        for full in [each for each in self.tree if each.endswith(path)]:
            self.apply({full: None})


class _Event:
    """In place of threading.Event: what a simulated thread waits for does not come while it waits."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return self._is_set


class _Thread:
    """In place of threading.Thread: runs at once."""

    def __init__(self, target: Callable[[], None], **_: object) -> None:
        self._target = target

    def start(self) -> None:
        self._target()

    def join(self, timeout: float | None = None) -> None: ...


class _Client:
    """The part of kazoo's client that brokers use."""

    def __init__(self, ensemble: Ensemble, hosts: str, *, timeout: float, handler: Any, **_: Any) -> None:
        host = ensemble.world.host
        assert host is not None
        self.host: Host = host
        self.handler = handler
        self._ensemble = ensemble
        self._world = ensemble.world
        self._timeout_s = timeout
        self._listeners: list[Callable[[str], None]] = []
        self._session = 0
        self._has_ended = False
        """Whether the servers have ended the session; the client learns it when it reaches them."""
        self._is_connected = False
        self._is_stopped = False
        self._heard_at = self._world.now
        self._seen = 0
        """The number of the newest state that this session has seen."""
        self._lag_s = 0.0
        self._watches: dict[tuple[str, bool], Callable[[Any], None]] = {}
        """The watches by path, and whether they are for the children."""
        self._told: list[tuple[int, str, Callable[[Any], None]]] = []
        """What is on its way: the number of the state, the path, and the watch."""

    # --- life -------------------------------------------------------------------------------------------------------

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return (self._session, b"") if self._is_connected else None

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def start_async(self) -> None:
        self._ensemble.clients.append(self)
        if self._reaches:
            self._connect()

    def stop(self) -> None:
        if not self.host.alive:
            return
        if self._is_connected and self._reaches:
            self.end_session()
        self._is_connected = False
        self._is_stopped = True

    def close(self) -> None: ...

    def end_session(self) -> None:
        if self._session and not self._has_ended:
            self._has_ended = True
            self._ensemble.expire(self._session)

    def lose_session(self) -> None:
        """Notes that the servers do not know the session."""
        self._has_ended = True

    @property
    def _reaches(self) -> bool:
        is_up = self.host.alive and not self.host.paused and not self._is_stopped
        return is_up and self.host.name not in self._ensemble.cut and self._ensemble.has_quorum

    def _connect(self) -> None:
        if self._has_ended or not self._session:
            self._session = self._ensemble.new_session()
            self._has_ended = False
        self._is_connected = True
        self._lag_s = self._world.random.choice(LAGS_S)
        self._tell(KazooState.CONNECTED)

    def _tell(self, state: str) -> None:
        for listener in self._listeners:
            listener(state)

    def tick(self) -> None:
        if self._reaches:
            self._heard_at = self._world.now
            if self._is_connected and not self._has_ended:
                return
            with in_thread_of(self.host):
                if self._is_connected:
                    self._disconnect()
                self._connect()
            return
        if self._is_connected and self.host.alive and not self.host.paused:
            with in_thread_of(self.host):
                self._disconnect()
        if not self._ensemble.has_quorum:
            self._heard_at = self._world.now  # the next leader gives every session its whole time
        elif self._world.now - self._heard_at > self._timeout_s:
            self.end_session()
        if self._has_ended and (self._is_stopped or not self.host.alive):
            self._ensemble.clients.remove(self)

    def _disconnect(self) -> None:
        self._is_connected = False
        self._watches.clear()
        self._told.clear()
        self._tell(KazooState.SUSPENDED)

    # --- reads ------------------------------------------------------------------------------------------------------

    def _require_answers(self) -> None:
        if not self._reaches or self._has_ended or not self._is_connected or self._loses_connection():
            raise ConnectionLoss

    def _look(self, path: str, watch: Callable[[Any], None] | None, *, children: bool = False) -> _Tree:
        """Returns the state that the server has, and watches a path in it."""
        self._require_answers()
        states = self._ensemble.states
        number = len(states) - 1
        while number > self._seen and states[number][0] > self._world.now - self._lag_s:
            number -= 1
        self._see(number)
        tree = states[number][1]
        if watch is not None:
            later = next((n for n in range(number + 1, len(states)) if self._differs(n, path, children)), None)
            if later is None:
                self._watches[path, children] = watch
            else:
                self._send(later, path, watch)
        return tree

    def _differs(self, number: int, path: str, children: bool) -> bool:
        before, after = self._ensemble.states[number - 1][1], self._ensemble.states[number][1]
        if children:
            return _names(before, path) != _names(after, path)
        return before.get(path) != after.get(path)

    def _loses_connection(self) -> bool:
        if self._world.random.random() >= self._ensemble.lost_share:
            return False
        self._disconnect()
        return True

    def sync_async(self, path: str) -> _Answer:
        def ask() -> None:
            self._require_answers()
            self._see(len(self._ensemble.states) - 1)

        return _Answer(ask)

    def get_async(self, path: str, watch: Callable[[Any], None] | None = None) -> _Answer:
        def ask() -> tuple[bytes, Any]:
            node = self._look(path, None).get(path)
            if node is None:  # it is not watched then
                raise NoNodeError
            if watch is not None:
                self._look(path, watch)
            return node.data, _stat(node, len(_names(self._look(path, None), path)))

        return _Answer(ask)

    def exists_async(self, path: str, watch: Callable[[Any], None] | None = None) -> _Answer:
        def ask() -> Any:
            node = self._look(path, watch).get(path)
            return None if node is None else _stat(node)

        return _Answer(ask)

    def get_children_async(self, path: str, watch: Callable[[Any], None] | None = None) -> _Answer:
        def ask() -> list[str]:
            if path not in self._look(path, None):
                raise NoNodeError
            return sorted(_names(self._look(path, watch, children=True), path))

        return _Answer(ask)

    # --- watches ----------------------------------------------------------------------------------------------------

    def written(self, number: int, changes: Mapping[str, _Znode | None]) -> None:
        """Takes note of a write: who watches is told."""
        for path in changes:
            for key in ((path, False), (path.rpartition("/")[0], True)):
                if key in self._watches and self._differs(number, *key):
                    self._send(number, key[0], self._watches.pop(key))

    def _send(self, number: int, path: str, watch: Callable[[Any], None]) -> None:
        entry = (number, path, watch)
        self._told.append(entry)
        self._world.after(self._lag_s + self._world.random.random() * 0.001, partial(self._arrives, entry))

    def _arrives(self, entry: tuple[int, str, Callable[[Any], None]]) -> None:
        if entry not in self._told or not self.host.alive:
            return
        if self.host.paused:
            self._world.after(TICK_S, partial(self._arrives, entry))
            return
        with in_thread_of(self.host):
            self._see(entry[0])

    def _see(self, number: int) -> None:
        """Sees a state, after it was told what it watches of that and those before."""
        self._seen = max(self._seen, number)
        due = [entry for entry in self._told if entry[0] <= self._seen]
        for entry in due:
            self._told.remove(entry)
            entry[2](SimpleNamespace(type=EventType.CHANGED, path=entry[1]))

    # --- writes -----------------------------------------------------------------------------------------------------

    def ensure_path(self, path: str, acl: object) -> None:
        self._require_answers()
        names = path.split("/")
        for end in range(2, len(names) + 1):
            if (parent := "/".join(names[:end])) not in self._ensemble.tree:
                self._ensemble.apply({parent: _Znode(b"")})

    def set_async(self, path: str, data: bytes) -> _Answer:
        def ask() -> Any:
            (result,) = self._write([partial(_set, path, data, -1)])
            if isinstance(result, Exception):
                raise result
            return _stat(self._ensemble.tree[path])

        return _Answer(ask)

    def transaction(self) -> "_Transaction":
        return _Transaction(self)

    def _write(self, operations: "list[_Step]") -> list[Any]:
        """Does all of it or nothing."""
        if not self._is_connected:
            raise ConnectionLoss
        if not self._reaches or self._has_ended or self._loses_connection():
            # the request may have been the last one that arrived
            if not self._has_ended and self._world.random.random() < 0.5:
                self._make(operations)
            raise ConnectionLoss
        results = self._make(operations)
        self._see(len(self._ensemble.states) - 1)
        return results

    def _make(self, operations: "list[_Step]") -> list[Any]:
        tree: dict[str, _Znode] = dict(self._ensemble.tree)
        changes: dict[str, _Znode | None] = {}
        for number, step in enumerate(operations):
            try:
                for path, node in step(tree, self._session):
                    changes[path] = node
                    if node is None:
                        del tree[path]
                    else:
                        tree[path] = node
            except (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError) as error:
                undone: list[Any] = [RolledBackError()] * number
                return [*undone, error, *[RuntimeInconsistency()] * (len(operations) - number - 1)]
        self._ensemble.apply(changes)
        return [True] * len(operations)


_Step = Callable[[_Tree, int], list[tuple[str, "_Znode | None"]]]
"""One operation: returns what it makes of the tree for this session, or raises one of kazoo's errors."""


class _Transaction:
    def __init__(self, client: _Client) -> None:
        self._client = client
        self._steps: list[_Step] = []

    def check(self, path: str, version: int) -> None:
        self._steps.append(partial(_check, path, version))

    def create(self, path: str, data: bytes, *, acl: object, ephemeral: bool, sequence: bool) -> None:
        numbers = self._client._ensemble.numbers if sequence else None
        self._steps.append(partial(_create, path, data, ephemeral, numbers))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self._steps.append(partial(_set, path, data, version))

    def delete(self, path: str, version: int) -> None:
        self._steps.append(partial(_delete, path, version))

    def commit_async(self) -> _Answer:
        return _Answer(lambda: self._client._write(self._steps))


def _found(tree: _Tree, path: str, version: int) -> _Znode:
    if path not in tree:
        raise NoNodeError
    if version not in (-1, tree[path].version):
        raise BadVersionError
    return tree[path]


def _check(path: str, version: int, tree: _Tree, session: int) -> list[tuple[str, _Znode | None]]:
    _found(tree, path, version)
    return []


def _create(
    path: str, data: bytes, ephemeral: bool, numbers: Iterator[int] | None, tree: _Tree, session: int
) -> list[tuple[str, _Znode | None]]:
    if numbers is not None:
        path += f"{next(numbers):010}"
    if path in tree:
        raise NodeExistsError
    if path.rpartition("/")[0] not in tree:
        raise NoNodeError
    return [(path, _Znode(data, 0, session if ephemeral else 0, time.time_ns() // 1_000_000))]


def _set(path: str, data: bytes, version: int, tree: _Tree, session: int) -> list[tuple[str, _Znode | None]]:
    node = _found(tree, path, version)
    return [(path, node._replace(data=data, version=node.version + 1))]


def _delete(path: str, version: int, tree: _Tree, session: int) -> list[tuple[str, _Znode | None]]:
    _found(tree, path, version)
    if _names(tree, path):
        raise NotEmptyError
    return [(path, None)]


def _names(tree: _Tree, path: str) -> set[str]:
    prefix = f"{path}/"
    return {each[len(prefix) :] for each in tree if each.startswith(prefix) and "/" not in each[len(prefix) :]}


def _stat(node: _Znode, children: int = 0) -> Any:
    return SimpleNamespace(version=node.version, ephemeralOwner=node.owner, ctime=node.created_ms, numChildren=children)
