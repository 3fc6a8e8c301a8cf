"""The ISR and the offsets that count, without logs."""

import uuid

import pytest

from barnabas.errors import NotLeaderOrFollower
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.replica import BrokerState, FollowerFetch, IsrChange
from barnabas.types import TopicPartition

LEADER, SECOND, THIRD = 1, 2, 3
LAG_S = 10.0


class Followers:
    """A leader's state at time 100 with its log end at 10, and the broker epochs of the metadata."""

    def __init__(self, *isr: int) -> None:
        self.epochs: dict[int, int] = {LEADER: 11, SECOND: 12, THIRD: 13}
        self.state = LeaderState(LEADER, lambda broker: self.epochs.get(broker), LAG_S)
        self.state.assign((LEADER, SECOND, THIRD), isr, 100.0)
        self.state.commit(isr)

    def fetch(self, broker: int, offset: int, *, now: float = 100.0, epoch: int | None = None, start: int = 0) -> None:
        broker_epoch = self.epochs[broker] if epoch is None else epoch
        replica = self.state.followers[broker]
        self.state.check_broker_epoch(replica, broker_epoch)
        replica.update(FollowerFetch(offset, 0, 0, start), broker_epoch, 10, now)

    def replicated(self, now: float = 100.0) -> int:
        return self.state.replicated_offset(10, 10, now)

    def next_isr(self, join_offset: int = 5, now: float = 100.0) -> list[tuple[int, int]] | None:
        found = self.state.next_isr(join_offset, 10, now)
        return None if found is None else [tuple(member) for member in found]

    def propose(self, *members: int) -> IsrChange:
        states = tuple(BrokerState(member, -1) for member in members)
        change = IsrChange(TopicPartition("t", 0), uuid.UUID(int=1), 0, 0, states)
        self.state.propose(change)
        return change


def test_the_slowest_member_of_the_isr_decides() -> None:
    followers = Followers(LEADER, SECOND, THIRD)
    assert followers.replicated() == -1, "nobody has fetched in this epoch"
    followers.fetch(SECOND, 10)
    assert followers.replicated() == -1
    followers.fetch(THIRD, 4)
    assert followers.replicated() == 4
    assert followers.state.replicated_offset(3, 10, 100.0) == 3, "the leader's own disk counts, too"


def test_who_is_not_in_the_isr_and_lags_does_not_count() -> None:
    followers = Followers(LEADER, SECOND)
    followers.fetch(SECOND, 9)
    assert followers.replicated() == 9
    followers.fetch(THIRD, 1)
    assert followers.replicated() == 9


def test_the_high_watermark_waits_for_a_caught_up_replica_that_may_join() -> None:
    followers = Followers(LEADER, SECOND)
    followers.fetch(SECOND, 10)
    followers.fetch(THIRD, 8, now=99.0)
    followers.state.followers[THIRD].last_caught_up = 99.0
    assert followers.replicated() == 8
    assert followers.replicated(now=109.1) == 10, "not for longer than the lag"
    del followers.epochs[THIRD]
    assert followers.replicated() == 10, "a fenced broker may not join"


def test_a_proposed_member_counts_at_once_and_a_leaving_one_until_the_end() -> None:
    followers = Followers(LEADER, SECOND)
    followers.fetch(SECOND, 7)
    followers.fetch(THIRD, 5)
    followers.propose(LEADER, THIRD)
    assert followers.state.maximal_isr == {LEADER, SECOND, THIRD}
    assert followers.replicated() == 5
    followers.state.roll_back()
    assert (followers.state.maximal_isr, followers.replicated()) == ({LEADER, SECOND}, 7)
    followers.propose(LEADER)
    assert followers.replicated() == 7
    followers.state.commit((LEADER,))
    assert (followers.state.maximal_isr, followers.replicated(now=120.0)) == ({LEADER}, 10)


def test_a_member_that_has_left_counts_when_it_has_fetched_anew() -> None:
    """Its disk may have failed: the leader would wait for it as long as it may lag."""
    followers = Followers(LEADER, SECOND, THIRD)
    followers.fetch(SECOND, 10)
    followers.fetch(THIRD, 8)
    followers.state.commit((LEADER, SECOND))
    assert followers.replicated() == 10
    assert followers.next_isr() is None, "nor does it join by what it had"
    followers.fetch(THIRD, 9)
    followers.fetch(THIRD, 10, now=101.0)
    assert followers.next_isr(now=101.0) == [(LEADER, 11), (SECOND, 12), (THIRD, 13)]


