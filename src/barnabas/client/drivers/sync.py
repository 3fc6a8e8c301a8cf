"""The synchronous driver: whoever calls drives.

A thread that waits for a result turns the engine itself: it polls the sockets, so an answer wakes the thread that wants
it and no other. One thread leads (polls) at a time; others who wait follow, and are woken when what they wait for has
happened or when the leader leaves. A background thread leads when nobody else does: for answers nobody waits for,
lingering records, heartbeats. It naps while application threads are active, because each of its system calls
would cost them the GIL's switch interval.

The engine is touched only under `lock`, which is never held while a thread waits or runs the application's callbacks.
"""

import contextlib
import os
import select
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from librt.threading import Lock

from barnabas.client.core.engine import Engine
from barnabas.client.core.promise import Promise
from barnabas.client.drivers.channels import Channels
from barnabas.client.drivers.signals import HELD
from barnabas.client.errors import ClientClosed, ConnectionLost, OperationTimedOut

if TYPE_CHECKING:
    import ssl

__all__ = ["SyncDriver"]

NAP_S: Final = 0.005
"""A thread that turned the engine so recently will do it again: the background thread keeps out."""
POLL_MAX_S: Final = 60.0
JOIN_S: Final = 0.05
TURNS_MAX: Final = 100
"""Of the engine in one go; more means that its components do not come to rest."""

T = TypeVar("T")

_drivers: "weakref.WeakSet[SyncDriver]" = weakref.WeakSet()


class _Follower:
    """A thread that waits while another one polls."""

    __slots__ = ("bell", "done")

    def __init__(self, done: Callable[[], bool]) -> None:
        self.done = done
        self.bell = threading.Lock()
        self.bell.acquire()


