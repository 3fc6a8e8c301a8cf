"""FindCoordinator v0-v6: which broker coordinates a group or a transactional id. From v4 on for many keys at once.

The first request for a group creates __consumer_offsets, the first for a transactional id __transaction_state, and its
response already names the coordinator. Where we differ from Kafka: other types of keys get INVALID_REQUEST with a
message that names the type.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.transaction.transaction_coordinator import TRANSACTION_STATE_TOPIC
from barnabas.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
)
from barnabas.metadata.image import TopicImage
from barnabas.metadata.partitioning import partition_for
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC}
FIRST_VERSION_WITH_MANY_KEYS = 4

NO_ERROR = "NONE"
"""Kafka's message without an error, until v3."""

Node = tuple[int, str, int]
NO_NODE: Node = (-1, "", -1)


def handle(
    broker: BrokerServices, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    name = _TOPICS.get(request.key_type)
    if name is None:
        unknown = InvalidRequest(f"coordinators of key type {request.key_type} do not exist here")
        return _response(request, context, unknown)
    if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS and not request.coordinator_keys:
        return FindCoordinatorResponse(coordinators=[])
    topic = broker.image.topics.get(name)
    if topic is None:
        return _create_then_find(broker, request, context, name)
    elected = broker.cluster.election() if broker.cluster is not None else None
    if elected is not None:
        return _find_when_elected(broker, request, context, name, elected)
    return _response(request, context, partial(_find, broker, context, topic))


async def _create_then_find(
    broker: BrokerServices, request: FindCoordinatorRequest, context: RequestContext, name: str
) -> FindCoordinatorResponse:
    failed = await broker.auto_create_topics([name])
    topic = broker.image.topics.get(name)
    if topic is None:
        reason = failed[name].message if name in failed else "the metadata does not have it yet"
        missing = CoordinatorNotAvailable(f"{name} could not be created: {reason}")
        return _response(request, context, missing)
    return _response(request, context, partial(_find, broker, context, topic))


async def _find_when_elected(
    broker: BrokerServices,
    request: FindCoordinatorRequest,
    context: RequestContext,
    name: str,
    elected: "asyncio.Future[None]",
) -> FindCoordinatorResponse:
    await asyncio.wait([elected])  # others wait for it, too: it must not end with this request
    topic = broker.image.topics.get(name)
    if topic is None:
        return _response(request, context, CoordinatorNotAvailable(f"{name} was deleted"))
    return _response(request, context, partial(_find, broker, context, topic))


def _response(
    request: FindCoordinatorRequest, context: RequestContext, find: Callable[[str], Node] | KafkaError
) -> FindCoordinatorResponse:
    if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
        return FindCoordinatorResponse(
            coordinators=LazySequence(
                list(dict.fromkeys(request.coordinator_keys)),
                partial(_found, find),
            )
        )
    found = _found(find, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or NO_ERROR,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _found(find: Callable[[str], Node] | KafkaError, key: str) -> Coordinator:
    try:
        if isinstance(find, KafkaError):
            raise find
        node_id, host, port = find(key)
    except KafkaError as error:
        node_id, host, port = NO_NODE
        return Coordinator(
            key=key, node_id=node_id, host=host, port=port, error_code=error.code, error_message=error.message
        )
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_message="")


def _find(broker: BrokerServices, context: RequestContext, topic: TopicImage, key: str) -> Node:
    partition = partition_for(key, len(topic.partitions))
    leader = topic.partitions[partition].leader
    for node_id, host, port, _ in broker.advertised_brokers(context.connection):
        if node_id == leader:
            return node_id, host, port
    raise CoordinatorNotAvailable(f"{topic.name}-{partition} has no live leader")
