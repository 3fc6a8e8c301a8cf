"""The controller on its own thread: order, errors, bounds, and a registry that another process has locked."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from barnabas.broker import controller_thread
from barnabas.broker.controller_thread import ControllerThread
from barnabas.broker.startup.directory_check import REGISTRY_FILE
from barnabas.client.producer.front import Producer
from barnabas.errors import PolicyViolation, RequestTimedOut
from barnabas.testing import Broker


class FakeController:
    def __init__(self) -> None:
        self.calls: list[object] = []
        self.subscriber: Callable[[Any], None] = lambda change: None

    def heartbeat(self) -> None:
        self.calls.append("heartbeat")

    def change(self, what: object) -> object:
        self.calls.append(what)
        self.subscriber(what)
        return what


def run(scenario: Callable[[ControllerThread, FakeController], Any], *, inline: bool = False) -> None:
    async def main() -> None:
        controller = FakeController()
        thread = ControllerThread(controller, asyncio.get_running_loop(), runs_inline=lambda: inline)  # type: ignore[arg-type]
        try:
            await scenario(thread, controller)
        finally:
            thread.shutdown()

    asyncio.run(main())


def test_calls_run_in_their_order_on_one_other_thread() -> None:
    async def scenario(thread: ControllerThread, controller: FakeController) -> None:
        def note(_: object, number: int) -> int:
            controller.calls.append((number, threading.get_ident()))
            return number

        found = await asyncio.gather(*(thread.call(lambda it, n=n: note(it, n)) for n in range(50)))  # type: ignore[misc]
        assert found == list(range(50))
        assert [number for number, _ in controller.calls] == list(range(50))  # type: ignore[misc]
        threads = {ident for _, ident in controller.calls}  # type: ignore[misc]
        assert len(threads) == 1
        assert threading.get_ident() not in threads

    run(scenario)


@pytest.mark.parametrize("inline", [False, True])
def test_an_image_is_published_before_the_call_that_made_it_returns(inline: bool) -> None:
    async def scenario(thread: ControllerThread, controller: FakeController) -> None:
        published: list[tuple[object, int]] = []
        controller.subscriber = thread.publish(lambda change: published.append((change, threading.get_ident())))
        assert await thread.call(lambda it: it.change("topic")) == "topic"  # type: ignore[attr-defined]
        assert published == [("topic", threading.get_ident())]

    run(scenario, inline=inline)


def test_errors_of_a_call_are_raised() -> None:
    async def scenario(thread: ControllerThread, _: FakeController) -> None:
        def refuse(_: object) -> None:
            raise PolicyViolation("no")

        with pytest.raises(PolicyViolation):
            await thread.call(refuse)

    run(scenario)


def test_waiting_calls_are_bounded_and_heartbeats_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_thread, "CALLS_MAX", 3)

    async def scenario(thread: ControllerThread, controller: FakeController) -> None:
        go_on = threading.Event()
        waiting = [asyncio.ensure_future(thread.call(lambda it: go_on.wait())) for _ in range(2)]
        await asyncio.sleep(0)
        for _ in range(10):
            thread.heartbeat()
        with pytest.raises(RequestTimedOut):
            await thread.call(lambda it: None)
        go_on.set()
        await asyncio.gather(*waiting)
        await thread.call(lambda it: None)
        assert controller.calls == ["heartbeat"]
        thread.heartbeat()
        await thread.call(lambda it: None)
        assert controller.calls == ["heartbeat"] * 2

    run(scenario)


def test_a_registry_that_another_process_has_locked_holds_up_no_records() -> None:
    """A process that is stopped in the middle of a transaction keeps the lock of the registry's file."""
    with (
        Broker(settings={"broker.heartbeat.interval.ms": 10}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ThreadPoolExecutor() as pool,
    ):
        broker.create_topic("t")
        producer.send("t", b"before").result(10)
        lock = sqlite3.connect(broker.data_dir / REGISTRY_FILE, isolation_level=None, check_same_thread=False)
        lock.execute("BEGIN IMMEDIATE")
        late = pool.submit(broker.create_topic, "late")
        for number in range(20):
            producer.send("t", b"%d" % number).result(3)  # SQLite waits five seconds for the lock
        assert not late.done()
        lock.close()
        late.result(10)
        assert broker.end_offsets("t") == [21]
