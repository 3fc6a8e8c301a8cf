"""AlterReplicaLogDirs v1-v2: moves replicas into other data directories of this broker (KIP-113).

The response comes when the moves have begun; DescribeLogDirs shows their progress. A replica that this broker does not
have yet is created in the directory later, and the answer is REPLICA_NOT_AVAILABLE.

Where we differ from Kafka: replicas are moved one after the other, and a partition that stands several times in one
request is answered once.
"""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.controller.requests import check_count
from barnabas.errors import KafkaError, KafkaStorageError
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(
    broker: BrokerServices, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    wanted = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic, index), path in wanted.items():
        error = _move(broker, topic, index, path, len(wanted))
        topics.setdefault(topic, []).append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=results) for topic, results in topics.items()
        ]
    )


def _move(broker: BrokerServices, topic: str, index: int, path: str, count: int) -> int:
    try:
        check_count(count)
        broker.log_dir_moves.move(topic, index, path)
    except KafkaError as error:
        if isinstance(error, KafkaStorageError):
            broker.log.error("%s-%d is not moved to %s: %s", topic, index, path, error)
        return error.code
    return 0
