"""Partitions over real logs: roles, epochs, offsets, followers and the ISR."""

import uuid

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    KafkaStorageError,
    NetworkException,
    NewLeaderElected,
    NotController,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OperationNotAttempted,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.log.log_manager import LogManager
from barnabas.records.validation import ValidatedBatch
from barnabas.replication.partition import Partition
from barnabas.replication.replica import BrokerState, FollowerFetch, IsrChange
from barnabas.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from hand_clock import HandClock
from replication.replica_set import ReplicaSet
from replication.rig import Watcher, validated_batch

ME, OTHER = 1, 2
TOPIC_ID = uuid.UUID(int=7)


@pytest.fixture
def partition(logs: LogManager) -> Partition:
    name = TopicPartition("t", 0)
    return Partition(name, TOPIC_ID, logs.create(name, TOPIC_ID, LogConfig(min_insync_replicas=2)))


def lead(
    partition: Partition,
    *,
    leader: int = ME,
    epoch: int = 0,
    isr: tuple[int, ...] = (ME,),
    replicas: tuple[int, ...] = (ME,),
    partition_epoch: int | None = None,
    adding: tuple[int, ...] = (),
) -> None:
    partition.become(
        broker_id=ME, leader_id=leader, leader_epoch=epoch,
        partition_epoch=epoch if partition_epoch is None else partition_epoch,
        replicas=replicas, in_sync_replicas=isr, adding_replicas=adding,
    )  # fmt: skip


def test_who_does_not_lead_takes_nothing(partition: Partition) -> None:
    with pytest.raises(NotLeaderOrFollower):
        partition.append_as_leader(validated_batch(), 1)
    lead(partition, leader=OTHER)
    with pytest.raises(NotLeaderOrFollower):
        partition.append_as_leader(validated_batch(), 1)
    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader()


def test_alone_in_sync_everything_is_committed_at_once(partition: Partition) -> None:
    lead(partition)
    assert partition.append_as_leader(validated_batch(), 1).first_offset == 0
    assert partition.is_committed(Offset(0))
    assert partition.upper_bound(read_committed=False) == partition.upper_bound(read_committed=True) == 1
    assert not partition.waits_for_commit


def test_acks_all_needs_enough_replicas_in_sync(partition: Partition) -> None:
    lead(partition, replicas=(ME, OTHER))
    with pytest.raises(NotEnoughReplicas, match=r"1 in-sync replicas, min\.insync\.replicas asks for 2"):
        partition.append_as_leader(validated_batch(), -1)
    assert partition.append_as_leader(validated_batch(), 1).first_offset == 0
    lead(partition, isr=(ME, OTHER), replicas=(ME, OTHER), partition_epoch=1)
    assert partition.append_as_leader(validated_batch(), -1).first_offset == 1


