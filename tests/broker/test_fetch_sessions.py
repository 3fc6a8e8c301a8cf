"""The cache of fetch sessions: slots, eviction, epochs."""

import pytest

from barnabas.broker.fetch_sessions import FetchSession, FetchSessionCache, wanted_partitions
from barnabas.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from hand_clock import HandClock


def request(session_id: int = 0, epoch: int = 0, *partitions: int) -> FetchRequest:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=index) for index in partitions])]
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)


def begin_session(cache: FetchSessionCache, *partitions: int) -> FetchSession | None:
    return cache.begin(request(0, 0, *partitions), 12, list(wanted_partitions(request(0, 0, *partitions), 12)))


def begin(cache: FetchSessionCache, *partitions: int) -> int:
    """Returns the id of a new session, 0 if there is no room."""
    session = begin_session(cache, *partitions)
    return session.session_id if session is not None else 0


def test_a_full_cache_keeps_what_is_used_and_evicts_what_is_idle() -> None:
    clock = HandClock()
    cache = FetchSessionCache(2, clock)
    first, second = begin(cache, 0), begin(cache, 1)
    assert first
    assert second
    assert begin(cache, 2) == 0, "both are young: the newcomer goes without"
    clock.now += 100
    cache.resume(request(first, 1), 12)
    clock.now += 30
    third = begin(cache, 2)
    assert third, "the second has been idle for more than two minutes"
    assert len(cache) == 2
    with pytest.raises(FetchSessionIdNotFound):
        cache.resume(request(second, 1), 12)
    cache.resume(request(first, 2), 12)


def test_no_slots_no_sessions() -> None:
    assert begin(FetchSessionCache(0, HandClock()), 0) == 0


def test_epochs_go_round_without_0() -> None:
    cache = FetchSessionCache(1, HandClock())
    session = begin_session(cache, 0)
    assert session is not None
    session.epoch = 2**31 - 1
    cache.resume(request(session.session_id, 2**31 - 1), 12)
    assert session.epoch == 1
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.resume(request(session.session_id, 0), 12)


def test_who_was_served_goes_to_the_end_of_the_order() -> None:
    cache = FetchSessionCache(1, HandClock())
    session = begin_session(cache, 0, 1, 2)
    assert session is not None
    session.move_to_end(session.partitions["t", 0])
    assert [partition for _, partition in session.partitions] == [1, 2, 0]


def test_sessions_hold_so_many_partitions_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.fetch_sessions._PARTITIONS_MAX", 10)
    clock = HandClock()
    cache = FetchSessionCache(100, clock)
    first = begin(cache, *range(6))
    assert begin(cache, *range(5)) == 0
    second = begin(cache, *range(4))
    assert second
    with pytest.raises(FetchSessionIdNotFound):
        cache.resume(request(second, 1, 7), 12)
    assert len(cache) == 1, "what grew too large is gone; its consumer begins anew, or goes on without"
    assert begin(cache, *range(4))
    cache.end(first)
    assert begin(cache, *range(6))
