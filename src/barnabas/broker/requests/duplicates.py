"""Removes what a request names several times: a response must not be larger than the cluster.

Where we differ from Kafka: a group, transactional id, resource or partition that stands several times in one request is
answered once. ListOffsets refuses it, AlterConfigs answers each time, as Kafka does.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

__all__ = ["once", "partitions_once", "topics_once"]

A = TypeVar("A")
K = TypeVar("K", bound=Hashable)


class _Topic(Protocol):
    partitions: Sequence[Any]


T = TypeVar("T", bound=_Topic)


def once(items: Iterable[A], key: Callable[[A], Hashable]) -> list[A]:
    """Returns the items without those whose key an earlier one has."""
    found: dict[Hashable, A] = {}
    for item in items:
        found.setdefault(key(item), item)
    return list(found.values())


def partitions_once(topics: Iterable[tuple[K, Iterable[int]]]) -> dict[K, list[int]]:
    found: dict[K, dict[int, None]] = {}
    for topic, indexes in topics:
        found.setdefault(topic, {}).update(dict.fromkeys(indexes))
    return {topic: list(indexes) for topic, indexes in found.items()}


def topics_once(topics: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Returns the topics with their partitions, each once. Of a partition that is named several times the last mention
    counts."""
    found: dict[Hashable, tuple[T, dict[int, Any]]] = {}
    for topic in topics:
        _, partitions = found.setdefault(key(topic), (topic, {}))
        partitions.update((partition.partition_index, partition) for partition in topic.partitions)
    for topic, partitions in found.values():
        topic.partitions = list(partitions.values())
    return [topic for topic, _ in found.values()]