def sent(sequence: int) -> ValidatedBatch:
    return validated_batch(producer_id=7, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("first", [0, 1], ids=["a new producer", "a known one"])
def test_a_batch_that_follows_one_refused_for_too_few_replicas_waits_for_that(partition: Partition, first: int) -> None:
    lead(partition, replicas=(ME, OTHER), isr=(ME, OTHER))
    for sequence in range(first):
        partition.append_as_leader(sent(sequence), -1)
    lead(partition, replicas=(ME, OTHER), partition_epoch=1)
    with pytest.raises(NotEnoughReplicas):
        partition.append_as_leader(sent(first), -1)
    lead(partition, isr=(ME, OTHER), replicas=(ME, OTHER), partition_epoch=2)
    with pytest.raises(NotEnoughReplicas, match=rf"the sequence {first} was refused"):
        partition.append_as_leader(sent(first + 1), -1)
    assert partition.append_as_leader(sent(first), -1).first_offset == first
    assert partition.append_as_leader(sent(first + 1), -1).first_offset == first + 1


def test_a_batch_that_follows_one_refused_by_the_disk_waits_for_that(partition: Partition) -> None:
    lead(partition)
    partition.append_as_leader(sent(0), -1)
    partition.log.offline_reason = "the disk is full"
    with pytest.raises(KafkaStorageError):
        partition.append_as_leader(sent(1), -1)
    partition.log.offline_reason = None
    with pytest.raises(NotEnoughReplicas):
        partition.append_as_leader(sent(2), -1)
    assert partition.append_as_leader(sent(1), -1).first_offset == 1


def test_a_batch_that_follows_one_refused_before_this_replica_led_waits_for_that(partition: Partition) -> None:
    lead(partition, leader=OTHER)
    with pytest.raises(NotLeaderOrFollower):
        partition.append_as_leader(sent(0), 1)
    lead(partition, epoch=1)
    with pytest.raises(NotEnoughReplicas):
        partition.append_as_leader(sent(1), 1)
    assert partition.append_as_leader(sent(0), 1).first_offset == 0


def test_a_coordinator_does_not_wait_for_what_a_client_was_refused(partition: Partition) -> None:
    lead(partition)
    partition.append_as_leader(sent(0), -1)
    partition.note_refused(sent(1).header)
    assert partition.append_as_leader(sent(5), -1, origin="coordinator").first_offset == 1


def test_min_insync_replicas_is_at_most_the_number_of_replicas(partition: Partition) -> None:
    lead(partition)
    assert partition.append_as_leader(validated_batch(), -1).first_offset == 0
    assert partition.has_enough_replicas


def test_min_insync_replicas_counts_a_replica_that_is_added_from_when_it_is_in_sync(partition: Partition) -> None:
    lead(partition, replicas=(ME, OTHER), adding=(OTHER,))
    partition.append_as_leader(validated_batch(), -1)
    assert partition.is_committed(Offset(0)), "nobody had to copy anything first"
    lead(partition, replicas=(ME, OTHER), adding=(OTHER,), isr=(ME, OTHER), partition_epoch=1)
    partition.append_as_leader(validated_batch(), -1)
    assert not partition.is_committed(Offset(1))
    lead(partition, replicas=(ME, OTHER), partition_epoch=2)
    with pytest.raises(NotEnoughReplicas):
        partition.append_as_leader(validated_batch(), -1)


def test_with_a_follower_in_sync_nothing_is_committed_by_the_leader_alone(partition: Partition) -> None:
    partition.set_config(LogConfig(min_insync_replicas=1))
    lead(partition, isr=(ME, OTHER), replicas=(ME, OTHER))
    partition.append_as_leader(validated_batch(), 1)
    assert not partition.is_committed(Offset(0))
    assert partition.read(0, 1000, read_committed=False, min_one_message=True).file_slice is None
    lead(partition, isr=(ME,), replicas=(ME, OTHER), partition_epoch=1)  # the follower has left the ISR
    partition.propose_isr_change(partition.log.clock.monotonic() + 30.1)  # and no longer is about to come back
    assert partition.is_committed(Offset(0))


def test_older_epochs_are_not_listened_to(partition: Partition) -> None:
    lead(partition, epoch=5)
    lead(partition, leader=OTHER, epoch=4)
    assert (partition.is_leader, partition.leader_epoch) == (True, 5)


def test_clients_with_another_epoch_are_fenced(partition: Partition) -> None:
    lead(partition, epoch=5)
    partition.check_leader(-1)
    partition.check_leader(5)
    with pytest.raises(FencedLeaderEpoch):
        partition.check_leader(4)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_leader(6)
    lead(partition, leader=OTHER, epoch=6)
    with pytest.raises(FencedLeaderEpoch):  # the epoch first: a client with an old one must learn of the new
        partition.check_leader(5)
    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader(6)


def test_ends_of_epochs(partition: Partition) -> None:
    lead(partition, epoch=1)
    partition.append_as_leader(validated_batch(), 1)
    partition.append_as_leader(validated_batch(), 1)
    lead(partition, epoch=3)
    assert partition.end_of_epoch(3) == (3, 2), "before its first record too"
    partition.append_as_leader(validated_batch(), 1)
    assert partition.end_of_epoch(1) == partition.end_of_epoch(2) == (1, 2)
    assert partition.end_of_epoch(3) == (3, 3)
    assert partition.end_of_epoch(4) == (-1, -1)
    assert partition.diverging_epoch(1, 2) is None
    assert partition.diverging_epoch(1, 3) == (1, 2)
    assert partition.diverging_epoch(2, 3) == (1, 2)


def test_changes_wake_who_watches(partition: Partition) -> None:
    watcher = Watcher(partition)
    lead(partition)
    assert watcher.woken == 1
    partition.append_as_leader(validated_batch(), 1)
    assert watcher.woken == 2
    partition.delete_records(1)
    assert watcher.woken == 3
    partition.retire()
    assert watcher.woken == 4
    with pytest.raises(NotLeaderOrFollower):
        partition.append_as_leader(validated_batch(), 1)


def test_the_start_of_the_log_moves_to_the_high_watermark_at_most(partition: Partition) -> None:
    lead(partition)
    for _ in range(3):
        partition.append_as_leader(validated_batch(), 1)
    assert partition.delete_records(2) == 2
    assert partition.delete_records(-1) == 3
    with pytest.raises(OffsetOutOfRange):
        partition.delete_records(4)


def test_settings_reach_log_and_policy(partition: Partition) -> None:
    partition.set_config(LogConfig(max_message_bytes=77, cleanup_policy=frozenset(("compact",))))
    assert partition.log.config.max_message_bytes == 77
    assert (partition.append_policy.max_message_bytes, partition.append_policy.compacted) == (77, True)


def test_metadata_of_the_same_partition_epoch_changes_no_isr(logs: LogManager, clock: HandClock) -> None:
    """The metadata of a change that the leader knows already comes after the leader has proposed the next one."""
    replicas = ReplicaSet(logs, clock)
    leader = replicas.elect(1, isr=(1,))
    replicas.fetch(1, 2)
    change = replicas.fetch(1, 3).isr_change
    assert change is None, "one at a time"
    replicas.elect(1, isr=(1,))
    leader.append_as_leader(validated_batch(), 1)
    assert leader.log.high_watermark == 0, "the proposed member still counts"


# --- followers, at the leader -----------------------------------------------------------------------------------------


@pytest.fixture
def replicas(logs: LogManager, clock: HandClock) -> ReplicaSet:
    return ReplicaSet(logs, clock)


def test_a_follower_reads_what_is_not_committed_yet(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1)
    leader.append_as_leader(validated_batch(b"a"), 1)
    read = replicas.ask(1, 2)
    assert read.records is not None
    assert (read.high_watermark, read.log_start_offset) == (0, 0)
    assert replicas.ask(1, 2, max_bytes=1).records is not None, "a batch that is too large for the follower, too"


def test_who_may_not_fetch(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, epoch=5)
    fetch = FollowerFetch(0, 5, -1, 0)
    with pytest.raises(FencedLeaderEpoch):
        replicas.ask(1, 2, fetch._replace(leader_epoch=4))
    with pytest.raises(UnknownLeaderEpoch):
        replicas.ask(1, 2, fetch._replace(leader_epoch=6))
    with pytest.raises(NotLeaderOrFollower):
        replicas.ask(2, 3, fetch)
    with pytest.raises(UnknownLeaderEpoch, match="broker 4 has no replica"):
        replicas.ask(1, 4, fetch)
    with pytest.raises(NotLeaderOrFollower, match="broker 4 has no replica"):
        replicas.ask(1, 4, fetch._replace(leader_epoch=-1))
    with pytest.raises(OffsetOutOfRange):
        replicas.ask(1, 2, fetch._replace(fetch_offset=1))
    replicas.epochs[2] = 30
    with pytest.raises(NotLeaderOrFollower, match="epoch 12"):
        leader.fetch_from_follower(2, 12, fetch, max_bytes=1, min_one_message=True, now=0.0)
    leader.append_as_leader(validated_batch(), 1)
    assert leader.log.high_watermark == 0, "nobody of these has counted"


def test_a_diverging_follower_is_told_and_does_not_count(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1, 2))
    for _ in range(3):
        leader.append_as_leader(validated_batch(), 1)
    replicas.fetch(1, 2)
    second = replicas.elect(2, epoch=1, isr=(2, 1))
    second.append_as_leader(validated_batch(), 1)
    leader = replicas.elect(1, epoch=2, isr=(1, 2))
    leader.append_as_leader(validated_batch(), 1)
    read = replicas.fetch(1, 2)
    assert (read.diverging_epoch, read.records) == ((0, 3), None)
    assert replicas.marks() == {1: (4, 0), 2: (3, 0), 3: (0, 0)}
    replicas.fetch(1, 2)
    replicas.fetch(1, 2)
    assert replicas.marks() == {1: (4, 4), 2: (4, 4), 3: (0, 0)}


