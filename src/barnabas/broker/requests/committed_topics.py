"""Resolves the topics of an offset commit, which names them, or in newer versions gives their ids."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from barnabas.errors import UnknownTopicId, UnknownTopicOrPartition
from barnabas.metadata.image import MetadataImage

__all__ = ["merged", "resolve"]


class _Topic(Protocol):
    name: str
    topic_id: UUID
    partitions: Sequence[Any]


T = TypeVar("T", bound=_Topic)
A = TypeVar("A", bound=_Topic)
Refuse = Callable[[T, Iterable[int], int], A]
"""Makes the answer for partitions of a topic with an error code."""


def resolve(
    image: MetadataImage, topics: Iterable[T], *, by_id: bool, refuse: "Refuse[T, A]"
) -> tuple[list[T], list[A]]:
    """Returns the topics with name and id whose partitions exist, and the answers of the others."""
    wanted: list[T] = []
    refused: list[A] = []
    for topic in topics:
        known = image.topic_by_id(topic.topic_id) if by_id else image.topics.get(topic.name)
        if known is None:
            code = UnknownTopicId.code if by_id else UnknownTopicOrPartition.code
            refused.append(refuse(topic, [p.partition_index for p in topic.partitions], code))
            continue
        topic.name, topic.topic_id = known.name, known.topic_id
        count = len(known.partitions)
        missing = [p.partition_index for p in topic.partitions if not 0 <= p.partition_index < count]
        if missing:
            refused.append(refuse(topic, missing, UnknownTopicOrPartition.code))
            topic.partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
        if topic.partitions:
            wanted.append(topic)
    return wanted, refused


def merged(answered: Iterable[A], refused: Sequence[A]) -> Sequence[A]:
    """Returns the answers of all topics, each once."""
    topics = {(topic.topic_id, topic.name): topic for topic in answered}
    for topic in refused:
        known = topics.setdefault((topic.topic_id, topic.name), topic)
        if known is not topic:
            known.partitions = [*known.partitions, *topic.partitions]
    return list(topics.values())
