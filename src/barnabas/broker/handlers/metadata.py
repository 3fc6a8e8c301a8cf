"""Metadata v0-v13. Any broker answers from its image; a topic is encoded once per version, until it changes.

Where we differ: an auto-created topic is there, with its leader, in the answer to the very request that created it.
"""

from typing import TYPE_CHECKING

from barnabas.broker.context import RequestContext
from barnabas.errors import (
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.network.connection import Parts
from barnabas.protocol.codec import decode, encode_struct, uvarint
from barnabas.protocol.messages.metadata import (
    ZERO_UUID,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.server import Broker
    from barnabas.metadata.image import TopicImage

LOOKUP_BY_ID_FROM = 12
NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = 0b1101_1111_1000
"""READ to ALTER_CONFIGS but CLUSTER_ACTION: the bits of KIP-430 for a topic, all allowed without an authorizer."""
CLUSTER_OPERATIONS = 0b1_1111_1010_0000


def handle_frame(broker: "Broker", frame: memoryview, position: int, context: RequestContext) -> Parts:
    version = context.api_version
    request, _ = decode(MetadataRequest, version, bytes(frame[position:]))
    flexible = version >= MetadataResponse.FLEXIBLE_FROM
    topics = _topics(broker, request, version, flexible)
    out = bytearray(9 if flexible else 8)
    if version >= 3:
        out += b"\0\0\0\0"
    brokers = broker.advertised_brokers(context.connection)
    out += uvarint(len(brokers) + 1) if flexible else len(brokers).to_bytes(4, "big")
    for node_id, host, port, rack in brokers:
        node = MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
        out += encode_struct(node, version, flexible=flexible)
    if version >= 2:
        cluster_id = broker.cluster_id.encode()
        out += (uvarint(len(cluster_id) + 1) if flexible else len(cluster_id).to_bytes(2, "big")) + cluster_id
    if version >= 1:
        out += broker.image.controller_id.to_bytes(4, "big", signed=True)
    out += uvarint(len(topics) + 1) if flexible else len(topics).to_bytes(4, "big")
    out += b"".join(topics)
    if 8 <= version <= 10:
        asked = request.include_cluster_authorized_operations
        out += (CLUSTER_OPERATIONS if asked else NOT_ASKED).to_bytes(4, "big", signed=True)
    if version >= 13:
        out += b"\0\0"
    if flexible:
        out.append(0)
    out[0:4] = (len(out) - 4).to_bytes(4, "big")
    out[4:8] = context.correlation_id.to_bytes(4, "big", signed=True)
    return (out,)


def _topics(broker: "Broker", request: MetadataRequest, version: int, flexible: bool) -> list[bytes]:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    kept = broker.metadata_cache.setdefault((version, operations), {})
    image = broker.image
    if request.topics is None or (version == 0 and not request.topics):
        return [_kept(kept, topic, version, flexible, operations) for topic in image.topics.values()]
    # Each topic once, however often it was asked for: the answer must not be larger than the cluster.
    ids = dict.fromkeys(wanted.topic_id for wanted in request.topics if wanted.topic_id != ZERO_UUID)
    names = dict.fromkeys(wanted.name for wanted in request.topics)
    if version < LOOKUP_BY_ID_FROM and (ids or None in names):
        refused = dict.fromkeys((topic.name or "", topic.topic_id) for topic in request.topics)
        return [_unknown(name, topic_id, InvalidRequest(), version, flexible) for name, topic_id in refused]
    if ids:  # names beside them are not looked at, as in Kafka
        return [
            _kept(kept, topic, version, flexible, operations)
            if (topic := image.topic_by_id(topic_id)) is not None
            else _unknown(None, topic_id, UnknownTopicId(), version, flexible)
            for topic_id in ids
        ]
    missing = [name for name in names if name and name not in image.topics]
    failed: dict[str | None, KafkaError] = {}
    if missing:
        auto_create = version < 4 or request.allow_auto_topic_creation
        failed.update(broker.auto_create_topics(missing, allowed=auto_create))
        image = broker.image
    return [
        _kept(kept, topic, version, flexible, operations)
        if name and (topic := image.topics.get(name)) is not None
        else _unknown(name, ZERO_UUID, failed.get(name) or _why_not(name), version, flexible, operations)
        for name in names
    ]


def _why_not(name: str | None) -> KafkaError:
    return UnknownTopicOrPartition() if name else InvalidTopic()


def _unknown(
    name: str | None,
    topic_id: "UUID",
    error: KafkaError,
    version: int,
    flexible: bool,
    operations: int = NOT_ASKED,
) -> bytes:
    topic = MetadataResponseTopic(
        error_code=error.code, name=name, topic_id=topic_id, topic_authorized_operations=operations
    )
    return encode_struct(topic, version, flexible=flexible)


def _kept(
    kept: "dict[str, tuple[TopicImage, bytes]]", topic: "TopicImage", version: int, flexible: bool, operations: int
) -> bytes:
    entry = kept.get(topic.name)
    if entry is not None and entry[0] is topic:
        return entry[1]
    encoded = encode_struct(_describe(topic, operations, version), version, flexible=flexible)
    kept[topic.name] = (topic, encoded)
    return encoded


def _describe(topic: "TopicImage", operations: int, version: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=operations,
        partitions=[
            MetadataResponsePartition(
                error_code=0 if partition.leader >= 0 else LeaderNotAvailable.code,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
            )
            for index, partition in enumerate(topic.partitions)
        ],
    )
