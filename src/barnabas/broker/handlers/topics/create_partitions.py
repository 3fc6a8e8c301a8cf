"""CreatePartitions v0-v3: more partitions for existing topics. They exist and have leaders when the response is
sent.

Where we differ from Kafka: replicas that a reassignment removes do not count for the replication factor of new
partitions.
"""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.broker.services import BrokerServices
from barnabas.controller.requests import PartitionsRequest, check_count
from barnabas.errors import KafkaError
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(
    broker: BrokerServices, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    results: dict[str, KafkaError | None]
    try:
        check_count(len(request.topics))
        wanted = [_topic_request(topic) for topic in request.topics]
        results = await broker.controller.call(
            lambda controller: controller.create_partitions(wanted, validate_only=request.validate_only)
        )
    except KafkaError as error:
        results = dict.fromkeys((topic.name for topic in request.topics), error)
    return CreatePartitionsResponse(results=LazySequence(list(results.items()), lambda result: _result(*result)))


def _topic_request(topic: CreatePartitionsTopic) -> PartitionsRequest:
    assignments = topic.assignments
    return PartitionsRequest(
        topic.name, topic.count, None if assignments is None else [assignment.broker_ids for assignment in assignments]
    )


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
