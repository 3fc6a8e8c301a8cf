"""Which replicas are throttled."""

import asyncio
import logging
import uuid
from collections.abc import Iterator

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.log_config import DEFAULT_LOG_CONFIG, LogConfig
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.replication.replication_quotas import ReplicationQuotas
from barnabas.types import TopicPartition

TOPIC_ID = uuid.UUID(int=7)
RATES = {"node.id": 2, "leader.replication.throttled.rate": 1000, "follower.replication.throttled.rate": 500}


@pytest.fixture
def quotas() -> Iterator[ReplicationQuotas]:
    loop = asyncio.new_event_loop()
    yield ReplicationQuotas(loop, BrokerConfig.of(RATES))
    loop.close()


@pytest.fixture
def partition(logs: LogManager) -> Partition:
    name = TopicPartition("t", 0)
    return Partition(name, TOPIC_ID, logs.create(name, TOPIC_ID, DEFAULT_LOG_CONFIG))


def throttled(quotas: ReplicationQuotas, partition: Partition, config: LogConfig) -> tuple[bool, bool]:
    """Returns whether the partition is throttled as leader, and as follower."""
    quotas.apply(partition, config)
    return partition.leader_quota is not None, partition.follower_quota is not None


def test_the_windows_of_the_rates_are_those_of_the_settings(partition: Partition) -> None:
    loop = asyncio.new_event_loop()
    windows = {"replication.quota.window.size.seconds": 3, "replication.quota.window.num": 2}
    quotas = ReplicationQuotas(loop, BrokerConfig.of({**RATES, **windows}))
    everything = LogConfig(leader_replication_throttled_replicas=("*",), follower_replication_throttled_replicas=("*",))
    quotas.apply(partition, everything)
    loop.close()
    assert partition.leader_quota is not None
    assert partition.follower_quota is not None
    assert (partition.leader_quota.bytes_at_once, partition.follower_quota.bytes_at_once) == (3000, 1500)


class HandLoop(asyncio.SelectorEventLoop):
    now = 0.0

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize(("number", "at_5", "at_7"), [(1, 3000, 3000), (2, 5000, 3000), (11, 5000, 7000)])
def test_what_was_left_unused_in_so_many_windows_may_be_used_later(
    partition: Partition, number: int, at_5: int, at_7: int
) -> None:
    loop = HandLoop()
    windows = {"replication.quota.window.size.seconds": 3, "replication.quota.window.num": number}
    quotas = ReplicationQuotas(loop, BrokerConfig.of({**RATES, **windows}))
    quotas.apply(partition, LogConfig(leader_replication_throttled_replicas=("*",)))
    assert partition.leader_quota is not None
    partition.leader_quota.record(3000)
    for loop.now, available in ((5.0, at_5), (7.0, at_7)):
        assert not partition.leader_quota.is_exceeded(available)
        assert partition.leader_quota.is_exceeded(available + 1)
    loop.close()


@pytest.mark.parametrize(
    ("replicas", "is_throttled"),
    [
        ((), False),
        (("*",), True),
        (("0:2",), True),
        (("1:1", "00:02"), True),
        (("0:1", "2:0", "1:2", "0:22"), False),
    ],
)
def test_replicas_are_named_by_partition_and_broker(
    quotas: ReplicationQuotas, partition: Partition, replicas: tuple[str, ...], is_throttled: bool
) -> None:
    as_leader = LogConfig(leader_replication_throttled_replicas=replicas)
    as_follower = LogConfig(follower_replication_throttled_replicas=replicas)
    assert throttled(quotas, partition, as_leader) == (is_throttled, False)
    assert throttled(quotas, partition, as_follower) == (False, is_throttled)
    assert throttled(quotas, partition, DEFAULT_LOG_CONFIG) == (False, False)


def test_each_side_has_its_rate(quotas: ReplicationQuotas, partition: Partition) -> None:
    everything = LogConfig(leader_replication_throttled_replicas=("*",), follower_replication_throttled_replicas=("*",))
    quotas.apply(partition, everything)
    assert partition.leader_quota is not None
    assert partition.follower_quota is not None
    assert (partition.leader_quota.bytes_at_once, partition.follower_quota.bytes_at_once) == (1000, 500)
    quotas.set_rates(BrokerConfig.of({**RATES, "leader.replication.throttled.rate": 70}))
    assert partition.leader_quota.bytes_at_once == 70
    quotas.set_rates(BrokerConfig.of({"node.id": 2}))
    assert throttled(quotas, partition, everything) == (False, False), "no rate is set any more"


def test_settings_of_topics_take_effect_at_once(quotas: ReplicationQuotas, logs: LogManager) -> None:
    configs = {"t": LogConfig(leader_replication_throttled_replicas=("*",))}
    manager = ReplicaManager(2, logs, configs.__getitem__, logging.getLogger("test"), quotas=quotas)
    manager.apply(MetadataImage(topics={"t": TopicImage("t", TOPIC_ID, (PartitionImage(2, 0, (2, 1), (2,), 0),))}))
    (partition,) = manager.all()
    assert partition.leader_quota is not None, "a replica that is opened"
    seen: list[object] = []

    class Watcher:
        def partition_changed(self, partition: Partition) -> None:
            seen.append(partition.leader_quota)

    partition.watchers[Watcher()] = None
    configs["t"] = DEFAULT_LOG_CONFIG
    manager.config_changed(["t"])
    assert seen[-1] is None, "who waited is woken when the throttle is gone"
