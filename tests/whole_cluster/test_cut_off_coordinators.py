"""Coordinators of groups that are cut off, but not from clients, while others take commits."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import barnabas.aio
from barnabas.broker.cluster.session_doubts import READ_MAX_S, SessionDoubts
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.errors import NotCoordinator
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from barnabas.registry.registry import SetTopicConfig
from barnabas.types import BrokerId, TopicPartition
from whole_cluster.cluster import Cluster, simulated_cluster
from whole_cluster.world import in_thread_of, running
from whole_cluster.zookeeper import Ensemble


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

    def cut_off(self, *node_ids: BrokerId) -> None:
        """Cuts brokers off from the others and from ZooKeeper, but not from each other."""
        self.cut_off_from_brokers(*node_ids)
        self.zookeeper.cut |= {self.cluster.machines[node_id].name for node_id in node_ids}

    def cut_off_from_brokers(self, *node_ids: BrokerId) -> None:
        machines = self.cluster.machines
        for node_id in node_ids:
            mine = machines[node_id].name
            for other in (machine.name for other, machine in machines.items() if other not in node_ids):
                self.cluster.network.cut(mine, other)
                self.cluster.network.cut(other, mine)

    def lose_zookeeper(self) -> None:
        self.zookeeper.cut |= {machine.name for machine in self.cluster.machines.values()}

    @property
    def zookeeper(self) -> Ensemble:
        assert isinstance(self.cluster.zookeeper, Ensemble)
        return self.cluster.zookeeper

    @property
    def controller(self) -> BrokerId:
        return self.cluster.brokers[self.coordinators()[0]].image.controller_id

    def compare(self, first: BrokerId, seconds: float, *, step_s: float = 0.05) -> tuple[int, int]:
        """Has all other coordinators take commits. Returns how many requests the first one refuses, and to how many it
        tells an offset that others have replaced."""
        refused = replaced = 0
        for number in range(2, round(seconds / step_s)):
            for node_id in self.coordinators():
                if node_id != first:
                    self.commit(node_id, number)
            last = self.acknowledged
            told = self.committed(first)
            if told is not None and told.error_code:
                assert told.error_code == NotCoordinator.code
                refused += 1
            elif told is not None and told.topics[0].partitions[0].committed_offset < last:
                replaced += 1
            self.cluster.world.pass_time(step_s)
        assert self.acknowledged > 1
        return refused, replaced

    def go_on(self, coordinator: BrokerId) -> None:
        """Has a coordinator answer all requests of 30 s."""
        for _ in range(600):
            self.cluster.world.pass_time(0.05)
            told = self.committed(coordinator)
            assert told is not None
            assert not told.error_code


@contextmanager
def committed_once(
    *, zookeeper: bool = True, on_controller: bool = False, **settings: object
) -> Iterator[tuple[Scenario, BrokerId]]:
    """Three brokers, one of which coordinates the group, and has committed offset 1."""
    seed = 2 if on_controller else 1
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    with simulated_cluster(seed, dotted, zookeeper=zookeeper) as cluster:
        cluster.start()
        scenario = Scenario(cluster)
        scenario.lookup()
        [first] = scenario.coordinators()
        scenario.commit(first, 1)
        cluster.world.pass_time(0.5)
        assert scenario.acknowledged == 1
        assert (scenario.controller == first) == on_controller, "another seed is needed"
        yield scenario, first


# --- one that is cut off ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_controller", [False, True])
@pytest.mark.parametrize("doubts", [True, False])
def test_one_that_is_cut_off_tells_no_offset_that_its_successor_has_replaced(
    on_controller: bool, doubts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not doubts:  # the scenario shows what it is about
        monkeypatch.setattr(SessionDoubts, "may_be_replaced", lambda *_: False)
    with committed_once(on_controller=on_controller) as (scenario, first):
        scenario.cut_off(first)
        refused, replaced = scenario.compare(first, 25)
        assert (replaced == 0) == doubts
        assert bool(refused) == doubts


@pytest.mark.parametrize("on_controller", [False, True])
def test_two_that_are_cut_off_together_do_not_vouch_for_each_other(on_controller: bool) -> None:
    with committed_once(on_controller=on_controller, min_insync_replicas=1) as (scenario, first):
        others = [BrokerId(node_id) for node_id in scenario.cluster.machines if node_id != first]
        scenario.cut_off(first, scenario.controller if not on_controller else others[0])
        refused, replaced = scenario.compare(first, 25)
        assert refused
        assert not replaced


def test_the_last_one_does_not_vouch_for_itself() -> None:
    with committed_once() as (scenario, first):
        machines = scenario.cluster.machines
        others = [machine for node_id, machine in machines.items() if node_id != first]
        for machine in others:
            machine.kill()
        scenario.cluster.world.pass_time(15)
        assert scenario.controller == first
        scenario.cut_off(first)
        for machine in others:
            machine.start()
        refused, replaced = scenario.compare(first, 30)
        assert refused
        assert not replaced


@pytest.mark.parametrize("zookeeper", [False, True], ids=["file", "zookeeper"])
def test_one_that_reaches_the_registry_alone_learns_of_its_successor_soon(zookeeper: bool) -> None:
    timeouts = {"broker_session_timeout_ms": 3_000, "broker_heartbeat_interval_ms": 300}
    with committed_once(zookeeper=zookeeper, **timeouts) as (scenario, first):
        scenario.cut_off_from_brokers(first)
        refused, replaced = scenario.compare(first, 10, step_s=0.01)
        assert refused
        assert replaced <= 10, "a tenth of a second"


def test_what_vouched_for_a_controllers_role_does_not_vouch_for_its_session_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timeouts = {"broker_session_timeout_ms": 9_000, "broker_heartbeat_interval_ms": 2_000}
    with committed_once(zookeeper=False, on_controller=True, **timeouts) as (scenario, first):
        broker, world = scenario.cluster.brokers[first], scenario.cluster.world
        assert broker.cluster is not None
        scenario.cut_off_from_brokers(first)
        scenario.cluster.wait("another controller", lambda: broker.image.controller_id != first)
        monkeypatch.setattr(SessionDoubts, "heartbeat_answered", lambda *_: None)
        monkeypatch.setattr(SessionDoubts, "registry_read", lambda *_, **__: None)
        world.pass_time(READ_MAX_S)
        assert broker.cluster.may_be_replaced()


# --- those that go on -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_controller", [False, True])
def test_without_zookeeper_coordinators_go_on(on_controller: bool) -> None:
    with committed_once(on_controller=on_controller) as (scenario, first):
        scenario.lose_zookeeper()
        scenario.go_on(first)


@pytest.mark.parametrize("on_controller", [False, True])
def test_without_zookeeper_they_go_on_when_the_controller_stood_still(on_controller: bool) -> None:
    with committed_once(on_controller=on_controller) as (scenario, first):
        scenario.lose_zookeeper()
        world, host = scenario.cluster.world, scenario.cluster.machines[scenario.controller].host
        world.pass_time(5)
        host.pause()
        world.pass_time(2)
        host.resume()
        world.pass_time(3)
        scenario.go_on(first)


@pytest.mark.parametrize("zookeeper", [False, True], ids=["file", "zookeeper"])
@pytest.mark.parametrize(("session_ms", "heartbeat_ms"), [(600, 100), (3_000, 2_000), (9_000, 2_000)])
def test_while_the_controller_hangs_coordinators_go_on(zookeeper: bool, session_ms: int, heartbeat_ms: int) -> None:
    timeouts = {"broker_session_timeout_ms": session_ms, "broker_heartbeat_interval_ms": heartbeat_ms}
    with committed_once(zookeeper=zookeeper, **timeouts) as (scenario, first):
        scenario.cluster.machines[scenario.controller].host.pause()
        scenario.go_on(first)


def test_a_setting_that_only_a_newer_release_knows_ends_no_controller() -> None:
    with committed_once(on_controller=True) as (scenario, first):
        broker, host = scenario.cluster.brokers[first], scenario.cluster.machines[first].host
        settings = {**broker.image.topic_config(OFFSETS_TOPIC), "min.insync.replicas": "auto"}
        with in_thread_of(host):
            change = SetTopicConfig(OFFSETS_TOPIC, settings)
            assert broker.registry.write([change], controller_epoch=broker.image.controller_epoch)
        scenario.cluster.world.pass_time(5)
        scenario.lose_zookeeper()
        scenario.go_on(first)


def test_heartbeats_come_often_enough_whatever_their_interval_is() -> None:
    with committed_once(broker_session_timeout_ms=6_000, broker_heartbeat_interval_ms=5_000) as (scenario, first):
        scenario.go_on(first)
