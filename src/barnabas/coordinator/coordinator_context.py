"""One partition of an internal topic as its leader's runtime keeps it: the state machine, how far it is, who waits."""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from barnabas.coordinator.coordinator_loader import CoordinatorLoader
from barnabas.coordinator.coordinator_shard import CoordinatorResult, CoordinatorShard
from barnabas.coordinator.load_waiters import LoadWaiters
from barnabas.coordinator.timers import Scheduler, SchedulerTimer, TimerHandle
from barnabas.errors import KafkaError
from barnabas.types import LeaderEpoch, Offset

__all__ = ["CoordinatorContext", "CoordinatorState", "Parked", "Reply"]

S = TypeVar("S", bound=CoordinatorShard[Any])
T = TypeVar("T")

Reply = Callable[[T | KafkaError], None]
"""Called exactly once, maybe before the call that took it returns."""


class CoordinatorState(Enum):
    """LOADING: waits for its turn or replays. ACTIVE: serves."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """The log could not be read; requests get NotCoordinator, the next election tries again."""


class Parked:
    """A response that waits for the high watermark."""

    __slots__ = ("end_offset", "reply", "result", "timeout")

    def __init__(self, end_offset: Offset, result: CoordinatorResult[Any, Any], reply: Reply[Any]) -> None:
        self.end_offset = end_offset
        self.result = result
        self.reply: Reply[Any] | None = reply
        self.timeout: TimerHandle | None = None

    def answer(self, response: Any) -> None:
        """Only the first answer counts: a commit may come after the timeout."""
        if self.timeout is not None:
            self.timeout.cancel()
            self.timeout = None
        reply, self.reply = self.reply, None
        if reply is not None:
            reply(response)


class CoordinatorContext(Generic[S]):
    """A partition that this broker leads."""

    __slots__ = (
        "busy",
        "high_watermark",
        "last_written_offset",
        "leader_epoch",
        "loader",
        "log_start_offset",
        "machine",
        "parked",
        "partition",
        "started",
        "state",
        "timers",
        "waiters",
    )

    def __init__(self, partition: int, leader_epoch: LeaderEpoch, scheduler: Scheduler) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.started = scheduler.monotonic()
        self.state = CoordinatorState.LOADING
        self.machine: S | None = None
        self.timers: SchedulerTimer | None = None
        self.loader: CoordinatorLoader[Any] | None = None
        self.log_start_offset = Offset(0)
        self.last_written_offset = Offset(0)
        self.high_watermark = -1
        self.busy = False
        self.parked: deque[Parked] = deque()
        self.waiters = LoadWaiters(scheduler)

    def committed(self, high_watermark: Offset) -> None:
        """Answer all that the high watermark covers, in the order of their writes."""
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        parked = self.parked
        while parked and parked[0].end_offset <= high_watermark:
            entry = parked.popleft()
            if entry.result.done is not None:
                entry.result.done(None)
            entry.answer(entry.result.response)

    def close(self, error: KafkaError) -> None:
        """Answer everyone, stop the timers, let the state machine go."""
        machine, self.machine = self.machine, None
        if machine is not None:
            machine.unloaded()
        parked, self.parked = self.parked, deque()
        for entry in parked:
            if entry.result.done is not None:
                entry.result.done(error)
            entry.answer(error)
        self.waiters.fail(error)
        if self.timers is not None:
            self.timers.close()
