"""The controller on its own thread: order, errors, bounds, and a registry that another process has locked."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import controller_thread
from barnabas.broker.controller_thread import ControllerThread
from barnabas.broker.startup.directory_check import REGISTRY_FILE
from barnabas.client.producer.front import Producer
from barnabas.controller.controller import Controller
from barnabas.errors import PolicyViolation, RequestTimedOut
from barnabas.testing import Broker


class FakeController:
    def __init__(self) -> None:
        self.calls: list[object] = []
        self.subscriber: Callable[[Any], None] = lambda change: None

    def check(self, since: float | None = None) -> None:
        self.calls.append("check")

    def change(self, what: object) -> object:
        self.calls.append(what)
        self.subscriber(what)
        return what


def run(scenario: Callable[[ControllerThread, FakeController], Any], *, is_full: Sequence[bool] = ()) -> None:
    """Runs a scenario; the disk is full as long as `is_full` is not empty."""

    async def main() -> None:
        controller = FakeController()
        thread = ControllerThread(controller, asyncio.get_running_loop(), runs_inline=lambda: bool(is_full))  # type: ignore[arg-type]
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

    run(scenario, is_full=[True] if inline else [])


def test_errors_of_a_call_are_raised() -> None:
    async def scenario(thread: ControllerThread, _: FakeController) -> None:
        def refuse(_: object) -> None:
            raise PolicyViolation("no")

        with pytest.raises(PolicyViolation):
            await thread.call(refuse)

    run(scenario)


def test_waiting_calls_are_bounded_and_checks_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_thread, "CALLS_MAX", 3)

    async def scenario(thread: ControllerThread, controller: FakeController) -> None:
        go_on = threading.Event()
        waiting = [asyncio.ensure_future(thread.call(lambda it: go_on.wait())) for _ in range(2)]
        await asyncio.sleep(0)
        for _ in range(10):
            thread.check()
        with pytest.raises(RequestTimedOut):
            await thread.call(lambda it: None)
        go_on.set()
        await asyncio.gather(*waiting)
        await thread.call(lambda it: None)
        await asyncio.sleep(0)
        await thread.call(lambda it: None)
        # What came after the first began may be news to it: one more looks for that.
        assert controller.calls == ["check"] * 2
        thread.check()
        await thread.call(lambda it: None)
        assert controller.calls == ["check"] * 3

    run(scenario)


def test_a_check_on_a_full_disk_runs_at_once() -> None:
    async def scenario(thread: ControllerThread, controller: FakeController) -> None:
        thread.check()
        assert controller.calls == ["check"]

    run(scenario, is_full=[True])


@pytest.mark.parametrize("inline", [False, True])
def test_a_call_returns_when_the_other_brokers_know(inline: bool) -> None:
    async def scenario(thread: ControllerThread, controller: FakeController) -> None:
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def until_known() -> None:
            assert controller.calls[-1] != "refused"
            await known

        thread.until_known = until_known
        assert await thread.call(lambda it: controller.change("quick"), until_known=False) == "quick"
        waiting = asyncio.ensure_future(thread.call(lambda it: controller.change("a")))
        await asyncio.sleep(0)
        await thread.call(lambda it: controller.change("b"), until_known=False)
        assert controller.calls == ["quick", "a", "b"]
        assert not waiting.done(), "the thread takes other calls meanwhile"
        known.set_result(None)
        assert await waiting == "a"

        def refuse(it: object) -> None:
            controller.change("refused")
            raise PolicyViolation("no")

        with pytest.raises(PolicyViolation):
            await thread.call(refuse)

    run(scenario, is_full=[True] * inline)


def test_a_registry_that_another_process_has_locked_holds_up_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped in the middle of a transaction keeps the lock of the registry's file."""
    monkeypatch.setattr("barnabas.registry.sqlite_file._BUSY_TIMEOUT_S", 60.0)
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
            producer.send("t", b"%d" % number).result(20)  # SQLite waits a minute for the lock
        assert not late.done()
        lock.close()
        late.result(10)
        assert broker.end_offsets("t") == [21]


def test_calls_whose_turn_comes_too_late_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_thread, "WAIT_MAX_S", 0.0)

    async def scenario(thread: ControllerThread, controller: FakeController) -> None:
        go_on = threading.Event()
        thread._submit(lambda it: go_on.wait())
        late = asyncio.ensure_future(thread.call(lambda it: controller.change("late")))
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(RequestTimedOut, match="nothing was changed"):
            await late
        assert not controller.calls

    run(scenario)


def test_calls_that_wait_at_the_end_are_not_made() -> None:
    async def scenario(thread: ControllerThread, controller: FakeController) -> None:
        go_on = threading.Event()
        waiting = [asyncio.ensure_future(thread.call(lambda it: go_on.wait()))]
        waiting += [asyncio.ensure_future(thread.call(lambda it: controller.change("late"))) for _ in range(3)]
        await asyncio.sleep(0)
        threading.Timer(0.05, go_on.set).start()
        thread.shutdown()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [bool, *[RequestTimedOut] * 3]
        assert all("this broker stops" in str(result) for result in results[1:]), "and the registry is not slow"
        assert not controller.calls

    run(scenario)


def test_a_call_on_the_loop_never_overlaps_with_one_in_the_thread() -> None:
    async def scenario(thread: ControllerThread, controller: FakeController) -> None:
        go_on = threading.Event()
        first = asyncio.ensure_future(thread.call(lambda it: (go_on.wait(), controller.change("first"))))
        await asyncio.sleep(0)
        is_full.append(True)
        second = asyncio.ensure_future(thread.call(lambda it: controller.change(threading.get_ident())))
        await asyncio.sleep(0)
        assert not controller.calls
        go_on.set()
        await asyncio.gather(first, second)
        assert controller.calls == ["first", threading.get_ident()]

    is_full: list[bool] = []
    run(scenario, is_full=is_full)


def test_a_change_that_comes_while_the_broker_stops_does_not_touch_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    create_topics = Controller.create_topics

    def create_late(*arguments: Any, **named: Any) -> Any:
        begun.set()
        go_on.wait(30)
        return create_topics(*arguments, **named)

    with Broker(data_dir=tmp_path) as broker, ThreadPoolExecutor() as pool:
        broker.create_topic("t")
        monkeypatch.setattr(Controller, "create_topics", create_late)
        late = pool.submit(broker.create_topic, "late")
        assert begun.wait(30)
        stopping = pool.submit(broker.stop)
        broker.wait_for(lambda: not broker.is_running)
        go_on.set()
        stopping.result(30)
        late.exception(60)
        assert not list(tmp_path.glob("late-*"))
    with Broker(data_dir=tmp_path) as broker:
        assert broker.topics() == ["late", "t"]