class SyncDriver:
    """See the module. `run` and `wait` are the doors; both may be called from any thread."""

    def __init__(
        self,
        engine: Engine,
        *,
        ssl_context: "ssl.SSLContext | None" = None,
        on_fork: Callable[[], None] | None = None,
        name: str = "barnabas client",
    ) -> None:
        self.engine = engine
        self.lock = Lock()
        self.closed = False
        self._name = name
        self._why_closed = f"the {name} is closed"
        self._on_fork = on_fork
        self._poller = select.epoll()  # sees what another thread registers while it polls
        self._pipe = os.pipe()
        for fd in self._pipe:
            os.set_blocking(fd, False)
        self._poller.register(self._pipe[0], select.EPOLLIN)
        self._channels = Channels(engine, self._poller, ssl_context, self._name_resolved)
        self._leader = 0
        """Identity of the thread that polls, 0 for none."""
        self._polling = 0
        """Threads that poll: the leader, and one that was displaced and has not noticed yet."""
        self._led_until = float("inf")
        """When the leader looks up by itself."""
        self._followers: deque[_Follower] = deque()
        self._callbacks = threading.Lock()
        self._active_at = float("-inf")
        """When a thread of the application turned the engine last."""
        self._damaged = False
        self._owes_turn = False
        """Whether the background thread was asked for one."""
        self._thread: threading.Thread | None = None
        self._bell = threading.Lock()
        self._bell.acquire()
        self._napping_until = float("-inf")
        _drivers.add(self)

    # --- doors ------------------------------------------------------------------------------------------------------

    def run(self, action: Callable[[], T]) -> T:
        """Do something with the engine and let it act on it, without waiting."""
        with HELD, self.lock:
            self._check_open()
            self.engine.now = time.monotonic()
            result = self._guarded(action, may_refuse=True)
            self._active_turn()
            self._pass_on()
        self._call_back()
        return result

    def wait(
        self, done: Callable[[], bool], timeout_s: float | None = None, *, may_leave: Callable[[], bool] | None = None
    ) -> bool:
        """Turn the engine until `done()`, which is asked under the lock; False when the time is over before.

        `may_leave`: whether nothing is lost if the engine does not turn once more before the caller goes on; whoever
        comes next sees to it, the background thread after its nap if nobody does."""
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        has_led = False
        with HELD:
            try:
                while True:
                    follower = None
                    with self.lock:
                        leads = not self.closed and self._may_lead()
                        if leads and not has_led:  # who has led has turned the engine after that
                            self._guarded(self._turn)
                        if done():
                            return True
                        self._check_open()
                        left = deadline - time.monotonic()
                        if left <= 0 and (has_led or not leads):
                            return False
                        if leads:
                            self._lead(max(left, 0.0), None if may_leave is None else lambda: done() and may_leave())
                            self._active_at = time.monotonic()
                            has_led = True
                        else:
                            follower = _Follower(done)
                            self._followers.append(follower)
                    self._call_back()
                    if follower is not None:
                        self._follow(follower, deadline)
            finally:
                with self.lock:
                    self._pass_on()
                self._call_back()

    def wait_for(self, promise: Promise[T], timeout_s: float | None = None) -> T:
        """The promise's value, or raise its error, or OperationTimedOut."""
        if not promise.done and not self.wait(lambda: promise.done, timeout_s):
            raise OperationTimedOut(f"no result within {timeout_s:g} s")
        return promise.result()

    def interrupt(self) -> None:
        """Let whoever polls look up. Takes no lock, so that signal handlers may call it."""
        if not self.closed:
            with contextlib.suppress(OSError):
                os.write(self._pipe[1], b"\0")

    def turn_soon(self) -> None:
        """Have the background thread turn the engine, as soon as it gets the interpreter: what can wait so long costs
        the caller nothing."""
        with HELD, self.lock:
            self._owes_turn = True
            self._pass_on()
            self._ring()

    @property
    def owes_turn(self) -> bool:
        """Whether a turn is under way that somebody asked for."""
        return self._owes_turn

    def nudge(self) -> None:
        """With the lock held: something was added that has a deadline; see that somebody keeps it."""
        self._pass_on()

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosed(self._why_closed)

    # --- turning ----------------------------------------------------------------------------------------------------

    def _active_turn(self) -> None:
        """A turn by a thread of the application, which takes in what has come if nobody else of them polls."""
        self._active_at = time.monotonic()
        self._guarded(self._turn)
        if self._may_lead():
            self._displace()
            events = self._poller.poll(0)
            if events:
                self._guarded(lambda: self._handle(events))
                self._wake_followers()

    def _turn(self) -> None:
        """Let the engine do what is due, and carry out its orders until it has none."""
        self._owes_turn = False
        for _ in range(TURNS_MAX):
            self.engine.advance(time.monotonic())
            if not self._channels.obey():
                return

    def _handle(
        self, events: list[tuple[int, int]], leaves: Callable[[], bool] | None = None, until: float = float("-inf")
    ) -> None:
        """The engine turns, unless the thread `leaves`, or all that came before `until` is more of a large frame."""
        has_news = not events
        for fd, _ in events:
            if fd == self._pipe[0]:
                has_news = True
                if not self._polling:  # who was displaced may not have seen it yet, and would sleep on
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 4096)
            else:
                has_news = self._channels.serve(fd) or has_news
        if (has_news or time.monotonic() >= until) and (leaves is None or not leaves()):
            self._turn()

    def _guarded(self, action: Callable[[], T], *, may_refuse: bool = False) -> T:
        """An exception may still come between any two steps: who presses Ctrl-C twice does not wait. What was half done
        with a connection is undone by dropping all of them: their requests are sent again. An action that `may_refuse`
        to be done tells its caller so by an exception, and has left nothing half done."""
        if self._damaged:
            self._damaged = False
            self.engine.reset(ConnectionLost("the connection was given up because its work was interrupted"))
        try:
            return action()
        except BaseException as error:
            self._damaged = not (may_refuse and isinstance(error, Exception))
            raise

    def _call_back(self) -> None:
        """The application's callbacks, in order: by one thread at a time, without the lock."""
        completions = self.engine.completions
        while completions and self._callbacks.acquire(blocking=False):
            try:
                with HELD.through:
                    while completions:
                        try:
                            completions.popleft()()
                        except Exception:
                            _log_exception("a callback of the %s fails", self._name)
            finally:
                self._callbacks.release()

    # --- leading and following --------------------------------------------------------------------------------------

    def _may_lead(self) -> bool:
        """Nobody polls, or only the background thread, which gives way."""
        return not self._leader or (self._thread is not None and self._leader == self._thread.ident)

    def _lead(self, left_s: float, leaves: Callable[[], bool] | None = None) -> None:
        """Poll until something happens, it is time for something, or `left_s` is over; the lock is given up
        meanwhile. The engine does not turn after that if the thread `leaves` then."""
        me = threading.get_ident()
        self._displace()
        self._leader = me
        now = time.monotonic()
        timeout = max(min(left_s, self._next_deadline() - now, POLL_MAX_S), 0.0)
        self._led_until = now + timeout
        events: list[tuple[int, int]] = []
        leads = False
        self._polling += 1
        try:
            self.lock.release()
            events = self._poll(timeout)
        finally:
            try:
                self.lock.acquire()
            finally:
                self._polling -= 1
                leads = self._leader == me
                if leads:
                    self._leader = 0
        if self.closed:
            self._dispose()
        elif leads:
            self._guarded(lambda: self._handle(events, leaves, self._led_until))
            self._wake_followers()

    def _poll(self, timeout: float) -> list[tuple[int, int]]:
        """A signal that comes just before the system call does not interrupt it, and Ctrl-C would wait for its end: so
        signals write into the pipe meanwhile, where nobody else has them do so."""
        if threading.get_ident() != threading.main_thread().ident:
            return self._poller.poll(timeout)
        before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        try:
            if before >= 0:
                signal.set_wakeup_fd(before)
            with HELD.through:
                return self._poller.poll(timeout)
        finally:
            if before < 0:
                signal.set_wakeup_fd(-1)

    def _displace(self) -> None:
        """The background thread stops polling, and naps."""
        if self._leader:
            self._leader = 0
            self._wake_poller()

    def _wake_poller(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._pipe[1], b"\0")

    def _name_resolved(self) -> None:
        """In a thread of its own."""
        with self.lock:
            if not self.closed:
                self._wake_poller()

    def _next_deadline(self) -> float:
        return min(self.engine.next_deadline(), self._channels.next_deadline())

    def _follow(self, follower: _Follower, deadline: float) -> None:
        """Wait for the leader's word."""
        left = min(max(deadline - time.monotonic(), 0.0), POLL_MAX_S)
        try:
            with HELD.through:
                follower.bell.acquire(timeout=left)
        finally:
            with self.lock, contextlib.suppress(ValueError):
                self._followers.remove(follower)

    def _wake_followers(self) -> None:
        """Those for whom it has happened."""
        if self._followers:
            for follower in [f for f in self._followers if self.closed or f.done()]:
                self._followers.remove(follower)
                follower.bell.release()

    def _pass_on(self) -> None:
        """On leaving: somebody must keep the engine's next deadline."""
        if self.closed:
            return
        self._wake_followers()
        if self._leader:
            if self._next_deadline() < self._led_until:
                self._led_until = float("-inf")
                self._wake_poller()
        elif self._followers:
            self._followers.popleft().bell.release()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._background, name=self._name, daemon=True)
            self._thread.start()
        elif self._napping_until > time.monotonic() + NAP_S:
            self._napping_until = float("-inf")
            self._ring()

    # --- the background thread --------------------------------------------------------------------------------------

    def _ring(self) -> None:
        if self._bell.locked():
            self._bell.release()

    def _background(self) -> None:
        """Lead whenever nobody else does; nap while the application's threads are at it."""
        try:
            while self._background_turn():
                pass
        except Exception as error:
            _log_exception("the background thread of the %s fails, and closes it", self._name)
            with self.lock:
                self._shut(f"the {self._name} closed itself after a mistake of its own: {error!r}")

    def _background_turn(self) -> bool:
        nap = 0.0
        with self.lock:
            if self.closed:
                return False
            if self._owes_turn and not self._leader:
                self._guarded(self._turn)
            now = time.monotonic()
            if self._leader:
                nap = POLL_MAX_S  # who leads rings the bell on leaving
            elif now - self._active_at < NAP_S:
                nap = self._active_at + NAP_S - now
            else:
                self._guarded(self._turn)
                self._wake_followers()
                self._lead(POLL_MAX_S)
            self._napping_until = now + nap
        self._call_back()
        if nap:
            self._bell.acquire(timeout=nap)
        return True

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every connection at once. Who waits hears ClientClosed; calling it again does nothing."""
        with HELD, self.lock:
            self._shut(f"the {self._name} is closed")
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_S)
        self._call_back()

    def _shut(self, why: str) -> None:
        if self.closed:
            return
        self._why_closed = why
        self.closed = True
        self.engine.close()
        self._channels.close()
        self._wake_followers()
        self._ring()
        self._wake_poller()
        self._dispose()

    def _dispose(self) -> None:
        """The last one to poll takes the poller along: who polls does not notice that it is closed."""
        if self._pipe[0] >= 0 and not self._polling:
            self._poller.close()
            for fd in self._pipe:
                os.close(fd)
            self._pipe = (-1, -1)

    def _forked(self) -> None:
        """In the child: the connections are the parent's, and so is what was in flight. Nothing is said to brokers."""
        if self.closed:
            return
        self.lock = Lock()
        self._callbacks = threading.Lock()
        self._thread = None
        self._leader = self._polling = 0
        self._followers.clear()
        self.closed = True
        self._why_closed = f"the {self._name} belongs to the parent process; this one was forked from it"
        self._channels.abandon()
        self._dispose()
        self.engine.completions.clear()
        if self._on_fork is not None:
            self._on_fork()


def _log_exception(text: str, name: str) -> None:
    import logging  # only mistakes pay for this import

    logging.getLogger("barnabas.client").exception(text, name)


def _after_fork_in_child() -> None:
    for driver in list(_drivers):
        driver._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
