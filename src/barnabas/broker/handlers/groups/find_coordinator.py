"""FindCoordinator v0-v6: which broker coordinates a group or a transactional id. From v4 on for many keys at once.

The first request for a group creates __consumer_offsets, the first for a transactional id __transaction_state, and its
response already names the coordinator. Where we differ from Kafka: other types of keys get INVALID_REQUEST with a
message that names the type.
"""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.partitioning import partition_for
from barnabas.coordinator.transaction.transaction_coordinator import TRANSACTION_STATE_TOPIC
from barnabas.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
)
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC}
FIRST_VERSION_WITH_MANY_KEYS = 4

NO_ERROR = "NONE"
"""Kafka's message without an error, until v3."""

Node = tuple[int, str, int]
NO_NODE: Node = (-1, "", -1)


def handle(broker: BrokerServices, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
        return FindCoordinatorResponse(
            coordinators=LazySequence(
                list(dict.fromkeys(request.coordinator_keys)),
                lambda key: _found(broker, request.key_type, key, context),
            )
        )
    found = _found(broker, request.key_type, request.key, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or NO_ERROR,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _found(broker: BrokerServices, key_type: int, key: str, context: RequestContext) -> Coordinator:
    try:
        node_id, host, port = _find(broker, key_type, key, context)
    except KafkaError as error:
        node_id, host, port = NO_NODE
        return Coordinator(
            key=key, node_id=node_id, host=host, port=port, error_code=error.code, error_message=error.message
        )
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_message="")


def _find(broker: BrokerServices, key_type: int, key: str, context: RequestContext) -> Node:
    if key_type not in _TOPICS:
        raise InvalidRequest(f"coordinators of key type {key_type} do not exist here")
    name = _TOPICS[key_type]
    topic = broker.controller.ensure_internal_topic(name)
    if isinstance(topic, KafkaError):
        raise CoordinatorNotAvailable(f"{name} could not be created: {topic.message}")
    partition = partition_for(key, len(topic.partitions))
    leader = topic.partitions[partition].leader
    for node_id, host, port, _ in broker.advertised_brokers(context.connection):
        if node_id == leader:
            return node_id, host, port
    raise CoordinatorNotAvailable(f"{name}-{partition} has no live leader")
