"""The group coordinator's place in the broker: its log, its clock, and what it is told of partitions and topics."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog
from barnabas.broker.coordinators.leadership import follow_partitions
from barnabas.coordinator.event_loop import EventLoopScheduler
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC, GroupCoordinator
from barnabas.metadata.image import MetadataImage
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.server import Broker

__all__ = ["GroupCoordinatorService"]

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By Kafka's number (offsets.topic.compression.codec)."""


class GroupCoordinatorService:
    """Makes the coordinator of a broker and keeps it informed."""

    def __init__(self, broker: "Broker") -> None:
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
            later=broker.turns.call_soon,
            wall_ms=broker.clock.wall_ms,
            partition_count=partition_count,
            compression=_CODECS[config.offsets_topic_compression_codec],
        )
        follow_partitions(OFFSETS_TOPIC, self.coordinator, manager, broker.loop)

    def topics_changed(self, before: MetadataImage, after: MetadataImage, names: Iterable[str]) -> None:
        """Groups keep no offsets for topics that are gone."""
        gone = []
        for name in names:
            old, new = before.topics.get(name), after.topics.get(name)
            if old is not None and not old.is_internal and (new is None or new.topic_id != old.topic_id):
                gone += [TopicPartition(name, index) for index in range(len(old.partitions))]
        if gone:
            self.coordinator.on_partitions_deleted(gone)
