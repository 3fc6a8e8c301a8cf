"""Kafka's replication in five steps, as a story: log end offset and high watermark of each broker after each step."""

import pytest

from barnabas.log.log_manager import LogManager
from hand_clock import HandClock
from replication.replica_set import ReplicaSet
from replication.rig import validated_batch

STORY = """
before                         1: 0/0  2: 0/0  3: 0/0
the leader appends             1: 1/0  2: 0/0  3: 0/0
2 fetches at 0                 1: 1/0  2: 1/0  3: 0/0
3 fetches at 0                 1: 1/0  2: 1/0  3: 1/0
2 fetches at 1                 1: 1/0  2: 1/0  3: 1/0
3 fetches at 1                 1: 1/1  2: 1/0  3: 1/1
2 fetches at 1                 1: 1/1  2: 1/1  3: 1/1
"""


def picture(replicas: ReplicaSet, step: str) -> str:
    marks = "  ".join(f"{broker}: {end}/{mark}" for broker, (end, mark) in replicas.marks().items())
    return f"{step:30} {marks}"


def test_the_high_watermark_moves_with_the_fetch_after_the_one_that_brought_the_record(
    logs: LogManager, clock: HandClock
) -> None:
    replicas = ReplicaSet(logs, clock, min_isr=2)
    leader = replicas.elect(1)
    seen = [picture(replicas, "before")]
    leader.append_as_leader(validated_batch(), -1)
    seen.append(picture(replicas, "the leader appends"))
    for broker in (2, 3, 2, 3, 2):
        offset = replicas.partitions[broker].log.log_end_offset
        before = leader.log.high_watermark
        read = replicas.fetch(1, broker)
        assert read.high_watermark == leader.log.high_watermark >= before, "the response carries it"
        seen.append(picture(replicas, f"{broker} fetches at {offset}"))
    assert "\n".join(seen) == STORY.strip()


FSYNC_STORY = """
the leader appends             1: 1/0  2: 0/0  3: 0/0
both fetch at 0                1: 1/0  2: 1/0  3: 1/0
nobody fetches unsynced        1: 1/0  2: 1/0  3: 1/0
all have synced                1: 1/0  2: 1/0  3: 1/0
both fetch at 1                1: 1/1  2: 1/0  3: 1/1
"""


@pytest.mark.parametrize("leader_first", [True, False])
def test_with_fsync_a_record_counts_when_it_is_on_the_disk(
    logs: LogManager, clock: HandClock, leader_first: bool
) -> None:
    replicas = ReplicaSet(logs, clock, min_isr=2, fsync=True)
    leader = replicas.elect(1)
    replicas.flush()
    leader.append_as_leader(validated_batch(), -1)
    seen = [picture(replicas, "the leader appends")]
    if leader_first:
        replicas.flush()
    for broker in (2, 3):
        replicas.fetch(1, broker)
    seen.append(picture(replicas, "both fetch at 0"))
    assert [replicas.partitions[broker].next_fetch() for broker in (2, 3)] == [None, None]
    seen.append(picture(replicas, "nobody fetches unsynced"))
    replicas.flush()
    seen.append(picture(replicas, "all have synced"))
    for broker in (2, 3):
        replicas.fetch(1, broker)
    seen.append(picture(replicas, "both fetch at 1"))
    assert "\n".join(seen) == FSYNC_STORY.strip()


def test_with_fsync_the_leaders_own_disk_may_be_the_last(logs: LogManager, clock: HandClock) -> None:
    replicas = ReplicaSet(logs, clock, (1, 2), fsync=True)
    leader = replicas.elect(1)
    replicas.flush()
    leader.append_as_leader(validated_batch(), -1)
    replicas.fetch(1, 2)
    replicas.to_flush.remove(leader)
    replicas.flush()
    replicas.fetch(1, 2)
    assert replicas.marks() == {1: (1, 0), 2: (1, 0)}
    leader.log.flush()
    leader.flushed()
    assert replicas.marks() == {1: (1, 1), 2: (1, 0)}
