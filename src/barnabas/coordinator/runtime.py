"""Runs state machines over the partitions of an internal topic: append, replay, answer once committed.

An operation decides what to write (`machine.Result`); the runtime appends it as one batch, replays every record into
the state machine, and holds the response until the high watermark covers the batch. With one replica that is at once.
All of it is plain calls on the event loop's thread: nothing runs between the decision and the append.

Loading reads the log in chunks and gives way to the loop after each. One partition loads at a time; a request for a
partition that waits moves it to the front. Empty partitions cost nothing: their state machine is made at the first use.

Where we differ from Kafka: reads wait for the commit of what was written before them instead of looking at a snapshot.
"""

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar

from barnabas.coordinator.machine import RecordCodec, Result, StateMachine, Timers
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    KafkaError,
    NotCoordinator,
    RecordListTooLarge,
    RequestTimedOut,
)
from barnabas.records.batch import BatchHeader, iter_batches
from barnabas.records.builder import BatchBuilder
from barnabas.records.reader import read_records
from barnabas.types import NO_PRODUCER_ID

__all__ = ["CoordinatorLog", "CoordinatorRuntime", "Reply", "Scheduler", "TimerHandle"]

LOAD_CHUNK_BYTES: Final = 256 * 1024
"""What is replayed in one go: a few milliseconds of work."""
PENDING_MAX: Final = 100_000
"""Responses of one partition that wait for the high watermark; beyond them requests are refused."""

S = TypeVar("S", bound=StateMachine[Any])
R = TypeVar("R")
T = TypeVar("T")

Reply = Callable[[T | KafkaError], None]
"""Called exactly once, maybe before the call that took it returns."""


class TimerHandle(Protocol):
    """As asyncio's."""

    def cancel(self) -> None:
        """The callback will not run."""


class Scheduler(Protocol):
    """The loop's clock: production passes a wrapper of the event loop, tests a virtual one."""

    def monotonic(self) -> float:
        """Seconds."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Run the callback once, not before `delay_s` seconds have passed, never inside of this call."""


class CoordinatorLog(Protocol):
    """The partitions of one internal topic, as far as a coordinator needs them. Every method may raise KafkaError."""

    def append(self, partition: int, batch: bytes, leader_epoch: int) -> int:
        """Write one v2 batch as the partition's leader; returns the log end offset behind it."""

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that contains `offset`, at least one; b"" at the log end."""

    def log_range(self, partition: int) -> tuple[int, int]:
        """(log start offset, log end offset)."""

    def high_watermark(self, partition: int) -> int:
        """The offset up to which everything is committed."""

    def max_batch_bytes(self, partition: int) -> int:
        """The topic's max.message.bytes."""


