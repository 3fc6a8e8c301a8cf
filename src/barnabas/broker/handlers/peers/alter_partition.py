"""AlterPartition v3. The leader of partitions proposes their in-sync replicas to the controller (KIP-497).

Where we differ from Kafka: brokers of Barnabas send version 3 only, which has the broker epochs of the members
(KIP-903).
"""

from uuid import UUID

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.controller.isr_control import IsrRequest
from barnabas.errors import KafkaError
from barnabas.metadata.image import PartitionImage
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    DescribedPartitionData,
    DescribedTopicData,
)
from barnabas.replication.replica import BrokerState
from barnabas.types import BrokerId, LeaderEpoch


async def handle(
    broker: BrokerServices, request: AlterPartitionRequest, context: RequestContext | None
) -> AlterPartitionResponse:
    proposed = [
        IsrRequest(
            topic.topic_id,
            partition.partition_index,
            LeaderEpoch(partition.leader_epoch),
            partition.partition_epoch,
            tuple(
                BrokerState(BrokerId(member.broker_id), member.broker_epoch) for member in partition.new_isr_with_epochs
            ),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        results = await broker.controller.call(
            lambda controller: controller.alter_partitions(BrokerId(request.broker_id), request.broker_epoch, proposed),
            until_known=False,
        )
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
    topics: dict[UUID, list[DescribedPartitionData]] = {}
    for each, result in results:
        topics.setdefault(each.topic_id, []).append(_described(each.partition_index, result))
    return AlterPartitionResponse(
        topics=[DescribedTopicData(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]
    )


def _described(index: int, result: PartitionImage | KafkaError) -> DescribedPartitionData:
    if isinstance(result, KafkaError):
        return DescribedPartitionData(partition_index=index, error_code=result.code)
    return DescribedPartitionData(
        partition_index=index,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=result.isr,
        partition_epoch=result.partition_epoch,
    )
