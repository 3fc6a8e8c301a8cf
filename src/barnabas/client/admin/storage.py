"""Brokers: the cluster they make, their log directories, their features."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.offset_messages import by_topic
from barnabas.connection.cluster import Broker
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

__all__ = [
    "ClusterDescription",
    "FeatureLevels",
    "Features",
    "LogDir",
    "LogDirReplica",
    "features",
    "log_dir",
    "log_dirs_request",
]


class ClusterDescription(NamedTuple):
    """The brokers that live, by node id, and the one that decides (-1: none)."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Broker]


class LogDirReplica(NamedTuple):
    """One replica's space on disk, in bytes.

    `compaction` of a compacted log, as our brokers tell it in a tagged field of their own: cleaned_offset, dirty_bytes,
    dirty_ratio, last_cleaned_ms, uncleanable (why, if it is), ... None from other brokers.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    compaction: dict[str, Any] | None = None


class LogDir(NamedTuple):
    """One log directory of a broker; -1 where the broker does not say. With an error code nothing else is known."""

    broker_id: int
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    replicas: tuple[LogDirReplica, ...]


class FeatureLevels(NamedTuple):
    """Inclusive."""

    min_level: int
    max_level: int


class Features(NamedTuple):
    """What the cluster agreed on (`finalized`, as of `epoch`, -1 for none) and what the asked broker could do."""

    epoch: int
    finalized: dict[str, FeatureLevels]
    supported: dict[str, FeatureLevels]


def log_dirs_request(partitions: Collection[TopicPartition] | None) -> "DescribeLogDirsRequest":
    """None: every partition."""
    from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

    request = DescribeLogDirsRequest()
    request.topics = (
        None
        if partitions is None
        else [DescribableLogDirTopic(topic=t, partitions=ps) for t, ps in by_topic(partitions).items()]
    )
    return request


def log_dir(node_id: int, result: Any) -> LogDir:
    replicas = tuple(
        LogDirReplica(topic.name, p.partition_index, p.partition_size, p.offset_lag, _compaction(p.compaction))
        for topic in result.topics
        for p in topic.partitions
    )
    return LogDir(node_id, result.log_dir, result.error_code, result.total_bytes, result.usable_bytes, replicas)


def _compaction(text: str | None) -> dict[str, Any] | None:
    if not text:
        return None
    import json

    try:
        found = json.loads(text)
    except ValueError:
        return None  # another meaning of the tag, by another broker
    return found if isinstance(found, dict) else None


def features(response: Any) -> Features:
    """Out of an ApiVersions answer."""
    return Features(
        response.finalized_features_epoch,
        {f.name: FeatureLevels(f.min_version_level, f.max_version_level) for f in response.finalized_features},
        {f.name: FeatureLevels(f.min_version, f.max_version) for f in response.supported_features},
    )
