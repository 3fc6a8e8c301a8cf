"""A session with ZooKeeper: reads in bulk, transactions, watches. kazoo is used here and nowhere else.

kazoo's threads complete calls, and call back when a watched node changes or the connection comes and goes; they do
nothing else. Each method waits for its answer, and raises RegistryUnavailable if it does not come.
"""

import logging
import math
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.errors import NotYet, UsageError
from barnabas.printable import printable
from barnabas.registry.registry import RegistryUnavailable, RegistryUnreachable

__all__ = [
    "NAME_CHARACTER",
    "Check",
    "Conflict",
    "Create",
    "Delete",
    "Node",
    "Operation",
    "Set",
    "ZooKeeperAccess",
    "ZooKeeperSession",
    "parse_connect",
]

T = TypeVar("T")

ANSWER_MAX_S: Final = 5.0
"""The longest wait for one answer."""
RECONNECT_MAX_S: Final = 1.0
"""The longest wait for a connection that has been lost: it is usually back at once, with another server."""
_SERVERS: Final = 6
"""The number of servers that are tried, or of trials, in the time of a session."""
_CLOSE_MAX_S: Final = 2.0
_HIDDEN_MAX: Final = 100
_LOST: Final = (ConnectionClosedError, ConnectionLoss, OperationTimeoutError, SessionExpiredError)
"""The errors of kazoo for an answer that does not come."""
_AT_A_TIME: Final = 500
"""The number of reads that are sent before their answers are read. kazoo stops reading while it sends."""

NAME_CHARACTER: Final = r"[^/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]"
"""The regular expression of a character of which ZooKeeper lets the name of a node consist. kazoo refuses the names "."
and ".." too."""
_SEGMENT: Final = re.compile(f"{NAME_CHARACTER}+")
_SERVER: Final = re.compile(r"([\w.-]+|\[(?P<v6>[^\[\]]+)\])(:(?P<port>[0-9]{1,5}))?")