class ShardState(Enum):
    """LOADING: waits for its turn or replays. ACTIVE: serves."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """The log could not be read; requests get NotCoordinator, the next election tries again."""


class CoordinatorRuntime(Generic[S, R]):
    """The state machines of one internal topic on this broker."""

    def __init__(
        self,
        *,
        topic: str,
        log: CoordinatorLog,
        codec: RecordCodec[R],
        machine: Callable[[int, Timers], S],
        scheduler: Scheduler,
        wall_ms: Callable[[], int],
        commit_timeout_ms: int,
        compression: str = "none",
        logger: logging.Logger | None = None,
    ) -> None:
        """`machine(partition, timers)` makes an empty state machine."""
        self.topic = topic
        self._log = log
        self._codec = codec
        self._make_machine = machine
        self._scheduler = scheduler
        self._wall_ms = wall_ms
        self._commit_timeout_ms = commit_timeout_ms
        self._compression = compression
        self._logger = logger or logging.getLogger(__name__)
        self._shards: dict[int, _Shard[S]] = {}
        self._load_queue: deque[_Shard[S]] = deque()
        self._load_handle: TimerHandle | None = None

    # --- leadership ---------------------------------------------------------------------------------------------------

    def load(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition from now on. Repeats and older epochs change nothing."""
        shard = self._shards.get(partition)
        if shard is not None:
            if shard.leader_epoch >= leader_epoch and shard.state is not ShardState.FAILED:
                return
            self.unload(partition, leader_epoch)
        shard = _Shard(partition, leader_epoch, self._scheduler.monotonic())
        self._shards[partition] = shard
        try:
            start, end = self._log.log_range(partition)
        except KafkaError as error:
            self._fail(shard, error)
            return
        shard.load_offset = start
        shard.last_written_offset = end
        if start == end:
            shard.state = ShardState.ACTIVE
            return
        self._load_queue.append(shard)
        self._plan_load()

    def unload(self, partition: int, leader_epoch: int | None = None) -> None:
        """This broker does not lead the partition any more; None: its replica is gone, whatever the epoch."""
        shard = self._shards.get(partition)
        if shard is None or (leader_epoch is not None and leader_epoch < shard.leader_epoch):
            return
        del self._shards[partition]
        if shard in self._load_queue:
            self._load_queue.remove(shard)
        shard.close(NotCoordinator(f"{self.topic}-{partition} has another leader now"))
        self._logger.info("Unloaded %s-%d", self.topic, partition)

    def close(self) -> None:
        """Unload everything: whoever still waits is told to look for another coordinator."""
        for partition in list(self._shards):
            self.unload(partition)
        if self._load_handle is not None:
            self._load_handle.cancel()
            self._load_handle = None

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """The high watermark moved: responses that it covers leave."""
        shard = self._shards.get(partition)
        # While an operation appends, the log may report from within: the operation looks for itself when it is done.
        if shard is not None and not shard.busy:
            shard.committed(high_watermark)

    # --- operations ---------------------------------------------------------------------------------------------------

    def is_active(self, partition: int) -> bool:
        """Whether operations on the partition would be served now."""
        shard = self._shards.get(partition)
        return shard is not None and shard.state is ShardState.ACTIVE

    def partitions(self) -> list[int]:
        """The partitions that this broker leads, loading ones included."""
        return sorted(self._shards)

    def used_partitions(self) -> list[int]:
        """The partitions with a state machine, or with one on the way."""
        return sorted(
            partition
            for partition, shard in self._shards.items()
            if shard.machine is not None or shard.state is not ShardState.ACTIVE
        )

    def peek(self, partition: int) -> S | None:
        """The state machine as it is, None if nothing ever used it. For looking only."""
        shard = self._shards.get(partition)
        return None if shard is None or shard.state is not ShardState.ACTIVE else shard.machine

    def run(self, partition: int, operation: Callable[[S], Result[R, T]], reply: Reply[T]) -> None:
        """Run an operation; `reply` gets its response once everything written so far is committed, or the error.

        Errors: what the operation raised; NotCoordinator; CoordinatorLoadInProgress; what the log said on append;
        RequestTimedOut after offsets.commit.timeout.ms without a commit.
        """
        try:
            shard = self._active_shard(partition)
        except KafkaError as error:
            reply(error)
            return
        machine = self._machine(shard)
        self._run(shard, lambda: operation(machine), reply)

    def _active_shard(self, partition: int) -> "_Shard[S]":
        shard = self._shards.get(partition)
        if shard is None or shard.state is ShardState.FAILED:
            raise NotCoordinator(f"{self.topic}-{partition} is not led by this broker")
        if shard.state is ShardState.LOADING:
            self._hurry(shard)
            raise CoordinatorLoadInProgress(f"{self.topic}-{partition} is being read")
        return shard

    def _machine(self, shard: "_Shard[S]") -> S:
        if shard.machine is None:
            shard.timers = _ShardTimers(self._scheduler, lambda operation: self._run(shard, operation, _nobody))
            shard.machine = self._make_machine(shard.partition, shard.timers)
            if shard.state is ShardState.ACTIVE:
                # Nothing was in the log, so nothing was replayed: its state machine is made only now.
                shard.machine.loaded()
        return shard.machine

    def _run(self, shard: "_Shard[S]", operation: Callable[[], Result[R, T]], reply: Reply[T]) -> None:
        if len(shard.parked) >= PENDING_MAX:
            waiting = f"{PENDING_MAX} responses wait for {self.topic}-{shard.partition} to be replicated"
            reply(CoordinatorNotAvailable(waiting))
            return
        try:
            result = operation()
        except KafkaError as error:
            reply(error)
            return
        if result.records:
            shard.busy = True
            try:
                self._write(shard, result)
            except KafkaError as error:
                shard.busy = False
                self._logger.warning("Append to %s-%d failed: %s", self.topic, shard.partition, error)
                if result.done is not None:
                    result.done(error)
                reply(error)
                return
            shard.busy = False
        if shard.high_watermark >= shard.last_written_offset or self._refresh(shard):
            if result.done is not None:
                result.done(None)
            reply(result.response)
            return
        self._park(shard, result, reply)

    def _refresh(self, shard: "_Shard[S]") -> bool:
        """Ask the log for the high watermark; whether it covers all that was written."""
        shard.committed(self._log.high_watermark(shard.partition))
        return shard.high_watermark >= shard.last_written_offset

    def _write(self, shard: "_Shard[S]", result: Result[R, Any]) -> None:
        machine = shard.machine
        assert machine is not None
        timestamp = self._wall_ms()
        max_bytes = self._log.max_batch_bytes(shard.partition)
        builder = BatchBuilder(compression=self._compression)
        pending: list[R] = []
        for record in result.records:
            key, value = self._codec.encode(record)
            if pending and not result.atomic and builder.size_bytes + _record_bytes_max(key, value) > max_bytes:
                self._append(shard, builder, pending, max_bytes)
                builder, pending = BatchBuilder(compression=self._compression), []
            builder.append(key, value, timestamp)
            pending.append(record)
        self._append(shard, builder, pending, max_bytes)

    def _append(self, shard: "_Shard[S]", builder: BatchBuilder, records: list[R], max_bytes: int) -> None:
        batch = builder.build()
        if len(batch) > max_bytes:
            raise RecordListTooLarge(
                f"{len(records)} records for {self.topic}-{shard.partition} need {len(batch)} bytes in one batch, "
                f"max.message.bytes of the topic is {max_bytes}"
            )
        end_offset = self._log.append(shard.partition, batch, shard.leader_epoch)
        shard.last_written_offset = end_offset
        machine = shard.machine
        assert machine is not None
        offset = end_offset - len(records)
        for record in records:
            machine.replay(offset, NO_PRODUCER_ID, record)
            offset += 1

    def _park(self, shard: "_Shard[S]", result: Result[R, T], reply: Reply[T]) -> None:
        parked = _Parked(shard.last_written_offset, result, reply)
        timeout_s = self._commit_timeout_ms / 1000
        parked.timeout = self._scheduler.call_later(timeout_s, lambda: self._time_out(shard, parked))
        shard.parked.append(parked)

    def _time_out(self, shard: "_Shard[S]", parked: "_Parked") -> None:
        # The records stay: they may still be committed, and soft state then follows them. Only the answer is due.
        parked.answer(
            RequestTimedOut(f"{self.topic}-{shard.partition} was not replicated within {self._commit_timeout_ms} ms")
        )

    # --- loading ------------------------------------------------------------------------------------------------------

    def _hurry(self, shard: "_Shard[S]") -> None:
        queue = self._load_queue
        if len(queue) > 1 and queue[0] is not shard and shard in queue:
            queue.remove(shard)
            queue.appendleft(shard)

    def _plan_load(self) -> None:
        if self._load_handle is None and self._load_queue:
            self._load_handle = self._scheduler.call_later(0, self._load_chunk)

    def _load_chunk(self) -> None:
        self._load_handle = None
        if not self._load_queue:
            return
        shard = self._load_queue[0]
        try:
            finished = self._replay_chunk(shard)
        except (KafkaError, OSError) as error:
            self._load_queue.remove(shard)
            self._fail(shard, error)
        else:
            if finished:
                self._load_queue.remove(shard)
                self._activate(shard)
        self._plan_load()

    def _replay_chunk(self, shard: "_Shard[S]") -> bool:
        machine = self._machine(shard)
        data = self._log.read(shard.partition, shard.load_offset, LOAD_CHUNK_BYTES)
        offset = shard.load_offset
        for header, batch in iter_batches(data):
            if header.last_offset >= offset:
                self._replay_batch(shard, machine, header, batch)
                offset = header.next_offset
        progressed = offset > shard.load_offset
        shard.load_offset = offset
        return not progressed or offset >= self._log.log_range(shard.partition)[1]

    def _replay_batch(self, shard: "_Shard[S]", machine: S, header: BatchHeader, batch: memoryview) -> None:
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in read_records(batch):
            if record.offset < shard.load_offset or record.key is None:
                continue
            if header.is_control:
                kind = int.from_bytes(record.key[2:4], "big")
                if kind in (0, 1):
                    machine.replay_end_transaction(header.producer_id, kind == 1)
                continue
            try:
                decoded = self._codec.decode(record.key, record.value)
            except CorruptMessage as error:
                # One damaged record must not take the groups of a whole partition away.
                self._logger.error("%s-%d@%d is left out: %s", self.topic, shard.partition, record.offset, error)
                continue
            if decoded is not None:
                machine.replay(record.offset, producer_id, decoded)
                shard.loaded_records += 1

    def _activate(self, shard: "_Shard[S]") -> None:
        shard.last_written_offset = self._log.log_range(shard.partition)[1]
        shard.state = ShardState.ACTIVE
        machine = self._machine(shard)
        machine.loaded()
        took_ms = (self._scheduler.monotonic() - shard.started) * 1000
        self._logger.info(
            "Loaded %s-%d: %d records in %.0f ms", self.topic, shard.partition, shard.loaded_records, took_ms
        )

    def _fail(self, shard: "_Shard[S]", error: Exception) -> None:
        self._logger.error("Loading %s-%d failed: %s", self.topic, shard.partition, error)
        shard.close(NotCoordinator(f"{self.topic}-{shard.partition} could not be read: {error}"))
        shard.state = ShardState.FAILED


