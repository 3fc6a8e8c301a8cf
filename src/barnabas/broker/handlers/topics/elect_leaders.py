"""ElectLeaders v0-v2: elects the preferred leader, from v1 on also any live replica (unclean).

Without partitions all are tried; the response lists their topics, but no partition that needs no election, as in Kafka.
"""

from collections.abc import Mapping

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import KafkaError
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


async def handle(broker: BrokerServices, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    wanted = None
    topics = list(broker.image.topics)
    if request.topic_partitions is not None:
        named = ((topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)
        wanted = list(dict.fromkeys(named))
        topics = [topic.topic for topic in request.topic_partitions]
    error_code = 0
    results: Mapping[tuple[str, int], KafkaError | None]
    try:
        results = await broker.controller.call(
            lambda controller: controller.elect_leaders(request.election_type, wanted)
        )
    except KafkaError as error:
        error_code = error.code
        results = dict.fromkeys(wanted or (), error)
        topics = topics if wanted is not None else []
    by_topic: dict[str, list[PartitionResult]] = {name: [] for name in topics}
    for name, index in results if wanted is None else wanted:
        by_topic.setdefault(name, []).append(_result(index, results[name, index]))
    return ElectLeadersResponse(
        error_code=error_code,
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=partitions) for name, partitions in by_topic.items()
        ],
    )


def _result(index: int, error: KafkaError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=index, error_message=None)
    return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
