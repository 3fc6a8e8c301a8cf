"""Runs state machines over the partitions of an internal topic: append, replay, answer once committed.

An operation decides what to write (`machine.CoordinatorResult`); the runtime appends it as one batch, replays every
record into the state machine, and holds the response until the high watermark covers the batch. With one replica that
is at once. All of it is plain calls on the event loop's thread: nothing runs between the decision and the append.

Loading reads the log in chunks and gives way to the loop after each. One partition loads at a time; a request for a
partition that waits moves it to the front, and waits for it (`waiting.py`). Empty partitions cost nothing: their state
machine is made at the first use.

Where we differ from Kafka: reads wait for the commit of what was written before them instead of looking at a snapshot,
and requests wait for the load of their partition instead of being sent away.
"""

from __future__ import annotations  # functions in functions: their annotations would be worked out at every call

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from barnabas.coordinator.coordinator_context import CoordinatorContext, CoordinatorState, Parked, Reply
from barnabas.coordinator.coordinator_loader import CoordinatorLoader, CoordinatorLog
from barnabas.coordinator.coordinator_shard import (
    NOTHING,
    CoordinatorResult,
    CoordinatorShard,
    CoordinatorTimer,
    RecordSerde,
    Transaction,
)
from barnabas.coordinator.timers import Scheduler, SchedulerTimer, TimerHandle
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    RecordListTooLarge,
    RequestTimedOut,
    as_kafka_error,
)
from barnabas.records.builder import BatchBuilder, build_control_batch
from barnabas.types import NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerId

__all__ = ["CoordinatorLog", "CoordinatorRuntime", "Reply", "Scheduler", "TimerHandle"]

PENDING_MAX: Final = 100_000
"""Responses of one partition that wait for the high watermark; beyond them requests are refused."""

S = TypeVar("S", bound=CoordinatorShard[Any])
R = TypeVar("R")
T = TypeVar("T")


