"""The virtual time of a simulation, the hosts that live in it, and the trace of what happens.

A host is one process with its event loop. Its turns, the calls of its threads and the arrivals of its packets are
events of the world, which happen one after the other. So the seed decides their order and nothing else does.
"""

import asyncio
import contextlib
import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final

__all__ = ["Event", "Host", "SimulationError", "World", "in_thread_of", "running"]

Event = Callable[[], object]
KEPT_LINES: Final = 400
TURN_S: Final = 0.00002
"""The mean time of a turn of an event loop."""
JOB_S: Final = 0.0002
"""The mean time of a call in a thread."""


class SimulationError(AssertionError):
    """Something in the simulated cluster is not as it has to be."""


class World:
    """All that happens, by one seed."""

    def __init__(self, seed: int, tell: Callable[[str], object] | None = None) -> None:
        """`tell` is called with each line of the trace."""
        self._tell = tell
        self.random = random.Random(seed)
        self.now = 1_000.0
        """Seconds of virtual time."""
        self.host: Host | None = None
        """The host whose code runs."""
        self.in_thread = False
        """Whether a thread of it runs, not its event loop."""
        self.after_step: Callable[[Host], None] = lambda host: None
        self.errors: list[str] = []
        """What the event loops' exception handlers were told."""
        self.kept: list[object] = []
        """What must not be collected: the end of a dead process runs none of its code."""
        self.steps = 0
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._digest = hashlib.sha256()
        self._events: list[tuple[float, int, Event]] = []
        self._count = 0

    def at(self, when: float, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._events, (max(when, self.now), self._count, event))

    def after(self, seconds: float, event: Event) -> None:
        self.at(self.now + seconds, event)

    def note(self, text: str) -> None:
        """Adds a line to the trace."""
        line = f"{self.now:.6f} {text}"
        self.lines.append(line)
        self._digest.update(line.encode("utf-8", "backslashreplace"))
        if self._tell is not None:
            self._tell(line)

    @property
    def digest(self) -> str:
        """The hash of the whole trace."""
        return self._digest.hexdigest()

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Lets things happen until the condition holds. Returns False if it does not within `limit_s`."""
        end = self.now + limit_s
        while not until():
            if not self._events or self._events[0][0] > end:
                self.now = end
                return until()
            self.now, _, event = heapq.heappop(self._events)
            event()
        return True

    def end(self) -> None:
        """Ends all code that still waits. It runs nowhere afterwards."""
        for each in self.kept:
            if isinstance(each, Host):
                each.die()
        for each in self.kept:
            if isinstance(each, asyncio.Task) and not each.done():
                with contextlib.suppress(Exception), _Running(each.get_loop().host, None):  # type: ignore[attr-defined]
                    each.get_coro().close()  # type: ignore[union-attr]
        self.kept.clear()
        self._events.clear()

    def pass_time(self, seconds: float) -> None:
        self.run(lambda: False, seconds)


class _NoSelector:
    """In place of the loop's selector: the world advances the time and delivers packets."""

    @staticmethod
    def select(timeout: float | None = None) -> list[object]:
        return []


class _Loop(asyncio.BaseEventLoop):
    """The event loop of a host, turned by the world. `network.HostLoop` adds sockets."""

    def __init__(self, host: "Host") -> None:
        super().__init__()
        self.host = host
        self._selector = _NoSelector()
        self.set_task_factory(self._kept_task)
        self.set_exception_handler(self._failed)

    def __del__(self) -> None: ...

    def time(self) -> float:
        return self.host.monotonic()

    def _process_events(self, events: object) -> None: ...

    def _write_to_self(self) -> None: ...

    def _kept_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **named: Any) -> "asyncio.Task[Any]":
        task = asyncio.Task(coro, loop=loop, **named)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.host.world.kept.append(task)
        return task

    @staticmethod
    def _failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        assert isinstance(loop, _Loop)
        error = context.get("exception")
        loop.host.world.errors.append(f"{loop.host.name}: {context.get('message')}: {error!r}")
        if isinstance(error, BaseException):
            loop.host.world.kept.append(error)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        if not self.host.in_turn:
            self.host.plan(self.host.world.now)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        if not self.host.in_turn:
            self.host.plan(when - self.host.skew_s)
        return handle

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        return self.host.in_executor(executor, partial(func, *args))