_log = logging.getLogger("barnabas.registry")
_kazoo_log = logging.getLogger("barnabas.registry.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # what it tells of connections is said here in one line


class ZooKeeperAccess(NamedTuple):
    """The addresses of ZooKeeper, and the beginning of a session with it."""

    connect: str
    """`host:2181,host:2181/path`: everything is below that path."""
    session_timeout_s: float = 18.0
    connect_max_s: float = 18.0
    """The longest wait for a connection."""
    digest: str | None = None
    """`user:password`."""
    protects_all: bool = False
    """Whether only who knows the digest can write nodes that are made here."""
    tls: ssl.SSLContext | None = None


class Node(NamedTuple):
    """The content of a znode."""

    data: bytes
    version: int
    owner: int
    """The session of an ephemeral node; 0 for the others."""
    created_ms: int
    children: int
    """The number of nodes below."""


class Check(NamedTuple):
    """The condition that a node has this version."""

    path: str
    version: int


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    secret: bool = False
    """Whether only the creator may read it, if it has authenticated to ZooKeeper."""
    numbered: bool = False
    """Whether ZooKeeper appends ten digits to the path: a number above those of all nodes that have been there."""


class Set(NamedTuple):
    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    path: str
    version: int = -1


Operation: TypeAlias = Check | Create | Set | Delete


class Conflict(Exception):
    """A condition of a transaction does not hold: nothing is written."""


def parse_connect(text: str) -> tuple[str, str]:
    """Returns the hosts, and the path below which everything is, of `host:2181,host:2181/path`. Raises UsageError."""
    hosts, _, path = text.strip().partition("/")
    names = [host.strip() for host in hosts.split(",")]
    segments = path.removesuffix("/").split("/") if path else []
    for name in names:
        if not _is_server(name):
            raise _no_address(text, f"'{name}' is no host with a port from 1 to 65535 (an IPv6 address has brackets)")
    for segment in segments:
        if segment in {"", ".", ".."} or not _SEGMENT.fullmatch(segment):
            raise _no_address(text, f"ZooKeeper has no path with '{segment}' between slashes")
    return ",".join(names), "".join(f"/{segment}" for segment in segments)


def _is_server(name: str) -> bool:
    found = _SERVER.fullmatch(name)
    if found is None or not 1 <= int(found["port"] or 2181) <= 65535:
        return False
    with suppress(ValueError):
        return found["v6"] is None or IPv6Address(found["v6"]).version == 6
    return False


def _unknown_names(hosts: str) -> str:
    """Returns why none of the hosts has an address; '' if one has. Asks the DNS."""
    reasons = []
    for server in hosts.split(","):
        found = _SERVER.fullmatch(server)
        assert found is not None, server
        name = found["v6"] or found[1]
        try:
            socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError as error:
            reasons.append(f"the name {name} cannot be resolved ({error.strerror})")
        else:
            return ""
    return ", ".join(reasons)


def _no_address(text: str, reason: str) -> UsageError:
    form = "is not of the form host:2181,host:2181/path, such as 127.0.0.1:2181/kafka"
    return UsageError(printable(f"zookeeper.connect: '{text:.200}' {form}: {reason:.200}"))


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Gives a server up soon that does not answer: the session goes on with another one. Speaks TLS, if it has a
    context."""

    def __init__(self, connect_max_s: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._connect_max_s = connect_max_s
        self._tls = tls
        self.tls_failure: ssl.SSLError | None = None
        """The reason for which there was no TLS the last time."""

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        timeout = options["timeout"] = min(options["timeout"], self._connect_max_s)
        sock = super().create_connection(*arguments, **options)
        if self._tls is None:
            return sock
        try:
            sock.settimeout(timeout)
            return self._tls.wrap_socket(sock, server_hostname=options["hostname"])
        except OSError as error:
            sock.close()
            if isinstance(error, ssl.SSLError):
                self.tls_failure = error
            raise

    def select(self, readers: Sequence[Any], writers: Any, errors: Any, timeout: float | None = None) -> Any:
        # What one TLS record brings may be several answers, and the socket is not readable for those that are left.
        ready = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        found = super().select(readers, writers, errors, 0 if ready else timeout)
        return ([*ready, *(each for each in found[0] if each not in ready)], *found[1:])


class ZooKeeperSession:
    """Paths are relative to that of `connect`."""

    def __init__(self, access: ZooKeeperAccess) -> None:
        """Connects. Raises NotYet if ZooKeeper is not reached in time, UsageError if it cannot be, and
        RegistryUnreachable if the connection is lost again."""
        hosts, self._root = parse_connect(access.connect)
        digest, tls = access.digest, access.tls
        self._connect = access.connect
        self.on_event: Callable[[str], None] = lambda _path: None
        """Called from a thread of kazoo with the path of a watched node that may have changed, or with "" when the
        connection is back: then all watches have to be set again. Set before the first one."""
        self._connected = threading.Event()
        self._is_closed = False
        self._was_lost = False
        self._hidden: set[str] = set()
        """The nodes that this broker may not read, as the log has said."""
        self._acl = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE] if access.protects_all else OPEN_ACL_UNSAFE
        self._secret_acl = CREATOR_ALL_ACL if digest is not None else OPEN_ACL_UNSAFE
        handler = _Handler(access.session_timeout_s / _SERVERS, tls)
        self._client = KazooClient(
            # kazoo waits for the answer of one server as long as for a session, divided by the number of servers. A
            # server that is just being started may accept the connection and never answer.
            ",".join([hosts] * math.ceil(_SERVERS / (hosts.count(",") + 1))),
            timeout=access.session_timeout_s,
            handler=handler,
            auth_data=[("digest", digest)] if digest is not None else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
            logger=_kazoo_log,
        )
        self._client.add_listener(self._state_changed)
        self._client.start_async()
        try:
            if not self._connected.wait(access.connect_max_s):
                if handler.tls_failure is not None:
                    reason = f"{handler.tls_failure}; see zookeeper.ssl.*"
                    raise UsageError(f"zookeeper.connect: there is no TLS with {hosts}: {reason}")
                if unknown := _unknown_names(hosts):
                    raise NotYet(f"zookeeper.connect: {unknown}; name hosts that the DNS knows, or mend the DNS")
                refused = ", or a zookeeper.ssl.keystore.location that it trusts" if tls is not None else ""
                raise NotYet(
                    f"zookeeper.connect: {hosts} does not answer within {access.connect_max_s:g} s; start ZooKeeper, "
                    f"or name the addresses at which it listens{refused}"
                )
        except BaseException:
            self.close()
            raise

    def make_root(self) -> None:
        """Makes the path below which everything is, if it is not there. Raises UsageError, RegistryUnreachable."""
        if not self._root:
            return
        try:
            with self._answers():
                self._client.ensure_path(self._root, self._acl)
        except RegistryUnreachable:
            raise
        except RegistryUnavailable as error:
            raise UsageError(
                f"zookeeper.connect: {self._root} cannot be made: {error.__cause__!r}; make it, or choose another path"
            ) from None

    @property
    def id(self) -> int:
        """The number of this session; 0 without a connection."""
        found = self._client.client_id
        return 0 if found is None else int(found[0] or 0)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known: one that is cut is noticed within the session's time."""
        return self._connected.is_set()

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._connected.set()
            if self._was_lost:
                self._was_lost = False
                _log.info("the connection to ZooKeeper at %s is back", self._connect)
                self.on_event("")
            return
        self._connected.clear()
        if not self._was_lost and not self._is_closed:
            self._was_lost = True
            _log.warning(
                "the connection to ZooKeeper at %s is lost: records are served on, but leaders, topics and settings "
                "cannot change until it is back",
                self._connect,
            )

    def _watched(self, event: WatchedEvent) -> None:
        # kazoo gives its watches up with the connection, which is told when it is back.
        if event.type != EventType.NONE:
            self.on_event(event.path.removeprefix(self._root))

    # -- reads ------------------------------------------------------------------------------------------------------

    def read(
        self, paths: Sequence[str], *, sync: bool = False, watch: bool = False, skips_hidden: bool = False
    ) -> list[Node | None]:
        """Returns each node; None for those that are not there, and with `skips_hidden` for those that this broker may
        not read. With `sync` it is the state that all servers agree on now, otherwise perhaps an older one, but none
        older than what this session has seen. With `watch` those that are there call back once when they change."""

        def ask(full: str) -> Any:
            return self._client.get_async(full, watch=self._watched if watch else None)

        return [
            None if found is None else Node(found[0] or b"", *_stat(found[1]))
            for found in self._gather(ask, paths, sync, skips_hidden)
        ]

    def children(self, paths: Sequence[str], *, watch: bool = False) -> list[list[str]]:
        """Returns the names of the nodes below each; none for a node that is not there. With `watch` those that are
        there call back once when these names change."""

        def ask(full: str) -> Any:
            return self._client.get_children_async(full, watch=self._watched if watch else None)

        return [found or [] for found in self._gather(ask, paths, False)]

    def watch(self, path: str, *, skips_hidden: bool = False) -> Node | None:
        """Returns the node without its data, and calls back once when it changes. With `skips_hidden`, one that this
        broker may not read is as if it were not there."""

        def ask(full: str) -> Any:
            return self._client.exists_async(full, watch=self._watched)

        found = self._gather(ask, [path], False, skips_hidden)[0]
        return None if found is None else Node(b"", *_stat(found))

    def _gather(
        self, ask: Callable[[str], Any], paths: Sequence[str], sync: bool, skips_hidden: bool = False
    ) -> list[Any]:
        self._require_connection()
        with self._answers():
            if sync:
                self._client.sync_async(self._root or "/")  # answers come in the order of requests
            found: list[Any] = []
            for start in range(0, len(paths), _AT_A_TIME):
                part = paths[start : start + _AT_A_TIME]
                asked = [ask(self._root + path) for path in part]
                found += [self._value_of(each, path, skips_hidden) for path, each in zip(part, asked)]
            return found

    def _value_of(self, answer: Any, path: str, skips_hidden: bool) -> Any:
        """Returns the value of an answer; None if there is no such node."""
        try:
            return answer.get(ANSWER_MAX_S)
        except NoNodeError:
            return None
        except NoAuthError:
            if not skips_hidden:
                raise
            if path not in self._hidden and len(self._hidden) < _HIDDEN_MAX:
                self._hidden.add(path)
                _log.warning("%.200s is passed over: this broker may not read it; give it the permission", path)
            return None

    # -- writes -----------------------------------------------------------------------------------------------------

    def commit(self, operations: Sequence[Operation]) -> None:
        """Does all of it or nothing. Raises Conflict if that is certainly nothing, RegistryUnavailable if it is
        unknown."""
        self._require_connection()
        transaction = self._client.transaction()
        for operation in operations:
            path = self._root + operation.path
            match operation:
                case Check():
                    transaction.check(path, operation.version)
                case Create():
                    acl = self._secret_acl if operation.secret else self._acl
                    flags = {"ephemeral": operation.ephemeral, "sequence": operation.numbered}
                    transaction.create(path, operation.data, acl=acl, **flags)
                case Set():
                    transaction.set_data(path, operation.data, operation.version)
                case Delete():
                    transaction.delete(path, operation.version)
        with self._answers():
            results = transaction.commit_async().get(ANSWER_MAX_S)
        for operation, result in zip(operations, results):
            if isinstance(result, BadVersionError | NoNodeError | NodeExistsError | NotEmptyError):
                raise Conflict(f"{operation.path}: {type(result).__name__}")
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                raise RegistryUnavailable(f"ZooKeeper refuses to write {operation.path}: {result!r}")

    def make(self, paths: Sequence[str], data: bytes = b"") -> None:
        """Creates the nodes that are not there, each after those before it."""
        for path in paths:
            with suppress(Conflict):
                self.commit([Create(path, data)])

    def all_below(self, paths: Sequence[str]) -> list[str]:
        """Returns nodes and everything below them, each after its parent."""
        found, level = list(paths), list(paths)
        while level:
            below = self.children(level)
            level = [f"{parent}/{name}" for parent, names in zip(level, below) for name in names]
            found += level
        return found

    def delete_below(self, path: str, *conditions: Check) -> None:
        """Deletes a node with everything below it, not at once. Raises Conflict if others write there meanwhile, or a
        condition does not hold any longer."""
        self.delete(self.all_below([path]), *conditions)

    def delete(self, paths: Sequence[str], *conditions: Check) -> None:
        """Deletes nodes, each of which stands after its parent. Raises Conflict as `delete_below` does."""
        for end in range(len(paths), 0, -_AT_A_TIME):
            self.commit([*conditions, *(Delete(each) for each in reversed(paths[max(end - _AT_A_TIME, 0) : end]))])

    def next_number(self, path: str) -> int:
        """Writes a node, and returns how often that has been done: a number that nobody else gets."""
        self._require_connection()
        with self._answers():
            return int(self._client.set_async(self._root + path, b"").get(ANSWER_MAX_S).version)

    # -- failures ---------------------------------------------------------------------------------------------------

    def _require_connection(self) -> None:
        # kazoo would keep the request and send it when the connection is back, long after its answer was given up.
        if not self._connected.wait(RECONNECT_MAX_S):
            raise RegistryUnreachable(f"there is no connection to ZooKeeper at {self._connect}")

    @contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except NoAuthError as error:
            raise RegistryUnavailable(
                f"ZooKeeper at {self._connect} keeps a node from this broker: zookeeper.digest must be the one with "
                "which the cluster was founded"
            ) from error
        except (*_LOST, self._client.handler.timeout_exception) as error:
            text = str(error) or type(error).__name__
            raise RegistryUnreachable(f"ZooKeeper at {self._connect} did not answer: {text}") from error
        except KazooException as error:
            raise RegistryUnavailable(f"ZooKeeper at {self._connect} refuses: {error!r}") from error

    def close(self) -> None:
        """Ends the session: its ephemeral nodes are gone."""
        self._is_closed = True
        # kazoo may be waiting for a server that does not answer.
        end = threading.Thread(target=self._end, name="barnabas-zookeeper", daemon=True)
        try:
            end.start()
        except RuntimeError:
            # The system gives no further thread: ZooKeeper ends the session when this process has ended.
            return
        end.join(_CLOSE_MAX_S)

    def _end(self) -> None:
        with suppress(KazooException):
            self._client.stop()
            self._client.close()


def _stat(found: Any) -> tuple[int, int, int, int]:
    """Returns what a Node has beside its data."""
    return found.version, found.ephemeralOwner, found.ctime, found.numChildren
