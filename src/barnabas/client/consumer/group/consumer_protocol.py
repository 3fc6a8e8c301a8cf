"""Encodes the subscriptions and assignments that members of a classic group exchange (Kafka's ConsumerProtocol).

Version 1 added a member's partitions (KIP-429), 2 its generation (KIP-792), 3 its rack (KIP-881).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.client.offset_messages import by_topic
from barnabas.protocol.codec import MalformedMessage, decode, encode
from barnabas.protocol.messages import consumer_protocol_assignment as assignment_messages
from barnabas.protocol.messages import consumer_protocol_subscription as subscription_messages
from barnabas.types import TopicPartition

__all__ = ["Subscription", "decode_assignment", "decode_subscription", "encode_assignment", "encode_subscription"]

NEWEST: Final = 3
"""The newest version that this module knows. Later ones are read in the same way: they only add fields at the end."""


class Subscription(NamedTuple):
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack: str | None = None
    user_data: bytes | None = None
    """Data of the assignor."""


def encode_subscription(subscription: Subscription, version: int = NEWEST) -> bytes:
    """Returns the bytes of a subscription. Topics and partitions are sorted, as brokers compare these bytes to see
    whether a member has changed its subscription."""
    owned = [
        subscription_messages.TopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(sorted(subscription.owned)).items()
    ]
    message = subscription_messages.ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=owned,
        generation_id=subscription.generation_id,
        rack_id=subscription.rack or None,
    )
    return version.to_bytes(2, "big") + encode(message, version)


def decode_subscription(data: bytes) -> Subscription:
    """Returns the subscription of a member; an empty one for bytes of other protocols."""
    try:
        version = min(int.from_bytes(data[:2], "big"), NEWEST)
        message, _ = decode(subscription_messages.ConsumerProtocolSubscription, version, data, 2)
    except MalformedMessage:
        return Subscription(())
    owned = tuple(TopicPartition(t.topic, p) for t in message.owned_partitions for p in t.partitions)
    return Subscription(tuple(message.topics), owned, message.generation_id, message.rack_id or None, message.user_data)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Returns the bytes of an assignment in version 1, which later versions do not change."""
    topics = [
        assignment_messages.TopicPartition(topic=topic, partitions=sorted(indexes))
        for topic, indexes in sorted(by_topic(partitions).items())
    ]
    return b"\x00\x01" + encode(assignment_messages.ConsumerProtocolAssignment(assigned_partitions=topics), 1)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Returns the sorted partitions of an assignment, none for other bytes."""
    if not data:
        return ()
    try:
        version = min(int.from_bytes(data[:2], "big"), NEWEST)
        message, _ = decode(assignment_messages.ConsumerProtocolAssignment, version, data, 2)
    except MalformedMessage:
        return ()
    return tuple(sorted(TopicPartition(t.topic, p) for t in message.assigned_partitions for p in t.partitions))
