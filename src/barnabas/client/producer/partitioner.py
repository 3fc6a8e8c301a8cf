"""The partitioner for records without a key (KIP-794)."""

import random
from collections.abc import Mapping

from barnabas.client.producer.partition_batches import PartitionBatches
from barnabas.client.producer.record_appender import TopicInfo
from barnabas.client.settings import ProducerSettings
from barnabas.connection.network_client import NetworkClient
from barnabas.types import TopicPartition

__all__ = ["BuiltInPartitioner"]


class BuiltInPartitioner:
    """Chooses, of two random partitions, the one with fewer batches to send. So faster brokers get more records,
    without a look at every partition. With partitioner.rack.aware those that are led in the client's rack are chosen
    from, if any of them is available (KIP-1123)."""

    def __init__(
        self,
        client: NetworkClient,
        settings: ProducerSettings,
        partitions: Mapping[tuple[str, int], PartitionBatches],
        rng: random.Random,
    ) -> None:
        self._client = client
        self._settings = settings
        self._partitions = partitions
        self._rng = rng

    def next_partition(self, topic: TopicInfo) -> int:
        count = int(topic.partition_count)
        partitions = self._near(topic.topic, count) or range(count)
        draw, count = self._rng.random, len(partitions)
        first = partitions[int(draw() * count)]
        if not self._settings.partitioner_adaptive_partitioning_enable:
            return first
        second = partitions[int(draw() * count)]
        if first == second or self._load(topic.topic, first) <= self._load(topic.topic, second):
            return first
        return second

    def _near(self, topic: str, count: int) -> list[int]:
        """Returns the available partitions that are led in the client's rack, if that counts."""
        rack = self._settings.client_rack
        if not rack or not self._settings.partitioner_rack_aware:
            return []
        metadata = self._client.metadata
        view = metadata.topic(topic)
        if view is None:
            return []
        near = {node_id for node_id, broker in metadata.cluster.brokers.items() if broker.rack == rack}
        return [
            number
            for number, partition in view.partitions.items()
            if number < count and partition.leader in near and not self._hangs(TopicPartition(topic, number))
        ]

    def _load(self, topic: str, partition: int) -> float:
        topic_partition = TopicPartition(topic, partition)
        if self._client.metadata.leader(topic_partition) < 0:
            return float("inf")
        if self._hangs(topic_partition):
            return float("inf")
        batches = self._partitions.get(topic_partition)
        return 0 if batches is None else len(batches.queue)

    def _hangs(self, topic_partition: TopicPartition) -> bool:
        """Whether a batch has waited for the leader for longer than partitioner.availability.timeout.ms, which counts
        with adaptive partitioning."""
        timeout_ms = self._settings.partitioner_availability_timeout_ms
        if not timeout_ms or not self._settings.partitioner_adaptive_partitioning_enable:
            return False
        batches = self._partitions.get(topic_partition)
        if batches is None or not batches.queue:
            return False
        return bool(self._client.now - batches.queue[0].opened_at > timeout_ms / 1000)
