"""Metadata v0-v13. Any broker answers from its image; a topic is encoded once per version, until it changes.

Where we differ: an auto-created topic is there, with its leader, in the answer to the very request that created it. A
broker that knows no live one names all that are registered.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from uuid import UUID

from barnabas.broker.connections.advertised_addresses import NamedBroker
from barnabas.broker.requests.late_responses import respond_later, run_handler
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence, response_head
from barnabas.broker.services import BrokerServices
from barnabas.errors import (
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.metadata.topic_names import validate_topic_name
from barnabas.network.connection import Parts, PendingReply
from barnabas.network.time_slicing import Slices
from barnabas.protocol.codec import decode, encode_struct
from barnabas.protocol.messages.metadata import (
    ZERO_UUID,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.primitives import put_count, put_text
from barnabas.types import BrokerId

LOOKUP_BY_ID_FROM = 12
NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = 0b1101_1111_1000
"""READ to ALTER_CONFIGS but CLUSTER_ACTION: the bits of KIP-430 for a topic, all allowed without an authorizer."""
CLUSTER_OPERATIONS = 0b1_1111_1010_0000


def handle_frame(
    broker: BrokerServices, frame: memoryview, position: int, context: RequestContext
) -> Parts | PendingReply:
    version = context.api_version
    request, _ = decode(MetadataRequest, version, bytes(frame[position:]))
    if (version < 4 or request.allow_auto_topic_creation) and broker.config.auto_create_topics_enable:
        missing = _missing(broker, request, version)
        if missing:
            failed = run_handler(broker.loop, broker.auto_create_topics(missing))
            respond = partial(_response, broker, request, context)
            if isinstance(failed, asyncio.Future):
                return respond_later(broker, context, failed, respond, alone=True)
            return respond(failed)
    elected = broker.cluster.election() if broker.cluster is not None else None
    if elected is not None:
        return respond_later(broker, context, elected, lambda _: _response(broker, request, context, {}), alone=True)
    return _response(broker, request, context, {})


def _missing(broker: BrokerServices, request: MetadataRequest, version: int) -> list[str]:
    """Returns the requested topics that do not exist and have a valid name. A request with ids, or one that is refused
    because of a null name, creates none."""
    wanted = request.topics or ()
    if any(topic.topic_id != ZERO_UUID or (topic.name is None and version < LOOKUP_BY_ID_FROM) for topic in wanted):
        return []
    names = dict.fromkeys(topic.name for topic in wanted if topic.name not in broker.image.topics)
    return [name for name in names if name is not None and isinstance(_why_not(name), UnknownTopicOrPartition)]


def _response(
    broker: BrokerServices, request: MetadataRequest, context: RequestContext, failed: Mapping[str, KafkaError]
) -> Parts | PendingReply:
    """Returns the response; `failed` has the errors of topics that could not be created."""
    version = context.api_version
    flexible = version >= MetadataResponse.FLEXIBLE_FROM
    topics = _topics(broker, request, version, flexible, failed)
    out = response_head(context)
    if version >= 3:
        out += b"\0\0\0\0"
    brokers = _brokers(broker, context)
    put_count(out, len(brokers), flexible)
    for node_id, host, port, rack in brokers:
        node = MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
        out += encode_struct(node, version, flexible=flexible)
    if version >= 2:
        put_text(out, broker.cluster_id, flexible)
    if version >= 1:
        out += broker.image.controller_id.to_bytes(4, "big", signed=True)
    put_count(out, len(topics), flexible)
    end = b""
    if 8 <= version <= 10:
        asked = request.include_cluster_authorized_operations
        end += (CLUSTER_OPERATIONS if asked else NOT_ASKED).to_bytes(4, "big", signed=True)
    if version >= 13:
        end += b"\0\0"
    if flexible:
        end += b"\0"
    return broker.sliced_responses.write(context, out, _write(out, topics, end))


def _brokers(broker: BrokerServices, context: RequestContext) -> list[NamedBroker]:
    cluster = broker.cluster
    if cluster is None:
        return broker.advertised_brokers(context.connection)
    known = broker.image.brokers
    named = broker.advertised_brokers(context.connection, include_fenced=True)
    live = [each for each in named if not known[BrokerId(each[0])].fenced or cluster.was_live(BrokerId(each[0]))]
    return live or named  # librdkafka never asks again once it is told of no broker


def _write(out: bytearray, topics: Iterable[bytes], end: bytes) -> Slices[None]:
    for topic in topics:
        out += topic
        yield
    out += end


def _topics(
    broker: BrokerServices,
    request: MetadataRequest,
    version: int,
    flexible: bool,
    failed: Mapping[str, KafkaError],
) -> Sequence[bytes]:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    kept = broker.metadata_cache.setdefault((version, operations), {})
    image = broker.image
    if request.topics is None or (version == 0 and not request.topics):
        every = list(image.topics.values())
        return LazySequence(every, lambda topic: _kept(kept, image, topic, version, flexible, operations))
    # Each topic once: a response must not be larger than the cluster.
    ids = dict.fromkeys(wanted.topic_id for wanted in request.topics if wanted.topic_id != ZERO_UUID)
    names = dict.fromkeys(wanted.name for wanted in request.topics)
    if version < LOOKUP_BY_ID_FROM and (ids or None in names):
        refused = dict.fromkeys((topic.name or "", topic.topic_id) for topic in request.topics)
        return LazySequence(list(refused), lambda named: _unknown(*named, InvalidRequest(), version, flexible))
    if ids:  # names are ignored then, as in Kafka

        def by_id(topic_id: UUID) -> bytes:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                return _kept(kept, image, topic, version, flexible, operations)
            return _unknown(None, topic_id, UnknownTopicId(), version, flexible)

        return LazySequence(list(ids), by_id)

    def by_name(name: str | None) -> bytes:
        if name and (topic := image.topics.get(name)) is not None:
            return _kept(kept, image, topic, version, flexible, operations)
        error = failed.get(name or "") or _why_not(name)
        if isinstance(error, InvalidReplicationFactor):  # clients ask again until enough brokers are registered
            error = LeaderNotAvailable()
        return _unknown(name, ZERO_UUID, error, version, flexible, operations)

    return LazySequence(list(names), by_name)


def _why_not(name: str | None) -> KafkaError:
    """Returns the error for a topic that does not exist, or whose name is invalid."""
    if not name:
        return InvalidTopic()
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return error
    return UnknownTopicOrPartition()


def _unknown(
    name: str | None,
    topic_id: UUID,
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
    kept: dict[str, tuple[TopicImage, bytes]],
    image: MetadataImage,
    topic: TopicImage,
    version: int,
    flexible: bool,
    operations: int,
) -> bytes:
    entry = kept.get(topic.name)
    if entry is not None and entry[0] is topic:
        return entry[1]
    encoded = encode_struct(_describe(image, topic, operations), version, flexible=flexible)
    kept[topic.name] = (topic, encoded)
    return encoded


def _describe(image: MetadataImage, topic: TopicImage, operations: int) -> MetadataResponseTopic:
    live = {node_id for node_id, broker in image.brokers.items() if not broker.fenced}
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
                offline_replicas=() if live.issuperset(partition.replicas) else _offline(partition, live),
            )
            for index, partition in enumerate(topic.partitions)
        ],
    )


def _offline(partition: PartitionImage, live: Set[BrokerId]) -> list[BrokerId]:
    return [replica for replica in partition.replicas if replica not in live]
