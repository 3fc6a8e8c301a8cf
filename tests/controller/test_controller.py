"""The controller over a real embedded registry: what it publishes, and what it does when others interfere."""

import random
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.controller.controller import (
    ConfigOp,
    ConfigOperation,
    ConfigResource,
    Controller,
    ElectionType,
    MetadataChange,
    PartitionsRequest,
    ResourceType,
    TopicRequest,
)
from barnabas.errors import ElectionNotNeeded, NotController, RequestTimedOut, TopicAlreadyExists, UsageError
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import Change, RegistryUnavailable, SetPartition
from barnabas.types import BrokerId
from hand_clock import HandClock


class Cluster:
    """Brokers of one machine: each a controller with its own session on the same file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = HandClock()
        self.opened: list[EmbeddedRegistry] = []

    def broker(self, node_id: int = 1, **settings: object) -> Controller:
        registry = EmbeddedRegistry(self.directory / "registry.db", self.clock)
        self.opened.append(registry)
        return self.broker_on(registry, node_id, **settings)

    def broker_on(self, registry: EmbeddedRegistry, node_id: int = 1, **settings: object) -> Controller:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        config = BrokerConfig.of({"node.id": node_id, "log.dirs": str(self.directory / str(node_id)), **named})
        controller = Controller(registry, config, self.clock, randomness=random.Random(1))
        controller.start(config.endpoints, {uuid.UUID(int=node_id): config.data_dirs[0]})
        return controller

    def close(self) -> None:
        for registry in self.opened:
            registry.close()


@pytest.fixture
def cluster(tmp_path: Path):  # type: ignore[no-untyped-def]
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def topic(result: object) -> TopicImage:
    assert isinstance(result, TopicImage), result
    return result


def test_a_single_broker_decides_for_itself(cluster: Cluster) -> None:
    controller = cluster.broker()
    assert controller.is_active
    assert controller.image.controller_id == 1
    assert [str(endpoint) for endpoint in controller.image.brokers[1].endpoints] == ["PLAINTEXT://127.0.0.1:9092"]
    assert len(controller.image.cluster_id) == 22


def test_every_change_is_published_once_with_what_differs(cluster: Cluster) -> None:
    controller = cluster.broker()
    heard: list[MetadataChange] = []

    def listen(change: MetadataChange) -> None:
        assert controller.image is change.image
        heard.append(change)

    controller.subscribe(listen)
    results = controller.create_topics([TopicRequest("a", 2), TopicRequest("b", configs={"segment.bytes": "100"})])
    assert topic(results["a"]).partitions == (PartitionImage(1, 0, (1,), (1,)),) * 2
    assert controller.image.topics["a"] == results["a"]
    assert heard[-1].topics == {"a", "b"}
    controller.create_partitions([PartitionsRequest("a", 3)])
    assert heard[-1].topics == {"a"}
    request = (ConfigResource(ResourceType.TOPIC, "a"), [ConfigOperation("retention.ms", ConfigOp.SET, "5")])
    controller.incremental_alter_configs([request])
    assert (heard[-1].topics, heard[-1].topics_configured) == (frozenset(), {"a"})
    controller.alter_configs([(ConfigResource(ResourceType.BROKER, ""), [("message.max.bytes", "1000")])])
    assert heard[-1].brokers_configured == {""}
    controller.delete_topics(["a", controller.image.topics["b"].topic_id])
    assert heard[-1].topics == {"a", "b"}
    assert controller.image.topics == {}
    assert len(heard) == 5


def test_refusals_and_trials_change_nothing(cluster: Cluster) -> None:
    controller = cluster.broker()
    controller.create_topics([TopicRequest("a")])
    before = controller.image
    assert isinstance(controller.create_topics([TopicRequest("a")])["a"], TopicAlreadyExists)
    assert topic(controller.create_topics([TopicRequest("b", 3)], validate_only=True)["b"]).name == "b"
    assert controller.create_partitions([PartitionsRequest("a", 3)], validate_only=True) == {"a": None}
    request = (ConfigResource(ResourceType.TOPIC, "a"), [ConfigOperation("retention.ms", ConfigOp.SET, "5")])
    assert controller.incremental_alter_configs([request], validate_only=True) == [(request[0], None)]
    election = controller.elect_leaders(ElectionType.PREFERRED, [("a", 0)])
    assert isinstance(election["a", 0], ElectionNotNeeded)
    assert controller.elect_leaders(ElectionType.PREFERRED, None) == {}
    assert controller.image is before


def test_a_dynamic_setting_counts_in_later_decisions(cluster: Cluster) -> None:
    controller = cluster.broker()
    resource = ConfigResource(ResourceType.BROKER, "")
    controller.alter_configs([(resource, [("log.cleaner.max.compaction.lag.ms", "10")])])
    result = controller.create_topics([TopicRequest("a", configs={"min.compaction.lag.ms": "20"})])["a"]
    assert "conflict topic config setting" in str(result)


def test_what_was_created_is_there_after_a_kill(cluster: Cluster) -> None:
    killed = cluster.broker()
    killed.create_topics([TopicRequest("a", 2, configs={"segment.bytes": "100"})])
    first_id = killed.allocate_producer_ids()[0]
    # No stop(): the process was killed, its session still runs, and nobody waits for it to end.
    restarted = cluster.broker()
    assert restarted.is_active
    assert restarted.image.topics == killed.image.topics
    assert restarted.image.topic_config("a") == {"segment.bytes": "100"}
    assert restarted.image.brokers[1].epoch > killed.image.brokers[1].epoch
    assert restarted.allocate_producer_ids()[0] >= first_id + 1000
    with pytest.raises(RequestTimedOut):
        killed.create_topics([TopicRequest("late")])


def test_producer_ids_are_never_repeated(cluster: Cluster) -> None:
    controller = cluster.broker()
    ids = [producer_id for _ in range(3) for producer_id in controller.allocate_producer_ids()]
    assert len(set(ids)) == len(ids) == 3000


def test_internal_topics_have_no_more_replicas_than_there_are_brokers(cluster: Cluster) -> None:
    controller = cluster.broker(offsets_topic_num_partitions=4, default_replication_factor=3)
    offsets = topic(controller.ensure_internal_topic("__consumer_offsets"))
    assert offsets.is_internal
    assert len(offsets.partitions) == 4
    assert offsets.replication_factor == 1
    assert controller.image.topic_config("__consumer_offsets") == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert controller.ensure_internal_topic("__consumer_offsets") is controller.image.topics["__consumer_offsets"]
    created = controller.auto_create_topics(["a", "bad!"])
    assert topic(created["a"]).replication_factor == 1
    assert not isinstance(created["bad!"], TopicImage)


class Expecting(EmbeddedRegistry):
    """Knows of broker 2, which has not come yet."""

    def load(self, previous: MetadataImage | None = None) -> MetadataChange:
        change = super().load(previous)
        if change.image is previous:
            return change
        delta = MetadataDelta(change.image)
        delta.put_broker(BrokerImage(BrokerId(2), 0, (), fenced=True))
        return change._replace(image=delta.apply(change.image.version).image)


def test_topics_are_made_for_the_brokers_that_are_expected(cluster: Cluster) -> None:
    registry = Expecting(cluster.directory / "registry.db", cluster.clock)
    cluster.opened.append(registry)
    controller = cluster.broker_on(registry, default_replication_factor=3, transaction_state_log_num_partitions=2)
    for name in ("__consumer_offsets", "__transaction_state", "a"):
        partitions = topic(controller.auto_create_topics([name])[name]).partitions
        assert {(p.leader, p.replicas, p.isr) for p in partitions} == {(1, (1, 2), (1,))}
    assert controller.image.topic_config("__transaction_state")["min.insync.replicas"] == "2"


def test_a_node_id_in_use_is_refused_in_one_line(cluster: Cluster) -> None:
    cluster.broker(1)
    registry = EmbeddedRegistry(cluster.directory / "registry.db", cluster.clock)
    cluster.opened.append(registry)
    other = Controller(registry, BrokerConfig.of({"log.dirs": "/elsewhere"}), cluster.clock)
    with pytest.raises(UsageError, match=r"node\.id 1 is in use by another running broker"):
        other.start((), {uuid.UUID(int=7): "/elsewhere"})


def test_brokers_see_each_others_changes(cluster: Cluster) -> None:
    one, two = cluster.broker(1), cluster.broker(2)
    one.heartbeat()
    assert set(one.image.brokers) == {1, 2}
    heard: list[MetadataChange] = []
    two.subscribe(heard.append)
    result = topic(one.create_topics([TopicRequest("a", 2, 2)])["a"])
    assert sorted(partition.leader for partition in result.partitions) == [1, 2]
    two.heartbeat()
    assert heard[-1].topics == {"a"}
    assert two.image.topics == one.image.topics
    with pytest.raises(NotController, match="broker 1 is the controller"):
        two.create_topics([TopicRequest("b")])


def test_a_dead_controller_is_followed_and_its_partitions_led_by_others(cluster: Cluster) -> None:
    one, two = cluster.broker(1), cluster.broker(2)
    one.heartbeat()
    two.heartbeat()
    one.create_topics([TopicRequest("a", assignments=[(0, [1, 2]), (1, [2, 1])])])
    cluster.clock.now += 10
    two.heartbeat()
    two.heartbeat()
    assert two.is_active
    assert set(two.image.brokers) == {2}
    assert [(p.leader, p.isr) for p in two.image.topics["a"].partitions] == [(2, (2,)), (2, (2,))]
    # The dead one wakes up: it is not the controller any more, and registers anew.
    one.heartbeat()
    one.heartbeat()
    assert not one.is_active
    assert set(one.image.brokers) == {1, 2}
    with pytest.raises(NotController):
        one.create_topics([TopicRequest("b")])


def test_a_stopped_broker_is_gone_at_once(cluster: Cluster) -> None:
    one, two = cluster.broker(1), cluster.broker(2)
    one.stop()
    two.heartbeat()
    assert set(two.image.brokers) == {2}
    two.heartbeat()
    assert two.is_active


class Interfering(EmbeddedRegistry):
    """Refuses or fails the next writes, as a store behind a network may."""

    refuse = 0
    fail = False

    def write(self, changes: Sequence[Change], *, controller_epoch: int) -> bool:
        if self.fail:
            raise RegistryUnavailable("no answer")
        if self.refuse:
            self.refuse -= 1
            return False
        return super().write(changes, controller_epoch=controller_epoch)


def test_a_refused_write_is_decided_anew_and_not_for_ever(cluster: Cluster) -> None:
    registry = Interfering(cluster.directory / "registry.db", cluster.clock)
    cluster.opened.append(registry)
    controller = cluster.broker_on(registry)
    registry.refuse = 2
    assert topic(controller.create_topics([TopicRequest("a")])["a"])
    registry.refuse = 3
    with pytest.raises(RequestTimedOut):
        controller.create_topics([TopicRequest("b")])
    assert set(controller.image.topics) == {"a"}


def test_no_answer_is_not_a_no(cluster: Cluster) -> None:
    registry = Interfering(cluster.directory / "registry.db", cluster.clock)
    cluster.opened.append(registry)
    controller = cluster.broker_on(registry)
    registry.fail = True
    with pytest.raises(RequestTimedOut, match="no answer"):
        controller.create_topics([TopicRequest("a")])
    registry.fail = False
    assert topic(controller.create_topics([TopicRequest("a")])["a"])


def test_a_partition_that_changed_in_between_is_looked_at_again(cluster: Cluster) -> None:
    controller = cluster.broker()
    created = topic(controller.create_topics([TopicRequest("a")])["a"])
    other = EmbeddedRegistry(cluster.directory / "registry.db", cluster.clock)
    cluster.opened.append(other)
    leaderless = created.partitions[0]._replace(leader=-1, leader_epoch=1, partition_epoch=1)
    epoch = controller.image.controller_epoch
    assert other.write([SetPartition("a", created.topic_id, 0, leaderless, 0)], controller_epoch=epoch)
    # This broker's image is old: it believes that there is a leader, and finds out when its next write is refused.
    controller.refresh()
    assert controller.image.topics["a"].partitions[0].leader == 1
    assert controller.image.topics["a"].partitions[0].leader_epoch == 2


def test_ids_are_random_uuids(cluster: Cluster) -> None:
    controller = cluster.broker()
    results = controller.create_topics([TopicRequest("a"), TopicRequest("b")])
    ids = {topic(result).topic_id for result in results.values()}
    assert len(ids) == 2
    assert all(isinstance(topic_id, uuid.UUID) and topic_id.int > 1 for topic_id in ids)
