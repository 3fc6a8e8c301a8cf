"""The cleaner's worker: how fast it works, and that it says so."""

import os

import pytest

from barnabas.log.cleaner.cleaner_protocol import Frames
from barnabas.log.cleaner.cleaner_worker import BrokerGone, PipeHost, Throttle


def test_a_slow_worker_says_that_it_goes_on() -> None:
    commands, broker = os.pipe()
    heard, events = os.pipe()
    os.set_blocking(heard, False)
    try:
        host = PipeHost(commands, events, rate=1e6, alive_interval_s=0.02)
        host.spend(200_000)  # more than it has credit for: a pause of a fifth of a second
        found = Frames(1000).feed(os.read(heard, 1 << 16))
        assert len(found) > 3
        assert all(message == {"event": "alive"} for message in found)
    finally:
        for fd in (commands, broker, heard, events):
            os.close(fd)


def test_no_pause_is_too_long_for_poll() -> None:
    commands, broker = os.pipe()
    heard, events = os.pipe()
    try:
        host = PipeHost(commands, events, rate=1e-3)
        os.close(broker)  # so that it ends instead of waiting for years
        with pytest.raises(BrokerGone):
            host.spend(1 << 30)
    finally:
        for fd in (commands, heard, events):
            os.close(fd)


def test_the_rate_is_kept_to() -> None:
    now = [100.0]
    throttle = Throttle(1000.0, lambda: now[0])
    waited = 0.0
    for _ in range(50):
        pause = throttle.spend(100)
        waited += pause
        now[0] += pause
    assert waited == pytest.approx(5.0, abs=0.1)
    now[0] += 1000.0
    assert throttle.spend(300) <= 0.0, "a short time of rest is made up for"
    assert throttle.spend(1000) == pytest.approx(1.0, abs=0.05), "a long one is not"