class CoordinatorRuntime(Generic[S, R]):
    """The state machines of one internal topic on this broker."""

    def __init__(
        self,
        *,
        topic: str,
        log: CoordinatorLog,
        codec: RecordSerde[R],
        machine: Callable[[int, CoordinatorTimer], S],
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
        self._shards: dict[int, CoordinatorContext[S]] = {}
        self._load_queue: deque[CoordinatorContext[S]] = deque()
        self._load_handle: TimerHandle | None = None

    # --- leadership ---------------------------------------------------------------------------------------------------

    def load(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        """This broker leads the partition from now on. Repeats and older epochs change nothing."""
        shard = self._shards.get(partition)
        if shard is not None:
            if shard.leader_epoch >= leader_epoch and shard.state is not CoordinatorState.FAILED:
                return
            self.unload(partition, leader_epoch)
        shard = CoordinatorContext(partition, leader_epoch, self._scheduler)
        self._shards[partition] = shard
        try:
            start, end = self._log.log_range(partition)
        except KafkaError as error:
            self._fail(shard, error)
            return
        shard.log_start_offset = start
        shard.last_written_offset = end
        if start == end:
            shard.state = CoordinatorState.ACTIVE
            return
        self._load_queue.append(shard)
        self._plan_load()

    def unload(self, partition: int, leader_epoch: LeaderEpoch | None = None) -> None:
        """This broker does not lead the partition any more; None: its replica is gone, whatever the epoch."""
        shard = self._shards.get(partition)
        if shard is None or (leader_epoch is not None and leader_epoch < shard.leader_epoch):
            return
        del self._shards[partition]
        if shard in self._load_queue:
            self._load_queue.remove(shard)
        shard.close(NotCoordinator(f"{self.topic}-{partition} has another leader now"))
        self._logger.debug("Unloaded %s-%d", self.topic, partition)

    def close(self) -> None:
        """Unload everything: whoever still waits is told to look for another coordinator."""
        for partition in list(self._shards):
            self.unload(partition)
        if self._load_handle is not None:
            self._load_handle.cancel()
            self._load_handle = None

    def on_high_watermark(self, partition: int, high_watermark: Offset) -> None:
        """The high watermark moved: responses that it covers leave."""
        shard = self._shards.get(partition)
        # While an operation appends, the log may report from within: the operation looks for itself when it is done.
        if shard is not None and not shard.busy:
            shard.committed(high_watermark)

    # --- operations ---------------------------------------------------------------------------------------------------

    def is_active(self, partition: int) -> bool:
        """Whether operations on the partition would be served now."""
        shard = self._shards.get(partition)
        return shard is not None and shard.state is CoordinatorState.ACTIVE

    def partitions(self) -> list[int]:
        """The partitions that this broker leads, loading ones included."""
        return sorted(self._shards)

    def used_partitions(self) -> list[int]:
        """The partitions with a state machine, or with one on the way."""
        return sorted(
            partition
            for partition, shard in self._shards.items()
            if shard.machine is not None or shard.state is not CoordinatorState.ACTIVE
        )

    def peek(self, partition: int) -> S | None:
        """The state machine as it is, None if nothing ever used it. For looking only."""
        shard = self._shards.get(partition)
        return None if shard is None or shard.state is not CoordinatorState.ACTIVE else shard.machine

    def run(
        self,
        partition: int,
        operation: Callable[[S], CoordinatorResult[R, T]],
        reply: Reply[T],
        *,
        transaction: Transaction | None = None,
        waits: bool = True,
    ) -> None:
        """Run an operation; `reply` gets its response once everything written so far is committed, or the error.

        The records of a `transaction` share one batch and wait for its end marker. `waits`: for the load of the
        partition, within bounds.
        Errors: what the operation raised; UnknownServerError for a bug of ours; NotCoordinator;
        CoordinatorLoadInProgress; CoordinatorNotAvailable if too many wait for the replicas; what the log said on
        append; RequestTimedOut after offsets.commit.timeout.ms without a commit.
        """

        def start(shard: CoordinatorContext[S], reply: Reply[T]) -> None:
            machine = self._machine(shard)
            self._run(shard, lambda: operation(machine), reply, transaction)

        self._serve(partition, start, reply, waits=waits)

    def end_transaction(
        self,
        partition: int,
        *,
        producer_id: ProducerId,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        reply: Reply[None],
    ) -> None:
        """Append the end marker of a transaction and let it decide the transaction's records; errors as in `run`."""

        def write(shard: CoordinatorContext[S]) -> None:
            batch = build_control_batch(
                committed=commit,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=self._wall_ms(),
            )
            shard.last_written_offset = self._log.append(
                shard.partition, batch, shard.leader_epoch, transaction_version=transaction_version
            )
            assert shard.machine is not None
            shard.machine.replay_end_transaction(producer_id, commit)

        def start(shard: CoordinatorContext[S], reply: Reply[None]) -> None:
            self._machine(shard)
            self._commit(shard, NOTHING, write, reply)

        self._serve(partition, start, reply)

    def _serve(
        self,
        partition: int,
        start: Callable[[CoordinatorContext[S], Reply[T]], None],
        reply: Reply[T],
        *,
        waits: bool = True,
    ) -> None:
        """Start what a request asks for, at once or when the partition is loaded."""
        try:
            shard = self._active_shard(partition)
            self._check_room(shard)
        except CoordinatorLoadInProgress as refusal:
            if waits:
                self._shards[partition].waiters.add(lambda late: self._serve(partition, start, late), reply, refusal)
            else:
                reply(refusal)
            return
        except KafkaError as error:
            reply(error)
            return
        start(shard, reply)

    def _active_shard(self, partition: int) -> CoordinatorContext[S]:
        shard = self._shards.get(partition)
        if shard is None or shard.state is CoordinatorState.FAILED:
            raise NotCoordinator(f"{self.topic}-{partition} is not led by this broker")
        if shard.state is CoordinatorState.LOADING:
            self._hurry(shard)
            raise CoordinatorLoadInProgress(f"{self.topic}-{partition} is being read")
        return shard

    def _machine(self, shard: CoordinatorContext[S]) -> S:
        if shard.machine is None:
            # A timer fires once and there are no more of them than there is state: it always finds room.
            shard.timers = SchedulerTimer(self._scheduler, lambda operation: self._run(shard, operation, _nobody))
            shard.machine = self._make_machine(shard.partition, shard.timers)
            if shard.state is CoordinatorState.ACTIVE:
                # Nothing was in the log, so nothing was replayed: its state machine is made only now.
                shard.machine.loaded()
        return shard.machine

    def _run(
        self,
        shard: CoordinatorContext[S],
        operation: Callable[[], CoordinatorResult[R, T]],
        reply: Reply[T],
        transaction: Transaction | None = None,
    ) -> None:
        try:
            result = operation()
        except Exception as error:
            reply(self._refusal(shard, error))
            return
        self._commit(
            shard, result, (lambda shard: self._write(shard, result, transaction)) if result.records else None, reply
        )

    def _refusal(self, shard: CoordinatorContext[S], error: Exception) -> KafkaError:
        """What the asker is told, of a bug of ours as well: the caller may be a timer, and whoever waits for the reply
        would do so for ever."""
        if not isinstance(error, KafkaError):
            self._logger.error("An operation on %s-%d failed", self.topic, shard.partition, exc_info=error)
        return as_kafka_error(error)

    def _check_room(self, shard: CoordinatorContext[S]) -> None:
        if len(shard.parked) >= PENDING_MAX:
            raise CoordinatorNotAvailable(
                f"{PENDING_MAX} responses wait for {self.topic}-{shard.partition} to be replicated"
            )

    def _commit(
        self,
        shard: CoordinatorContext[S],
        result: CoordinatorResult[R, T],
        write: Callable[[CoordinatorContext[S]], None] | None,
        reply: Reply[T],
    ) -> None:
        """Write, if there is something to write, and answer when all that was written so far is committed."""
        if write is not None:
            shard.busy = True
            try:
                write(shard)
            except Exception as error:
                shard.busy = False
                refusal = self._refusal(shard, error)
                self._logger.warning("Append to %s-%d failed: %s", self.topic, shard.partition, refusal)
                if result.done is not None:
                    result.done(refusal)
                reply(refusal)
                return
            shard.busy = False
        if shard.high_watermark >= shard.last_written_offset or self._refresh(shard):
            if result.done is not None:
                result.done(None)
            reply(result.response)
            return
        self._park(shard, result, reply)

    def _refresh(self, shard: CoordinatorContext[S]) -> bool:
        """Ask the log for the high watermark; whether it covers all that was written."""
        shard.committed(self._log.high_watermark(shard.partition))
        return shard.high_watermark >= shard.last_written_offset

    def _write(
        self, shard: CoordinatorContext[S], result: CoordinatorResult[R, Any], transaction: Transaction | None
    ) -> None:
        timestamp = self._wall_ms()
        max_bytes = self._log.max_batch_bytes(shard.partition)
        builder = self._builder(transaction)
        pending: list[R] = []
        for record in result.records:
            key, value = self._codec.encode(record)
            if pending and not result.atomic and builder.size_bytes + _record_bytes_max(key, value) > max_bytes:
                self._append(shard, builder, pending, max_bytes, transaction)
                builder, pending = self._builder(transaction), []
            builder.append(key, value, timestamp)
            pending.append(record)
        self._append(shard, builder, pending, max_bytes, transaction)

    def _builder(self, transaction: Transaction | None) -> BatchBuilder:
        if transaction is None:
            return BatchBuilder(compression=self._compression)
        return BatchBuilder(
            compression=self._compression,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transactional=True,
        )

    def _append(
        self,
        shard: CoordinatorContext[S],
        builder: BatchBuilder,
        records: list[R],
        max_bytes: int,
        transaction: Transaction | None,
    ) -> None:
        batch = builder.build()
        if len(batch) > max_bytes:
            raise RecordListTooLarge(
                f"{len(records)} records for {self.topic}-{shard.partition} need {len(batch)} bytes in one batch, "
                f"max.message.bytes of the topic is {max_bytes}"
            )
        guard, producer_id = None, NO_PRODUCER_ID
        if transaction is not None:
            guard, producer_id = transaction.guard, transaction.producer_id
        end_offset = self._log.append(shard.partition, batch, shard.leader_epoch, guard=guard)
        shard.last_written_offset = end_offset
        machine = shard.machine
        assert machine is not None
        for offset, record in enumerate(records, end_offset - len(records)):
            machine.replay(Offset(offset), producer_id, record)

    def _park(self, shard: CoordinatorContext[S], result: CoordinatorResult[R, T], reply: Reply[T]) -> None:
        parked = Parked(shard.last_written_offset, result, reply)
        timeout_s = self._commit_timeout_ms / 1000
        parked.timeout = self._scheduler.call_later(timeout_s, lambda: self._time_out(shard, parked))
        shard.parked.append(parked)

    def _time_out(self, shard: CoordinatorContext[S], parked: Parked) -> None:
        # The records stay: they may still be committed, and soft state then follows them. Only the answer is due.
        parked.answer(
            RequestTimedOut(f"{self.topic}-{shard.partition} was not replicated within {self._commit_timeout_ms} ms")
        )

    # --- loading ------------------------------------------------------------------------------------------------------

    def _hurry(self, shard: CoordinatorContext[S]) -> None:
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
            loader = self._loader(shard)
            finished = loader.step()
        except (KafkaError, OSError) as error:
            self._load_queue.remove(shard)
            self._fail(shard, error)
        else:
            if finished:
                self._load_queue.remove(shard)
                self._activate(shard, loader.records)
        self._plan_load()

    def _loader(self, shard: CoordinatorContext[S]) -> CoordinatorLoader[R]:
        if shard.loader is None:
            name = f"{self.topic}-{shard.partition}"
            machine = self._machine(shard)
            start = shard.log_start_offset
            shard.loader = CoordinatorLoader(
                name, shard.partition, start, self._log, self._codec, machine, self._logger
            )
        return shard.loader

    def _activate(self, shard: CoordinatorContext[S], records: int) -> None:
        shard.last_written_offset = self._log.log_range(shard.partition)[1]
        shard.state = CoordinatorState.ACTIVE
        shard.loader = None
        machine = self._machine(shard)
        machine.loaded()
        took_ms = (self._scheduler.monotonic() - shard.started) * 1000
        self._logger.info("Loaded %s-%d: %d records in %.0f ms", self.topic, shard.partition, records, took_ms)
        shard.waiters.serve(self._logger)

    def _fail(self, shard: CoordinatorContext[S], error: Exception) -> None:
        self._logger.error("Loading %s-%d failed: %s", self.topic, shard.partition, error)
        shard.close(NotCoordinator(f"{self.topic}-{shard.partition} could not be read: {error}"))
        shard.state = CoordinatorState.FAILED


def _nobody(response: object) -> None:
    """The reply of a timer's operation: what went wrong was logged on the way."""


def _record_bytes_max(key: bytes, value: bytes | None) -> int:
    return len(key) + (len(value) if value is not None else 0) + 32
