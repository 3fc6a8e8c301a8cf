"""The znodes in which other programs ask the controller for something, as Kafka 2.4 has them.

| node | who writes it | asks for |
|---|---|---|
| `/brokers/topics/T` | `kafka-topics.sh --create`, `--alter --partitions` | a topic, more partitions |
| `/admin/delete_topics/T` | `kafka-topics.sh --delete` | the topic's deletion |
| `/config/changes/config_change_N` | `kafka-configs.sh --alter` | the settings in the node that it names |
| `/admin/reassign_partitions` | `kafka-reassign-partitions.sh --execute` | other replicas |
| `/admin/preferred_replica_election` | `kafka-preferred-replica-election.sh` | elections of preferred leaders |

A controller of this cluster writes notifications as well, which tell other programs, and ask for nothing.

Each is watched. A watch that fires, and the end of a connection, which ends all watches, only note what is to be read.
Anybody may write there: what is read has to be bounded, and may be anything.
"""

import json
import re
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.metadata.image import MetadataImage, TopicImage
from barnabas.registry.outside_requests import (
    OutsideRequest,
    RequestedConfig,
    RequestedDeletion,
    RequestedElection,
    RequestedReassignment,
    RequestedTopic,
    UnreadableRequest,
)
from barnabas.registry.zookeeper import znodes
from barnabas.registry.zookeeper.session import (
    NAME_CHARACTER,
    Check,
    Conflict,
    Delete,
    Node,
    Operation,
    Set,
    ZooKeeperSession,
)
from barnabas.registry.zookeeper.topic_nodes import batches

__all__ = ["RequestNodes"]

T = TypeVar("T")

_AT_A_TIME: Final = 100
"""The number of nodes that are read at a time, each of which has up to 1 MB."""
_NUMBER_MAX: Final = 2**31 - 1
_SHOWN: Final = 100
"""The number of bytes that a message shows of a node that cannot be read."""
_NAME: Final = re.compile(f"{NAME_CHARACTER}{{1,249}}")
"""A longer name is not of a topic, and might not fit into a request."""
_TOPIC: Final = 2
_BROKER: Final = 4
_CHANGES_KEPT_MS: Final = 15 * 60 * 1000
"""The time for which others can read that settings have changed, as with Kafka."""
_CHANGES_KEPT: Final = 10_000
"""The number of such notifications that are kept at most: their names have to fit into one answer."""
_PARENTS: Final = (
    znodes.TOPICS,
    znodes.CONFIG_CHANGES,
    znodes.DELETE_TOPICS,
    znodes.ISR_CHANGES,
    znodes.LOG_DIR_EVENTS,
)
_LISTS: Final = (znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_ELECTION)
_TOPIC_NODES: Final = f"{znodes.TOPICS}/"


class _Unreadable(Exception):
    """The content of a node is not what it has to be."""


class _Assignment(NamedTuple):
    """The content of `/brokers/topics/T`."""

    replicas: dict[int, tuple[int, ...]]
    is_ours: bool
    """Whether it has a topic id, which only brokers of this cluster write."""


