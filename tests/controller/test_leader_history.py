"""The rows that a write adds to the history of leaders."""

from uuid import UUID

from barnabas.controller.leader_history import Cause, leader_changes
from barnabas.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from barnabas.registry.registry import LeaderChange, SetBrokerConfig, SetPartition
from barnabas.types import BrokerId, LeaderEpoch

ID = UUID(int=1)
ONE, TWO, THREE = map(BrokerId, (1, 2, 3))


def partition(leader: int, epoch: int, *isr: int, elr: tuple[BrokerId, ...] = ()) -> PartitionImage:
    replicas = (ONE, TWO, THREE)
    return PartitionImage(BrokerId(leader), LeaderEpoch(epoch), replicas, tuple(map(BrokerId, isr)), epoch, elr=elr)


def reasons(before: PartitionImage, after: PartitionImage, cause: Cause) -> list[str]:
    image = MetadataImage("c", topics={"t": TopicImage("t", ID, (before,))})
    return [row.reason for row in leader_changes(image, [SetPartition("t", ID, 0, after, 0)], cause, 1.0, 5)]


def test_a_row_has_the_place_the_leaders_and_the_times() -> None:
    image = MetadataImage("c", topics={"t": TopicImage("t", ID, (partition(1, 3, 1, 2), partition(2, 5, 2)))})
    changes = [
        SetPartition("t", ID, 0, partition(2, 4, 2), 3),
        SetPartition("t", ID, 1, partition(2, 5, 2, 3), 5),
        SetPartition("t", ID, 7, partition(2, 5, 2, 3), 5),
        SetBrokerConfig("", {}),
    ]
    rows = leader_changes(image, changes, Cause(10.0, fenced={ONE: "it stops"}), 10.25, 1_000)
    assert rows == [LeaderChange(1_000, "t", 0, ONE, TWO, 4, "broker 1: it stops", 250)]


def test_a_row_tells_for_how_long_the_former_leader_was_silent_before_it_was_noticed() -> None:
    both = (partition(1, 3, 1, 2), partition(2, 3, 2))
    image = MetadataImage("c", topics={"t": TopicImage("t", ID, both)})
    changes = [SetPartition("t", ID, n, partition(2, 4, 2), 3) for n in range(2)]
    rows = leader_changes(image, changes, Cause(10.0, fenced={ONE: "silent"}, silent_s=9.1), 10.0, 1_000)
    assert [(row.noticed_after_ms, row.took_ms) for row in rows] == [(9100, 0), (0, 0)]


def test_reasons() -> None:
    nobody = Cause(0.0)
    led_by_one = partition(1, 1, 1, 2)
    assert reasons(led_by_one, partition(2, 2, 2), nobody) == ["broker 1 stopped"]
    assert reasons(led_by_one, partition(NO_LEADER, 2), Cause(0.0, fenced={ONE: "x"})) == ["broker 1: x"]
    assert reasons(partition(NO_LEADER, 1, 2), partition(2, 2, 2), nobody) == ["broker 2 is back"]
    assert reasons(led_by_one, partition(1, 2, 1, 2), nobody) == ["broker 1 is back"]
    assert reasons(led_by_one, partition(2, 2, 1, 2), Cause(0.0, "reassigned")) == ["reassigned"]


def test_an_unclean_election_is_named() -> None:
    before = partition(NO_LEADER, 1, elr=(TWO,))
    assert reasons(before, partition(2, 2, 2), Cause(0.0)) == ["broker 2 is back"]
    assert reasons(before, partition(3, 2, 3), Cause(0.0)) == ["broker 3 is back; unclean, records may be lost"]
    assert reasons(partition(1, 1, 1), partition(2, 2, 2), Cause(0.0, fenced={ONE: "x"})) == [
        "broker 1: x; unclean, records may be lost"
    ]
