"""The synchronous driver: the calling threads drive the network client.

A thread that waits for a result polls the sockets itself, so a response wakes the thread that wants it and no other.
One thread at a time is the leader and polls. Other waiting threads are followers, and are woken when their results are
there or when the leader leaves. A background thread leads when no other does: for responses that no thread waits for,
lingering records, heartbeats. It sleeps while application threads are active, because each of its system calls would
cost them the GIL's switch interval.

In a turn the network client acts on the events since the last turn, and the driver does the I/O that the client asks
for. The client is used only under `lock`, which is never held while a thread waits or runs the application's callbacks.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from librt.threading import Lock

from barnabas.connection.drivers.callbacks import Callbacks, log_exception
from barnabas.connection.drivers.channels import Channels
from barnabas.connection.drivers.signals import HELD
from barnabas.connection.drivers.waker import Follower, Waker
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.connection.timers import NEVER
from barnabas.errors import ClientClosed, ConnectionLost, OperationTimedOut

if TYPE_CHECKING:
    import ssl

__all__ = ["SyncDriver"]

BACKGROUND_SLEEP_S: Final = 0.005
"""The background thread sleeps for this time after a turn of an application thread, which will soon make another."""
POLL_MAX_S: Final = 60.0
JOIN_S: Final = 0.05
TURNS_MAX: Final = 100
"""The most passes in one turn; more would mean that the components never come to rest."""

T = TypeVar("T")
Condition = Callable[[], bool]
Events = list[tuple[int, int]]


class SyncDriver:
    """Drives a network client. The methods without an underscore may be called from any thread."""

    def __init__(
        self,
        client: NetworkClient,
        *,
        ssl_context: "ssl.SSLContext | None" = None,
        on_fork: Callable[[], None] | None = None,
        name: str = "barnabas client",
    ) -> None:
        self.client = client
        self.lock = Lock()
        self.closed = False
        self._name = name
        self._why_closed = f"the {name} is closed"
        self._on_fork = on_fork
        self._waker = Waker(self._forked)
        self._channels = Channels(client, self._waker.poller, ssl_context, self._name_resolved)
        self._leader = 0
        """The identifier of the thread that polls, 0 for none."""
        self._polling = 0
        """The number of threads that poll: the leader, and a displaced one that has not woken up yet."""
        self._led_until = NEVER
        """The time at which the leader's poll times out."""
        self._followers: deque[Follower] = deque()
        """The threads that wait for a result while another one polls."""
        self._callbacks = Callbacks(client.completions, name)
        self._active_at = float("-inf")
        """The time of the last turn of an application thread."""
        self._damaged = False
        """Whether a thread works with the network client, or was interrupted while it did."""
        self._needs_turn = False
        """Whether a thread has left a turn to the next one."""
        self.background_turn_due = False
        """Whether the background thread was asked for a turn."""
        self._background_thread: threading.Thread | None = None
        self._bell = threading.Lock()  # wakes the background thread when it is released
        self._bell.acquire()
        self._sleeps_until = float("-inf")

    # --- calls and waits --------------------------------------------------------------------------------------------

    def run(self, action: Callable[[], T]) -> T:
        """Calls `action`, which uses the network client, and makes a turn, without waiting."""
        with HELD, self.lock:
            result = self._act(action)
            self._active_turn()
            self._pass_on()
        self._call_back()
        return result

    def run_before_wait(self, action: Callable[[], T]) -> T:
        """Does the same as `run`, but if `action` returns None, leaves the turn to the caller's next `wait`."""
        with HELD, self.lock:
            result = self._act(action)
            if result is None and self._may_lead():
                self._needs_turn = True
            else:
                self._active_turn()
                self._pass_on()
        self._call_back()
        return result

    def _act(self, action: Callable[[], T]) -> T:
        self._check_open()
        self.client.now = time.monotonic()
        self._begin_work()
        try:
            result = action()
        except Exception:  # the action refused the call, and has left nothing half done
            self._damaged = False
            raise
        self._damaged = False
        return result

    def turn(self) -> None:
        """Makes a turn, without waiting."""
        with HELD, self.lock:
            self._check_open()
            self._active_turn()
            self._pass_on()
        self._call_back()

    def wait(
        self,
        done: Condition,
        timeout_s: float | None = None,
        *,
        may_leave: Condition | None = None,
        has_turned: bool = False,
    ) -> bool:
        """Makes turns until `done()` returns True under the lock. Returns False if the time is over before.

        `may_leave` says whether the last turn may be left to the next thread, at the latest to the background thread
        after its sleep. `has_turned` says that the network client has nothing to act on since the last turn."""
        deadline = NEVER if timeout_s is None else time.monotonic() + timeout_s
        has_led = False
        with HELD:
            try:
                while True:
                    follower = None
                    with self.lock:
                        leads = not self.closed and self._may_lead()
                        # a leader has made a turn, but another thread may have left one since
                        if leads and (self._needs_turn or not (has_led or has_turned)):
                            self._active_at = time.monotonic()
                            self._turn()
                        if done():
                            return True
                        self._check_open()
                        left = deadline - time.monotonic()
                        if left <= 0 and (has_led or not leads):
                            return False
                        if leads:
                            self._lead(max(left, 0.0), done, may_leave)
                            self._active_at = time.monotonic()
                            has_led = True
                            if done():
                                return True
                        else:
                            follower = Follower(done)
                            self._followers.append(follower)
                    self._call_back()
                    if follower is not None:
                        self._follow(follower, deadline)
            finally:
                with self.lock:
                    self._pass_on()
                self._call_back()

    def wait_for(self, promise: Promise[T], timeout_s: float | None = None) -> T:
        """Returns the promise's value, or raises its error or OperationTimedOut."""
        if not promise.done and not self.wait(lambda: promise.done, timeout_s):
            raise OperationTimedOut(f"no result within {timeout_s:g} s")
        return promise.result()

    def wakeup(self) -> None:
        """Ends the poll of the leader. Takes no lock, so that signal handlers may call it."""
        if not self.closed:
            self._waker.wake()

    def turn_soon(self) -> None:
        """Makes the background thread turn as soon as it gets the interpreter, which costs the caller little. The first
        `wait` starts that thread, and must have been called."""
        with self.lock:  # not HELD: an interrupt leaves nothing half done here
            self.background_turn_due = True
            self._ring()

    def deadline_added(self) -> None:
        """Ensures that a thread keeps a deadline that was just added. The caller holds the lock."""
        self._pass_on()

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosed(self._why_closed)

    # --- turning ----------------------------------------------------------------------------------------------------

    def _active_turn(self) -> None:
        """Makes a turn in a thread of the application, and reads the sockets that are ready if no other thread
        polls."""
        self._active_at = time.monotonic()
        may_have_come = self.client.has_in_flight_requests
        self._turn()
        if may_have_come and self._may_lead():
            self._displace()
            events = self._waker.poller.poll(0)
            if events:
                self._work_with(events, None, None, -NEVER)

    def _work_with(self, events: Events, done: Condition | None, may_leave: Condition | None, until: float) -> None:
        """Reads the sockets that are ready, and makes a turn. The turn is left out if the caller is `done` and
        `may_leave`, or if before `until` only more of a large frame came."""
        self._begin_work()
        has_news = not events
        for fd, _ in events:
            if fd == self._waker.pipe[0]:
                has_news = True
                if not self._polling:  # a displaced leader may not have seen the byte yet, and would sleep on
                    self._waker.drain()
            else:
                has_news = self._channels.serve(fd) or has_news
        leaves = done is not None and may_leave is not None and done() and may_leave()
        self._needs_turn = self._needs_turn or leaves
        if not leaves and (has_news or time.monotonic() >= until):
            self._turn(begun=True)
        self._damaged = False
        self._wake_followers()

    def _turn(self, *, begun: bool = False) -> None:
        """Lets the network client act and does its I/O, until the client comes to rest."""
        if not begun:
            self._begin_work()
        self.background_turn_due = self._needs_turn = False
        for _ in range(TURNS_MAX):
            self.client.advance(time.monotonic())
            if not self._channels.flush():
                break
        self._damaged = False

    def _begin_work(self) -> None:
        """Marks the network client as damaged until the work is done: a second Ctrl-C raises between any two steps. The
        next turn repairs a damaged client by dropping all connections: their requests are sent again."""
        if self._damaged:
            self.client.reset(ConnectionLost("the connection was given up because its work was interrupted"))
        self._damaged = True

    def _call_back(self) -> None:
        if self.client.completions:
            self._callbacks.make()

    # --- leading and following --------------------------------------------------------------------------------------

    def _may_lead(self) -> bool:
        """Whether no thread polls, or only the background thread, which can be displaced."""
        return not self._leader or (
            self._background_thread is not None and self._leader == self._background_thread.ident
        )

    def _lead(self, left_s: float, done: Condition | None = None, may_leave: Condition | None = None) -> None:
        """Polls, with the lock released, until an event, a deadline or the end of `left_s`, and acts on that. `done`,
        `may_leave`: see `wait`."""
        me = threading.get_ident()
        self._displace()
        self._leader = me
        now = time.monotonic()
        timeout = max(min(left_s, self._next_deadline() - now, POLL_MAX_S), 0.0)
        self._led_until = now + timeout
        events: Events = []
        leads = False
        self._polling += 1
        try:
            self.lock.release()
            events = self._waker.poll(timeout)
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
            self._work_with(events, done, may_leave, self._led_until)

    def _displace(self) -> None:
        """Makes the background thread stop polling, and sleep."""
        if self._leader:
            self._leader = 0
            self._waker.wake()

    def _name_resolved(self) -> None:
        """Wakes the leader. Called by the thread that has looked up a host name."""
        with self.lock:
            if not self.closed:
                self._waker.wake()

    def _next_deadline(self) -> float:
        return min(self.client.next_deadline(), self._channels.next_deadline())

    def _follow(self, follower: Follower, deadline: float) -> None:
        """Waits until the leader wakes this thread."""
        try:
            with HELD.through:
                follower.wait(min(max(deadline - time.monotonic(), 0.0), POLL_MAX_S))
        finally:
            with self.lock, contextlib.suppress(ValueError):  # the thread that woke it has removed it
                self._followers.remove(follower)

    def _wake_followers(self) -> None:
        """Wakes the followers whose results are there, or all if the driver is closed."""
        if self._followers:
            for follower in [f for f in self._followers if self.closed or f.done()]:
                self._followers.remove(follower)
                follower.ring()

    def _pass_on(self) -> None:
        """Ensures that another thread keeps the network client's next deadline when this one leaves."""
        if self.closed:
            return
        self._wake_followers()
        if self._leader:
            if self._next_deadline() < self._led_until:
                self._led_until = float("-inf")
                self._waker.wake()
        elif self._followers:
            self._followers.popleft().ring()  # the follower that has waited longest polls now
        elif self._background_thread is None:
            self._background_thread = threading.Thread(target=self._background, name=self._name, daemon=True)
            self._background_thread.start()
        elif self._sleeps_until > time.monotonic() + BACKGROUND_SLEEP_S:
            self._sleeps_until = float("-inf")
            self._ring()

    # --- the background thread --------------------------------------------------------------------------------------

    def _ring(self) -> None:
        if self._bell.locked():
            self._bell.release()

    def _background(self) -> None:
        """Leads when no other thread does; sleeps while the application's threads make turns."""
        try:
            while self._background_turn():
                pass
        except Exception as error:
            log_exception("the background thread of the %s fails, and closes it", self._name)
            with self.lock:
                self._shut(f"the {self._name} closed itself after a mistake of its own: {error!r}")

    def _background_turn(self) -> bool:
        now = time.monotonic()
        sleep_s = self._active_at + BACKGROUND_SLEEP_S - now
        if sleep_s > 0 and not self.background_turn_due and not self.closed:
            self._sleeps_until = now + sleep_s  # threads of the application make turns: not even the lock is taken
        else:
            sleep_s = 0.0
            with self.lock:
                if self.closed:
                    return False
                if self.background_turn_due and not self._leader:
                    self._turn()
                now = time.monotonic()
                if self._leader:
                    sleep_s = POLL_MAX_S  # the leader rings the bell on leaving
                elif now - self._active_at < BACKGROUND_SLEEP_S:
                    sleep_s = self._active_at + BACKGROUND_SLEEP_S - now
                else:
                    self._turn()
                    self._wake_followers()
                    self._lead(POLL_MAX_S)
                self._sleeps_until = now + sleep_s
            self._call_back()
        if sleep_s:
            self._bell.acquire(timeout=sleep_s)
        return True

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes every connection at once. Threads that wait get ClientClosed; calling it again does nothing."""
        with HELD, self.lock:
            self._shut(f"the {self._name} is closed")
        thread = self._background_thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_S)
        self._call_back()

    def _shut(self, why: str) -> None:
        """Closes the connections and wakes all threads. The caller holds the lock; `close` waits for the background
        thread in addition."""
        if self.closed:
            return
        self._why_closed = why
        self.closed = True
        self.client.close()
        self._channels.close()
        self._wake_followers()
        self._ring()
        self._waker.wake()
        self._dispose()

    def _dispose(self) -> None:
        """Closes the poller when the last polling thread has left it: the close would not end a poll."""
        if not self._polling:
            self._waker.close()

    def _forked(self) -> None:
        """Closes the driver in a forked child: the connections and the requests in flight belong to the parent."""
        if self.closed:
            return
        self.lock = Lock()
        self._callbacks = Callbacks(self.client.completions, self._name)
        self._background_thread = None
        self._leader = self._polling = 0
        self._followers.clear()
        self.closed = True
        self._why_closed = f"the {self._name} belongs to the parent process; this one was forked from it"
        self._channels.abandon()
        self._dispose()
        self.client.completions.clear()
        if self._on_fork is not None:
            self._on_fork()
