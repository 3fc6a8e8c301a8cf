"""What members of a classic consumer group tell each other: subscriptions and assignments (ConsumerProtocol)."""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.client.core.offset_messages import by_topic
from barnabas.protocol.codec import MalformedMessage, decode, encode
from barnabas.protocol.messages import consumer_protocol_assignment as assignment_messages
from barnabas.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from barnabas.types import TopicPartition

__all__ = ["Subscription", "decode_assignment", "decode_subscription", "encode_assignment", "encode_subscription"]

NEWEST = 3
"""Versions above this are read as if they were it: fields are only ever added at the end."""


class Subscription(NamedTuple):
    """What a member asks for."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Version 1, which every assignor understands."""
    return b"\x00\x01" + encode(ConsumerProtocolSubscription(topics=sorted(topics)), 1)


def decode_subscription(data: bytes) -> Subscription:
    """An empty subscription for bytes that are not one: other protocols put there what they like."""
    try:
        version = min(int.from_bytes(data[:2], "big"), NEWEST)
        message, _ = decode(ConsumerProtocolSubscription, version, data, 2)
    except MalformedMessage:
        return Subscription(())
    owned = tuple(TopicPartition(t.topic, p) for t in message.owned_partitions for p in t.partitions)
    return Subscription(tuple(message.topics), owned)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Version 1."""
    topics = [
        assignment_messages.TopicPartition(topic=topic, partitions=sorted(indexes))
        for topic, indexes in sorted(by_topic(partitions).items())
    ]
    return b"\x00\x01" + encode(assignment_messages.ConsumerProtocolAssignment(assigned_partitions=topics), 1)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Sorted; empty for bytes that are not an assignment."""
    if not data:
        return ()
    try:
        version = min(int.from_bytes(data[:2], "big"), NEWEST)
        message, _ = decode(assignment_messages.ConsumerProtocolAssignment, version, data, 2)
    except MalformedMessage:
        return ()
    return tuple(sorted(TopicPartition(t.topic, p) for t in message.assigned_partitions for p in t.partitions))
