"""The synchronous driver with real sockets: against a broker of ours, and against ports that are none."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.network_client import ANY
from barnabas.connection.promise import Promise
from barnabas.connection.retry import send_with_retries
from barnabas.errors import ClientClosed, OperationTimedOut, UsageError
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.testing import Broker
from client.conftest import SOON_S, server
from connection.drivers.conftest import fails, groups, network_client_at, silent
from stopwatch import Stopwatch


def test_a_request_and_its_answer(driver: SyncDriver) -> None:
    for _ in range(3):
        assert driver.wait_for(groups(driver), 60).error_code == 0


def test_many_threads_share_a_driver(driver: SyncDriver) -> None:
    answers: list[int] = []

    def work() -> None:
        answers.extend([driver.wait_for(groups(driver), 60).error_code for _ in range(50)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [0] * 400


def test_the_background_thread_takes_what_nobody_waits_for(driver: SyncDriver) -> None:
    done = threading.Event()
    promise = groups(driver)
    promise.on_done(lambda _: driver.client.completions.append(done.set))
    assert done.wait(60)


def test_timers_go_off_without_the_application(driver: SyncDriver) -> None:
    done = threading.Event()
    driver.run(lambda: driver.client.at(time.monotonic() + 0.05, done.set))
    assert done.wait(60)
    done.clear()
    driver.wait_for(groups(driver), 60)
    driver.run(lambda: driver.client.at(time.monotonic() + 0.05, done.set))
    assert done.wait(60)


def test_a_turn_that_is_left_to_a_wait_is_made_by_whoever_leads(driver: SyncDriver) -> None:
    """Another thread, which has led before and turned then, may lead first."""
    driver.wait_for(groups(driver), 60)
    held, asked, over = threading.Event(), threading.Event(), threading.Event()
    made: list[Promise[Any]] = []

    def hold() -> None:
        held.set()
        asked.wait(60)

    driver.run(lambda: driver.client.at(time.monotonic() + 0.2, lambda: driver.client.completions.append(hold)))
    other = threading.Thread(target=lambda: driver.wait(over.is_set, 60))
    other.start()
    try:
        assert held.wait(60)
        driver.run_before_wait(
            lambda: made.append(send_with_retries(driver.client, ListGroupsRequest(), ANY, timeout_s=60))
        )
        asked.set()
        deadline = time.monotonic() + 60
        while driver._leader != other.ident and not made[0].done:
            assert time.monotonic() < deadline
        assert driver.wait_for(made[0], 30).error_code == 0
    finally:
        over.set()
        driver.wakeup()
        other.join(60)


class DelayedPoller:
    """The driver's poller, for a machine that lets the background thread wait before it polls."""

    def __init__(self, poller: Any) -> None:
        self._poller = poller
        self.entered, self.goes_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)

    def poll(self, timeout: float) -> Any:
        if threading.current_thread() is not threading.main_thread():
            self.entered.set()
            self.goes_on.wait(60)
        return self._poller.poll(timeout)


def test_who_is_displaced_hears_of_it_however_late(driver: SyncDriver) -> None:
    """Else nobody would keep the next deadline."""
    late = DelayedPoller(driver._waker.poller)
    driver._waker.poller = late  # type: ignore[assignment]
    driver.wait_for(groups(driver), 60)
    assert late.entered.wait(60)
    done = threading.Event()
    driver.run(lambda: driver.client.at(time.monotonic() + 0.01, done.set))
    late.goes_on.set()
    assert done.wait(60)


class Turns:
    """A component that counts the turns of its network client."""

    count = 0

    def advance(self, now: float) -> None:
        self.count += 1

    def next_deadline(self) -> float:
        return float("inf")


