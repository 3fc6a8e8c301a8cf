"""The clock of a test's broker."""

import time

import pytest

import barnabas
from barnabas.errors import UsageError
from barnabas.testing import Broker
from barnabas.testing.clock import SkewedClock


def off_by(clock: SkewedClock) -> float:
    return clock.wall_ms() / 1000 - time.time()


def test_only_the_clock_of_people_is_wrong() -> None:
    clock = SkewedClock()
    before = clock.monotonic()
    for seconds in (3600, -0.5, 0):
        clock.skew(seconds)
        assert off_by(clock) == pytest.approx(seconds, abs=0.2)
    clock.skew()
    assert off_by(clock) == pytest.approx(3600, abs=0.2)
    assert clock.monotonic() - before < 60
    clock.heal()
    assert off_by(clock) == pytest.approx(0, abs=0.2)
    for unlikely in (float("nan"), 1e12):
        with pytest.raises(UsageError, match="a clock is wrong by at most"):
            clock.skew(unlikely)


def test_the_broker_goes_by_its_clock(broker: Broker) -> None:
    broker.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    broker.clock.skew(7200)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        ahead = producer.send("t", b"x").result(timeout=60)
        broker.reset()
        broker.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
        right = producer.send("t", b"x").result(timeout=60)
    assert ahead.timestamp - right.timestamp == pytest.approx(7_200_000, abs=60_000)
