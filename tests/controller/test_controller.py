"""The controller over a real embedded registry: what it publishes, and what it does when others interfere."""

import random
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import Endpoint
from barnabas.controller import replication_control
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
from barnabas.controller.isr_control import IsrRequest
from barnabas.controller.reassignment_control import Reassignment
from barnabas.errors import (
    BrokerIdNotRegistered,
    ElectionNotNeeded,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    RequestTimedOut,
    StaleBrokerEpoch,
    TopicAlreadyExists,
    UsageError,
)
from barnabas.metadata.image import PartitionImage, TopicImage
from barnabas.registry.registry import (
    BrokerRegistration,
    Change,
    LeaderChange,
    NotWritten,
    RegistryUnavailable,
    SetPartition,
)
from barnabas.replication.replica import BrokerState
from barnabas.types import BrokerId, LeaderEpoch
from registry.stores import TrackedFile

Opened = TypeVar("Opened", bound=TrackedFile)


class Cluster:
    """Brokers of one machine: each a controller with its own session on the same file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.killed: set[int] = set()
        """The brokers whose processes have ended without order."""
        self.opened: list[TrackedFile] = []

    def open(self, kind: type[Opened] = TrackedFile) -> Opened:  # type: ignore[assignment]
        registry = kind(self.directory / "registry.db", is_running=self.is_running)
        registry.opened = self.opened
        self.opened.append(registry)
        return registry

    def is_running(self, process: str) -> bool:
        return process != "" and int(process) not in self.killed

    def broker(self, node_id: int = 1, **settings: object) -> Controller:
        return self.broker_on(self.open(), node_id, **settings)

    def broker_on(self, registry: TrackedFile, node_id: int = 1, **settings: object) -> Controller:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        config = BrokerConfig.of({"node.id": node_id, "log.dirs": str(self.directory / str(node_id)), **named})
        controller = Controller(registry, config, randomness=random.Random(1))
        directories = {uuid.UUID(int=node_id): config.data_dirs[0]}
        controller.start(BrokerRegistration(node_id, directories, config.endpoints, process=str(node_id)))
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
    controller = cluster.broker(offsets_topic_num_partitions=4)
    offsets = topic(controller.auto_create_topics(["__consumer_offsets"])["__consumer_offsets"])
    assert offsets.is_internal
    assert len(offsets.partitions) == 4
    assert offsets.replication_factor == 1
    assert controller.image.topic_config("__consumer_offsets") == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    created = controller.auto_create_topics(["a", "bad!"])
    assert topic(created["a"]).replication_factor == 1
    assert not isinstance(created["bad!"], TopicImage)


def test_no_topic_gets_fewer_replicas_than_are_set(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    registry = cluster.open()
    controller = cluster.broker_on(registry, default_replication_factor=2, offsets_topic_num_partitions=1)
    names = ["__consumer_offsets", "__transaction_state", "a"]
    for _ in range(2):
        refused = controller.auto_create_topics(names)
        assert [type(refused[name]) for name in names] == [InvalidReplicationFactor] * 3
    (told,) = caplog.messages
    assert told.startswith("__consumer_offsets is not made yet: default.replication.factor=2, and 1 broker(s) are reg")
    registry.announce_brokers([1, 2])
    controller.check()
    assert [topic(made).replication_factor for made in controller.auto_create_topics(names).values()] == [2, 2, 2]


def test_topics_are_made_for_the_brokers_that_are_expected(cluster: Cluster) -> None:
    registry = cluster.open()
    registry.announce_brokers([1, 2])
    controller = cluster.broker_on(registry, default_replication_factor=2, transaction_state_log_num_partitions=2)
    take_in(controller, 1)
    for name in ("__consumer_offsets", "__transaction_state", "a"):
        partitions = topic(controller.auto_create_topics([name])[name]).partitions
        assert {(p.leader, p.replicas, p.isr) for p in partitions} == {(1, (1, 2), (1,))}
    assert controller.image.topic_config("__transaction_state")["min.insync.replicas"] == "2"


def test_a_node_id_in_use_is_refused_in_one_line(cluster: Cluster) -> None:
    cluster.broker(1)
    other = Controller(cluster.open(), BrokerConfig.of({"log.dirs": "/elsewhere"}))
    with pytest.raises(UsageError, match=r"node\.id 1 is in use by another running broker"):
        other.start(BrokerRegistration(1, {uuid.UUID(int=7): "/elsewhere"}, ()))


# -- several brokers ------------------------------------------------------------------------------------------------


def take_in(controller: Controller, *node_ids: int) -> None:
    """Ends that brokers are fenced, as their heartbeats do."""
    controller.refresh()
    for node_id in node_ids:
        controller.unfence(BrokerId(node_id), controller.image.brokers[BrokerId(node_id)].epoch)


def fence(controller: Controller, node_id: int) -> None:
    controller.fence(BrokerId(node_id), controller.image.brokers[BrokerId(node_id)].epoch, "of a test")


def leaders(controller: Controller, name: str = "a") -> list[tuple[int, tuple[int, ...]]]:
    """Returns leader and ISR of each partition."""
    return [(partition.leader, partition.isr) for partition in controller.image.topics[name].partitions]


def test_brokers_see_each_others_changes(cluster: Cluster) -> None:
    one, two = cluster.broker(1), cluster.broker(2)
    take_in(one, 2)
    assert set(one.image.brokers) == {1, 2}
    two.refresh()
    heard: list[MetadataChange] = []
    two.subscribe(heard.append)
    result = topic(one.create_topics([TopicRequest("a", 2, 2)])["a"])
    assert sorted(partition.leader for partition in result.partitions) == [1, 2]
    two.check()
    assert heard[-1].topics == {"a"}
    assert two.image.topics == one.image.topics
    with pytest.raises(NotController, match="broker 1 is the controller"):
        two.create_topics([TopicRequest("b")])


def test_a_broker_is_taken_in_by_the_controller_only(cluster: Cluster) -> None:
    one, two = cluster.broker(1), cluster.broker(2)
    assert two.image.brokers[2].fenced
    with pytest.raises(NotController):
        take_in(two, 2)
    one.refresh()
    one.create_topics([TopicRequest("a", 1, 2)])
    assert leaders(one) == [(1, (1,))]
    take_in(one, 2)
    assert not one.image.brokers[2].fenced
    one.create_topics([TopicRequest("b", 1, 2)])
    assert [set(isr) for _, isr in leaders(one, "b")] == [{1, 2}]


def test_a_fenced_broker_leads_nothing(cluster: Cluster) -> None:
    one = cluster.broker(1)
    cluster.broker(2)
    take_in(one, 2)
    one.create_topics([TopicRequest("a", assignments=[(0, [1, 2]), (1, [2, 1])])])
    one.create_topics([TopicRequest("b", assignments=[(0, [2])])])
    fence(one, 2)
    assert leaders(one) == [(1, (1,)), (1, (1,))]
    assert leaders(one, "b") == [(-1, ())]
    assert [partition.leader_epoch for partition in one.image.topics["a"].partitions] == [0, 1]
    before = one.image
    fence(one, 2)
    assert one.image is before, "it is fenced already"
    take_in(one, 2)
    assert leaders(one) == [(1, (1,)), (1, (1,))]
    assert leaders(one, "b") == [(2, (2,))]
    assert one.image.topics["b"].partitions[0].leader_epoch == 2


def test_an_earlier_registration_is_neither_fenced_nor_taken_in(cluster: Cluster) -> None:
    one = cluster.broker(1)
    cluster.broker(2)
    take_in(one, 2)
    former = one.image.brokers[2].epoch
    cluster.broker(2)
    one.refresh()
    one.unfence(BrokerId(2), former)
    assert one.image.brokers[2].fenced
    take_in(one, 2)
    one.fence(BrokerId(2), former, "of a test")
    one.fence(BrokerId(7), 1, "of a test")
    assert not one.image.brokers[2].fenced


def test_a_broker_that_registered_again_leads_in_a_new_leader_epoch(cluster: Cluster) -> None:
    one = cluster.broker(1)
    cluster.broker(2)
    take_in(one, 2)
    one.create_topics([TopicRequest("a", assignments=[(0, [2])])])
    cluster.broker(2)  # before anybody has noticed its death
    one.refresh()
    assert leaders(one) == [(-1, ())]
    take_in(one, 2)
    assert leaders(one) == [(2, (2,))]
    assert one.image.topics["a"].partitions[0].leader_epoch == 2


def test_a_broker_is_taken_in_after_its_partitions_have_followed_its_return(cluster: Cluster) -> None:
    one = cluster.broker(1)
    cluster.broker(2)
    take_in(one, 2)
    one.create_topics([TopicRequest("a", assignments=[(0, [2])])])
    cluster.broker(2)
    one.create_topics([TopicRequest("b")])  # which loads the registration, and no more
    assert leaders(one) == [(2, (2,))]
    one.unfence(BrokerId(2), one.image.brokers[2].epoch)
    assert leaders(one) == [(2, (2,))]
    assert one.image.topics["a"].partitions[0].leader_epoch == 2


def test_no_replica_is_eligible_any_more_when_the_leader_may_commit_alone(cluster: Cluster) -> None:
    one = cluster.broker(1, min_insync_replicas=2)
    cluster.broker(2)
    take_in(one, 2)
    one.create_topics([TopicRequest(name, assignments=[(0, [1, 2])]) for name in ("a", "b")])
    fence(one, 2)
    assert [one.image.topics[name].partitions[0].elr for name in ("a", "b")] == [(2,), (2,)]
    heard: list[MetadataChange] = []
    one.subscribe(heard.append)
    operation = ConfigOperation("min.insync.replicas", ConfigOp.SET, "1")
    one.incremental_alter_configs([(ConfigResource(ResourceType.TOPIC, "a"), [operation])])
    assert [one.image.topics[name].partitions[0].elr for name in ("a", "b")] == [(), (2,)]
    one.alter_configs([(ConfigResource(ResourceType.BROKER, ""), [("min.insync.replicas", "1")])])
    assert [one.image.topics[name].partitions[0].elr for name in ("a", "b")] == [(), ()]
    assert len(heard) == 2, "the setting and what follows from it are one write"


def test_preferred_leaders_lead_again_a_thousand_at_a_time(cluster: Cluster) -> None:
    one = cluster.broker(1)
    cluster.broker(2)
    take_in(one, 2)
    one.create_topics([TopicRequest("a", assignments=[(number, [2, 1]) for number in range(1001)])])
    fence(one, 2)
    take_in(one, 2)
    before = one.image
    one.balance_leaders()
    assert one.image is before, "the preferred leaders are not in sync"
    topic_id = one.image.topics["a"].topic_id
    isr = tuple(BrokerState(BrokerId(node_id), one.image.brokers[BrokerId(node_id)].epoch) for node_id in (1, 2))
    partitions = one.image.topics["a"].partitions
    requests = [
        IsrRequest(topic_id, number, partition.leader_epoch, partition.partition_epoch, isr)
        for number, partition in enumerate(partitions)
    ]
    one.alter_partitions(BrokerId(1), one.image.brokers[1].epoch, requests)
    for left in (1, 0, 0):
        one.balance_leaders()
        assert sum(leader == 1 for leader, _ in leaders(one)) == left
    reasons = [(row.to_leader, row.reason) for row in one.leader_changes(1002)]
    assert reasons == [(1, "broker 2: of a test"), *[(2, "the preferred leader is in sync")] * 1001]


def test_a_reassigned_leader_is_told_so(cluster: Cluster) -> None:
    one = cluster.broker(1)
    cluster.broker(2)
    take_in(one, 2)
    one.create_topics([TopicRequest("a", assignments=[(0, [1, 2])])])
    assert one.alter_reassignments([Reassignment("a", 0, (BrokerId(2),))]) == {("a", 0): None}
    assert [(row.from_leader, row.to_leader, row.reason) for row in one.leader_changes(9)] == [(1, 2, "reassigned")]


def test_a_broker_is_unregistered_when_it_has_stopped(cluster: Cluster) -> None:
    one, two = cluster.broker(1), cluster.broker(2)
    take_in(one, 2)
    one.create_topics([TopicRequest("a", assignments=[(0, [2, 1])])])
    with pytest.raises(InvalidRequest, match="broker 2 is live"):
        one.unregister(BrokerId(2))
    with pytest.raises(BrokerIdNotRegistered, match="Broker ID 3 is not currently registered"):
        one.unregister(BrokerId(3))
    one.fence(BrokerId(2), one.image.brokers[BrokerId(2)].epoch, "it stood still")
    with pytest.raises(InvalidRequest, match="broker 2 is live or may be"):
        one.unregister(BrokerId(2))
    two.stop()
    one.refresh()
    one.unregister(BrokerId(2))
    assert set(one.image.brokers) == {1}
    assert one.image.topics["a"].partitions[0].replicas == (2, 1)
    assert leaders(one) == [(1, (1,))]


def test_a_dead_broker_is_fenced(cluster: Cluster) -> None:
    one = cluster.broker(1)
    cluster.broker(2)
    take_in(one, 2)
    one.create_topics([TopicRequest("a", assignments=[(0, [2, 1])])])
    before = one.image
    one.check()
    assert one.image is before
    cluster.killed.add(2)
    one.check()
    assert one.image.brokers[2].fenced
    assert leaders(one) == [(1, (1,))]


def test_a_dead_controller_is_followed_and_its_partitions_led_by_others(cluster: Cluster) -> None:
    one, two = cluster.broker(1), cluster.broker(2)
    take_in(one, 2)
    one.create_topics([TopicRequest("a", assignments=[(0, [1, 2]), (1, [2, 1])])])
    two.check()
    assert not two.is_active, "broker 1 may be alive"
    cluster.killed.add(1)
    two.check()
    assert two.is_active
    assert [node_id for node_id, broker in two.image.brokers.items() if not broker.fenced] == [2]
    assert leaders(two) == [(2, (2,)), (2, (2,))]
    # Evidence that was wrong does no harm: the one that was replaced writes nothing.
    with pytest.raises((NotController, RequestTimedOut)):
        one.create_topics([TopicRequest("b")])
    assert not one.is_active
    assert one.image.controller_id == 2


def test_a_stopped_broker_is_fenced_at_once(cluster: Cluster) -> None:
    one, two = cluster.broker(1), cluster.broker(2)
    take_in(one, 2)
    one.stop()
    two.check()
    assert two.image.brokers[1].fenced
    assert two.is_active
    two.stop()
    assert not two.is_active


def test_a_leader_changes_its_isr(cluster: Cluster) -> None:
    one = cluster.broker(1)
    cluster.broker(2)
    take_in(one, 2)
    created = topic(one.create_topics([TopicRequest("a", assignments=[(0, [1, 2])])])["a"])
    epochs = {node_id: broker.epoch for node_id, broker in one.image.brokers.items()}
    request = IsrRequest(created.topic_id, 0, LeaderEpoch(0), 0, (BrokerState(BrokerId(1), epochs[1]),))
    ((answered, result),) = one.alter_partitions(BrokerId(1), epochs[1], [request])
    assert answered is request
    assert isinstance(result, PartitionImage)
    assert (result.isr, result.partition_epoch) == ((1,), 1)
    assert one.image.topics["a"].partitions == (result,)
    ((_, refused),) = one.alter_partitions(BrokerId(1), epochs[1], [request])
    assert isinstance(refused, InvalidUpdateVersion)
    with pytest.raises(StaleBrokerEpoch):
        one.alter_partitions(BrokerId(1), epochs[1] - 1, [request])


def test_the_address_for_others_may_come_later(cluster: Cluster) -> None:
    one = cluster.broker(1)
    endpoint = Endpoint("INTERNAL", "SASL_PLAINTEXT", "127.0.0.1", 9999)
    one.set_peer_endpoint(endpoint)
    one.refresh()
    assert one.image.brokers[1].peer_endpoint == endpoint


def test_a_controller_that_has_resigned_waits_for_another(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = cluster.broker_on(cluster.open(), node_id=1), cluster.broker_on(cluster.open(), node_id=2)
    one.resign(60)
    assert (one.is_active, one.image.controller_id) == (False, -1)
    one.resign(60)
    one.refresh()
    assert not one.is_active
    two.refresh()
    assert two.is_active
    two.resign(0)
    two.refresh()
    assert two.is_active, "nobody else has taken the role"
    monkeypatch.setattr(time, "monotonic", lambda before=time.monotonic: before() + 61)
    two.resign(60)
    one.refresh()
    assert one.is_active


class Interfering(TrackedFile):
    """Refuses or fails the next writes, as a store behind a network may."""

    refuse = 0
    fail: type[RegistryUnavailable] | None = None
    resign_ends: Callable[[], None] | None = None
    """What happens after a resignation took place, whose answer is lost then."""

    def write(
        self, changes: Sequence[Change], *, controller_epoch: int, leader_changes: Sequence[LeaderChange] = ()
    ) -> bool:
        if self.fail:
            raise self.fail("no answer")
        if self.refuse:
            self.refuse -= 1
            return False
        return super().write(changes, controller_epoch=controller_epoch, leader_changes=leader_changes)

    def resign(self) -> None:
        super().resign()
        if self.resign_ends is not None:
            self.resign_ends()
            raise RegistryUnavailable("no answer")


@pytest.mark.parametrize(("failure", "told"), [(NotWritten, "was not made"), (RegistryUnavailable, "may or may not")])
def test_the_log_says_what_is_known_of_a_change_that_failed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, failure: type[RegistryUnavailable], told: str
) -> None:
    registry = cluster.open(Interfering)
    controller = cluster.broker_on(registry)
    registry.fail = failure
    with pytest.raises(RequestTimedOut):
        controller.create_topics([TopicRequest("t")])
    assert [told in message for message in caplog.messages] == [True]


def test_a_controller_whose_resignation_has_no_answer_waits_for_another(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, now = cluster.open(Interfering), 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def wait() -> None:
        nonlocal now
        now += 10

    one, two = cluster.broker_on(registry, node_id=1), cluster.broker_on(cluster.open(), node_id=2)
    registry.resign_ends = wait
    with pytest.raises(RequestTimedOut):
        one.resign(9)
    for _ in range(3):
        one.refresh()
    assert (one.is_active, one.image.controller_id) == (False, -1)
    two.refresh()
    assert two.is_active
    two.resign(60)
    now += 9
    one.refresh()
    assert one.is_active, "nobody else has taken the role"


def test_a_refused_write_is_decided_anew_and_not_for_ever(cluster: Cluster) -> None:
    registry = cluster.open(Interfering)
    controller = cluster.broker_on(registry)
    registry.refuse = 2
    assert topic(controller.create_topics([TopicRequest("a")])["a"])
    registry.refuse = 3
    with pytest.raises(RequestTimedOut):
        controller.create_topics([TopicRequest("b")])
    assert set(controller.image.topics) == {"a"}


def test_no_answer_is_not_a_no_and_is_said_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    registry = cluster.open(Interfering)
    controller = cluster.broker_on(registry)
    for name in "ab":
        registry.fail = RegistryUnavailable
        caplog.clear()
        for _ in range(3):
            with pytest.raises(RequestTimedOut, match="no answer"):
                controller.create_topics([TopicRequest(name)])
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        registry.fail = None
        assert topic(controller.create_topics([TopicRequest(name)])[name])


def test_a_check_without_the_registry_is_made_again_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry = cluster.open()
    one = cluster.broker_on(registry)

    def fail() -> None:
        raise RegistryUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "check", fail)
        with pytest.raises(RegistryUnavailable):
            one.refresh()
        one.check()
    assert [record.getMessage() for record in caplog.records] == ["the registry cannot be read: no answer"]
    cluster.broker(2)
    one.check()
    assert set(one.image.brokers) == {1, 2}


def test_a_partition_that_changed_in_between_is_looked_at_again(cluster: Cluster) -> None:
    controller = cluster.broker()
    created = topic(controller.create_topics([TopicRequest("a")])["a"])
    other = cluster.open()
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


def test_leaders_are_decided_about_once_for_each_image(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The periodic check of a cluster at rest costs no look at all partitions."""
    controller = cluster.broker(1)
    controller.create_topics([TopicRequest("a")])
    controller.check()
    decided: list[object] = []
    decide = replication_control.leaders_after_brokers_changed

    def counted(image, *arguments):  # type: ignore[no-untyped-def]
        decided.append(image)
        return decide(image, *arguments)

    monkeypatch.setattr(replication_control, "leaders_after_brokers_changed", counted)
    for _ in range(3):
        controller.check()
    assert decided == []
    controller.create_topics([TopicRequest("b")])
    controller.check()
    assert decided == [controller.image]
