"""Coordinators of groups that are cut off, but not from clients, while others take commits."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import barnabas.aio
from barnabas.broker.cluster.session_doubts import SessionDoubts
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.errors import NotCoordinator
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from barnabas.types import BrokerId, TopicPartition
from whole_cluster.cluster import Cluster, simulated_cluster
from whole_cluster.world import running


class Scenario:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.acknowledged = 0
        """The highest committed offset that any coordinator has acknowledged."""

    def lookup(self) -> None:
        """A client has __consumer_offsets created."""
        done: list[object] = []

        async def ask() -> None:
            async with barnabas.aio.Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
                await admin.create_topics(["t"])
            async with barnabas.aio.Consumer(
                bootstrap_servers=self.cluster.bootstrap_servers, group_id="g"
            ) as consumer:
                done.append(await consumer.committed([TopicPartition("t", 0)]))

        self.cluster.spawn(self.cluster.client_host("x"), ask())
        self.cluster.wait("the offsets' topic", lambda: bool(done))
        self.cluster.world.pass_time(3.0)

    def coordinators(self) -> list[BrokerId]:
        """Returns the brokers that take themselves for the group's coordinator."""
        return [
            node_id
            for node_id, broker in self.cluster.brokers.items()
            if (replica := broker.replica_manager.get(OFFSETS_TOPIC, 0)) is not None and replica.is_leader
        ]

    def commit(self, node_id: BrokerId, offset: int) -> None:
        def answered(response: OffsetCommitResponse) -> None:
            if not response.topics[0].partitions[0].error_code:
                self.acknowledged = max(self.acknowledged, offset)

        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
        with running(self.cluster.machines[node_id].host):
            self.cluster.brokers[node_id].groups.commit_offsets(request, api_version=8, reply=answered)

    def committed(self, node_id: BrokerId) -> OffsetFetchResponseGroup | None:
        """Returns the answer of a broker, if it comes at once."""
        answers: list[OffsetFetchResponseGroup] = []
        with running(self.cluster.machines[node_id].host):
            self.cluster.brokers[node_id].groups.fetch_offsets(
                [OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=False, reply=answers.extend
            )
        return answers[0] if answers else None

    def cut_off(self, node_id: BrokerId) -> None:
        machines = self.cluster.machines
        mine = machines[node_id].name
        for other in (machine.name for other, machine in machines.items() if other != node_id):
            self.cluster.network.cut(mine, other)
            self.cluster.network.cut(other, mine)
        assert self.cluster.zookeeper is not None
        self.cluster.zookeeper.cut.add(mine)


@contextmanager
def committed_once(seed: int, *, zookeeper: bool) -> Iterator[Scenario]:
    """Three brokers, one of which coordinates the group, and has committed offset 1."""
    with simulated_cluster(seed, zookeeper=zookeeper) as cluster:
        cluster.start()
        scenario = Scenario(cluster)
        scenario.lookup()
        [first] = scenario.coordinators()
        scenario.commit(first, 1)
        cluster.world.pass_time(0.5)
        assert scenario.acknowledged == 1
        yield scenario


@pytest.mark.parametrize(("seed", "is_controller"), [(1, False), (2, True)])
@pytest.mark.parametrize("doubts", [True, False])
def test_one_that_is_cut_off_tells_no_offset_that_its_successor_has_replaced(
    seed: int, is_controller: bool, doubts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not doubts:  # the scenario shows what it is about
        monkeypatch.setattr(SessionDoubts, "is_cut_off", lambda _: False)
    with committed_once(seed, zookeeper=True) as scenario:
        [first] = scenario.coordinators()
        assert (scenario.cluster.brokers[first].image.controller_id == first) == is_controller
        scenario.cut_off(first)
        refused = replaced = 0
        for number in range(2, 500):
            for node_id in scenario.coordinators():
                if node_id != first:
                    scenario.commit(node_id, number)
            last = scenario.acknowledged
            told = scenario.committed(first)
            if told is not None and told.error_code:
                assert told.error_code == NotCoordinator.code
                refused += 1
            elif told is not None and told.topics[0].partitions[0].committed_offset < last:
                replaced += 1
            scenario.cluster.world.pass_time(0.05)
        assert scenario.acknowledged > 1
        assert (replaced == 0) == doubts
        assert bool(refused) == doubts


def go_on(scenario: Scenario, coordinator: BrokerId) -> None:
    """Has a coordinator answer all requests of 30 s."""
    for _ in range(600):
        scenario.cluster.world.pass_time(0.05)
        told = scenario.committed(coordinator)
        assert told is not None
        assert not told.error_code


@pytest.mark.parametrize("seed", [1, 2], ids=["another broker", "the controller"])
def test_without_zookeeper_coordinators_go_on(seed: int) -> None:
    with committed_once(seed, zookeeper=True) as scenario:
        cluster = scenario.cluster
        [first] = scenario.coordinators()
        assert cluster.zookeeper is not None
        cluster.zookeeper.cut |= {machine.name for machine in cluster.machines.values()}
        go_on(scenario, first)


@pytest.mark.parametrize("zookeeper", [False, True], ids=["file", "zookeeper"])
def test_while_the_controller_hangs_coordinators_go_on(zookeeper: bool) -> None:
    with committed_once(1, zookeeper=zookeeper) as scenario:
        [first] = scenario.coordinators()
        controller = scenario.cluster.brokers[first].image.controller_id
        assert controller != first
        scenario.cluster.machines[controller].host.pause()
        go_on(scenario, first)
