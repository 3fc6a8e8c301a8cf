"""Threads and signal handlers that poll, close and unsubscribe one consumer."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
from barnabas.errors import ClientClosed, UsageError
from barnabas.testing import Broker
from client.conftest import SOON_S
from client.consumer.conftest import read_all
from stopwatch import Stopwatch

pytestmark = pytest.mark.timeout(120)  # here nearly everything ends only when all records have come


def test_who_waits_in_a_poll_hears_that_another_thread_unsubscribes(topic: str, alone: dict[str, Any]) -> None:
    with barnabas.Consumer(topic, **alone) as consumer:
        read_all(consumer)
        failures: list[UsageError] = []

        def poll() -> None:
            with pytest.raises(UsageError) as failure:
                consumer.poll(60)
            failures.append(failure.value)

        thread = threading.Thread(target=poll)
        thread.start()
        while not consumer._state.is_waiting:
            time.sleep(0.001)
        consumer.unsubscribe()
        thread.join(60)
        assert "nothing to read" in str(failures)


def test_close_ends_what_other_threads_wait_for(
    topic: str, settings: dict[str, Any], broker: Broker, stopwatch: Stopwatch
) -> None:
    consumer = barnabas.Consumer(topic, **settings)
    read_all(consumer)
    broker.faults.delay("OFFSET_COMMIT", 60)
    ended: list[Any] = []

    def wait_in(call: Callable[[], object]) -> None:
        try:
            call()
        except ClientClosed:
            ended.append(call)

    calls: list[Callable[[], object]] = [consumer.poll, consumer.commit]
    threads = [threading.Thread(target=wait_in, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    while consumer.health().since_poll != 0 or not consumer.metrics()["commits"]:
        time.sleep(0.001)
    began = stopwatch()
    consumer.close()
    for thread in threads:
        thread.join(60)
    assert stopwatch() - began < SOON_S
    assert len(ended) == 2


def test_an_iteration_gives_nothing_beyond_what_a_close_has_committed(topic: str, settings: dict[str, Any]) -> None:
    revoked, looked = threading.Event(), threading.Event()

    def on_revoked(*_: object) -> None:
        revoked.set()
        looked.wait(0.3)  # the iteration below ends when the close does, and gives a record before that if it is wrong

    consumer = barnabas.Consumer(topic, **settings, on_revoked=on_revoked)
    records = iter(consumer)
    read = [next(records) for _ in range(70)]
    closing = threading.Thread(target=consumer.close)
    closing.start()
    assert revoked.wait(60)
    beyond = next(records, None)
    looked.set()
    closing.join(60)
    assert len(read) == 70
    assert beyond is None


def test_a_signal_handler_may_close(topic: str, settings: dict[str, Any], stopwatch: Stopwatch) -> None:
    consumer = barnabas.Consumer(topic, **settings)
    read_all(consumer)
    handled: list[float] = []

    def close(*_: object) -> None:
        handled.append(stopwatch())
        consumer.close()

    before = signal.signal(signal.SIGUSR1, close)
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(ClientClosed):
            consumer.poll()
        assert stopwatch() - handled[0] < SOON_S
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
