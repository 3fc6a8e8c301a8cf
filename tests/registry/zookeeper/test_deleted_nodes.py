"""What somebody deletes in ZooKeeper while brokers run: brokers that run and those that start see the same cluster."""

import re
import time
from collections.abc import Callable

import pytest

from barnabas.errors import UsageError
from barnabas.metadata.image import MetadataImage
from barnabas.registry.registry import (
    CreateTopic,
    LeaderChange,
    RegistryUnavailable,
    RegistryUnreachable,
    SetBrokerConfig,
    SetPartition,
    SetTopicConfig,
)
from barnabas.types import BrokerId

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from registry.zookeeper.harness import PARTITION, TOPIC, ZooKeeperHarness, client_of, path_in, registered

ALL = (
    *("/admin", "/admin/delete_topics", "/brokers", "/brokers/ids", "/brokers/ids/1", "/brokers/ids/2"),
    *(
        "/brokers/seqid",
        "/brokers/topics",
        "/brokers/topics/t",
        "/cluster",
        "/cluster/id",
        "/config",
        "/config/brokers",
    ),
    *("/config/brokers/<default>", "/config/changes", "/config/clients", "/config/topics", "/config/topics/t"),
    *("/config/users", "/consumers", "/controller", "/controller_epoch", "/feature", "/isr_change_notification"),
    *("/latest_producer_id_block", "/log_dir_event_notification", "/barnabas/brokers", "/barnabas/brokers/1"),
    *("/barnabas/brokers/2", "/barnabas/directories", "/barnabas/directories/1", "/barnabas/directories/2"),
    *("/barnabas/leader_changes", "/barnabas/secret"),
)
OF_A_PARTITION = (
    *("/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0", "/brokers/topics/t/partitions/0/state"),
)


LOST = ("/barnabas/leader_changes/", "/config/changes/", "/latest_producer_id_block", "/feature")
"""What is not made again with its content."""


class Cluster:
    """Two brokers that run, the first of which is the controller."""

    def __init__(self, harness: ZooKeeperHarness) -> None:
        self.harness = harness
        self.one, _ = registered(harness, 1)
        self.two, _ = registered(harness, 2)
        self.epoch = self.one.elect_controller()
        assert self.epoch is not None
        row = LeaderChange(1, "t", 0, BrokerId(-1), BrokerId(1), 1, "made", 0)
        changes = [CreateTopic("t", TOPIC, (PARTITION,), {"a": "1"}), SetBrokerConfig("", {"b": "2"})]
        assert self.one.write(changes, controller_epoch=self.epoch, leader_changes=[row])
        self.block = self.two.allocate_producer_ids()
        self.before = self.one.load().image
        self.secret = self.one.cluster_secret()
        self.tree = set(self._paths())

    def _paths(self, below: str = "") -> list[str]:
        root, client = path_in(self.harness, ""), client_of(self.one)
        found = [f"{below}/{name}" for name in client.get_children(f"{root}{below}" or "/")]
        return [*found, *(each for path in found for each in self._paths(path))]

    def delete(self, path: str) -> None:
        client_of(self.one).delete(path_in(self.harness, path), recursive=True)

    def look(self) -> None:
        """Both do what they do when they look at the registry."""
        for each in (self.one, self.two):
            each.check()
        self.epoch = self.one.elect_controller()

    def missing(self) -> set[str]:
        return self.tree - set(self._paths())

    def is_whole(self) -> bool:
        self.look()
        return not self.missing()

    def images(self) -> list[MetadataImage]:
        return [self.one.load().image, self.two.load().image, self.harness.open().load().image]


def contents(image: MetadataImage) -> tuple[object, ...]:
    return image.cluster_id, image.brokers, image.topics, image.topic_configs, image.broker_configs


@pytest.mark.parametrize("path", ALL)
def test_all_see_the_same_cluster_afterwards(
    harness: ZooKeeperHarness, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(harness)
    cluster.delete(path)
    cluster.tree -= {each for each in cluster.tree if each.startswith(LOST) and each.startswith(path)}
    deadline = time.monotonic() + 30
    while not cluster.is_whole():
        assert time.monotonic() < deadline, cluster.missing()
    assert all(contents(image) == contents(cluster.before) for image in cluster.images())
    three, _ = registered(harness, 3)
    assert three.cluster_secret() == cluster.secret
    assert three.incarnation() == cluster.one.incarnation(), "those that run would refuse it"
    assert all(map(three.directories, (1, 2)))
    assert three.load().image.brokers[BrokerId(3)].fenced, "it is not alone"
    assert three.allocate_producer_ids().first >= cluster.block.first + cluster.block.size
    changes = [SetTopicConfig("t", {"a": "2"}), SetBrokerConfig("1", {"b": "3"})]
    assert cluster.epoch is not None
    assert cluster.one.write(changes, controller_epoch=cluster.epoch)
    if path not in ("/controller", "/controller_epoch", "/feature", "/latest_producer_id_block"):
        assert re.search(r"somebody has deleted .*made again", caplog.text)


@pytest.mark.parametrize("path", OF_A_PARTITION)
def test_the_next_change_of_a_partition_makes_its_nodes_again(harness: ZooKeeperHarness, path: str) -> None:
    """Until then no broker that starts takes what is left for the cluster."""
    cluster = Cluster(harness)
    cluster.delete(path)
    with pytest.raises(RegistryUnreachable, match="somebody has deleted nodes of the registry"):
        harness.open()
    changed = PARTITION._replace(leader_epoch=1, partition_epoch=1)
    assert cluster.epoch is not None
    assert cluster.one.write([SetPartition("t", TOPIC, 0, changed, 0)], controller_epoch=cluster.epoch)
    assert [image.topics["t"].partitions for image in cluster.images()] == [(changed,)] * 3


@pytest.mark.parametrize("path", ["/barnabas", "/barnabas/state"])
def test_without_its_state_the_registry_stands_still(harness: ZooKeeperHarness, path: str) -> None:
    cluster = Cluster(harness)
    cluster.delete(path)
    calls: tuple[Callable[[], object], ...] = (cluster.one.load, cluster.one.check, cluster.two.allocate_producer_ids)
    for call in calls:
        with pytest.raises(RegistryUnavailable, match="/barnabas/state is gone"):
            call()
    with pytest.raises(UsageError, match="has topics, but no state of a registry"):
        harness.open()
