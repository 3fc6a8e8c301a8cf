"""What a member tells its group, and how it shares as a leader."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from barnabas.client.consumer.assignors import Assignments, LastAssignment, Member, assignor_for, members_of
from barnabas.client.consumer.group.consumer_protocol import Subscription, decode_assignment, encode_subscription
from barnabas.client.consumer.group.leader_assignment import LeaderAssignment
from barnabas.errors import KafkaError, UsageError
from barnabas.protocol.messages.join_group import JoinGroupResponseMember
from barnabas.types import TopicPartition
from simulation.cluster import SingleClientCluster

METADATA = 3
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class Custom:
    """Everything to whom `to` names."""

    name = "custom"

    def __init__(self, to: str = "a", *, cooperative: bool = True) -> None:
        self.to = to
        self.cooperative = cooperative
        self.counts: Mapping[str, int] = {}

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return b"data"

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignments:
        if self.to == "fails":
            raise RuntimeError("no luck")
        self.counts = partition_counts
        return {self.to: [TopicPartition(name, p) for name, count in partition_counts.items() for p in range(count)]}


class Rig:
    def __init__(self, *strategies: Any, topics: Sequence[str] = ("t",), owned: Sequence[TopicPartition] = ()) -> None:
        self.cluster = SingleClientCluster()
        self.cluster.topics["t"] = {0: 1, 1: 1, 2: 1}
        self.cluster.topics["u"] = {0: 1}
        self.topics = list(topics)
        self.owned = list(owned)
        self.leader_assignment = LeaderAssignment(
            self.cluster.network_client,
            "g",
            [assignor_for(strategy) for strategy in strategies or ("range",)],
            topics=lambda: self.topics,
            owned=lambda: self.owned,
            rack="r1",
        )
        self.cluster.result(self.cluster.network_client.topic("t", 5))

    def on_leader_elected(
        self, protocol: str = "range", *, skip: bool = False, **members: Subscription
    ) -> dict[str, tuple[TopicPartition, ...]]:
        joined = [
            JoinGroupResponseMember(member_id=name, metadata=encode_subscription(subscription))
            for name, subscription in members.items()
        ]
        outcome: list[Any] = []
        self.leader_assignment.on_leader_elected(protocol, joined, skip, lambda *found: outcome.append(found))
        self.cluster.run(lambda: bool(outcome), seconds=60)
        ((shares, error),) = outcome
        if error is not None:
            raise error
        return {name: decode_assignment(data) for name, data in shares.items()}


def test_what_a_member_says() -> None:
    rig = Rig("range", "cooperative-sticky", Custom(cooperative=False), owned=[T1])
    rig.leader_assignment.last = LastAssignment((T1,), 7)
    (first, range_data), (second, _), (third, custom_data) = rig.leader_assignment.metadata(8)
    assert (first, second, third) == ("range", "cooperative-sticky", "custom")
    (told, custom) = members_of(
        JoinGroupResponseMember(member_id="m", metadata=data) for data in (range_data, custom_data)
    )
    assert (told.topics, told.owned, told.generation_id, told.rack) == (("t",), (T1,), 8, "r1")
    assert custom.user_data == b"data"
    assert not rig.leader_assignment.owns_nothing()


@pytest.mark.parametrize(
    ("strategies", "cooperative"),
    [(["range"], False), (["cooperative-sticky"], True), (["range", "cooperative-sticky"], False), ([Custom()], True)],
)
def test_all_assignors_must_be_cooperative(strategies: list[Any], cooperative: bool) -> None:
    assert Rig(*strategies).leader_assignment.cooperative is cooperative


def test_two_assignors_of_one_name() -> None:
    with pytest.raises(UsageError, match="two assignors"):
        Rig("range", "range")


def test_sharing_needs_no_metadata_that_is_there_already() -> None:
    rig = Rig()
    before = rig.cluster.count(METADATA)
    assert rig.on_leader_elected(a=Subscription(("t",)), b=Subscription(("t",))) == {"a": (T0, T1), "b": (T2,)}
    assert rig.cluster.count(METADATA) == before


def test_the_leader_says_how_many_members_get_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    rig = Rig()
    rig.on_leader_elected(**{name: Subscription(("t",)) for name in "abc"})
    rig.on_leader_elected(**{name: Subscription(("t",)) for name in "abcde"})
    assert caplog.messages == [
        "group 'g': 3 members share 3 partitions by range",
        "group 'g': 5 members share 3 partitions by range, 2 of them get none",
    ]


def test_topics_of_others_are_asked_for_and_forgotten_later() -> None:
    rig = Rig()
    shares = rig.on_leader_elected(a=Subscription(("t",)), b=Subscription(("u", "nowhere")))
    assert shares == {"a": (T0, T1, T2), "b": (TopicPartition("u", 0),)}
    assert set(rig.cluster.network_client.metadata.topics) == {"t", "u", "nowhere"}
    rig.leader_assignment.forget()
    assert rig.cluster.network_client.metadata.topics == ["t"]
    assert rig.leader_assignment.reason_to_reassign() is None


def test_the_leader_notices_what_changes() -> None:
    rig = Rig()
    rig.on_leader_elected(a=Subscription(("t", "later")))
    assert rig.leader_assignment.reason_to_reassign() is None
    rig.cluster.topics["t"][3] = 1
    rig.cluster.result(rig.cluster.network_client.refresh_metadata())
    assert rig.leader_assignment.reason_to_reassign() == "topic 't' had 3 partitions and now has 4"
    rig.on_leader_elected(a=Subscription(("t", "later")))
    assert rig.leader_assignment.reason_to_reassign() is None
    rig.cluster.topics["later"] = {0: 1}
    rig.cluster.result(rig.cluster.network_client.refresh_metadata())
    assert rig.leader_assignment.reason_to_reassign() == "topic 'later' had 0 partitions and now has 1"
    del rig.cluster.topics["later"], rig.cluster.topics["t"]
    rig.on_leader_elected(a=Subscription(("t",)))
    rig.cluster.topic_errors["t"] = 5
    rig.cluster.result(rig.cluster.network_client.refresh_metadata())
    assert rig.leader_assignment.reason_to_reassign() is None, "an answer that says nothing changes nothing"


def test_a_leader_that_comes_back_only_watches() -> None:
    rig = Rig()
    assert rig.on_leader_elected(a=Subscription(("t",)), skip=True) == {}
    rig.cluster.topics["t"][3] = 1
    rig.cluster.result(rig.cluster.network_client.refresh_metadata())
    assert rig.leader_assignment.reason_to_reassign() is not None


def test_a_callers_own_assignor() -> None:
    custom = Custom("b")
    rig = Rig(custom)
    assert rig.on_leader_elected("custom", a=Subscription(("t", "nowhere")), b=Subscription(("t",)))["b"] == (
        T0,
        T1,
        T2,
    )
    assert custom.counts == {"t": 3}


@pytest.mark.parametrize(
    ("to", "owned", "words"),
    [("fails", (), "no luck"), ("c", (), r"\['c'\], who are no members"), ("a", (T1,), "gives t-1 to a while b")],
)
def test_an_assignor_that_is_wrong(to: str, owned: tuple[TopicPartition, ...], words: str) -> None:
    rig = Rig(Custom(to))
    with pytest.raises(KafkaError, match=words):
        rig.on_leader_elected("custom", a=Subscription(("t",)), b=Subscription(("t",), owned))


def test_a_protocol_that_was_not_offered() -> None:
    with pytest.raises(KafkaError, match="'sticky', which this member did not offer"):
        Rig().on_leader_elected("sticky", a=Subscription(("t",)))


def in_two_racks(*strategies: Any) -> Rig:
    """Partitions 0 and 2 of t are in rack r1, 1 is in r2."""
    rig = Rig(*strategies)
    rig.cluster.nodes = 2
    rig.cluster.racks = {1: "r1", 2: "r2"}
    rig.cluster.replicas = {T0: [1], T1: [2], T2: [1]}
    rig.cluster.result(rig.cluster.network_client.refresh_metadata())
    return rig


def test_members_get_what_is_in_their_racks() -> None:
    rig = in_two_racks()
    members = {"a": Subscription(("t",), rack="r2"), "b": Subscription(("t",), rack="r1")}
    assert rig.on_leader_elected(**members) == {"a": (T1,), "b": (T0, T2)}
    without = {name: Subscription(("t",)) for name in members}
    assert rig.on_leader_elected(**without) == {"a": (T0, T1), "b": (T2,)}


def test_the_leader_notices_that_replicas_went_to_other_racks() -> None:
    rig = in_two_racks("range", "roundrobin")
    rig.on_leader_elected(a=Subscription(("t",), rack="r2"))
    assert rig.leader_assignment.reason_to_reassign() is None
    rig.cluster.replicas[T2] = [2]
    rig.cluster.result(rig.cluster.network_client.refresh_metadata())
    assert rig.leader_assignment.reason_to_reassign() == "t-2 has its replicas in other racks now"
    rig.on_leader_elected(a=Subscription(("t",), rack="r2"))
    assert rig.leader_assignment.reason_to_reassign() is None


@pytest.mark.parametrize(("protocol", "rack"), [("roundrobin", "r2"), ("range", None)])
def test_racks_that_the_assignment_did_not_go_by_may_change(protocol: str, rack: str | None) -> None:
    rig = in_two_racks("range", "roundrobin")
    rig.on_leader_elected(protocol, a=Subscription(("t",), rack=rack))
    rig.cluster.replicas[T2] = [2]
    rig.cluster.result(rig.cluster.network_client.refresh_metadata())
    assert rig.leader_assignment.reason_to_reassign() is None


def test_a_broker_that_is_away_gives_no_reason() -> None:
    rig = in_two_racks()
    rig.on_leader_elected(a=Subscription(("t",), rack="r2"))
    rig.cluster.nodes = 1
    rig.cluster.result(rig.cluster.network_client.refresh_metadata())
    assert rig.leader_assignment.reason_to_reassign() is None
    rig.cluster.nodes = 2
    rig.cluster.result(rig.cluster.network_client.refresh_metadata())
    assert rig.leader_assignment.reason_to_reassign() is None
