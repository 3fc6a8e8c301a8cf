"""When a follower counts as caught up."""

from barnabas.replication.replica import NEVER, FollowerFetch, Replica

LAG_S = 10.0


def fetched(replica: Replica, offset: int, leader_end_offset: int, now: float) -> Replica:
    replica.update(FollowerFetch(offset, 1, 1, 0), 7, leader_end_offset, now)
    return replica


def test_a_fetch_tells_the_leader_where_the_follower_is() -> None:
    replica = Replica(2)
    assert not replica.has_fetched
    replica.update(FollowerFetch(5, 1, 1, 3), 7, 9, 100.0)
    assert (replica.log_end_offset, replica.log_start_offset, replica.broker_epoch) == (5, 3, 7)
    assert replica.has_fetched
    assert "log_end_offset=5" in repr(replica)


def test_a_follower_at_the_leaders_end_has_caught_up_now() -> None:
    replica = fetched(Replica(2), 10, 10, 100.0)
    assert replica.last_caught_up == 100.0
    assert replica.is_caught_up(10, 1000.0, LAG_S), "nothing is missing, however long ago it fetched"
    assert replica.is_caught_up(11, 110.0, LAG_S)
    assert not replica.is_caught_up(11, 110.1, LAG_S)


def test_under_a_steady_load_a_follower_is_caught_up_by_its_previous_fetch() -> None:
    """It is always behind the end of the log, but has what was there when it fetched before."""
    replica = Replica(2)
    for step in range(5):
        fetched(replica, 10 * step, 10 * step + 10, 100.0 + step)
    assert replica.last_caught_up == 103.0


def test_a_slow_follower_is_not_caught_up_although_it_fetches() -> None:
    replica = Replica(2)
    for step in range(50):
        fetched(replica, step, 100 * step + 100, 100.0 + step)
    assert replica.last_caught_up == NEVER
    assert not replica.is_caught_up(6000, 149.0, LAG_S)


def test_a_fetch_that_arrives_late_takes_nothing_back() -> None:
    replica = fetched(Replica(2), 10, 10, 100.0)
    fetched(replica, 4, 10, 101.0)
    assert replica.last_caught_up == 100.0


def test_a_follower_that_had_all_records_lags_from_then_on() -> None:
    replica = fetched(Replica(2), 10, 10, 100.0)
    replica.had_all(150.0)
    assert replica.last_caught_up == 150.0
    assert replica.is_caught_up(11, 160.0, LAG_S)
    assert not replica.is_caught_up(11, 160.1, LAG_S)
    replica.had_all(140.0)
    assert replica.last_caught_up == 150.0, "time does not go back"
    fetched(replica, 10, 12, 151.0)
    assert replica.last_caught_up == 150.0


def test_a_member_of_the_isr_is_caught_up_at_the_election_and_no_other_replica() -> None:
    assert Replica(2, 100.0).is_caught_up(50, 105.0, LAG_S)
    assert not Replica(2).is_caught_up(50, 5.0, LAG_S), "also where the clock has just begun"