class Host:
    """A process. After `die` none of its code runs any more."""

    def __init__(self, world: World, name: str, make_loop: Callable[["Host"], Any] = _Loop, skew_s: float = 0) -> None:
        self.world = world
        self.name = name
        self.skew_s = skew_s
        """How much its clocks are ahead."""
        self.alive = True
        self.boot = ""
        """The id of this run of its machine."""
        self.slowness = 1.0
        self.in_turn = False
        self._paused = False
        self._planned: float | None = None
        self._held: list[Event] = []
        """What waits for the end of a pause."""
        self._free_at: dict[Executor, float] = {}
        self.loop = make_loop(self)
        world.kept.append(self)

    def monotonic(self) -> float:
        return self.world.now + self.skew_s

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1000)

    # --- turns of the loop ------------------------------------------------------------------------------------------

    def plan(self, when: float) -> None:
        """Has the event loop turn at `when` or before."""
        if self.alive and (self._planned is None or when < self._planned):
            self._planned = when = max(when, self.world.now)
            self.world.at(when, partial(self._turn, when))

    def _turn(self, planned: float) -> None:
        if planned != self._planned or not self.alive:
            return
        if self._paused:
            return  # `resume` plans the next one
        self._planned = None
        loop, world = self.loop, self.world
        world.steps += 1
        self.in_turn = True
        with _Running(self, loop):
            loop._run_once()
        self.in_turn = False
        world.after_step(self)
        took = world.random.random() * 2 * TURN_S * self.slowness
        if loop._ready:
            self.plan(world.now + took)
        elif loop._scheduled:
            self.plan(max(world.now + took, loop._scheduled[0]._when - self.skew_s))

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Has the event loop call a function."""
        if self.alive:
            self.loop.call_soon(function, *arguments)

    # --- threads ----------------------------------------------------------------------------------------------------

    def in_executor(self, executor: Executor, job: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Runs a call in a thread: later, and one after the other."""
        future: asyncio.Future[Any] = self.loop.create_future()
        world = self.world
        took = world.random.random() * 2 * JOB_S * self.slowness
        self._free_at[executor] = when = max(self._free_at.get(executor, 0.0), world.now) + took
        world.at(when, partial(self._run_job, job, future))
        return future

    def _run_job(self, job: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
        if not self.alive:
            return
        if self._paused:
            self._held.append(partial(self._run_job, job, future))
            return
        with in_thread_of(self):
            try:
                result, error = job(), None
            except Exception as failure:
                result, error = None, failure
        self.call(_settle, future, result, error)
        self.world.after_step(self)

    # --- faults -----------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            for event in self._held:
                self.world.at(self.world.now, event)
            self._held.clear()
            self._planned = None
            self.plan(self.world.now)

    @property
    def paused(self) -> bool:
        return self._paused

    def die(self) -> None:
        self.alive = False


class _Running:
    """The context in which code of a host runs."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop | None) -> None:
        self._host = host
        self._loop = loop

    def __enter__(self) -> None:
        self._host.world.host = self._host
        asyncio._set_running_loop(self._loop)

    def __exit__(self, *_: object) -> None:
        asyncio._set_running_loop(None)
        self._host.world.host = None


def running(host: Host) -> _Running:
    """Returns the context in which code runs on a host's event loop, outside its turns."""
    return _Running(host, host.loop)


@contextlib.contextmanager
def in_thread_of(host: Host) -> Iterator[None]:
    """The context in which code runs in a thread of a host."""
    host.world.in_thread = True
    try:
        with _Running(host, None):
            yield
    finally:
        host.world.in_thread = False


def _settle(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
