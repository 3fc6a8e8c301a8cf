"""A broker that stood still, or for whose session nobody vouches, takes itself for replaced."""

import pytest

from barnabas.broker.cluster.session_doubts import SessionDoubts


class Rig:
    def __init__(self) -> None:
        self.now = 100.0
        self.doubts = SessionDoubts(lambda: self.now, session_s=8.0)
        self.doubts.heartbeat_answered(self.now)
        self.heard_within: float | None = None
        """The time within which a controller hears of enough; None for another broker."""

    def run(self, seconds: float) -> None:
        """The loop runs all the time."""
        for _ in range(round(seconds * 4)):
            self.now += 0.25
            self.doubts.tick()

    def answered_for(self, seconds: float) -> None:
        """The controller answers a heartbeat each second."""
        for _ in range(round(seconds)):
            self.run(1)
            self.doubts.heartbeat_answered(self.now)

    def is_in_doubt(self) -> bool:
        heard = self.heard_within
        return self.doubts.may_be_replaced(None if heard is None else lambda within_s: heard < within_s)


# --- a process that stands still --------------------------------------------------------------------------------------


def test_a_process_that_runs_did_not_stand_still() -> None:
    rig = Rig()
    rig.answered_for(60)
    assert not rig.is_in_doubt()
    rig.now += 3.9
    assert not rig.is_in_doubt(), "a short stop ends no session"


@pytest.mark.parametrize("is_first", [True, False])
def test_a_process_that_stood_still_doubts_whichever_runs_first(is_first: bool) -> None:
    rig = Rig()
    rig.answered_for(10)
    rig.now += 30
    if is_first:
        rig.doubts.tick()  # the timer runs before a request is read
    assert rig.is_in_doubt()
    rig.run(60)
    assert rig.is_in_doubt(), "time alone proves nothing"


def test_the_controllers_answer_to_a_later_heartbeat_ends_the_doubts() -> None:
    rig = Rig()
    sent_before = rig.now
    rig.now += 30
    assert rig.is_in_doubt()
    rig.doubts.heartbeat_answered(sent_before)
    assert rig.is_in_doubt(), "the answer is from before the stop"
    rig.doubts.heartbeat_answered(rig.now)
    assert not rig.is_in_doubt()
    rig.now += 4.1
    assert rig.is_in_doubt(), "it stood still again"


def test_a_controller_that_stood_still_believes_heartbeats_from_after_a_registry_that_does_not_respond() -> None:
    rig = Rig()
    rig.heard_within = 1.0
    rig.now += 30
    assert rig.is_in_doubt(), "these heartbeats may have waited in the buffers"
    rig.doubts.registry_unread()
    rig.run(1.0)
    assert rig.is_in_doubt(), "they are from before the question"
    rig.run(0.25)
    assert not rig.is_in_doubt()


# --- one that is cut off ----------------------------------------------------------------------------------------------


def test_an_answer_counts_from_the_heartbeat_on_for_half_a_session() -> None:
    rig = Rig()
    sent_at = rig.now
    rig.run(1.0)
    rig.doubts.heartbeat_answered(sent_at)
    rig.run(2.5)
    assert rig.doubts.wants_reading()
    assert not rig.is_in_doubt()
    rig.run(0.5)
    assert rig.is_in_doubt()


@pytest.mark.parametrize(("is_controller", "sure_s"), [(False, 1.5), (True, 4.0)])
def test_a_reading_of_the_registry_counts_for_longer_where_it_is_the_controllers(
    is_controller: bool, sure_s: float
) -> None:
    rig = Rig()
    rig.run(3.75)
    rig.doubts.registry_read(rig.now, is_controller=is_controller)
    rig.run(sure_s - 0.25)
    assert not rig.is_in_doubt()
    rig.run(0.25)
    assert rig.is_in_doubt()


def test_the_registry_is_read_again_and_again_while_it_alone_vouches() -> None:
    rig = Rig()
    assert not rig.doubts.wants_reading()
    rig.doubts.registry_read(rig.now, is_controller=False)
    assert not rig.doubts.wants_reading(), "the heartbeat vouches for longer"
    rig.run(3.75)
    assert rig.doubts.wants_reading()
    rig.doubts.registry_read(rig.now, is_controller=False)
    assert rig.doubts.wants_reading(), "the session may end before the next one"
    rig.doubts.heartbeat_answered(rig.now)
    assert not rig.doubts.wants_reading()
    rig.doubts.registry_read(rig.now, is_controller=True)
    assert not rig.doubts.wants_reading()


def test_the_registry_is_read_after_a_stop() -> None:
    rig = Rig()
    began = rig.now
    rig.now += 30
    rig.doubts.tick()
    rig.doubts.registry_read(began, is_controller=True)
    assert rig.doubts.wants_reading(), "it was read before the end of the stop"
    rig.doubts.registry_read(rig.now, is_controller=True)
    assert not rig.doubts.wants_reading()


def test_short_sessions_are_seen_to_run_often_enough() -> None:
    doubts = SessionDoubts(lambda: 0.0, session_s=0.4)
    assert doubts.tick_s < doubts.sure_s


def test_a_weaker_word_takes_nothing_back() -> None:
    rig = Rig()
    rig.doubts.registry_read(rig.now, is_controller=False)
    rig.run(3.75)
    assert not rig.is_in_doubt()


def test_a_broker_that_loses_the_role_relies_on_what_vouches_for_others() -> None:
    rig = Rig()
    rig.doubts.registry_read(rig.now, is_controller=True)
    rig.doubts.role_lost()
    assert rig.doubts.wants_reading()
    rig.run(1.25)
    assert not rig.is_in_doubt()
    rig.run(0.25)
    assert rig.is_in_doubt()
    rig.doubts.heartbeat_answered(rig.now)
    assert not rig.is_in_doubt()
    assert not rig.doubts.wants_reading()


def test_a_session_that_has_ended_leaves_doubts_at_once() -> None:
    rig = Rig()
    rig.doubts.denied()
    assert rig.is_in_doubt()


def test_a_controller_without_the_registry_goes_on_while_it_hears_of_enough() -> None:
    rig = Rig()
    rig.run(60)
    assert rig.is_in_doubt()
    rig.heard_within = 3.9
    assert not rig.is_in_doubt()
    rig.heard_within = 4.1
    assert rig.is_in_doubt()