class RequestNodes:
    """Used by the controller's thread, except for `changed`."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._changed: set[str] = {""}
        self._unread: dict[str, None] = {}
        """The nodes to look at next, in order."""
        self._topics: set[str] = set()
        """The topics whose nodes are watched, or to be read."""
        self._pending: dict[str, tuple[OutsideRequest, ...]] = {}
        """The requests by node, in the order in which they were found."""
        self._versions: dict[str, int] = {}
        """The versions at which their nodes were read."""
        self._own_changes: dict[str, int] = {}
        """The notifications of this cluster's controllers with the times of their creation, oldest first. They ask for
        nothing."""

    def changed(self, path: str) -> None:
        """Notes that a node may have changed, or with "" that everything may have. Called from any thread."""
        if path in {"", *_PARENTS, *_LISTS} or (path.startswith(_TOPIC_NODES) and path.count("/") == 3):
            with self._lock:
                self._changed.add(path)

    def pending(self) -> list[OutsideRequest]:
        return [request for requests in self._pending.values() for request in requests]

    # -- looking ----------------------------------------------------------------------------------------------------

    def look(self, image: MetadataImage) -> bool:
        """Reads what has changed, at most _AT_A_TIME topics. Returns whether more is left to be read."""
        with self._lock:
            changed, self._changed = self._changed, set()
        if "" in changed:
            self._topics.clear()
            self._pending.clear()
            self._versions.clear()
            self._own_changes.clear()
            self._unread = dict.fromkeys((*_PARENTS, *_LISTS))
        else:
            self._unread.update(dict.fromkeys(sorted(changed)))
        for path in [path for path in self._unread if not path.startswith(_TOPIC_NODES)]:
            if path == znodes.TOPICS:
                self._list_topics()
            elif path == znodes.CONFIG_CHANGES:
                self._list_config_changes(image)
            elif path in _PARENTS:
                self._list_names(path)
            else:
                self._read_list(path)
            del self._unread[path]
        paths = list(islice((path for path in self._unread if path.startswith(_TOPIC_NODES)), _AT_A_TIME))
        self._read_topics(paths, image)
        for path in paths:
            del self._unread[path]
        return bool(self._unread)

    def _put(self, node: str, *requests: OutsideRequest, version: int | None = None) -> None:
        """Puts the requests of a node, which has this version, in the place of those of before."""
        self._pending.pop(node, None)
        if not requests:
            self._versions.pop(node, None)
            return
        self._pending[node] = requests
        if version is not None:
            self._versions[node] = version

    def _drop(self, prefix: str) -> None:
        """Drops the requests of the nodes whose paths begin like this."""
        for node in [node for node in self._pending if node.startswith(prefix)]:
            self._put(node)

    def _names_below(self, parent: str) -> list[str]:
        (names,) = self._session.children([parent], watch=True)
        return sorted(names)

    def _read(self, paths: Sequence[str]) -> list[Node | None]:
        return self._session.read(paths, skips_hidden=True)

    def _list_topics(self) -> None:
        names = set(self._names_below(znodes.TOPICS))
        self._unread.update((znodes.topic_path(name), None) for name in sorted(names - self._topics))
        self._topics = names

    def _read_topics(self, paths: Sequence[str], image: MetadataImage) -> None:
        names = [path.removeprefix(_TOPIC_NODES) for path in paths]
        nodes = self._session.read(paths, watch=True, skips_hidden=True)
        asked = [name for name, node in zip(names, nodes) if node is not None and name not in image.topics]
        configs = dict(zip(asked, self._read([znodes.topic_config_path(name) for name in asked])))
        for name, path, node in zip(names, paths, nodes):
            request = None if node is None else _requested_topic(path, node, configs.get(name), image.topics.get(name))
            if node is None:
                self._topics.discard(name)
            if node is None or request is None:
                self._put(path)
            else:
                self._put(path, request, version=node.version)

    def _list_names(self, parent: str) -> None:
        """Lists the topics to delete, or the reports of brokers of Kafka, of which there are none here."""
        self._drop(f"{parent}/")
        for name in self._names_below(parent):
            path = f"{parent}/{name}"
            if parent == znodes.DELETE_TOPICS:
                self._put(path, RequestedDeletion(path, name))
            else:
                self._put(path, UnreadableRequest(path, "only brokers of Apache Kafka report there"))

    def _list_config_changes(self, image: MetadataImage) -> None:
        """Reads the first notifications of changed settings, and the settings. The others follow when these are
        settled."""
        self._drop("/config/")
        entities: dict[tuple[str, int, str], list[str]] = {}
        for path, node in self._notifications():
            try:
                entities.setdefault(_parse(node.data, _entity), []).append(path)
            except _Unreadable as error:
                self._put(path, UnreadableRequest(path, str(error)))
        settings = self._read([path for path, _, _ in entities])
        for ((path, resource_type, name), told), found in zip(entities.items(), settings):
            request: OutsideRequest
            try:
                if found is None:
                    raise _Unreadable("the node is not there, or not to be read")
                request = RequestedConfig(path, resource_type, name, _parse(found.data, _config), tuple(told))
            except _Unreadable as error:
                request = UnreadableRequest(path, str(error), tuple(told), _content(path, image) is not None)
            self._put(path, request, version=None if found is None else found.version)

    def _notifications(self) -> list[tuple[str, Node]]:
        """Returns the first notifications that others have written."""
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in self._names_below(znodes.CONFIG_CHANGES)]
        self._own_changes = {path: self._own_changes[path] for path in paths if path in self._own_changes}
        unread = iter([path for path in paths if path not in self._own_changes])
        found: list[tuple[str, Node]] = []
        while part := list(islice(unread, _AT_A_TIME - len(found))):
            for path, node in zip(part, self._read(part)):
                if node is not None and _is_own(node.data):
                    self._own_changes[path] = node.created_ms
                elif node is not None:
                    found.append((path, node))
        return found

    def forget_changes(self, now_ms: int, is_mine: Sequence[Check]) -> None:
        """Removes the notifications of this cluster's controllers that are old, or too many, if `is_mine` holds. Raises
        Conflict."""
        removed: list[str] = []
        for path, created_ms in self._own_changes.items():
            left = len(self._own_changes) - len(removed)
            if left <= _CHANGES_KEPT and created_ms >= now_ms - _CHANGES_KEPT_MS:
                break
            removed.append(path)
        for part in batches(map(Delete, removed)) if removed else ():
            self._session.commit([*is_mine, *part])
        for path in removed:
            del self._own_changes[path]

    def _read_list(self, path: str) -> None:
        """Reads a node with a list of partitions."""
        if self._session.watch(path, skips_hidden=True) is None:
            self._put(path)
            return
        (node,) = self._read([path])
        if node is None:
            self._put(path)
            return
        try:
            requests = _parse(node.data, _reassignments if path == znodes.REASSIGN_PARTITIONS else _elections)
        except _Unreadable as error:
            requests = [UnreadableRequest(path, str(error))]
        self._put(path, *requests, version=node.version)

    # -- settling ---------------------------------------------------------------------------------------------------

    def settle(self, requests: Collection[OutsideRequest], image: MetadataImage, is_mine: Sequence[Check]) -> None:
        """Removes requests, if `is_mine` holds. A node of a topic or of settings in which nobody has written since it
        was read, so a refused one, gets the content that it has by the image."""
        removed: list[str] = []
        restored: dict[str, bytes] = {}
        lists: dict[str, set[OutsideRequest]] = {}
        for request in requests:
            node = request.node
            if isinstance(request, RequestedReassignment | RequestedElection):
                lists.setdefault(node, set()).add(request)
                continue
            if isinstance(request, RequestedConfig | UnreadableRequest):
                removed += request.notifications
            if isinstance(request, RequestedDeletion) and request.name not in image.topics:
                topic = znodes.topic_path(request.name)
                removed += [topic] if topic in self._pending else ()  # it was asked for before
            content = _content(node, image)
            if content is not None:
                restored[node] = content
            elif (waiting := self._waiting_topic(node)) is not None:
                self.changed(waiting)  # it is asked for with these settings from now on
            else:
                removed.append(node)
        try:
            operations = [*self._removals(removed), *self._restored(restored), *self._shortened(lists)]
            for part in batches(operations) if operations else ():
                self._session.commit([*is_mine, *part])
        except Conflict:  # somebody writes there: all is looked at anew
            self.changed("")
            return
        for node in {*(request.node for request in requests), *removed}.difference(lists):
            self._put(node)
        for node, settled in lists.items():
            self._put(node, *(request for request in self._pending.get(node, ()) if request not in settled))

    def _waiting_topic(self, node: str) -> str | None:
        """Returns the node of a topic that is asked for, if this is that of its settings."""
        parent, _, name = node.rpartition("/")
        topic = znodes.topic_path(name)
        return topic if parent == znodes.TOPIC_CONFIGS and topic in self._pending else None

    def _unchanged(self, paths: Iterable[str]) -> list[tuple[str, Node]]:
        """Returns those of the nodes that are as they were read."""
        listed = list(dict.fromkeys(paths))
        return [
            (path, node)
            for path, node in zip(listed, self._read(listed))
            if node is not None and self._versions.get(path, node.version) == node.version
        ]

    def _removals(self, paths: Iterable[str]) -> Iterable[Operation]:
        there = {path: node.version for path, node in self._unchanged(paths)}
        names = [path.removeprefix(_TOPIC_NODES) for path in there if path.startswith(_TOPIC_NODES)]
        there.update((path, node.version) for path, node in self._unchanged(map(znodes.topic_config_path, names)))
        everything = self._session.all_below(list(there))
        return (Delete(path, there.get(path, -1)) for path in reversed(everything))

    def _restored(self, contents: dict[str, bytes]) -> Iterable[Operation]:
        return (Set(path, contents[path], node.version) for path, node in self._unchanged(contents))

    def _shortened(self, lists: dict[str, set[OutsideRequest]]) -> Iterable[Operation]:
        """Yields the operations that take settled requests out of their lists."""
        for path, settled in lists.items():
            version = self._versions.get(path, -1)
            left = [request for request in self._pending.get(path, ()) if request not in settled]
            if left:
                yield Set(path, _encode_partitions(left), version)
                self._versions[path] = version + 1
            else:
                yield Delete(path, version)


def _content(node: str, image: MetadataImage) -> bytes | None:
    """Returns the content of a node of a topic or of settings by the image; None for one that is not to be there."""
    parent, _, name = node.rpartition("/")
    if parent == znodes.TOPICS and name in image.topics:
        return znodes.encode_assignment(image.topics[name])
    if parent == znodes.TOPIC_CONFIGS and name in image.topics:
        return znodes.encode_config(image.topic_config(name))
    if parent == znodes.BROKER_CONFIGS and (config := image.broker_config(znodes.broker_config_name(name))):
        return znodes.encode_config(config)
    return None


# -- what others write ------------------------------------------------------------------------------------------------


def _parse(data: bytes, build: Callable[[dict[str, Any]], T]) -> T:
    """Returns what `build` makes of the JSON object of a node. Raises _Unreadable."""
    try:
        return build(json.loads(data.decode()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}"[:_SHOWN]
        raise _Unreadable(f"{what} in {data[:_SHOWN]!r}{'...' if len(data) > _SHOWN else ''}") from None


def _requested_topic(path: str, node: Node, config: Node | None, topic: TopicImage | None) -> OutsideRequest | None:
    """Returns what a topic's node asks for; None if that is what the topic has. `topic` is None for a new one."""
    if topic is not None and node.data == znodes.encode_assignment(topic):
        return None
    name = path.removeprefix(_TOPIC_NODES)
    try:
        assignment = _parse(node.data, _assignment)
        if topic is not None:
            is_same = assignment.replicas == {index: each.replicas for index, each in enumerate(topic.partitions)}
            return None if is_same else RequestedTopic(path, name, assignment.replicas, {})
        if assignment.is_ours:
            return UnreadableRequest(path, "the topic was not created, or not deleted, to the end")
        return RequestedTopic(path, name, assignment.replicas, {} if config is None else _parse(config.data, _config))
    except _Unreadable as error:
        return UnreadableRequest(path, str(error), comes_back=topic is not None)


