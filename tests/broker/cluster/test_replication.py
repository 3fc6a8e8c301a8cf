"""Followers on real brokers: records and high watermarks over TCP, truncation, restarts, new leaders."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.cluster.replicated_brokers import ReplicatedBrokers
from broker.wire import server_of

LONG_MS = 25_000
"""A follower that gets records sooner did not wait for the end of its fetch."""
Brokers = Callable[..., ReplicatedBrokers]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    made: list[ReplicatedBrokers] = []

    def make(**settings: object) -> ReplicatedBrokers:
        made.append(ReplicatedBrokers(tmp_path, **settings))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(brokers: Brokers) -> ReplicatedBrokers:
    return brokers()


def test_records_reach_the_follower_as_they_are(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1, 2))
    cluster.append(1, "t", b"a", b"b", b"c" * 300_000)
    cluster.wait_for_end(2, "t", 3)
    assert cluster.bytes_of(2, "t") == cluster.bytes_of(1, "t")
    leader, follower = cluster.partition(1, "t"), cluster.partition(2, "t")
    cluster.wait_for(lambda: leader.log.high_watermark == 3, "the high watermark")
    cluster.append(1, "t", b"d")
    cluster.wait_for(lambda: follower.log.high_watermark >= 3, "the follower's high watermark")


def test_the_high_watermark_reaches_an_idle_follower(brokers: Brokers) -> None:
    cluster = brokers(replica_fetch_wait_max_ms=100)
    cluster.create("t", (1, 2))
    cluster.append(1, "t", b"a")
    follower = cluster.partition(2, "t")
    cluster.wait_for(lambda: follower.log.high_watermark == 1, "the follower's high watermark")


def test_brokers_lead_and_follow_each_other(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1, 2), (2, 1), (1, 2), (2, 1))
    for number in range(4):
        cluster.append(1 + number % 2, "t", b"%d" % number, number=number)
    for number in range(4):
        cluster.wait_for_end(2 - number % 2, "t", 1, number)


def test_many_small_batches_are_appended_in_pieces(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1,))
    cluster.append(1, "t", *(b"%d" % number for number in range(1000)))
    cluster.change("t", replicas=(1, 2), isr=(1,))
    cluster.publish("t")
    cluster.wait_for_end(2, "t", 1000)
    assert cluster.bytes_of(2, "t") == cluster.bytes_of(1, "t")


def test_a_follower_truncates_what_its_leader_lacks(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1, 2))
    cluster.append(1, "t", b"a")
    cluster.wait_for_end(2, "t", 1)
    cluster.change("t", leader=2)
    cluster.publish("t", to=[2])
    cluster.append(2, "t", b"x", b"y")
    cluster.append(1, "t", b"b")
    cluster.change("t", leader=1)
    cluster.publish("t")
    cluster.append(1, "t", b"c")
    cluster.wait_for(lambda: cluster.bytes_of(2, "t") == cluster.bytes_of(1, "t"), "equal logs")
    assert cluster.end_offset(2, "t") == 3


def test_a_follower_that_lacks_deleted_records_starts_where_the_leader_does(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1,))
    cluster.append(1, "t", b"a", b"b", b"c", b"d")
    leader = cluster.partition(1, "t")
    cluster.on(1, lambda: leader.delete_records(3))  # type: ignore[arg-type]
    cluster.change("t", replicas=(1, 2), isr=(1,))
    cluster.publish("t")
    cluster.wait_for_end(2, "t", 4)
    assert cluster.partition(2, "t").log.log_start_offset == 3


def test_deleted_records_are_deleted_at_the_follower(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1, 2))
    cluster.append(1, "t", b"a", b"b", b"c")
    leader, follower = cluster.partition(1, "t"), cluster.partition(2, "t")
    cluster.wait_for(lambda: leader.log.high_watermark == 3, "the high watermark")
    cluster.on(1, lambda: leader.delete_records(2))  # type: ignore[arg-type]
    cluster.wait_for(lambda: follower.log.log_start_offset == 2, "the start of the follower's log")
    cluster.wait_for(lambda: cluster.on(1, leader.low_watermark) == 2, "the low watermark")


def test_a_follower_goes_on_when_its_session_is_lost(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1, 2))
    cluster.append(1, "t", b"a")
    cluster.wait_for_end(2, "t", 1)
    sessions = server_of(cluster.brokers[1]).follower_fetch_sessions
    assert len(sessions) == 1
    cluster.on(1, lambda: sessions.end(2))  # type: ignore[arg-type]
    cluster.append(1, "t", b"b")
    cluster.wait_for_end(2, "t", 2)
    assert len(sessions) == 1


def test_a_follower_goes_on_when_its_leader_has_restarted(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1, 2))
    cluster.append(1, "t", b"a")
    cluster.wait_for_end(2, "t", 1)
    cluster.stop(1)
    cluster.start(1)
    cluster.change("t", leader=1)
    cluster.publish("t")
    cluster.append(1, "t", b"b")
    cluster.wait_for_end(2, "t", 2)


def test_a_leader_becomes_a_follower_while_its_follower_waits(brokers: Brokers) -> None:
    cluster = brokers(replica_fetch_wait_max_ms=LONG_MS)
    cluster.create("t", (1, 2))
    cluster.append(1, "t", b"a")
    cluster.wait_for_end(2, "t", 1)
    started = time.monotonic()
    cluster.change("t", leader=2)
    cluster.publish("t")
    cluster.append(2, "t", b"b")
    cluster.wait_for_end(1, "t", 2)
    assert time.monotonic() - started < LONG_MS / 2000


def test_a_new_partition_does_not_wait_for_the_fetch_of_the_others(brokers: Brokers) -> None:
    cluster = brokers(replica_fetch_wait_max_ms=LONG_MS)
    cluster.create("t", (1, 2))
    cluster.append(1, "t", b"a")
    cluster.wait_for_end(2, "t", 1)
    started = time.monotonic()
    for name in ("u", "v", "w"):
        cluster.create(name, (1, 2))
        cluster.append(1, name, b"b")
        cluster.wait_for_end(2, name, 1)
    cluster.append(1, "t", b"c")
    cluster.wait_for_end(2, "t", 2)
    assert time.monotonic() - started < LONG_MS / 2000


def test_a_follower_ahead_of_its_leaders_metadata_tries_again_soon(brokers: Brokers) -> None:
    cluster = brokers(replica_fetch_wait_max_ms=LONG_MS)
    cluster.create("t", (1, 2))
    cluster.create("u", (1, 2))
    cluster.append(1, "u", b"a")
    cluster.wait_for_end(2, "u", 1)
    cluster.change("t", leader=1)
    cluster.publish("t", to=[2])
    cluster.append(1, "u", b"b")
    cluster.wait_for_end(2, "u", 2)
    assert cluster.end_offset(2, "t") == 0
    cluster.publish("t", to=[1])
    cluster.append(1, "t", b"c")
    cluster.wait_for_end(2, "t", 1)


def test_broken_bytes_of_the_leader_hold_up_their_partition_only(cluster: ReplicatedBrokers) -> None:
    for name in ("t", "u"):
        cluster.create(name, (1,))
        cluster.append(1, name, b"abcdef")
    (segment,) = cluster.partition(1, "t").log.segments
    path = Path(segment.path(".log"))
    good = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(len(good) - 3)
        file.write(b"X")
    for name in ("t", "u"):
        cluster.change(name, replicas=(1, 2), isr=(1,))
    cluster.publish()
    cluster.append(1, "u", b"b")
    cluster.wait_for_end(2, "u", 2)
    assert cluster.end_offset(2, "t") == 0
    with path.open("r+b") as file:
        file.write(good)
    cluster.wait_for_end(2, "t", 1)


def test_a_replica_that_leaves_the_assignment_is_deleted(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1, 2), (1, 2))
    cluster.append(1, "t", b"a", number=1)
    cluster.wait_for_end(2, "t", 1, 1)
    manager = server_of(cluster.brokers[2]).replica_manager
    cluster.change("t", 1, replicas=(1,), isr=(1,))
    cluster.publish("t")
    assert manager.get("t", 1) is None
    cluster.append(1, "t", b"b", number=1)
    cluster.append(1, "t", b"b")
    cluster.wait_for_end(2, "t", 1)
    cluster.change("t", 1, replicas=(1, 2), isr=(1,))
    cluster.publish("t")
    cluster.wait_for_end(2, "t", 2, 1)


@pytest.mark.parametrize("slow_s", [0.0, 0.02])
def test_with_fsync_a_follower_reports_what_is_on_its_disk(brokers: Brokers, slow_s: float) -> None:
    cluster = brokers(durability="fsync")
    cluster.create("t", (1, 2))
    cluster.create("u", (1, 2))
    leader = cluster.partition(1, "t")
    with cluster.brokers[2].disk.slow(slow_s):
        for number in range(3):
            cluster.append(1, "u", b"%d" % number)
            cluster.append(1, "t", b"%d" % number)
            cluster.wait_for(lambda: leader.log.high_watermark == leader.log.log_end_offset, "the high watermark")
            assert cluster.partition(2, "t").log.recovery_point == number + 1
    cluster.wait_for_end(2, "u", 3)


def test_a_disk_that_fails_for_a_while(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1, 2))
    cluster.append(1, "t", b"a")
    cluster.wait_for_end(2, "t", 1)
    with cluster.brokers[2].disk.full():
        cluster.append(1, "t", b"b")
        failed = server_of(cluster.brokers[2]).failures._reported_at
        cluster.wait_for(lambda: "following broker 1" in failed, "a report")
        assert cluster.end_offset(2, "t") == 1
    cluster.wait_for_end(2, "t", 2)


def test_the_followers_of_a_leader_that_is_away_try_again(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1, 2))
    cluster.append(1, "t", b"a")
    cluster.wait_for_end(2, "t", 1)
    cluster.stop(1)
    cluster.start(1)  # on another port, which no metadata tells: the address is looked up at each attempt
    cluster.publish(to=[1])
    cluster.append(1, "t", b"b")
    cluster.wait_for_end(2, "t", 2)


def test_a_replica_joins_the_isr_when_it_has_all_records(cluster: ReplicatedBrokers) -> None:
    cluster.create("t", (1,))
    cluster.append(1, "t", b"a", b"b")
    cluster.change("t", replicas=(1, 2), isr=(1,))
    cluster.publish("t")
    cluster.wait_for(lambda: bool(cluster.isr_changes), "a change of the ISR")
    (change,) = cluster.isr_changes
    assert [member.broker_id for member in change.new_isr] == [1, 2]
    assert change.new_isr[1].broker_epoch == cluster.addresses[2].broker_epoch
