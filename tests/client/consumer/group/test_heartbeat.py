"""The times of heartbeats and polls, without a clock."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.consumer.group.heartbeat import Heartbeat, MembershipSettings, PollTimer

NEVER = float("inf")
SETTINGS = MembershipSettings("g", session_timeout_s=10, heartbeat_interval_s=3, max_poll_interval_s=100)


def test_heartbeats_come_at_an_interval_from_the_last_request() -> None:
    heartbeat = Heartbeat(SETTINGS)
    assert heartbeat.due == NEVER
    heartbeat.begin(50)
    assert heartbeat.due == 53
    heartbeat.sent()
    assert heartbeat.due == NEVER, "one at a time"
    heartbeat.answered(55, sent_at=53)
    assert (heartbeat.due, heartbeat.answered_at) == (56, 55)
    heartbeat.end()
    assert heartbeat.due == NEVER


def test_a_silent_session_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    heartbeat = Heartbeat(SETTINGS)
    heartbeat.begin(50)
    for now in (55, 60, 60.5, 61):
        heartbeat.failed(now, pause_s=0.25)
        assert heartbeat.due == now + 0.25
    assert [record.getMessage()[:47] for record in caplog.records] == [
        "group 'g' has not heard of this member for 10.5"
    ]
    heartbeat.answered(62, sent_at=62)
    heartbeat.failed(73, pause_s=60)
    assert heartbeat.due == 76, "a pause is not longer than the interval"
    assert len(caplog.records) == 2


def test_an_application_is_warned_twice_before_its_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    timer = PollTimer(SETTINGS)
    assert timer.deadline() == NEVER
    timer.reset(1000)
    for deadline, told in ((1050, "50 %"), (1080, "80 %")):
        assert timer.deadline() == deadline
        assert not timer.has_expired(deadline - 0.1)
        assert not timer.has_expired(deadline)
        assert told in caplog.records[-1].getMessage()
    assert timer.deadline() == 1100
    assert timer.has_expired(1100)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    timer.reset(1101)
    assert timer.deadline() == 1151


def test_time_in_a_poll_does_not_count() -> None:
    timer = PollTimer(SETTINGS)
    timer.reset(0)
    timer.set_waiting(10, True)
    assert timer.deadline() == NEVER
    assert not timer.has_expired(10_000)
    timer.set_waiting(10_000, False)
    assert (timer.polled_at, timer.deadline()) == (10_000, 10_050)
    timer.set_waiting(10_020, False)
    assert timer.polled_at == 10_000, "it was not waiting"


@given(st.lists(st.floats(0.1, 60), max_size=8))
def test_a_member_leaves_after_its_interval_however_often_it_is_looked_at(steps: list[float]) -> None:
    timer, now = PollTimer(SETTINGS), 0.0
    timer.reset(now)
    for step in steps:
        now += step
        assert timer.has_expired(now) == (now >= SETTINGS.max_poll_interval_s)