def _assignment(found: dict[str, Any]) -> _Assignment:
    replicas = {_number_in(key): _ids(ids) for key, ids in found["partitions"].items()}
    if not replicas:
        raise ValueError("no partitions")
    return _Assignment(replicas, "topic_id" in found)


def _config(found: dict[str, Any]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in found["config"].items()}


def _is_own(data: bytes) -> bool:
    """Returns whether a controller of this cluster tells of changed settings."""
    with suppress(_Unreadable):
        return _parse(data, lambda found: found["version"] == 2 and type(found["controller_epoch"]) is int)
    return False


def _entity(found: dict[str, Any]) -> tuple[str, int, str]:
    """Returns the node of settings that a notification names, the type of the resource, and its name."""
    if found["version"] == 1:
        kind, name = _text(found["entity_type"]), _text(found["entity_name"])
    else:
        kind, _, name = _text(found["entity_path"]).partition("/")
    if kind not in {"topics", "brokers"} or name in {".", ".."} or not _NAME.fullmatch(name):
        raise ValueError("only settings of topics and of brokers are kept")
    if kind == "topics":
        return znodes.topic_config_path(name), _TOPIC, name
    name = znodes.broker_config_name(name)
    return znodes.broker_config_path(name), _BROKER, name


def _reassignments(found: dict[str, Any]) -> list[OutsideRequest]:
    return _nonempty(
        RequestedReassignment(
            znodes.REASSIGN_PARTITIONS, _text(each["topic"]), _number(each["partition"]), _ids(each["replicas"])
        )
        for each in found["partitions"]
    )


def _elections(found: dict[str, Any]) -> list[OutsideRequest]:
    return _nonempty(
        RequestedElection(znodes.PREFERRED_ELECTION, _text(each["topic"]), _number(each["partition"]))
        for each in found["partitions"]
    )


def _nonempty(requests: Iterable[OutsideRequest]) -> list[OutsideRequest]:
    found = list(requests)
    if not found:
        raise ValueError("no partitions")
    return found


def _encode_partitions(requests: Iterable[OutsideRequest]) -> bytes:
    partitions = [{key: value for key, value in each._asdict().items() if key != "node"} for each in requests]
    # as UTF-8 it is no longer than it was, and ZooKeeper takes it
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"), ensure_ascii=False).encode()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    value.encode()  # JSON may escape what UTF-8 does not have
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise ValueError(f"{value!r:.40} is no number of a partition or broker")
    return value


def _number_in(text: str) -> int:
    return _number(int(text) if len(text) < 11 and text.isascii() and text.isdecimal() else text)


def _ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is no list of brokers")
    return tuple(map(_number, value))