def test_a_reader_before_the_start_is_out_of_range_even_if_it_diverges(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1,))
    for _ in range(3):
        leader.append_as_leader(validated_batch(), 1)
    leader.delete_records(Offset(2))
    leader = replicas.elect(1, epoch=2, isr=(1,))
    with pytest.raises(OffsetOutOfRange):
        leader.diverging_epoch(LeaderEpoch(1), Offset(1))


def test_a_fetch_that_is_tried_again_notes_nothing(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1, 2))
    leader.append_as_leader(validated_batch(), 1)
    replicas.fetch(1, 2)
    fetch = replicas.partitions[2].next_fetch()
    assert fetch is not None
    read = leader.read_for_follower(BrokerId(2), fetch, 1000, min_one_message=True)
    assert (read.records, read.high_watermark) == (None, 0)
    assert leader.log.high_watermark == 0


def test_offsets_of_an_earlier_leader_epoch_do_not_count(replicas: ReplicaSet) -> None:
    """The follower may have truncated its log for a leader that came between."""
    leader = replicas.elect(1, isr=(1, 2))
    leader.append_as_leader(validated_batch(), 1)
    replicas.fetch(1, 2)
    replicas.fetch(1, 2)
    assert leader.log.high_watermark == 1
    leader.append_as_leader(validated_batch(), 1)
    replicas.fetch(1, 2)
    replicas.elect(1, epoch=3, isr=(1, 2))
    assert leader.log.high_watermark == 1
    replicas.fetch(1, 2)
    assert leader.log.high_watermark == 2