def test_more_of_a_large_frame_turns_no_engine_unless_it_is_time_for_something() -> None:
    taken, over = threading.Event(), threading.Event()

    def behave(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall((10_000_000).to_bytes(4, "big") + bytes(100_000))
        while not over.is_set():
            connection.sendall(bytes(1000))
            taken.wait(0.001)

    with server(behave) as port:
        driver = SyncDriver(network_client_at(f"127.0.0.1:{port}"))
        turns = Turns()
        driver.client.components.append(turns)
        try:
            groups(driver)
            rang: list[float] = []
            counts: list[int] = []

            def has_rung() -> bool:
                counts.append(turns.count)
                return bool(rang)

            driver.run(lambda: driver.client.at(time.monotonic() + 0.3, lambda: rang.append(time.monotonic())))
            assert driver.wait(has_rung, 60), "a frame that never ends keeps a timer from going off"
            # The frame grew some 200 times. Before the wait, the background thread may have turned with each piece.
            assert counts[-1] - counts[0] < 100
        finally:
            over.set()
            driver.close()


def test_a_callback_that_fails_harms_nobody(driver: SyncDriver, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("the application's mistake")

    driver.run(lambda: driver.client.completions.append(fail))
    assert "the application's mistake" in caplog.text
    assert driver.wait_for(groups(driver), 60).error_code == 0


def test_a_wait_has_an_end(driver: SyncDriver) -> None:
    with pytest.raises(OperationTimedOut):
        driver.wait_for(Promise[None](), 0.05)


def wait_is_cut_short(driver: Any, cut: Callable[[], None], error: type[BaseException], stopwatch: Stopwatch) -> float:
    """Seconds from `cut`, which another thread calls once somebody polls, to the end of the wait."""
    at = []

    def work() -> None:
        while not driver._leader:
            pass
        at.append(stopwatch())
        cut()

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(error):
        driver.wait_for(Promise[None](), 30)
    over = stopwatch()
    thread.join()
    return over - at[0]


class LatePoller:
    """The thread of the application begins to poll when the background thread, which it has displaced, has noticed
    that the driver is closed."""

    def __init__(self, driver: SyncDriver) -> None:
        self.poller = driver._waker.poller
        self.driver = driver
        self.polls = threading.Event()
        self.closed = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.poller, name)

    def poll(self, timeout: float) -> Any:
        background = self.driver._background_thread
        if timeout and background is not None and background is not threading.current_thread():
            self.polls.set()
            assert self.closed.wait(60)
            background.join(60)
        found = self.poller.poll(timeout)
        if background is threading.current_thread():
            assert self.closed.wait(60)
        return found


def test_close_while_two_threads_poll() -> None:
    release = threading.Event()
    with server(silent(release)) as port:
        driver = SyncDriver(network_client_at(f"127.0.0.1:{port}"))
        late = driver._waker.poller = LatePoller(driver)  # type: ignore[assignment]
        groups(driver)
        while driver._background_thread is None or driver._leader != driver._background_thread.ident:
            pass
        heard: list[BaseException] = []

        def wait() -> None:
            try:
                driver.wait_for(Promise[None](), 30)
            except ClientClosed as error:
                heard.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        assert late.polls.wait(60)
        driver.close()
        late.closed.set()
        waiter.join(60)
        assert len(heard) == 1
        assert driver._waker.pipe == (-1, -1), "the last one closes the poller"
        release.set()


def test_close_ends_waits_at_once(stopwatch: Stopwatch) -> None:
    release = threading.Event()
    with server(silent(release)) as port:
        driver = SyncDriver(network_client_at(f"127.0.0.1:{port}"))
        groups(driver)
        assert wait_is_cut_short(driver, driver.close, ClientClosed, stopwatch) < SOON_S
        release.set()


def test_ctrl_c_ends_waits_at_once(driver: SyncDriver, stopwatch: Stopwatch) -> None:
    interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
    assert wait_is_cut_short(driver, interrupt, KeyboardInterrupt, stopwatch) < SOON_S
    assert driver.wait_for(groups(driver), 60).error_code == 0


def test_a_signal_just_before_the_poll_is_not_slept_through(driver: SyncDriver, stopwatch: Stopwatch) -> None:
    heard: list[int] = []

    class Poller:
        def __init__(self, poller: Any) -> None:
            self.poller = poller

        def __getattr__(self, name: str) -> Any:
            return getattr(self.poller, name)

        def poll(self, timeout: float) -> Any:
            if timeout and not heard:
                os.kill(os.getpid(), signal.SIGUSR1)
            return self.poller.poll(timeout)

    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    driver._waker.poller = Poller(driver._waker.poller)  # type: ignore[assignment]
    try:
        started = stopwatch()
        assert driver.wait(lambda: bool(heard), 30)
        assert stopwatch() - started < 10
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert signal.set_wakeup_fd(-1) == -1, "nobody's signals are written anywhere afterwards"


def test_close_does_not_wait_for_names(monkeypatch: pytest.MonkeyPatch, stopwatch: Stopwatch) -> None:
    release, looked_up = threading.Event(), threading.Event()

    def slow(host: str, port: int, *, flags: int, **_: Any) -> Any:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(-2, "not an address")
        looked_up.set()
        release.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    driver = SyncDriver(network_client_at("slow-name:9092"))
    groups(driver)
    assert looked_up.wait(60)
    started = stopwatch()
    driver.close()
    assert stopwatch() - started < SOON_S
    release.set()


def test_what_is_refused_costs_no_connection(driver: SyncDriver) -> None:
    driver.wait_for(groups(driver), 60)
    before = list(driver._channels._channels)

    def refuse() -> None:
        raise UsageError("not so")

    with pytest.raises(UsageError):
        driver.run(refuse)
    driver.wait_for(groups(driver), 60)
    assert list(driver._channels._channels) == before


def test_a_forked_child_leaves_the_connection_to_its_parent(driver: SyncDriver) -> None:
    driver.wait_for(groups(driver), 60)
    pid = os.fork()
    if pid == 0:
        try:
            driver.wait_for(groups(driver), 60)
        except ClientClosed as error:
            os._exit(7 if "parent process" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    connections = open_sockets()
    assert driver.wait_for(groups(driver), 60).error_code == 0
    assert open_sockets() == connections, "the parent had to connect again"


def open_sockets() -> set[str]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
    return {link for link in found if link.startswith("socket:")}


def test_descriptors_are_given_back(broker: Broker) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for _ in range(5):
        driver = SyncDriver(network_client_at(broker.bootstrap_servers))
        driver.wait_for(groups(driver), 60)
        driver.close()
        assert driver._background_thread is not None
        driver._background_thread.join(60)
    broker.wait_for(lambda: opened() <= before, what="as few descriptors as before, the broker's among them")


def test_who_waits_hears_of_a_mistake_in_the_background(driver: SyncDriver) -> None:
    at_work = threading.Event()
    driver.run(lambda: driver.client.at(time.monotonic() + 0.1, lambda: (at_work.set(), fails())))
    assert at_work.wait(30)
    thread = driver._background_thread
    assert thread is not None
    thread.join(30)
    with pytest.raises(ClientClosed, match=r"mistake of its own: AssertionError\('made for this test'\)"):
        groups(driver)