def test_members_leave_when_they_lag() -> None:
    followers = Followers(LEADER, SECOND, THIRD)
    followers.fetch(SECOND, 10)
    followers.fetch(THIRD, 9)
    assert followers.next_isr(now=110.0) is None
    assert followers.next_isr(now=110.1) == [(LEADER, 11), (SECOND, 12)]


def test_members_that_never_fetch_leave_too() -> None:
    followers = Followers(LEADER, SECOND)
    assert followers.next_isr(now=110.0) is None
    assert followers.next_isr(now=110.1) == [(LEADER, 11)]


def test_a_replica_joins_with_its_broker_epoch_when_it_has_what_is_committed() -> None:
    followers = Followers(LEADER)
    assert followers.next_isr() is None
    followers.fetch(THIRD, 4)
    assert followers.next_isr() is None
    followers.fetch(THIRD, 5)
    assert followers.next_isr() == [(LEADER, 11), (THIRD, 13)]


def test_no_broker_joins_that_is_fenced_or_has_registered_again() -> None:
    followers = Followers(LEADER)
    followers.fetch(SECOND, 10)
    followers.fetch(THIRD, 10)
    assert followers.next_isr() == [(LEADER, 11), (SECOND, 12), (THIRD, 13)]
    followers.epochs[SECOND] = 20
    assert followers.next_isr() == [(LEADER, 11), (THIRD, 13)]
    del followers.epochs[THIRD]
    assert followers.next_isr() is None


def test_a_member_that_has_not_fetched_yet_is_proposed_without_an_epoch() -> None:
    followers = Followers(LEADER, SECOND)
    followers.fetch(THIRD, 5)
    assert followers.next_isr() == [(LEADER, 11), (SECOND, -1), (THIRD, 13)]
    del followers.epochs[LEADER]
    assert followers.next_isr() == [(LEADER, -1), (SECOND, -1), (THIRD, 13)]


def test_one_change_at_a_time() -> None:
    followers = Followers(LEADER)
    followers.fetch(SECOND, 5)
    followers.propose(LEADER, SECOND)
    followers.fetch(THIRD, 5)
    assert followers.next_isr() is None
    followers.state.roll_back()
    assert followers.next_isr() == [(LEADER, 11), (SECOND, 12), (THIRD, 13)]


@pytest.mark.parametrize("epoch", [-1, 12, 21])
def test_fetches_of_a_registration_that_the_metadata_lacks_do_not_count(epoch: int) -> None:
    """21 may be one that will be known soon, or that of a copy of the broker, in a copy of the registry."""
    followers = Followers(LEADER, SECOND)
    followers.epochs[SECOND] = 20
    with pytest.raises(NotLeaderOrFollower, match=f"epoch {epoch}, it is in epoch 20"):
        followers.fetch(SECOND, 5, epoch=epoch)
    assert followers.replicated() == -1
    followers.fetch(SECOND, 5)
    del followers.epochs[SECOND]
    with pytest.raises(NotLeaderOrFollower):
        followers.fetch(SECOND, 5, epoch=19)
    followers.fetch(SECOND, 5, epoch=21)  # that of a fenced broker


def test_the_low_watermark_is_that_of_the_live_replicas() -> None:
    followers = Followers(LEADER, SECOND, THIRD)
    assert followers.state.low_watermark(6) == -1
    followers.fetch(SECOND, 10, start=4)
    followers.fetch(THIRD, 10, start=2)
    assert followers.state.low_watermark(6) == 2
    del followers.epochs[THIRD]
    assert followers.state.low_watermark(6) == 4
    assert followers.state.low_watermark(3) == 3


def test_replicas_that_stay_keep_their_state() -> None:
    followers = Followers(LEADER, SECOND)
    followers.fetch(SECOND, 5)
    followers.state.assign((LEADER, SECOND, 4), (LEADER, SECOND), 100.0)
    assert list(followers.state.followers) == [SECOND, 4]
    assert followers.state.followers[SECOND].log_end_offset == 5