def test_changes_of_the_offsets_wake_delayed_operations(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1, 2))
    watcher = Watcher(leader)
    leader.append_as_leader(validated_batch(), 1)
    assert watcher.woken == 1, "fetches of followers"
    replicas.fetch(1, 2)
    assert watcher.woken == 2, "the follower's log start is known"
    replicas.fetch(1, 2)
    assert watcher.woken == 3, "the high watermark"
    replicas.fetch(1, 2)
    assert watcher.woken == 3, "nothing new"
    follower = Watcher(replicas.partitions[2])
    leader.append_as_leader(validated_batch(), 1)
    replicas.fetch(1, 2)
    replicas.fetch(1, 2)
    replicas.fetch(1, 2)
    assert follower.woken == 2, "a record, then its commit"


# --- the high watermark and the ISR -----------------------------------------------------------------------------------


def test_below_min_isr_the_high_watermark_stays(logs: LogManager, clock: HandClock) -> None:
    replicas = ReplicaSet(logs, clock, min_isr=2)
    leader = replicas.elect(1, isr=(1,))
    leader.append_as_leader(validated_batch(), 1)
    clock.now += 20
    leader.propose_isr_change(clock.now)
    assert leader.log.high_watermark == 0
    replicas.fetch(1, 2)
    change = replicas.fetch(1, 2).isr_change
    assert change is None, "it is proposed with the fetch before"
    assert leader.log.high_watermark == 0, "a proposed member does not make the ISR larger"
    leader.set_config(LogConfig(min_insync_replicas=1))
    assert leader.log.high_watermark == 1


def test_a_replica_joins_when_it_has_what_is_committed(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1,))
    replicas.clock.now += 20
    for _ in range(2):
        leader.append_as_leader(validated_batch(), 1)
    assert leader.log.high_watermark == 2
    assert replicas.fetch(1, 2).isr_change is None
    change = replicas.fetch(1, 2).isr_change
    assert change is not None
    assert change == IsrChange(
        TopicPartition("t", 0), leader.topic_id, LeaderEpoch(0), 0,
        (BrokerState(BrokerId(1), 11), BrokerState(BrokerId(2), 12)),
    )  # fmt: skip
    assert leader.in_sync_replicas == (1,)
    leader.append_as_leader(validated_batch(), 1)
    assert leader.log.high_watermark == 2, "the new member has not got this one"
    leader.isr_change_accepted(change, leader_epoch=LeaderEpoch(0), partition_epoch=1, in_sync_replicas=(1, 2))
    assert (leader.in_sync_replicas, leader.partition_epoch) == ((1, 2), 1)


