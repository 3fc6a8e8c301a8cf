"""The operation that tells where the coordinators of groups keep what they know."""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.client.admin.topics import EligibleLeaders, TopicOperations
from barnabas.client.errors import ItemsFailed
from barnabas.connection.cluster import PartitionView
from barnabas.errors import UnknownTopicOrPartition, UnsupportedVersion
from barnabas.types import TopicPartition

__all__ = ["GroupCoordinator", "GroupCoordinatorOperations"]


class GroupCoordinator(NamedTuple):
    """The partition in which a group's coordinator keeps members and offsets. Its leader is the coordinator."""

    partition: TopicPartition
    view: PartitionView
    eligible_leaders: EligibleLeaders
    """Empty where the brokers are older than Kafka 3.8, which do not tell."""


class GroupCoordinatorOperations(TopicOperations):
    async def group_coordinators(
        self, group_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, GroupCoordinator]:
        """Returns the coordinators' partitions of groups, with their replicas, whether there are such groups or not.

        The result is empty while the cluster has had no group. Raises KafkaError.
        """
        from barnabas.metadata.image import CONSUMER_OFFSETS
        from barnabas.metadata.partitioning import partition_for

        try:
            topic = (await self.describe_topics([CONSUMER_OFFSETS], timeout=timeout))[CONSUMER_OFFSETS]
        except ItemsFailed as error:
            if error.only(UnknownTopicOrPartition):
                return {}
            raise error.failed[CONSUMER_OFFSETS] from None
        try:
            leaders = await self.eligible_leaders([CONSUMER_OFFSETS], timeout=timeout)
        except UnsupportedVersion:
            leaders = {}
        found = {}
        for group_id in group_ids:
            partition = TopicPartition(CONSUMER_OFFSETS, partition_for(group_id, len(topic.partitions)))
            view = topic.partitions[partition.partition]
            found[group_id] = GroupCoordinator(partition, view, leaders.get(partition, EligibleLeaders()))
        return found
