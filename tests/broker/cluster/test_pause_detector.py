"""A process that stood still takes itself for replaced until the controller answers."""

from barnabas.broker.cluster.pause_detector import PauseDetector


class Rig:
    def __init__(self) -> None:
        self.now = 100.0
        self.pauses = PauseDetector(lambda: self.now, 4.0)

    def run(self, seconds: float) -> None:
        """The loop runs all the time."""
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            self.pauses.tick()


def test_a_process_that_runs_has_no_doubts() -> None:
    rig = Rig()
    rig.run(60)
    assert not rig.pauses.may_be_replaced()
    rig.now += 3.9
    assert not rig.pauses.may_be_replaced(), "a short stop ends no session"


def test_a_process_that_stood_still_doubts_before_any_timer_has_run() -> None:
    rig = Rig()
    rig.now += 4.1
    assert rig.pauses.may_be_replaced()
    rig.run(60)
    assert rig.pauses.may_be_replaced(), "time alone proves nothing"


def test_a_timer_that_is_the_first_to_run_notices_it_too() -> None:
    rig = Rig()
    rig.now += 4.1
    rig.pauses.tick()
    assert rig.pauses.may_be_replaced()


def test_the_controllers_answer_to_a_later_heartbeat_ends_the_doubts() -> None:
    rig = Rig()
    sent_before = rig.now
    rig.now += 30
    assert rig.pauses.may_be_replaced()
    rig.pauses.confirmed(sent_before)
    assert rig.pauses.may_be_replaced(), "the answer is from before the stop"
    rig.pauses.confirmed(rig.now)
    assert not rig.pauses.may_be_replaced()
    rig.now += 4.1
    assert rig.pauses.may_be_replaced(), "it stood still again"
