"""A broker that stood still, or for whose session nobody vouches, takes itself for replaced."""

from barnabas.broker.cluster.session_doubts import SessionDoubts

SURE_S = 6.0


class Rig:
    def __init__(self) -> None:
        self.now = 100.0
        self.doubts = SessionDoubts(lambda: self.now, 4.0)
        self.doubts.confirmed(self.now, SURE_S)

    def run(self, seconds: float) -> None:
        """The loop runs all the time."""
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            self.doubts.tick()


def test_a_process_that_runs_did_not_stand_still() -> None:
    rig = Rig()
    rig.run(60)
    assert not rig.doubts.stood_still()
    rig.now += 3.9
    assert not rig.doubts.stood_still(), "a short stop ends no session"


def test_a_process_that_stood_still_doubts_before_any_timer_has_run() -> None:
    rig = Rig()
    rig.now += 4.1
    assert rig.doubts.stood_still()
    rig.run(60)
    assert rig.doubts.stood_still(), "time alone proves nothing"


def test_a_timer_that_is_the_first_to_run_notices_it_too() -> None:
    rig = Rig()
    rig.now += 4.1
    rig.doubts.tick()
    assert rig.doubts.stood_still()


def test_the_controllers_answer_to_a_later_heartbeat_ends_the_doubts() -> None:
    rig = Rig()
    sent_before = rig.now
    rig.now += 30
    assert rig.doubts.stood_still()
    rig.doubts.confirmed(sent_before, SURE_S)
    assert rig.doubts.stood_still(), "the answer is from before the stop"
    rig.doubts.confirmed(rig.now, SURE_S)
    assert not rig.doubts.stood_still()
    rig.now += 4.1
    assert rig.doubts.stood_still(), "it stood still again"


def test_who_is_sure_for_a_time_is_not_longer() -> None:
    rig = Rig()
    assert rig.doubts.sure_s() == SURE_S
    rig.run(SURE_S)
    assert rig.doubts.sure_s() == 0
    rig.doubts.confirmed(rig.now - 1.0, 3.0)
    rig.doubts.confirmed(rig.now - 1.0, 2.0)  # a weaker word takes nothing back
    assert rig.doubts.sure_s() == 2.0, "the time counts from the question on"
    rig.doubts.denied()
    assert rig.doubts.sure_s() == 0