def test_a_new_leader_lets_nobody_join_before_the_start_of_its_epoch(replicas: ReplicaSet) -> None:
    """It does not know which of its records are committed, and a member without them could be elected."""
    leader = replicas.elect(1, isr=(1, 2))
    for _ in range(3):
        leader.append_as_leader(validated_batch(), 1)
    replicas.fetch(1, 2)
    assert replicas.marks() == {1: (3, 0), 2: (3, 0), 3: (0, 0)}
    replicas.elect(2, epoch=1, isr=(2, 1))
    assert replicas.partitions[2].epoch_start_offset == 3
    assert replicas.fetch(2, 3).isr_change is None, "although its high watermark is 0"
    change = replicas.fetch(2, 3).isr_change
    assert change is not None
    assert [member.broker_id for member in change.new_isr] == [2, 1, 3]


def test_members_that_lag_leave_by_the_periodic_check(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1)
    leader.append_as_leader(validated_batch(), 1)
    for _ in range(2):
        replicas.fetch(1, 2)
    replicas.clock.now += 10.1
    change = leader.propose_isr_change(replicas.clock.now)
    assert change is not None
    assert change.new_isr == ((1, 11), (2, 12))
    assert leader.log.high_watermark == 0, "not before the controller agrees"
    assert leader.propose_isr_change(replicas.clock.now) is None
    leader.isr_change_accepted(change, leader_epoch=LeaderEpoch(0), partition_epoch=1, in_sync_replicas=(1, 2))
    assert leader.log.high_watermark == 1


def test_an_unnamed_follower_had_all_records_if_its_last_fetch_found_none(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1)
    leader.append_as_leader(validated_batch(), 1)
    behind, at_end = FollowerFetch(0, 0, -1, 0), FollowerFetch(1, 0, 0, 0)
    replicas.ask(1, 2, at_end)
    replicas.ask(1, 3, at_end)
    replicas.clock.now += 60
    leader.follower_had_all(2, at_end, replicas.clock.now)
    leader.follower_had_all(3, behind, replicas.clock.now)  # it has fetched elsewhere since
    leader.follower_had_all(3, at_end._replace(leader_epoch=1), replicas.clock.now)
    leader.follower_had_all(9, at_end, replicas.clock.now)  # no replica
    leader.append_as_leader(validated_batch(), 1)
    change = leader.propose_isr_change(replicas.clock.now)
    assert change is not None
    assert [member.broker_id for member in change.new_isr] == [1, 2]


def test_the_high_watermark_goes_on_when_a_replica_stops_joining(replicas: ReplicaSet) -> None:
    """No fetch comes and no append: the periodic check has to notice."""
    leader = replicas.elect(1, isr=(1,))
    assert replicas.fetch(1, 2).isr_change is not None
    replicas.fetch(1, 3)  # cannot be proposed yet
    leader.append_as_leader(validated_batch(), 1)
    replicas.fetch(1, 2)
    replicas.fetch(1, 2)
    assert leader.log.high_watermark == 0
    replicas.clock.now += 10.1
    watcher = Watcher(leader)
    leader.propose_isr_change(replicas.clock.now)
    assert (leader.log.high_watermark, watcher.woken) == (1, 1)


@pytest.mark.parametrize("error", [IneligibleReplica, OperationNotAttempted])
def test_a_change_that_was_not_made_may_be_proposed_again(replicas: ReplicaSet, error: type[KafkaError]) -> None:
    leader = replicas.elect(1, isr=(1,))
    change = replicas.fetch(1, 2).isr_change
    assert change is not None
    assert not leader.isr_change_refused(change, error())
    again = replicas.fetch(1, 2).isr_change
    assert again == change
    assert not leader.isr_change_refused(change, error()), "the answer to the first one comes twice"
    assert replicas.fetch(1, 3).isr_change is None, "the second one is pending"


def test_records_that_waited_for_a_replica_that_is_fenced_are_told_of(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1,))
    change = replicas.fetch(1, 2).isr_change
    assert change is not None
    leader.append_as_leader(validated_batch(), 1)
    assert not leader.isr_change_refused(change, IneligibleReplica())
    watcher = Watcher(leader)
    del replicas.epochs[2]
    leader.brokers_changed()
    assert (leader.log.high_watermark, watcher.woken) == (1, 1)


