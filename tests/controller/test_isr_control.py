"""Stories about proposals of leaders: which in-sync replicas the controller accepts, and why it refuses others."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.log_config import LogConfig
from barnabas.controller.isr_control import GivenUpReplica, IsrRequest, alter_partitions, give_up_replicas
from barnabas.errors import InvalidRequest, InvalidUpdateVersion, KafkaError, StaleBrokerEpoch
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.registry.registry import SetPartition
from barnabas.replication.replica import NO_BROKER_EPOCH, BrokerState
from barnabas.types import BrokerId, LeaderEpoch

from .story import World, tell

STORIES = {
    "a replica leaves the ISR and comes back": """
        $ brokers 1 2 3
        $ create t partitions=1 factor=3
        t: created
        $ isr t-0 1 2 by=1
        t-0: isr 1,2
        $ show
        t-0 leader 1 epoch 0 isr 1,2 of 1,2,3
        $ isr t-0 1 2:1 3:1 by=1
        t-0: isr 1,2:1,3:1
        $ show
        t-0 leader 1 epoch 0 isr 1,2,3 of 1,2,3
    """,
    "a proposal upon older or newer metadata is refused": """
        $ brokers 1 2
        $ create t partitions=1 factor=2
        t: created
        $ isr t-0 1 by=1
        t-0: isr 1
        $ isr t-0 1 2 by=1 partition-epoch=0
        t-0: INVALID_UPDATE_VERSION the partition is in partition epoch 1
        $ isr t-0 1 2 by=1 partition-epoch=2
        t-0: NOT_CONTROLLER the leader knows newer metadata than this controller, which has been replaced
        $ isr t-0 1 2 by=1 leader-epoch=1
        t-0: NOT_CONTROLLER the leader knows newer metadata than this controller, which has been replaced
        $ show
        t-0 leader 1 epoch 0 isr 1 of 1,2
    """,
    "the leader before is told of its successor": """
        $ brokers 1 2
        $ create t partitions=1 factor=2
        t: created
        $ brokers 2
        $ mend
        t-0 leader 2 epoch 1 isr 2 of 1,2
        $ brokers 1 2
        $ isr t-0 1 by=1 leader-epoch=0
        t-0: FENCED_LEADER_EPOCH the partition is in leader epoch 1
        $ isr t-0 1 2 by=1
        t-0: INVALID_REQUEST broker 1 does not lead the partition, broker 2 does
    """,
    "only live brokers of the known registration join": """
        $ brokers 1 2 3
        $ create t partitions=1 factor=3
        t: created
        $ isr t-0 1 by=1
        t-0: isr 1
        $ brokers 1 fenced=2
        $ isr t-0 1 2:1 by=1
        t-0: INELIGIBLE_REPLICA broker 2 is not live: it is fenced
        $ isr t-0 1 3:1 by=1
        t-0: INELIGIBLE_REPLICA broker 3 is not live: it is not registered
        $ brokers 1 2 3
        $ isr t-0 1 2:9 by=1
        t-0: INELIGIBLE_REPLICA broker 2 has registered again since: its epoch is 1
        $ isr t-0 1 2:-1 by=1
        t-0: INELIGIBLE_REPLICA broker 2 joins without the epoch in which it has fetched
        $ isr t-0 1 2 by=1
        t-0: isr 1,2
    """,
    "what no leader may propose": """
        $ brokers 1 2 3
        $ create t partitions=1 factor=2
        t: created
        $ isr t-0 2 by=1
        t-0: INVALID_REQUEST the ISR [2] must have the leader 1, and only replicas, [1, 2], each once
        $ isr t-0 1 3 by=1
        t-0: INVALID_REQUEST the ISR [1, 3] must have the leader 1, and only replicas, [1, 2], each once
        $ isr t-0 1 1 by=1
        t-0: INVALID_REQUEST the ISR [1, 1] must have the leader 1, and only replicas, [1, 2], each once
        $ isr t-1 1 by=1
        t-1: UNKNOWN_TOPIC_OR_PARTITION t has no partition 1
        $ isr u-0 1 by=1
        u-0: UNKNOWN_TOPIC_ID no topic has the id 00000000-0000-0000-0000-000000000063
    """,
    "a broker of another registration proposes nothing": """
        $ brokers 1 2
        $ create t partitions=1 factor=2
        t: created
        $ isr t-0 1 by=1:7
        t-0: STALE_BROKER_EPOCH broker 1 has sent the broker epoch 7, but its epoch is 1
        $ isr t-0 1 by=9
        t-0: STALE_BROKER_EPOCH broker 9 has sent the broker epoch 1, but it is not registered
    """,
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_story(story: str) -> None:
    told, lived = tell(story)
    assert lived == told


def _world() -> MetadataImage:
    world = World()
    for line in ("brokers 1 2 3", "create a b partitions=2 factor=3"):
        world.do(line)
    return world.image


def _request(image: MetadataImage, topic: str, index: int, *isr: int, partition_epoch: int = 0) -> IsrRequest:
    members = tuple(BrokerState(BrokerId(node_id), NO_BROKER_EPOCH) for node_id in isr)
    return IsrRequest(image.topics[topic].topic_id, index, LeaderEpoch(0), partition_epoch, members)


def test_one_refusal_does_not_prevent_the_others() -> None:
    image = _world()
    requests = [
        _request(image, "a", 0, 1),
        _request(image, "a", 0, 1, 2),
        _request(image, "b", 0, 1, partition_epoch=-1),
        _request(image, "b", 0, 1),
    ]
    changes, results = alter_partitions(image, BrokerId(1), 1, requests, World().log_config_of)
    assert [change.name for change in changes if isinstance(change, SetPartition)] == ["a"]
    kinds = [type(result) for _, result in results]
    assert kinds == [PartitionImage, InvalidRequest, InvalidUpdateVersion, InvalidRequest]
    assert [request for request, _ in results] == requests


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 2)), max_size=4),
    st.integers(-1, 1),
    st.integers(-1, 1),
    st.integers(1, 3),
)
def test_what_is_accepted_keeps_the_leader_and_moves_the_partition_epoch(
    isr: list[tuple[int, int]], leader_epoch: int, partition_epoch: int, broker: int
) -> None:
    image = _world()
    before = image.topics["a"].partitions[0]
    members = tuple(BrokerState(BrokerId(node_id), epoch) for node_id, epoch in isr)
    request = IsrRequest(image.topics["a"].topic_id, 0, LeaderEpoch(leader_epoch), partition_epoch, members)
    changes, ((_, result),) = alter_partitions(image, BrokerId(broker), 1, [request], World().log_config_of)
    if isinstance(result, KafkaError):
        assert not changes
        return
    (change,) = changes
    assert isinstance(change, SetPartition)
    assert change.partition == result == before._replace(isr=result.isr, partition_epoch=1)
    assert change.expected_partition_epoch == before.partition_epoch
    assert before.leader in result.isr
    assert set(result.isr) <= set(before.replicas)


TOPIC_ID, OTHER_ID = UUID(int=1), UUID(int=2)


def given_up(isr: tuple[int, ...], broker_id: int, *, leader: int = 1, epoch: int = 4) -> list[SetPartition]:
    """What follows when a broker gives up its replica of a partition in leader epoch 4."""
    partition = PartitionImage(leader, 4, (1, 2, 3), isr, 7)
    image = MetadataImage(
        brokers={node_id: BrokerImage(node_id, 10 + node_id, ()) for node_id in (1, 2, 3)},
        topics={"t": TopicImage("t", TOPIC_ID, (partition,))},
    )
    replicas = [GivenUpReplica(TOPIC_ID, 0, epoch)] * 2 + [
        GivenUpReplica(TOPIC_ID, 9, 4),
        GivenUpReplica(OTHER_ID, 0, 4),
    ]
    return give_up_replicas(image, broker_id, 10 + broker_id, replicas, lambda _: LogConfig(min_insync_replicas=1))


def test_a_leader_that_gives_up_is_followed_by_a_member_of_the_isr() -> None:
    (change,) = given_up((1, 2, 3), 1)
    assert (change.partition.leader, change.partition.isr, change.partition.leader_epoch) == (2, (2, 3), 5)
    assert change.expected_partition_epoch == 7


def test_a_follower_that_gives_up_leaves_the_isr() -> None:
    (change,) = given_up((1, 2, 3), 2)
    assert (change.partition.leader, change.partition.isr, change.partition.leader_epoch) == (1, (1, 3), 4)


@pytest.mark.parametrize(
    ("isr", "broker_id", "epoch"),
    [((1,), 1, 4), ((1, 3), 2, 4), ((1, 2, 3), 1, 3), ((1, 2, 3), 1, 5)],
    ids=["the last member", "no member", "an older epoch", "a newer epoch"],
)
def test_others_stay_as_they_are(isr: tuple[int, ...], broker_id: int, epoch: int) -> None:
    assert given_up(isr, broker_id, epoch=epoch) == []


@pytest.mark.parametrize(("broker_id", "isr", "leader"), [(1, (1, 2), 2), (2, (1, 2), 1), (3, (1, 2), 1), (1, (1,), 1)])
def test_a_damaged_replica_is_eligible_no_more_and_begins_a_new_leader_epoch(
    broker_id: int, isr: tuple[int, ...], leader: int
) -> None:
    partition = PartitionImage(1, 4, (1, 2, 3), isr, 7, elr=(3,))
    brokers = {node_id: BrokerImage(node_id, 10 + node_id, ()) for node_id in (1, 2, 3)}
    image = MetadataImage(brokers=brokers, topics={"t": TopicImage("t", TOPIC_ID, (partition,))})
    replicas = [GivenUpReplica(TOPIC_ID, 0, 4, is_damaged=True)]
    changes = give_up_replicas(image, broker_id, 10 + broker_id, replicas, lambda _: LogConfig(min_insync_replicas=3))
    if isr == (broker_id,):
        assert changes == []  # nobody else has all records
        return
    (after,) = [change.partition for change in changes]
    assert (after.leader, after.leader_epoch) == (leader, 5)
    assert broker_id not in (*after.isr, *after.elr)


def test_a_broker_that_has_registered_again_cannot_give_up() -> None:
    with pytest.raises(StaleBrokerEpoch):
        give_up_replicas(MetadataImage(), BrokerId(1), 5, [], lambda _: LogConfig())