class _Parked:
    """A response that waits for the high watermark."""

    __slots__ = ("end_offset", "reply", "result", "timeout")

    def __init__(self, end_offset: int, result: Result[Any, Any], reply: Reply[Any]) -> None:
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


class _Shard(Generic[S]):
    """One led partition."""

    __slots__ = (
        "busy",
        "high_watermark",
        "last_written_offset",
        "leader_epoch",
        "load_offset",
        "loaded_records",
        "machine",
        "parked",
        "partition",
        "started",
        "state",
        "timers",
    )

    def __init__(self, partition: int, leader_epoch: int, started: float) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.started = started
        self.state = ShardState.LOADING
        self.machine: S | None = None
        self.timers: _ShardTimers | None = None
        self.load_offset = 0
        self.loaded_records = 0
        self.last_written_offset = 0
        self.high_watermark = -1
        self.busy = False
        self.parked: deque[_Parked] = deque()

    def committed(self, high_watermark: int) -> None:
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
        if self.timers is not None:
            self.timers.close()


class _Timer:
    __slots__ = ("deadline", "handle", "operation", "wakes")

    def __init__(self, deadline: float, operation: Callable[[], Result[Any, Any]], wakes: float) -> None:
        self.deadline = deadline
        self.operation = operation
        self.wakes = wakes
        self.handle: TimerHandle | None = None


