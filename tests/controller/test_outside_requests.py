"""The controller carries out what other programs ask for in the registry's store."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from barnabas.controller.controller import Controller, TopicRequest
from barnabas.controller.isr_control import IsrRequest
from barnabas.controller.reassignment_control import Reassignment
from barnabas.metadata.image import TopicImage
from barnabas.registry.outside_requests import (
    OutsideRequest,
    RequestedConfig,
    RequestedDeletion,
    RequestedElection,
    RequestedReassignment,
    RequestedTopic,
    UnreadableRequest,
)
from barnabas.registry.registry import Change, LeaderChange, RegistryUnavailable
from barnabas.replication.replica import BrokerState
from barnabas.types import BrokerId
from controller.test_controller import Cluster
from registry.stores import TrackedFile


class AskedRegistry(TrackedFile):
    """A registry in which other programs ask for something."""

    asked: list[OutsideRequest] = []
    is_down = False
    resigns = False
    may_not_remove = ""
    """A node that this broker may not write."""

    def outside_requests(self) -> Sequence[OutsideRequest]:
        return tuple(self.asked)

    def settle_requests(self, requests: Sequence[OutsideRequest], *, controller_epoch: int) -> bool:
        if any(each.node == self.may_not_remove for each in requests):
            raise RegistryUnavailable("no permission")
        self.asked = [each for each in self.asked if each not in requests]
        return True

    def write(
        self, changes: Sequence[Change], *, controller_epoch: int, leader_changes: Sequence[LeaderChange] = ()
    ) -> bool:
        if self.is_down:
            raise RegistryUnavailable("the registry is down")
        if self.resigns:
            self.end_session()
            return False
        return super().write(changes, controller_epoch=controller_epoch, leader_changes=leader_changes)


class Brokers:
    """Three brokers, of which the first one is the controller."""

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster(directory)
        self.registry = self.cluster.open(AskedRegistry)
        self.controller: Controller = self.cluster.broker_on(self.registry)
        for node_id in (2, 3):
            self.cluster.broker(node_id)
        self.controller.check()
        for node_id in (2, 3):
            self.unfence(node_id)

    def unfence(self, node_id: int) -> None:
        broker = self.controller.image.brokers[BrokerId(node_id)]
        self.controller.unfence(broker.node_id, broker.epoch)

    def fence(self, node_id: int) -> None:
        broker = self.controller.image.brokers[BrokerId(node_id)]
        self.controller.fence(broker.node_id, broker.epoch, "it stops")

    def ask(self, *requests: OutsideRequest) -> list[OutsideRequest]:
        """Returns what is left of requests when the controller has looked at them."""
        self.registry.asked = [*self.registry.asked, *requests]
        return self.look()

    def look(self) -> list[OutsideRequest]:
        self.controller.check()
        return self.registry.asked

    def replicas(self, topic: str) -> list[tuple[int, ...]]:
        return [each.replicas for each in self.controller.image.topics[topic].partitions]

    def in_sync(self, topic: str, *isr: int) -> None:
        """Lets the leader of the first partition report its ISR."""
        image = self.controller.image
        partition = image.topics[topic].partitions[0]
        members = tuple(BrokerState(BrokerId(each), image.brokers[BrokerId(each)].epoch) for each in isr)
        request = IsrRequest(
            image.topics[topic].topic_id, 0, partition.leader_epoch, partition.partition_epoch, members
        )
        leader = image.brokers[partition.leader]
        self.controller.alter_partitions(leader.node_id, leader.epoch, [request])


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path)
    yield brokers
    brokers.cluster.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "barnabas.controller")
    return caplog


def asked_topic(name: str, *replicas: Sequence[int], **config: str) -> RequestedTopic:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return RequestedTopic(f"/topics/{name}", name, dict(enumerate(replicas)), settings)


def created(brokers: Brokers, name: str, *replicas: Sequence[int]) -> None:
    result = brokers.controller.create_topics([TopicRequest(name, assignments=list(enumerate(replicas)))])[name]
    assert isinstance(result, TopicImage), result


# -- topics -----------------------------------------------------------------------------------------------------------


def test_topics_are_created(brokers: Brokers, lines: pytest.LogCaptureFixture) -> None:
    assert brokers.ask(asked_topic("a", (1, 2), (3, 1), retention_ms="5"), asked_topic("b", (2,))) == []
    assert (brokers.replicas("a"), brokers.replicas("b")) == ([(1, 2), (3, 1)], [(2,)])
    assert brokers.controller.image.topic_config("a") == {"retention.ms": "5"}
    assert lines.messages[-2:] == ["/topics/a: the topic is created", "/topics/b: the topic is created"]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (asked_topic("a", (1, 9)), "broker 9, but no such broker is registered"),
        (asked_topic("a", (1, 1)), "the broker 1 more than once"),
        (asked_topic("a", (1,), ()), "an empty replica list"),
        (asked_topic("a", (1,), (1, 2)), "is not consistent with previous partitions"),
        (asked_topic("a", (1,), retention_ms="soon"), "Not a number of type LONG"),
        (asked_topic("a", (1,), nonsense="1"), "Unknown topic config name: nonsense"),
        (asked_topic("a b", (1,)), "'a b' contains one or more characters"),
        (RequestedTopic("/topics/a", "a", {1: (1,)}, {}), "consecutive 0-based integer sequence"),
        (UnreadableRequest("/topics/a", "no JSON"), "no JSON"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    brokers: Brokers, lines: pytest.LogCaptureFixture, wanted: OutsideRequest, reason: str
) -> None:
    lines.clear()
    assert brokers.ask(wanted, asked_topic("other", (1,))) == []
    assert set(brokers.controller.image.topics) == {"other"}
    (line,) = [each.message for each in lines.records if each.levelno >= logging.WARNING]
    assert line.startswith(f"{wanted.node} is refused and removed: ")
    assert reason in line
    assert line.endswith("; write it again as it has to be")


def test_what_is_put_back_is_not_said_to_be_removed(brokers: Brokers, lines: pytest.LogCaptureFixture) -> None:
    assert brokers.ask(UnreadableRequest("/topics/a", "no JSON", comes_back=True)) == []
    assert lines.messages[-1] == (
        "/topics/a is refused and put back as it was: no JSON; write it again as it has to be"
    )


def test_a_topic_waits_for_its_brokers(brokers: Brokers, lines: pytest.LogCaptureFixture) -> None:
    brokers.fence(3)
    wanted = asked_topic("a", (1,), (3,))
    assert brokers.ask(wanted, asked_topic("b", (1,))) == [wanted]
    assert brokers.look() == [wanted]
    assert [line for line in lines.messages if "waits" in line] == [
        "/topics/a waits for broker 3, which is not live: start it"
    ]
    brokers.unfence(3)
    assert brokers.look() == []
    assert brokers.replicas("a") == [(1,), (3,)]


def test_so_many_partitions_take_several_writes(brokers: Brokers) -> None:
    wanted = [asked_topic(name, *[(1,)] * 6000) for name in "abc"]
    assert brokers.ask(*wanted) == []
    assert set(brokers.controller.image.topics) == set("abc")


def test_more_partitions_than_one_request_may_have_are_refused(brokers: Brokers) -> None:
    assert brokers.ask(asked_topic("a", *[(1,)] * 10_001), asked_topic("b", (1,))) == []
    assert set(brokers.controller.image.topics) == {"b"}


def test_many_refusals_are_few_lines(brokers: Brokers, lines: pytest.LogCaptureFixture) -> None:
    lines.clear()
    assert brokers.ask(*(asked_topic(f"t{number}", (9,)) for number in range(1000))) == []
    assert len(lines.messages) == 11
    assert lines.messages[-1] == "990 more of these requests are refused"


def test_partitions_are_added(brokers: Brokers) -> None:
    created(brokers, "a", (1, 2))
    before = brokers.controller.image.topics["a"]
    assert brokers.ask(asked_topic("a", (1, 2), (2, 3), (3, 1))) == []
    after = brokers.controller.image.topics["a"]
    assert brokers.replicas("a") == [(1, 2), (2, 3), (3, 1)]
    assert (after.topic_id, after.partitions[0]) == (before.topic_id, before.partitions[0])


@pytest.mark.parametrize("numbers", [(0,), (1, 3), (2,)])
def test_other_partitions_are_refused(
    brokers: Brokers, lines: pytest.LogCaptureFixture, numbers: tuple[int, ...]
) -> None:
    created(brokers, "a", (1, 2))
    assert brokers.ask(RequestedTopic("/topics/a", "a", dict.fromkeys(numbers, (1, 2)), {})) == []
    assert brokers.replicas("a") == [(1, 2)]
    assert "/topics/a is refused and put back as it was: " in lines.messages[-1]


def test_topics_are_deleted(brokers: Brokers, lines: pytest.LogCaptureFixture) -> None:
    created(brokers, "a", (1, 2))
    assert brokers.ask(RequestedDeletion("/delete/a", "a"), RequestedDeletion("/delete/b", "b")) == []
    assert brokers.controller.image.topics == {}
    assert lines.messages[-2] == "/delete/a: the topic is deleted"
    assert "/delete/b is refused and removed: This server does not host" in lines.messages[-1]


def test_a_topic_may_be_asked_for_and_deleted_at_once(brokers: Brokers) -> None:
    assert brokers.ask(RequestedDeletion("/delete/a", "a"), asked_topic("a", (1,))) == []
    assert brokers.controller.image.topics == {}


def test_deletion_may_be_disabled(tmp_path: Path, lines: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(tmp_path)
    registry = cluster.open(AskedRegistry)
    controller = cluster.broker_on(registry, delete_topic_enable=False)
    controller.create_topics([TopicRequest("a")])
    registry.asked = [RequestedDeletion("/delete/a", "a")]
    controller.check()
    assert registry.asked == []
    assert "a" in controller.image.topics
    assert "delete.topic.enable=false" in lines.messages[-1]
    cluster.close()


# -- settings ---------------------------------------------------------------------------------------------------------


def test_settings_are_taken_over(brokers: Brokers) -> None:
    created(brokers, "a", (1, 2))
    assert (
        brokers.ask(
            RequestedConfig("/config/a", 2, "a", {"retention.ms": "7"}, ()),
            RequestedConfig("/config/2", 4, "2", {"leader.replication.throttled.rate": "9"}, ()),
            RequestedConfig("/config/default", 4, "", {"message.max.bytes": "1000"}, ()),
        )
        == []
    )
    image = brokers.controller.image
    assert image.topic_config("a") == {"retention.ms": "7"}
    assert image.broker_config("2") == {"leader.replication.throttled.rate": "9"}
    assert image.broker_config("") == {"message.max.bytes": "1000"}


@pytest.mark.parametrize(
    ("resource", "config"),
    [
        ((2, "a"), {"retention.ms": "soon"}),
        ((2, "b"), {"retention.ms": "7"}),
        ((4, "9"), {"message.max.bytes": "1000"}),
        ((4, "x"), {"message.max.bytes": "1000"}),
        ((4, "2"), {"node.id": "7"}),
    ],
)
def test_settings_are_refused(
    brokers: Brokers, lines: pytest.LogCaptureFixture, resource: tuple[int, str], config: dict[str, str]
) -> None:
    created(brokers, "a", (1, 2))
    assert brokers.ask(RequestedConfig("/config/2", 4, "2", {"leader.replication.throttled.rate": "9"}, ())) == []
    before = brokers.controller.image
    assert brokers.ask(RequestedConfig("/config/x", *resource, config, ())) == []
    assert brokers.controller.image is before
    fate = "put back as it was" if resource in {(2, "a"), (4, "2")} else "removed"
    assert f"/config/x is refused and {fate}: " in lines.messages[-1]


# -- replicas and leaders ---------------------------------------------------------------------------------------------


def test_a_reassignment_is_asked_for_until_it_has_ended(brokers: Brokers, lines: pytest.LogCaptureFixture) -> None:
    created(brokers, "a", (1, 2))
    wanted = RequestedReassignment("/reassign", "a", 0, (3, 1))
    assert brokers.ask(wanted) == [wanted]
    assert brokers.controller.image.topics["a"].partitions[0].adding_replicas == (3,)
    before = brokers.controller.image
    assert brokers.look() == [wanted]
    assert brokers.controller.image is before, "it is begun once"
    brokers.in_sync("a", 1, 2, 3)
    assert brokers.look() == []
    assert brokers.replicas("a") == [(3, 1)]
    assert [line for line in lines.messages if "/reassign" in line] == [
        "/reassign: a-0: the reassignment has begun",
        "/reassign: a-0: the reassignment has ended",
    ]


def test_a_reassignment_may_be_asked_for_again(brokers: Brokers) -> None:
    created(brokers, "a", (1, 2))
    wanted = RequestedReassignment("/reassign", "a", 0, (3, 1))
    brokers.ask(wanted)
    brokers.controller.alter_reassignments([Reassignment("a", 0, None)])
    assert brokers.look() == []
    brokers.look()
    assert brokers.ask(wanted) == [wanted]
    assert brokers.controller.image.topics["a"].partitions[0].adding_replicas == (3,)


def test_a_reassignment_to_what_is_there_has_ended(brokers: Brokers) -> None:
    created(brokers, "a", (1, 2))
    assert brokers.ask(RequestedReassignment("/reassign", "a", 0, (1, 2))) == []


@pytest.mark.parametrize("replicas", [None, (BrokerId(2), BrokerId(3))])
def test_a_reassignment_that_clients_cancel_or_replace_is_not_begun_again(
    brokers: Brokers, replicas: tuple[BrokerId, ...] | None
) -> None:
    created(brokers, "a", (1, 2))
    brokers.ask(RequestedReassignment("/reassign", "a", 0, (3, 1)))
    assert brokers.controller.alter_reassignments([Reassignment("a", 0, replicas)]) == {("a", 0): None}
    before = brokers.controller.image
    assert brokers.look() == []
    assert brokers.controller.image is before


@pytest.mark.parametrize(
    ("partition", "replicas"), [(("a", 0), (1, 9)), (("a", 0), ()), (("a", 7), (1,)), (("b", 0), (1,))]
)
def test_a_reassignment_that_cannot_be_does_not_prevent_others(
    brokers: Brokers, lines: pytest.LogCaptureFixture, partition: tuple[str, int], replicas: tuple[int, ...]
) -> None:
    created(brokers, "a", (1, 2), (1, 2))
    good = RequestedReassignment("/reassign", "a", 1, (3, 2))
    assert brokers.ask(RequestedReassignment("/reassign", *partition, replicas), good) == [good]
    name, number = partition
    assert any(f"/reassign: {name}-{number} is refused and removed" in line for line in lines.messages)


def test_a_deleted_topic_ends_its_reassignment(brokers: Brokers) -> None:
    created(brokers, "a", (1, 2))
    assert len(brokers.ask(RequestedReassignment("/reassign", "a", 0, (3, 1)))) == 1
    assert brokers.ask(RequestedDeletion("/delete/a", "a")) == []


def test_preferred_leaders_are_elected(brokers: Brokers, lines: pytest.LogCaptureFixture) -> None:
    created(brokers, "a", (1, 2), (2, 1))
    brokers.controller.move_leader("a", 0, BrokerId(2))
    elections = [RequestedElection("/elect", "a", number) for number in (0, 1, 7)]
    assert brokers.ask(*elections) == []
    assert [each.leader for each in brokers.controller.image.topics["a"].partitions] == [1, 2]
    assert "/elect: a-7 is refused and removed: No such partition as a-7" in lines.messages[-1]


# -- failures ---------------------------------------------------------------------------------------------------------


def test_what_fails_is_tried_again(brokers: Brokers, lines: pytest.LogCaptureFixture) -> None:
    wanted = asked_topic("a", (1,))
    brokers.registry.is_down = True
    assert brokers.ask(wanted) == [wanted]
    assert brokers.look() == [wanted]
    again = [line for line in lines.messages if "tried again" in line]
    assert again == ["what other programs ask for is tried again soon: the registry is down"]
    brokers.registry.is_down = False
    assert brokers.look() == []
    assert brokers.replicas("a") == [(1,)]


def test_one_kind_does_not_hold_up_the_others(brokers: Brokers) -> None:
    created(brokers, "a", (1, 2))
    brokers.registry.is_down = True
    wanted = asked_topic("b", (1,))
    assert brokers.ask(wanted, RequestedElection("/elect", "a", 0), UnreadableRequest("/x", "")) == [wanted]


def test_a_node_that_cannot_be_removed_holds_up_no_other_kind(
    brokers: Brokers, lines: pytest.LogCaptureFixture
) -> None:
    brokers.registry.may_not_remove = "/x"
    stays = UnreadableRequest("/x", "no JSON")
    assert brokers.ask(stays, asked_topic("b", (1,))) == [stays]
    assert brokers.replicas("b") == [(1,)]
    assert "what other programs ask for is tried again soon: no permission" in lines.messages
    assert brokers.look() == [stays]


def test_log_lines_are_short(brokers: Brokers, lines: pytest.LogCaptureFixture) -> None:
    lines.clear()
    brokers.ask(UnreadableRequest("/x" * 5000, "y" * 5000), RequestedElection("/elect", "a" * 5000, 0))
    assert len(lines.messages) == 2
    assert all(len(line) < 500 for line in lines.messages)


def test_who_loses_the_role_leaves_the_rest_to_the_next(brokers: Brokers, lines: pytest.LogCaptureFixture) -> None:
    brokers.registry.resigns = True
    lines.clear()
    wanted = [asked_topic("a", (1,)), RequestedConfig("/config/2", 4, "2", {}, ())]
    assert brokers.ask(*wanted) == wanted
    assert not brokers.controller.is_active
    assert lines.messages == []


def test_who_is_not_the_controller_does_nothing(brokers: Brokers) -> None:
    registry = brokers.cluster.open(AskedRegistry)
    other = brokers.cluster.broker_on(registry, 4)
    registry.asked = [asked_topic("a", (1,))]
    other.check()
    assert len(registry.asked) == 1
