"""Throttles replication (KIP-73): finds the replicas on this broker that are throttled, as leaders and as followers.

A leader leaves throttled partitions out of its answers while its rate is exceeded, and a follower does not ask for them
while its own is. Neither throttles a replica for which the high watermark waits, so producers do not notice.

Where we differ from Kafka: the bytes of in-sync replicas do not count, so they take nothing from those that are copied.
"""

import asyncio
from functools import lru_cache
from typing import Final

from barnabas.config.broker import BrokerConfig
from barnabas.config.log_config import LogConfig
from barnabas.replication.partition import Partition
from barnabas.replication.replication_quota import ReplicationQuota
from barnabas.types import BrokerId

__all__ = ["ReplicationQuotas"]

_EVERY_REPLICA: Final = "*"


class ReplicationQuotas:
    """The quotas of a broker as leader and as follower. `apply` gives them to the partitions that they limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: BrokerConfig) -> None:
        self._node_id = config.node_id
        windows, window_s = config.replication_quota_window_num, config.replication_quota_window_size_seconds
        self._leader, self._follower = (
            ReplicationQuota(loop, rate, windows=windows, window_s=window_s)
            for rate in (config.leader_replication_throttled_rate, config.follower_replication_throttled_rate)
        )

    def set_rates(self, config: BrokerConfig) -> None:
        """Takes over the rates of these settings. Partitions have to be given their quotas again."""
        self._leader.set_rate(config.leader_replication_throttled_rate)
        self._follower.set_rate(config.follower_replication_throttled_rate)

    def apply(self, partition: Partition, config: LogConfig) -> None:
        """Throttles a partition, or ends that, as the settings of its topic say."""
        partition.leader_quota = self._quota_of(partition, self._leader, config.leader_replication_throttled_replicas)
        partition.follower_quota = self._quota_of(
            partition, self._follower, config.follower_replication_throttled_replicas
        )

    def _quota_of(
        self, partition: Partition, quota: ReplicationQuota, replicas: tuple[str, ...]
    ) -> ReplicationQuota | None:
        if not replicas or not quota.is_limited:
            return None
        numbers = _partitions(replicas, self._node_id)
        is_throttled = numbers is None or partition.topic_partition.partition in numbers
        return quota if is_throttled else None


@lru_cache(maxsize=16)  # asked for each partition of a topic in turn
def _partitions(replicas: tuple[str, ...], node_id: BrokerId) -> frozenset[int] | None:
    """Returns the numbers of the partitions whose replica on this broker is throttled; None if all are."""
    if _EVERY_REPLICA in replicas:
        return None
    pairs = (text.split(":") for text in replicas)
    return frozenset(int(number) for number, broker in pairs if int(broker) == node_id)
