# ruff: noqa: E501 -- sentences are compared whole
"""Stories about reassignments: how they begin, end and are cancelled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.reassignment_control import Reassignment, alter_reassignments, drain_plan, reassigning
from barnabas.errors import InvalidReplicationFactor, InvalidRequest
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import BrokerImage
from barnabas.types import BrokerId

from .story import World, tell

STORIES = {
    "a partition moves when all of its new replicas are in sync": """
        $ brokers 1 2 3 4
        $ create t assign=1,2
        t: created
        $ reassign t-0=3,4
        t-0: reassigned
        $ show
        t-0 leader 1 epoch 0 isr 1,2 of 3,4,1,2 adding 3,4 removing 1,2
        $ isr t-0 1 2 3 by=1
        t-0: isr 1,2,3
        $ show
        t-0 leader 1 epoch 0 isr 1,2,3 of 3,4,1,2 adding 3,4 removing 1,2
        $ isr t-0 1 2 3 4 by=1
        t-0: NEW_LEADER_ELECTED the reassignment is complete: broker 3 leads in a new leader epoch
        $ show
        t-0 leader 3 epoch 1 isr 3,4 of 3,4
    """,
    "the leader stays if it keeps its replica, in a new leader epoch if others go": """
        $ brokers 1 2 3
        $ create t assign=1,2/1,2
        t: created
        $ reassign t-0=1,3 t-1=1,2,3
        t-0: reassigned
        t-1: reassigned
        $ isr t-0 1 2 3 by=1
        t-0: NEW_LEADER_ELECTED the reassignment is complete: broker 1 leads in a new leader epoch
        $ isr t-1 1 2 3 by=1
        t-1: isr 1,2,3
        $ show
        t-0 leader 1 epoch 1 isr 1,3 of 1,3
        t-1 leader 1 epoch 0 isr 1,2,3 of 1,2,3
    """,
    "the replication factor is lowered at once, and the order changed": """
        $ brokers 1 2 3
        $ create t assign=1,2,3/1,2,3
        t: created
        $ reassign t-0=2 t-1=3,2,1
        t-0: reassigned
        t-1: reassigned
        $ show
        t-0 leader 2 epoch 1 isr 2 of 2
        t-1 leader 1 epoch 0 isr 1,2,3 of 3,2,1
    """,
    "a replica that is out of sync holds up the end": """
        $ brokers 1 2
        $ create t assign=1,2
        t: created
        $ isr t-0 1 by=1
        t-0: isr 1
        $ reassign t-0=2
        t-0: reassigned
        $ show
        t-0 leader 1 epoch 0 isr 1 of 2,1 removing 1
        $ isr t-0 1 2 by=1
        t-0: NEW_LEADER_ELECTED the reassignment is complete: broker 2 leads in a new leader epoch
    """,
    "a replica that stays where its broker is dead holds nothing up": """
        $ brokers 1 2 3 4 5
        $ create t assign=1,2,3/1,2,3/1,2,3/1,2,3 min.insync.replicas=2
        t: created
        $ brokers 1 3 4 5 fenced=2
        $ mend
        t-0 leader 1 epoch 0 isr 1,3 of 1,2,3
        t-1 leader 1 epoch 0 isr 1,3 of 1,2,3
        t-2 leader 1 epoch 0 isr 1,3 of 1,2,3
        t-3 leader 1 epoch 0 isr 1,3 of 1,2,3
        $ reassign t-0=1,2,4 t-1=1,2,3,4 t-2=2,3,4 t-3=2,4,5
        t-0: reassigned
        t-1: reassigned
        t-2: reassigned
        t-3: reassigned
        $ isr t-0 1 3 4 by=1
        t-0: NEW_LEADER_ELECTED the reassignment is complete: broker 1 leads in a new leader epoch
        $ isr t-1 1 3 4 by=1
        t-1: isr 1,3,4
        $ isr t-2 1 3 4 by=1
        t-2: NEW_LEADER_ELECTED the reassignment is complete: broker 3 leads in a new leader epoch
        $ isr t-3 1 3 4 by=1
        t-3: isr 1,3,4
        $ isr t-3 1 3 4 5 by=1
        t-3: NEW_LEADER_ELECTED the reassignment is complete: broker 4 leads in a new leader epoch
        $ show
        t-0 leader 1 epoch 1 isr 1,4 of 1,2,4
        t-1 leader 1 epoch 0 isr 1,3,4 of 1,2,3,4
        t-2 leader 3 epoch 1 isr 3,4 of 2,3,4
        t-3 leader 4 epoch 1 isr 4,5 of 2,4,5
    """,
    "but if fewer are added than removed the ISR could get smaller": """
        $ brokers 1 2 3 4
        $ create t assign=1,2,3
        t: created
        $ brokers 1 3 4 fenced=2
        $ mend
        t-0 leader 1 epoch 0 isr 1,3 of 1,2,3
        $ reassign t-0=2,4
        t-0: reassigned
        $ isr t-0 1 3 4 by=1
        t-0: isr 1,3,4
        $ show
        t-0 leader 1 epoch 0 isr 1,3,4 of 2,4,1,3 adding 4 removing 1,3
        $ brokers 1 2 3 4
        $ isr t-0 1 2 3 4 by=1
        t-0: NEW_LEADER_ELECTED the reassignment is complete: broker 2 leads in a new leader epoch
    """,
    "what was committed while a dead replica was in sync it may still lead with": """
        $ brokers 1 2 3 4
        $ create t assign=1,2,3 min.insync.replicas=2
        t: created
        $ brokers 3 4 fenced=1,2
        $ mend
        t-0 leader 3 epoch 1 isr 3 of 1,2,3 elr 1,2
        $ reassign t-0=1,2,4
        t-0: reassigned
        $ isr t-0 3 4 by=3
        t-0: NEW_LEADER_ELECTED the reassignment is complete: broker 4 leads in a new leader epoch
        $ show
        t-0 leader 4 epoch 2 isr 4 of 1,2,4 elr 1,2
    """,
    "what is refused": """
        $ brokers 1 2 3
        $ create t assign=1,2
        t: created
        $ reassign u-0=1 t-5=1 t-0=1,9
        u-0: UNKNOWN_TOPIC_OR_PARTITION Unable to find a topic named u.
        t-5: UNKNOWN_TOPIC_OR_PARTITION Unable to find partition t:5.
        t-0: INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes broker 9, but no such broker is registered.
        $ reassign t-0=
        t-0: INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes an empty replica list.
        $ reassign t-0=1,1
        t-0: INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes the broker 1 more than once.
        $ reassign t-0=cancel
        t-0: NO_REASSIGNMENT_IN_PROGRESS No partition reassignment is in progress.
        $ reassign t-0=1,2,3 factor=fixed
        t-0: INVALID_REPLICATION_FACTOR The replication factor is changed from 2 to 3
        $ reassign t-0=2,3 factor=fixed
        t-0: reassigned
        $ reassign t-0=3 factor=fixed
        t-0: INVALID_REPLICATION_FACTOR The replication factor is changed from 2 to 1
        $ reassign t-0=1,3 factor=fixed
        t-0: reassigned
    """,
    "a reassignment is cancelled": """
        $ brokers 1 2 3
        $ create t assign=1,2
        t: created
        $ reassign t-0=2,3
        t-0: reassigned
        $ reassign t-0=cancel
        t-0: reassigned
        $ show
        t-0 leader 1 epoch 1 isr 1,2 of 2,1
    """,
    "it is not if all that were there before may lack records": """
        $ brokers 1 2 3
        $ create t assign=1
        t: created
        $ reassign t-0=2,3
        t-0: reassigned
        $ isr t-0 1 2 by=1
        t-0: isr 1,2
        $ brokers 2 3 fenced=1
        $ mend
        t-0 leader 2 epoch 1 isr 2 of 2,3,1 adding 2,3 removing 1
        $ reassign t-0=cancel
        t-0: INVALID_REPLICA_ASSIGNMENT Unable to revert partition assignment for t:0 because it would require an unclean leader election.
        $ reassign t-0=1
        t-0: INVALID_REPLICA_ASSIGNMENT Unable to replace the reassignment of t:0 because the replicas that it would give up are the only ones that are in sync.
        $ brokers 1 2 3
        $ reassign t t-0=cancel
        t-0: reassigned
        $ show
        t-0 leader 1 epoch 2 isr 1 of 1
    """,
    "a newer reassignment replaces the one before": """
        $ brokers 1 2 3 4
        $ create t assign=1,2
        t: created
        $ reassign t-0=2,3
        t-0: reassigned
        $ isr t-0 1 2 by=1
        t-0: isr 1,2
        $ reassign t-0=4,2
        t-0: reassigned
        $ show
        t-0 leader 1 epoch 1 isr 1,2 of 4,2,1 adding 4 removing 1
        $ reassign t-0=1,2
        t-0: reassigned
        $ show
        t-0 leader 1 epoch 2 isr 1,2 of 1,2
    """,
    "the ISR need not be larger while replicas are added": """
        $ brokers 1 2 3
        $ create t assign=1 min.insync.replicas=2
        t: created
        $ reassign t-0=1,2,3
        t-0: reassigned
        $ isr t-0 1 2 by=1
        t-0: isr 1,2
        $ isr t-0 1 by=1
        t-0: isr 1
        $ show
        t-0 leader 1 epoch 0 isr 1 of 1,2,3 adding 2,3
        $ isr t-0 1 2 3 by=1
        t-0: isr 1,2,3
        $ isr t-0 1 by=1
        t-0: isr 1
        $ show
        t-0 leader 1 epoch 0 isr 1 of 1,2,3 elr 2,3
    """,
    "an election may end it": """
        $ brokers 1 2
        $ create t assign=1
        t: created
        $ reassign t-0=2
        t-0: reassigned
        $ brokers 2 fenced=1
        $ mend
        t-0 leader -1 epoch 1 isr - of 2,1 adding 2 removing 1 elr 1 last 1
        $ elect unclean t-0
        t-0: elected
        $ show
        t-0 leader 2 epoch 2 isr 2 of 2
    """,
    "a broker is drained": """
        $ brokers 1 2 3 4
        $ create t assign=1,2/2,1/3,4
        t: created
        $ drain 1
        t-0: reassigned
        t-1: reassigned
        $ show
        t-0 leader 1 epoch 0 isr 1,2 of 3,2,1 adding 3 removing 1
        t-1 leader 2 epoch 0 isr 2,1 of 2,4,1 adding 4 removing 1
        t-2 leader 3 epoch 0 isr 3,4 of 3,4
        $ drain 1
        $ brokers 1 2
        $ create u assign=1,2
        u: created
        $ drain 1
        drain: INVALID_REPLICATION_FACTOR u-0 has 2 replicas, and no other live broker can take the one of broker 1
    """,
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_story(story: str) -> None:
    told, lived = tell(story)
    assert lived == told


def _world(*lines: str) -> World:
    world = World()
    for line in lines:
        world.do(line)
    return world


def test_reassignments_in_progress_are_found() -> None:
    world = _world("brokers 1 2", "create t u assign=1/1/1", "reassign t-1=2 u-0=1,2 u-2=2")
    assert {name: [number for number, _ in found] for name, found in reassigning(world.image, None).items()} == {
        "t": [1],
        "u": [0, 2],
    }
    asked = [("t", [0, 2]), ("u", [2, 7, -1, 2]), ("missing", [0])]
    ((name, ((number, partition),)),) = reassigning(world.image, asked).items()
    assert (name, number) == ("u", 2)
    assert (partition.adding_replicas, partition.removing_replicas) == ((2,), (1,))


def test_a_reassignment_ends_that_an_older_controller_has_left_waiting() -> None:
    world = _world("brokers 1 3 4 fenced=2", "create t assign=1,2,3", "reassign t-0=1,2,4")
    topic = world.image.topics["t"]
    waiting = topic.partitions[0]._replace(isr=tuple(map(BrokerId, (1, 3, 4))))
    delta = MetadataDelta(world.image)
    delta.put_topic(topic._replace(partitions=(waiting,)))
    world.image = delta.apply(world.image.version + 1).image
    assert world.do("mend") == ["t-0 leader 1 epoch 1 isr 1,4 of 1,2,4"]


def test_a_partition_that_is_named_twice_is_refused_and_left_alone() -> None:
    world = _world("brokers 1 2", "create t assign=1")
    requests = [Reassignment("t", 0, (BrokerId(replica),)) for replica in (1, 2)]
    for order in (requests, requests[::-1]):
        changes, results = alter_reassignments(world.image, order, world.log_config_of)
        assert not changes
        assert isinstance(results["t", 0], InvalidRequest)


@given(
    racks=st.lists(st.sampled_from(["a", "b", None]), min_size=2, max_size=6),
    partitions=st.integers(1, 20),
    factor=st.integers(1, 3),
    drained=st.integers(1, 6),
)
def test_a_drained_broker_has_nothing_and_racks_stay_apart(
    racks: list[str | None], partitions: int, factor: int, drained: int
) -> None:
    world = World()
    delta = MetadataDelta(world.image)
    for node_id, rack in enumerate(racks, 1):
        delta.put_broker(BrokerImage(BrokerId(node_id), 1, (), rack))
    world.image = delta.apply(1).image
    factor, drained = min(factor, len(racks)), min(drained, len(racks))
    world.do(f"create t partitions={partitions} factor={factor}")
    before = world.image.topics["t"].partitions
    if factor == len(racks):
        with pytest.raises(InvalidReplicationFactor):
            drain_plan(world.image, BrokerId(drained))
        return
    plan = {each.partition_index: each.replicas or () for each in drain_plan(world.image, BrokerId(drained))}
    assert plan.keys() == {number for number, partition in enumerate(before) if drained in partition.replicas}

    def rack_count(replicas: tuple[BrokerId, ...]) -> int:
        return len({racks[replica - 1] for replica in replicas})

    for number, replicas in plan.items():
        kept = tuple(replica for replica in before[number].replicas if replica != drained)
        assert drained not in replicas
        assert len(set(replicas)) == factor
        assert set(kept) <= set(replicas)
        others = {rack for node_id, rack in enumerate(racks, 1) if node_id != drained}
        assert rack_count(replicas) == rack_count(kept) + bool(others - {racks[replica - 1] for replica in kept})
