"""AlterPartitionReassignments v0-v1: gives partitions other replicas, or cancels that (KIP-455, KIP-860).

The response comes when a reassignment has begun; ListPartitionReassignments tells whether it is in progress yet.
"""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.controller.reassignment_control import Reassignment
from barnabas.controller.requests import check_count
from barnabas.errors import KafkaError
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas.types import BrokerId


async def handle(
    broker: BrokerServices, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    allowed = request.allow_replication_factor_change
    try:
        check_count(sum(len(topic.partitions) for topic in request.topics))
        wanted = [_reassignment(topic.name, each) for topic in request.topics for each in topic.partitions]
        results = await broker.controller.call(
            lambda controller: controller.alter_reassignments(wanted, allow_replication_factor_change=allowed)
        )
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=allowed, error_code=error.code, error_message=error.message
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(each.partition_index, results[topic.name, each.partition_index])
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _reassignment(topic: str, partition: ReassignablePartition) -> Reassignment:
    replicas = None if partition.replicas is None else tuple(map(BrokerId, partition.replicas))
    return Reassignment(topic, partition.partition_index, replicas)


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=index, error_message=None)
    return ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
