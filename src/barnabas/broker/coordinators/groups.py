"""Makes the group coordinator of a broker and notifies it of partitions and deleted topics."""

from collections.abc import Iterable
from typing import Final

from barnabas.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog
from barnabas.broker.coordinators.leadership import listen_to_partitions
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import EventLoopScheduler
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC, GroupCoordinator
from barnabas.metadata.image import MetadataImage
from barnabas.types import TopicPartition

__all__ = ["GroupCoordinatorService"]

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Indexed by Kafka's number of the codec (offsets.topic.compression.codec)."""


class GroupCoordinatorService:
    def __init__(self, broker: BrokerServices) -> None:
        manager = broker.replica_manager
        config = broker.config

        def partition_count() -> int:
            topic = broker.image.topics.get(OFFSETS_TOPIC)
            return len(topic.partitions) if topic is not None else config.offsets_topic_num_partitions

        self.coordinator = GroupCoordinator(
            config=GroupConfig(
                min_session_timeout_ms=config.group_min_session_timeout_ms,
                max_session_timeout_ms=config.group_max_session_timeout_ms,
                initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
                max_size=config.group_max_size,
                member_metadata_max_bytes=config.message_max_bytes,
                offset_metadata_max_bytes=config.offset_metadata_max_bytes,
                offsets_retention_ms=config.offsets_retention_minutes * 60_000,
                offset_commit_timeout_ms=config.offsets_commit_timeout_ms,
            ),
            log=ReplicatedCoordinatorLog(OFFSETS_TOPIC, manager, config.offsets_load_buffer_size),
            scheduler=EventLoopScheduler(broker.loop),
            later=broker.time_slicer.call_soon,
            wall_ms=broker.clock.wall_ms,
            partition_count=partition_count,
            may_be_replaced=lambda: broker.cluster is not None and broker.cluster.may_be_replaced(),
            compression=_CODECS[config.offsets_topic_compression_codec],
        )
        listen_to_partitions(OFFSETS_TOPIC, self.coordinator, manager, broker.loop)

    def topics_changed(self, before: MetadataImage, after: MetadataImage, names: Iterable[str]) -> None:
        """Removes the committed offsets of topics that were deleted between the two images."""
        deleted: list[TopicPartition] = []
        for name in sorted(names):
            old, new = before.topics.get(name), after.topics.get(name)
            if old is not None and not old.is_internal and (new is None or new.topic_id != old.topic_id):
                deleted += [TopicPartition(name, index) for index in range(len(old.partitions))]
        if deleted:
            self.coordinator.on_partitions_deleted(deleted)
