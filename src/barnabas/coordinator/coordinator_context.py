"""The state of one partition of an internal topic on its leader: the shard, the offsets, the waiting responses."""

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

__all__ = ["CoordinatorContext", "CoordinatorState", "DeferredEvent", "Reply"]

S = TypeVar("S", bound=CoordinatorShard[Any])
T = TypeVar("T")

Reply = Callable[[T | KafkaError], None]
"""Called exactly once, maybe before the called function returns."""


class CoordinatorState(Enum):
    """The state of a partition: LOADING also while it waits in the queue."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """The log could not be read. Requests get NotCoordinator until another load succeeds."""


class DeferredEvent:
    """A response that waits until the high watermark reaches `end_offset`."""

    __slots__ = ("end_offset", "reply", "result", "timeout")

    def __init__(self, end_offset: Offset, result: CoordinatorResult[Any, Any], reply: Reply[Any]) -> None:
        self.end_offset = end_offset
        self.result = result
        self.reply: Reply[Any] | None = reply
        self.timeout: TimerHandle | None = None

    def reply_once(self, response: Any) -> None:
        """Replies unless that has happened: a commit may come after the timeout."""
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
        "deferred",
        "failures",
        "high_watermark",
        "last_written_offset",
        "leader_epoch",
        "loader",
        "log_start_offset",
        "partition",
        "refused_with",
        "retry",
        "shard",
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
        self.shard: S | None = None
        self.timers: SchedulerTimer | None = None
        self.loader: CoordinatorLoader[Any] | None = None
        self.log_start_offset = Offset(0)
        self.last_written_offset = Offset(0)
        self.high_watermark = -1
        self.busy = False
        self.deferred: deque[DeferredEvent] = deque()
        self.waiters = LoadWaiters(scheduler)
        self.failures = 0
        """The loads that have failed before this one in the same leader epoch."""
        self.refused_with = 0
        """The error code of the last append, 0 if it was written: the log tells the first one of a row."""
        self.retry: TimerHandle | None = None
        """The timer of the next load after this one has failed."""

    def committed(self, high_watermark: Offset) -> None:
        """Sends the responses that the high watermark covers, in the order of their writes."""
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        deferred = self.deferred
        while deferred and deferred[0].end_offset <= high_watermark:
            entry = deferred.popleft()
            if entry.result.done is not None:
                entry.result.done(None)
            entry.reply_once(entry.result.response)

    def close(self, error: KafkaError, *, keeps_own_work: bool = False) -> None:
        """Fails all waiting requests, stops the timers and unloads the shard. The broker's own work may go on waiting
        for the next load."""
        if self.retry is not None:
            self.retry.cancel()
        shard, self.shard = self.shard, None
        if shard is not None:
            shard.unloaded()
        deferred, self.deferred = self.deferred, deque()
        for entry in deferred:
            if entry.result.done is not None:
                entry.result.done(error)
            entry.reply_once(error)
        self.waiters.fail(error, keeps_own_work=keeps_own_work)
        if self.timers is not None:
            self.timers.close()