def test_records_that_waited_for_a_replica_that_is_refused_are_told_of(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1,))
    change = replicas.fetch(1, 2).isr_change
    assert change is not None
    leader.append_as_leader(validated_batch(), 1)
    replicas.clock.now += 10.1
    watcher = Watcher(leader)
    assert not leader.isr_change_refused(change, IneligibleReplica())
    assert (leader.log.high_watermark, watcher.woken) == (1, 1)


@pytest.mark.parametrize(
    "error",
    [
        FencedLeaderEpoch,
        InvalidUpdateVersion,
        UnknownTopicOrPartition,
        UnknownTopicId,
        InvalidRequest,
        NewLeaderElected,
    ],
)
def test_a_change_that_metadata_has_overtaken_stays_until_it_comes(
    replicas: ReplicaSet, error: type[KafkaError]
) -> None:
    leader = replicas.elect(1, isr=(1,))
    change = replicas.fetch(1, 2).isr_change
    assert change is not None
    assert not leader.isr_change_refused(change, error())
    leader.append_as_leader(validated_batch(), 1)
    assert leader.log.high_watermark == 0, "it may have been made"
    assert replicas.fetch(1, 3).isr_change is None
    replicas.elect(1, isr=(1, 3), partition_epoch=2)
    assert leader.in_sync_replicas == (1, 3)
    assert replicas.fetch(1, 2).isr_change is not None


@pytest.mark.parametrize("error", [NetworkException, RequestTimedOut, NotController])
def test_a_change_without_an_answer_is_sent_again(replicas: ReplicaSet, error: type[KafkaError]) -> None:
    leader = replicas.elect(1, isr=(1,))
    change = replicas.fetch(1, 2).isr_change
    assert change is not None
    assert leader.isr_change_refused(change, error())
    replicas.elect(1, isr=(1, 2), partition_epoch=1)
    assert not leader.isr_change_refused(change, error()), "metadata has come meanwhile"


def test_late_answers_of_the_controller_are_ignored(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1,))
    change = replicas.fetch(1, 2).isr_change
    assert change is not None
    accept = {"leader_epoch": LeaderEpoch(0), "in_sync_replicas": (1, 2)}
    replicas.elect(1, isr=(1, 2), partition_epoch=5)
    leader.isr_change_accepted(change, partition_epoch=9, **accept)
    assert leader.partition_epoch == 5, "metadata has overtaken it"
    change = replicas.fetch(1, 3).isr_change
    assert change is not None
    leader.isr_change_accepted(change, partition_epoch=4, **accept)
    leader.isr_change_accepted(change, partition_epoch=6, **(accept | {"leader_epoch": LeaderEpoch(1)}))
    assert (leader.partition_epoch, leader.in_sync_replicas) == (5, (1, 2))
    replicas.elect(2, epoch=1)
    leader.isr_change_accepted(change, partition_epoch=6, **accept)
    assert not leader.isr_change_refused(change, NetworkException())
    assert leader.propose_isr_change(replicas.clock.now) is None
    assert leader.in_sync_replicas == ()


def test_a_replica_that_is_added_counts_from_the_answer_on_that_it_is_in_sync(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1,), adding=(2, 3))
    leader.set_config(LogConfig(min_insync_replicas=2))
    assert not leader.is_under_min_isr
    change = replicas.fetch(1, 2).isr_change
    assert change is not None
    leader.isr_change_accepted(change, leader_epoch=LeaderEpoch(0), partition_epoch=1, in_sync_replicas=(1, 2))
    replicas.clock.now += 10.1
    leader.append_as_leader(validated_batch(), 1)
    replicas.clock.now += 10.1
    change = leader.propose_isr_change(replicas.clock.now)
    assert change is not None
    leader.isr_change_accepted(change, leader_epoch=LeaderEpoch(0), partition_epoch=2, in_sync_replicas=(1,))
    assert leader.is_under_min_isr, "the metadata in which it is no longer being added may be on its way"


# --- the follower's side ----------------------------------------------------------------------------------------------


