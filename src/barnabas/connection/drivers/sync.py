"""The synchronous driver: whoever calls drives.

A thread that waits for a result turns the client itself: it polls the sockets, so an answer wakes the thread that wants
it and no other. One thread leads (polls) at a time; others who wait follow, and are woken when what they wait for has
happened or when the leader leaves. A background thread leads when nobody else does: for answers nobody waits for,
lingering records, heartbeats. It naps while application threads are active, because each of its system calls
would cost them the GIL's switch interval.

The client is touched only under `lock`, which is never held while a thread waits or runs the application's callbacks.
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

NAP_S: Final = 0.005
"""A thread that turned the network client so recently will do it again: the background thread keeps out."""
POLL_MAX_S: Final = 60.0
JOIN_S: Final = 0.05
TURNS_MAX: Final = 100
"""Of the network client in one go; more means that its components do not come to rest."""

T = TypeVar("T")
Question = Callable[[], bool]
Events = list[tuple[int, int]]


class _Followers:
    """The threads that wait for a result while another one polls. Used under the driver's lock."""

    def __init__(self) -> None:
        self._waiting: deque[Follower] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, done: Callable[[], bool]) -> Follower:
        """It waits from now on, for `done`."""
        follower = Follower(done)
        self._waiting.append(follower)
        return follower

    def discard(self, follower: Follower) -> None:
        """It waits no more, whether its bell rang or not."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(follower)

    def wake(self, *, everyone: bool) -> None:
        """Those for whom it has happened."""
        if not self._waiting:
            return
        for follower in [f for f in self._waiting if everyone or f.done()]:
            self._waiting.remove(follower)
            follower.ring()

    def wake_one(self) -> None:
        """The one that has waited longest: it has to poll now."""
        self._waiting.popleft().ring()

    def clear(self) -> None:
        """In a forked child, which has none of the threads."""
        self._waiting.clear()


class SyncDriver:
    """See the module. `run` and `wait` are the doors; both may be called from any thread."""

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
        """Identity of the thread that polls, 0 for none."""
        self._polling = 0
        """Threads that poll: the leader, and one that was displaced and has not noticed yet."""
        self._led_until = NEVER
        """When the leader looks up by itself."""
        self._followers = _Followers()
        self._callbacks = Callbacks(client.completions, name)
        self._active_at = float("-inf")
        """When a thread of the application turned the network client last."""
        self._damaged = False
        """The network client is being worked with, or that was interrupted."""
        self._unturned = False
        """Somebody has left the network client without a turn: the next one sees to it."""
        self.owes_turn = False
        """Whether the background thread was asked for one."""
        self._helper: threading.Thread | None = None
        self._bell = threading.Lock()
        self._bell.acquire()
        self._napping_until = float("-inf")

    # --- doors ------------------------------------------------------------------------------------------------------

    def run(self, action: Callable[[], T]) -> T:
        """Do something with the network client and let it act on it, without waiting."""
        with HELD, self.lock:
            result = self._act(action)
            self._active_turn()
            self._pass_on()
        self._call_back()
        return result

    def ask(self, action: Callable[[], T]) -> T:
        """As `run` for whoever waits next if this gives None: the turn is left to `wait` then, which begins with
        one."""
        with HELD, self.lock:
            result = self._act(action)
            if result is None and self._may_lead():
                self._unturned = True
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
        except Exception:  # it refused, and has left nothing half done
            self._damaged = False
            raise
        self._damaged = False
        return result

    def turn(self) -> None:
        """As `run`, for what the network client has to do already."""
        with HELD, self.lock:
            self._check_open()
            self._active_turn()
            self._pass_on()
        self._call_back()

    def wait(
        self,
        done: Question,
        timeout_s: float | None = None,
        *,
        may_leave: Question | None = None,
        has_turned: bool = False,
    ) -> bool:
        """Turn the network client until `done()`, which is asked under the lock; False when the time is over before.

        `may_leave`: whether nothing is lost if the client does not turn once more before the caller goes on; whoever
        comes next sees to it, the background thread after its nap if nobody does. `has_turned`: whether the client did
        so after all that it has to see to now."""
        deadline = NEVER if timeout_s is None else time.monotonic() + timeout_s
        has_led = False
        with HELD:
            try:
                while True:
                    follower = None
                    with self.lock:
                        leads = not self.closed and self._may_lead()
                        # who has led has turned the network client after that, but another may have left a turn since
                        if leads and (self._unturned or not (has_led or has_turned)):
                            self._active_at = time.monotonic()
                            self._work_turn()
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
                            follower = self._followers.add(done)
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
            self._waker.wake()

    def turn_soon(self) -> None:
        """Have the background thread turn the client, as soon as it gets the interpreter: what can wait so long costs
        the caller little. Not before there was a `wait`, which sees to it that there is such a thread."""
        with self.lock:  # not HELD: nothing here leaves anything half done
            self.owes_turn = True
            self._ring()

    def nudge(self) -> None:
        """With the lock held: something was added that has a deadline; see that somebody keeps it."""
        self._pass_on()

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosed(self._why_closed)

    # --- turning ----------------------------------------------------------------------------------------------------

    def _active_turn(self) -> None:
        """A turn by a thread of the application, which takes in what may have come if nobody else of them polls."""
        self._active_at = time.monotonic()
        may_have_come = self.client.has_in_flight_requests
        self._work_turn()
        if may_have_come and self._may_lead():
            self._displace()
            events = self._waker.poller.poll(0)
            if events:
                self._work_with(events, None, None, -NEVER)

    def _work_turn(self) -> None:
        self._begin_work()
        self._turn()
        self._damaged = False

    def _work_with(self, events: Events, done: Question | None, may_leave: Question | None, until: float) -> None:
        """Take in what has come, and turn: but whoever has what it waits for leaves, if it may. Nor is there a turn if
        all that came before `until` is more of a large frame."""
        self._begin_work()
        has_news = not events
        for fd, _ in events:
            if fd == self._waker.pipe[0]:
                has_news = True
                if not self._polling:  # who was displaced may not have seen it yet, and would sleep on
                    self._waker.drain()
            else:
                has_news = self._channels.serve(fd) or has_news
        leaves = done is not None and may_leave is not None and done() and may_leave()
        self._unturned = self._unturned or leaves
        if not leaves and (has_news or time.monotonic() >= until):
            self._turn()
        self._damaged = False
        self._followers.wake(everyone=self.closed)

    def _turn(self) -> None:
        """Let the network client do what is due, and carry out its orders until it has none."""
        self.owes_turn = self._unturned = False
        for _ in range(TURNS_MAX):
            self.client.advance(time.monotonic())
            if not self._channels.obey():
                return

    def _begin_work(self) -> None:
        """An exception may still come between any two steps of the work: who presses Ctrl-C twice does not wait. Then
        nobody says that it is done, and what was half done with a connection is undone by dropping all of them: their
        requests are sent again."""
        if self._damaged:
            self.client.reset(ConnectionLost("the connection was given up because its work was interrupted"))
        self._damaged = True

    def _call_back(self) -> None:
        if self.client.completions:
            self._callbacks.make()

    # --- leading and following --------------------------------------------------------------------------------------

    def _may_lead(self) -> bool:
        """Nobody polls, or only the background thread, which gives way."""
        return not self._leader or (self._helper is not None and self._leader == self._helper.ident)

    def _lead(self, left_s: float, done: Question | None = None, may_leave: Question | None = None) -> None:
        """Poll until something happens, it is time for something, or `left_s` is over; the lock is given up
        meanwhile. `done`, `may_leave`: see `wait`."""
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
        """The background thread stops polling, and naps."""
        if self._leader:
            self._leader = 0
            self._waker.wake()

    def _name_resolved(self) -> None:
        """In a thread of its own."""
        with self.lock:
            if not self.closed:
                self._waker.wake()

    def _next_deadline(self) -> float:
        return min(self.client.next_deadline(), self._channels.next_deadline())

    def _follow(self, follower: Follower, deadline: float) -> None:
        """Wait for the leader's word."""
        try:
            with HELD.through:
                follower.wait(min(max(deadline - time.monotonic(), 0.0), POLL_MAX_S))
        finally:
            with self.lock:
                self._followers.discard(follower)

    def _pass_on(self) -> None:
        """On leaving: somebody must keep the network client's next deadline."""
        if self.closed:
            return
        self._followers.wake(everyone=self.closed)
        if self._leader:
            if self._next_deadline() < self._led_until:
                self._led_until = float("-inf")
                self._waker.wake()
        elif self._followers:
            self._followers.wake_one()
        elif self._helper is None:
            self._helper = threading.Thread(target=self._background, name=self._name, daemon=True)
            self._helper.start()
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
            log_exception("the background thread of the %s fails, and closes it", self._name)
            with self.lock:
                self._shut(f"the {self._name} closed itself after a mistake of its own: {error!r}")

    def _background_turn(self) -> bool:
        now = time.monotonic()
        nap = self._active_at + NAP_S - now
        if nap > 0 and not self.owes_turn and not self.closed:
            self._napping_until = now + nap  # threads of the application are at it: not even the lock is taken
        else:
            nap = 0.0
            with self.lock:
                if self.closed:
                    return False
                if self.owes_turn and not self._leader:
                    self._work_turn()
                now = time.monotonic()
                if self._leader:
                    nap = POLL_MAX_S  # who leads rings the bell on leaving
                elif now - self._active_at < NAP_S:
                    nap = self._active_at + NAP_S - now
                else:
                    self._work_turn()
                    self._followers.wake(everyone=self.closed)
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
        thread = self._helper
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_S)
        self._call_back()

    def _shut(self, why: str) -> None:
        if self.closed:
            return
        self._why_closed = why
        self.closed = True
        self.client.close()
        self._channels.close()
        self._followers.wake(everyone=self.closed)
        self._ring()
        self._waker.wake()
        self._dispose()

    def _dispose(self) -> None:
        """The last one to poll takes the poller along: who polls does not notice that it is closed."""
        if not self._polling:
            self._waker.close()

    def _forked(self) -> None:
        """In the child: the connections are the parent's, and so is what was in flight. Nothing is said to brokers."""
        if self.closed:
            return
        self.lock = Lock()
        self._callbacks = Callbacks(self.client.completions, self._name)
        self._helper = None
        self._leader = self._polling = 0
        self._followers.clear()
        self.closed = True
        self._why_closed = f"the {self._name} belongs to the parent process; this one was forked from it"
        self._channels.abandon()
        self._dispose()
        self.client.completions.clear()
        if self._on_fork is not None:
            self._on_fork()
