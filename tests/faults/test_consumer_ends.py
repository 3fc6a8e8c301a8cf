"""Ctrl-C and close, whatever a consumer is blocked in, and although the broker answers nothing any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from bench.brokers import BrokerProcess, make_broker
from stopwatch import Stopwatch

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("ending.py")
WITHIN_S = 5.0
"""The promise is a tenth of a second; the machine may be busy, and another process has to come to the signal and to its
word. What a consumer must not wait for here lasts half a minute or more."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = ("num.partitions=1", "group.initial.rebalance.delay.ms=0")
    broker = make_broker("barnabas", tmp_path_factory.mktemp("broker"), settings)
    broker.start()
    broker.first_ack_s()
    with barnabas.Producer(bootstrap_servers=broker.address) as producer:
        producer.send("ends", b"record").result(60)
    yield broker
    os.kill(broker.pid, signal.SIGCONT)
    broker.stop()


@pytest.mark.parametrize("stopped", [False, True], ids=["broker-well", "broker-silent"])
@pytest.mark.parametrize("where", ["poll", "iterate", "commit", "end_offsets", "process", "close"])
@pytest.mark.parametrize("front", ["sync", "aio"])
def test_it_is_out_within_a_moment(
    broker: BrokerProcess, front: str, where: str, stopped: bool, stopwatch: Stopwatch
) -> None:
    os.kill(broker.pid, signal.SIGCONT)
    if not stopped and where in ("commit", "end_offsets"):
        pytest.skip("a broker that is well answers at once")
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), front, where, broker.address, "ends"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "joined\n"
        if stopped and where != "process":
            os.kill(broker.pid, signal.SIGSTOP)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        began = stopwatch()
        if stopped and where == "process":
            os.kill(broker.pid, signal.SIGSTOP)
        if where != "close":
            time.sleep(0.1)  # it shall be deep in there; earlier would be out, too
            began = stopwatch()
            process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "out\n"
        took_s = stopwatch() - began
        assert process.wait(60) == 0
        assert took_s < WITHIN_S, f"{took_s * 1000:.0f} ms"
        print(f"{front} {where}: {took_s * 1000:.0f} ms")
    finally:
        process.kill()
        process.wait()
        os.kill(broker.pid, signal.SIGCONT)