class _ShardTimers:
    """Timers by key. Moving one to later, as every heartbeat does, only notes the new deadline: the loop's timer stays,
    finds at its end that there is time left, and sleeps on."""

    def __init__(self, scheduler: Scheduler, run: Callable[[Callable[[], Result[Any, Any]]], None]) -> None:
        self._scheduler = scheduler
        self._run = run
        self._timers: dict[str, _Timer] = {}

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], Result[Any, Any]]) -> None:
        deadline = self._scheduler.monotonic() + delay_ms / 1000
        timer = self._timers.get(key)
        if timer is not None and timer.wakes <= deadline:
            timer.deadline = deadline
            timer.operation = operation
            return
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()
        self._timers[key] = self._arm(key, _Timer(deadline, operation, deadline), delay_ms / 1000)

    def _arm(self, key: str, timer: _Timer, delay_s: float) -> _Timer:
        timer.handle = self._scheduler.call_later(delay_s, lambda: self._wake(key, timer))
        return timer

    def _wake(self, key: str, timer: _Timer) -> None:
        if self._timers.get(key) is not timer:
            return
        left = timer.deadline - self._scheduler.monotonic()
        if left > 0.001:
            timer.wakes = timer.deadline
            self._arm(key, timer, left)
            return
        del self._timers[key]
        self._run(timer.operation)

    def cancel(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()

    def close(self) -> None:
        for key in list(self._timers):
            self.cancel(key)


def _nobody(response: object) -> None:
    """The reply of a timer's operation: what went wrong was logged on the way."""


def _record_bytes_max(key: bytes, value: bytes | None) -> int:
    return len(key) + (len(value) if value is not None else 0) + 32