def test_a_follower_takes_over_the_leaders_offsets_as_far_as_its_log_goes(replicas: ReplicaSet) -> None:
    replicas.elect(1, isr=(1, 3))
    follower = replicas.partitions[2]
    fetch = follower.next_fetch()
    assert fetch == (0, 0, -1, 0)
    assert fetch is not None
    data = bytearray(validated_batch().payload)
    data[12:16] = bytes(4)  # leader epoch 0
    info = follower.append_as_follower(fetch, data, high_watermark=Offset(9), log_start_offset=Offset(5))
    assert info is not None
    assert (follower.log.log_end_offset, follower.log.high_watermark, follower.log.log_start_offset) == (1, 1, 1)
    assert follower.next_fetch() == (1, 0, 0, 1)


def test_late_responses_change_nothing(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1,))
    follower = replicas.partitions[2]
    first = follower.next_fetch()
    assert first is not None
    for _ in range(2):
        leader.append_as_leader(validated_batch(), 1)
    data = validated_batch().payload
    replicas.fetch(1, 2)
    marks = {"high_watermark": Offset(2), "log_start_offset": Offset(0)}
    assert follower.append_as_follower(first, data, **marks) is None, "it has got these records"
    now = follower.next_fetch()
    assert now is not None
    follower.truncate_to_diverging_epoch(first, LeaderEpoch(0), Offset(0))
    follower.reset_to_leader(first, Offset(0), Offset(1))
    for other in ({"leader_epoch": 1}, {"last_fetched_epoch": 3}, {"fetch_offset": 3}):
        late = now._replace(**other)
        assert follower.append_as_follower(late, b"", **marks) is None
        follower.truncate_to_diverging_epoch(late, LeaderEpoch(0), Offset(0))
        follower.reset_to_leader(late, Offset(0), Offset(1))
    assert follower.log.log_end_offset == 2
    assert leader.append_as_follower(now, b"", **marks) is None, "it leads"
    follower.reset_to_leader(now, Offset(0), Offset(1))
    assert follower.log.log_end_offset == 1


def test_becoming_a_follower_truncates_nothing(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1)
    leader.append_as_leader(validated_batch(), 1)
    replicas.elect(2, epoch=1)
    assert leader.log.log_end_offset == 1
    assert leader.next_fetch() == (1, 1, 0, 0)


def test_the_leaders_log_start_reaches_the_followers_and_their_answer_the_low_watermark(replicas: ReplicaSet) -> None:
    leader = replicas.elect(1, isr=(1, 2, 3))
    for _ in range(2):
        leader.append_as_leader(validated_batch(), 1)
    for broker in (2, 3, 2, 3):
        replicas.fetch(1, broker)
    assert leader.delete_records(Offset(-1)) == 2
    assert (leader.log.log_start_offset, leader.low_watermark()) == (2, 0)
    watcher = Watcher(leader)
    for broker in (2, 3, 2):
        replicas.fetch(1, broker)
    assert replicas.partitions[3].log.log_start_offset == 2
    assert leader.low_watermark() == 0, "the leader does not know it of broker 3"
    replicas.fetch(1, 3)
    assert (leader.low_watermark(), watcher.woken) == (2, 2)


def test_after_a_failed_sync_a_follower_fetches_again_when_another_one_succeeds(
    logs: LogManager, clock: HandClock
) -> None:
    replicas = ReplicaSet(logs, clock, fsync=True)
    replicas.elect(1).append_as_leader(validated_batch(), 1)
    replicas.flush()
    follower = replicas.partitions[2]
    replicas.fetch(1, 2)
    assert replicas.to_flush == [follower]
    assert follower.next_fetch() is None
    follower.flush_failed(KafkaStorageError("no descriptor"))
    replicas.to_flush.clear()
    with pytest.raises(KafkaStorageError, match="no descriptor"):
        follower.next_fetch()
    assert follower.next_fetch() is None
    replicas.flush()
    assert follower.next_fetch() is not None


def test_with_fsync_a_new_follower_syncs_before_it_fetches(logs: LogManager, clock: HandClock) -> None:
    replicas = ReplicaSet(logs, clock, fsync=True)
    replicas.elect(1).append_as_leader(validated_batch(), 1)
    replicas.to_flush.clear()
    replicas.elect(2, epoch=1)
    assert replicas.partitions[1] in replicas.to_flush
    assert replicas.partitions[1].next_fetch() is None
    replicas.flush()
    assert replicas.partitions[1].next_fetch() is not None
