"""Sessions of brokers by their heartbeats, on a clock of the test."""

from barnabas.controller.broker_heartbeats import BrokerHeartbeats
from barnabas.metadata.image import BrokerImage
from barnabas.types import BrokerId

ONE = BrokerImage(BrokerId(1), 5, ())
TWO = BrokerImage(BrokerId(2), 6, ())


def test_a_broker_is_suspected_when_its_session_has_timed_out() -> None:
    heartbeats = BrokerHeartbeats(9.0, now=100.0)
    heartbeats.heard(ONE.node_id, ONE.epoch, 104.0)
    assert heartbeats.suspected([ONE, TWO], 109.0) == []
    assert heartbeats.suspected([ONE, TWO], 109.1) == [TWO]
    assert (heartbeats.silent_s(ONE, 109.0), heartbeats.silent_s(TWO, 109.0)) == (5, 9)
    assert heartbeats.suspected([ONE, TWO], 113.0) == [TWO]
    assert heartbeats.suspected([ONE, TWO], 113.1) == [ONE, TWO]
    heartbeats.heard(TWO.node_id, TWO.epoch, 114.0)
    assert heartbeats.suspected([ONE, TWO], 115.0) == [ONE]


def test_a_fenced_broker_is_not_suspected_again() -> None:
    heartbeats = BrokerHeartbeats(9.0, now=0.0)
    assert heartbeats.suspected([ONE._replace(fenced=True), TWO], 10.0) == [TWO]


def test_a_broker_that_has_registered_again_is_not_heard_by_its_former_registration() -> None:
    heartbeats = BrokerHeartbeats(9.0, now=0.0)
    heartbeats.heard(ONE.node_id, ONE.epoch, 20.0)
    again = ONE._replace(epoch=7)
    assert heartbeats.suspected([again], 20.0) == [again]
    assert heartbeats.suspected([ONE], 20.0) == [ONE], "and the former one is forgotten"
