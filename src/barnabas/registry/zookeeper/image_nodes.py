"""Reads the image of a cluster, and its history of leaders, from znodes."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage, TopicImage
from barnabas.registry.registry import LeaderChange, RegistryUnavailable
from barnabas.registry.zookeeper import znodes
from barnabas.registry.zookeeper.session import ZooKeeperSession
from barnabas.registry.zookeeper.znodes import TopicMarker, Touched
from barnabas.types import BrokerId

__all__ = ["MAX_LEADER_CHANGES", "Vanished", "leader_nodes", "read_changed", "read_everything", "read_leader_changes"]

T = TypeVar("T")

MAX_LEADER_CHANGES: Final = 1000

_log = logging.getLogger("barnabas.registry")
_KEEP_ALL: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The settings of a topic of whose own ones nothing is known: none of its records is deleted."""


class Vanished(Exception):
    """A node is gone since another one named it."""


def read_everything(session: ZooKeeperSession, cluster_id: str, *, strictly: bool = False) -> MetadataDelta:
    """Returns all brokers, topics and settings. `strictly` raises RegistryUnavailable for settings that cannot be read;
    otherwise a broker goes on without them. Raises Vanished if others write meanwhile."""
    parents = [znodes.TOPICS, znodes.TOPIC_CONFIGS, znodes.BROKER_CONFIGS, znodes.REGISTRATIONS]
    topics, topic_configs, broker_configs, brokers = session.children(parents)
    touched = Touched(
        frozenset(topics),
        frozenset(topic_configs),
        frozenset(map(znodes.broker_config_name, broker_configs)),
        frozenset(BrokerId(int(name)) for name in brokers if name.isdecimal()),
    )
    return _read(session, MetadataImage(cluster_id), touched, strictly)


def read_changed(session: ZooKeeperSession, image: MetadataImage, touched: Touched) -> MetadataDelta:
    """Returns what was touched since the image, as it is now. Raises Vanished if others write meanwhile."""
    return _read(session, image, touched, False)


def _read(session: ZooKeeperSession, image: MetadataImage, touched: Touched, strictly: bool) -> MetadataDelta:
    delta = MetadataDelta(image)
    for node_id, node in _named(session, touched.brokers, znodes.registration_path):
        if node is None:
            delta.remove_broker(node_id)
        else:
            delta.put_broker(znodes.parse_registration(node_id, node))
    markers: dict[str, TopicMarker] = {}
    for name, data in _named(session, touched.topics, znodes.partitions_path):
        marker = TopicMarker.of_data(name, data or b"")
        if marker is None:
            delta.remove_topic(name)
        else:
            markers[name] = marker
    _read_topics(session, delta, markers)
    for name, data in _named(session, touched.topic_configs, znodes.topic_config_path):
        is_there = data is not None and delta.topic(name) is not None
        former = None if strictly else image.topic_config(name) or _KEEP_ALL
        delta.set_topic_config(name, _config(znodes.topic_config_path(name), data if is_there else None, former))
    for name, data in _named(session, touched.broker_configs, znodes.broker_config_path, skips_hidden=not strictly):
        former = None if strictly else image.broker_config(name)
        delta.set_broker_config(name, _config(znodes.broker_config_path(name), data, former))
    return delta


def _read_topics(session: ZooKeeperSession, delta: MetadataDelta, markers: Mapping[str, TopicMarker]) -> None:
    paths = [znodes.state_path(name, index) for name, marker in markers.items() for index in range(marker.partitions)]
    states = zip(paths, session.read(paths))
    for name, marker in markers.items():
        partitions = []
        for _ in range(marker.partitions):
            path, node = next(states)
            if node is None:
                raise Vanished(path)
            partitions.append(znodes.parse_partition(path, node.data))
        delta.put_topic(TopicImage(name, marker.topic_id, tuple(partitions)))


def _named(
    session: ZooKeeperSession, names: Iterable[T], path: Callable[[T], str], *, skips_hidden: bool = False
) -> list[tuple[T, bytes | None]]:
    """Returns the data of the node of each name; None for those that are not there, and with `skips_hidden` for
    those that this broker may not read."""
    listed = list(names)
    nodes = session.read([path(name) for name in listed], skips_hidden=skips_hidden)
    return [(name, None if node is None else node.data) for name, node in zip(listed, nodes)]


def _config(path: str, data: bytes | None, former: Mapping[str, str] | None) -> Mapping[str, str]:
    """Returns the settings in a node; the former ones, if these cannot be read, or an error without former ones. Tools
    write there, and no broker could start otherwise, nor another controller be elected. An empty node has lost its
    settings: whoever has none writes that as JSON, too."""
    try:
        return {} if data is None else znodes.parse_config(path, data)
    except RegistryUnavailable as error:
        if former is None:
            raise
        _log.warning("%s; until then these hold: %.200s", error, dict(former))
        return former


def leader_nodes(session: ZooKeeperSession) -> list[tuple[str, int]]:
    """Returns the nodes of the history of leaders with their numbers of rows, newest first."""
    (names,) = session.children([znodes.LEADER_CHANGES])
    return [znodes.parse_leader_changes_name(name) for name in sorted(names, reverse=True)]


def read_leader_changes(session: ZooKeeperSession, limit: int) -> list[LeaderChange]:
    """Returns the last rows, oldest first."""
    paths: list[str] = []
    total = 0
    for path, count in leader_nodes(session):
        if total >= limit:
            break
        paths.append(path)
        total += count
    rows: list[LeaderChange] = []
    for path, node in zip(reversed(paths), session.read(list(reversed(paths)))):
        rows += () if node is None else znodes.parse_leader_changes(path, node.data)
    return rows[-limit:] if limit > 0 else []
