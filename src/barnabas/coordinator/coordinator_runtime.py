"""Runs coordinator shards over the partitions of an internal topic: appends, replays, replies after the commit.

An operation decides which records to write (`CoordinatorResult`). The runtime appends them as one batch, replays every
record into the shard, and holds the response until the high watermark covers the batch. With one replica that is at
once. All of these are plain calls on the event loop's thread: nothing runs between the decision and the append.

A partition is loaded in chunks, between which other work runs. One partition loads at a time. A request for a partition
in the queue moves it to the front and waits for it (`load_waiters.py`). The shard of an empty partition is made at its
first use. A load that fails is tried again until it succeeds or another broker leads.

Where we differ from Kafka: reads wait for the commit of earlier writes instead of reading a snapshot, and requests of
clients wait for the load of their partition instead of being refused.
"""

from __future__ import annotations  # annotations of nested functions would be evaluated at every call

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from barnabas.coordinator.coordinator_context import CoordinatorContext, CoordinatorState, DeferredEvent, Reply
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
from barnabas.out_of_memory import end_if_out_of_memory
from barnabas.records.builder import BatchBuilder, build_control_batch
from barnabas.types import NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerId

__all__ = ["CoordinatorLog", "CoordinatorRuntime", "Reply", "Scheduler", "TimerHandle"]

PENDING_MAX: Final = 100_000
"""The bound on the responses of one partition that wait for the high watermark. Above it requests are refused."""
LOAD_RETRY_S: Final = 1.0
"""The first wait before a load that failed is tried again; it doubles up to `LOAD_RETRY_MAX_S`."""
LOAD_RETRY_MAX_S: Final = 30.0

S = TypeVar("S", bound=CoordinatorShard[Any])
R = TypeVar("R")
T = TypeVar("T")


class CoordinatorRuntime(Generic[S, R]):
    """The coordinator shards of one internal topic on this broker."""

    def __init__(
        self,
        *,
        topic: str,
        log: CoordinatorLog,
        serde: RecordSerde[R],
        make_shard: Callable[[int, CoordinatorTimer], S],
        scheduler: Scheduler,
        wall_ms: Callable[[], int],
        commit_timeout_ms: int,
        compression: str = "none",
        may_be_replaced: Callable[[], bool] = lambda: False,
        logger: logging.Logger | None = None,
    ) -> None:
        """`may_be_replaced()` says that another broker may lead the partitions without the knowledge of this one. Then
        requests are refused, and what this broker knows is not shown."""
        self.topic = topic
        self._log = log
        self._serde = serde
        self._make_shard = make_shard
        self._scheduler = scheduler
        self._wall_ms = wall_ms
        self._commit_timeout_ms = commit_timeout_ms
        self._compression = compression
        self._may_be_replaced = may_be_replaced
        self._logger = logger or logging.getLogger(__name__)
        self._contexts: dict[int, CoordinatorContext[S]] = {}
        self._load_queue: deque[CoordinatorContext[S]] = deque()
        self._load_handle: TimerHandle | None = None

    # --- leadership ---------------------------------------------------------------------------------------------------

    def load(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        """Loads the partition, because this broker leads it now. Ignores repeated calls and older leader epochs."""
        former = self._contexts.get(partition)
        if former is not None:
            if former.leader_epoch >= leader_epoch and former.state is not CoordinatorState.FAILED:
                return
            self._unload(former, keeps_own_work=True)
        self._load(CoordinatorContext(partition, leader_epoch, self._scheduler), former)

    def _load(self, context: CoordinatorContext[S], former: CoordinatorContext[S] | None = None) -> None:
        """Loads a partition. Own work that waits in the `former` context goes on waiting."""
        if former is not None:
            context.waiters = former.waiters
        self._contexts[context.partition] = context
        try:
            start, end = self._log.log_range(context.partition)
        except Exception as error:
            self._fail(context, error)
            return
        context.log_start_offset = start
        context.last_written_offset = end
        if start == end:
            context.state = CoordinatorState.ACTIVE
            context.waiters.serve(self._logger)
            return
        self._load_queue.append(context)
        self._schedule_load()

    def unload(self, partition: int, leader_epoch: LeaderEpoch | None = None) -> None:
        """Unloads the partition, because this broker no longer leads it. `leader_epoch` is None if its replica is
        deleted."""
        context = self._contexts.get(partition)
        if context is None or (leader_epoch is not None and leader_epoch < context.leader_epoch):
            return
        self._unload(context)
        self._logger.debug("Unloaded %s-%d", self.topic, partition)

    def _unload(self, context: CoordinatorContext[S], *, keeps_own_work: bool = False) -> None:
        del self._contexts[context.partition]
        if context in self._load_queue:
            self._load_queue.remove(context)
        refusal = NotCoordinator(f"{self.topic}-{context.partition} has another leader now")
        context.close(refusal, keeps_own_work=keeps_own_work)

    def close(self) -> None:
        """Unloads all partitions. Waiting requests get NotCoordinator."""
        for partition in list(self._contexts):
            self.unload(partition)
        if self._load_handle is not None:
            self._load_handle.cancel()
            self._load_handle = None

    def on_high_watermark(self, partition: int, high_watermark: Offset) -> None:
        """Sends the responses that the new high watermark covers."""
        context = self._contexts.get(partition)
        # The log may call this within an append: the operation checks the high watermark itself afterwards.
        if context is not None and not context.busy:
            context.committed(high_watermark)

    # --- operations ---------------------------------------------------------------------------------------------------

    def is_active(self, partition: int) -> bool:
        context = self._contexts.get(partition)
        return context is not None and context.state is CoordinatorState.ACTIVE

    def partitions(self) -> list[int]:
        """Returns the partitions that this broker leads, loading ones included."""
        return sorted(self._contexts)

    def used_partitions(self) -> list[int]:
        return sorted(
            partition
            for partition, context in self._contexts.items()
            if context.shard is not None or context.state is not CoordinatorState.ACTIVE
        )

    def peek(self, partition: int) -> S | None:
        """Returns the shard for reading; None if it is not loaded or was never used."""
        context = self._contexts.get(partition)
        return None if context is None or context.state is not CoordinatorState.ACTIVE else context.shard

    def run(
        self,
        partition: int,
        operation: Callable[[S], CoordinatorResult[R, T]],
        reply: Reply[T],
        *,
        transaction: Transaction | None = None,
        waits: bool = True,
        is_own: bool = False,
    ) -> None:
        """Runs an operation. `reply` gets its response once all records written so far are committed, or an error.

        The records of a `transaction` share one batch and wait for its end marker. `waits` says that the request waits
        for the load of the partition; `is_own` says that this is no request, but work of this broker, which waits until
        the load has succeeded.

        Errors: those that the operation or the append raises; UnknownServerError for a bug; NotCoordinator;
        CoordinatorLoadInProgress; CoordinatorNotAvailable if too many responses wait; RequestTimedOut if the records
        are not committed within offsets.commit.timeout.ms.
        """

        def start(context: CoordinatorContext[S], reply: Reply[T]) -> None:
            shard = self._shard(context)
            self._run(context, lambda: operation(shard), reply, transaction)

        self._start_when_loaded(partition, start, reply, waits=waits, is_own=is_own)

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
        """Appends the end marker of a transaction, which commits or drops its records. The errors are those of `run`.

        A marker does not wait for the load of the partition: markers of other transactions, in the same request and in
        those behind it, would wait with it. Its sender tries again.
        """

        def write(context: CoordinatorContext[S]) -> None:
            batch = build_control_batch(
                committed=commit,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=self._wall_ms(),
            )
            context.last_written_offset = self._log.append(
                context.partition, batch, context.leader_epoch, transaction_version=transaction_version
            )
            assert context.shard is not None
            context.shard.replay_end_transaction(producer_id, commit)

        def start(context: CoordinatorContext[S], reply: Reply[None]) -> None:
            self._shard(context)
            self._commit(context, NOTHING, write, reply)

        self._start_when_loaded(partition, start, reply, waits=False)

    def _start_when_loaded(
        self,
        partition: int,
        start: Callable[[CoordinatorContext[S], Reply[T]], None],
        reply: Reply[T],
        *,
        waits: bool = True,
        is_own: bool = False,
    ) -> None:
        try:
            context = self._active_context(partition, is_own=is_own)
            if not is_own and self._may_be_replaced():
                raise NotCoordinator(f"another broker may lead {self.topic}-{partition} without this one's knowledge")
            self._check_room(context)
        except CoordinatorLoadInProgress as refusal:
            context = self._contexts[partition]
            if not is_own:
                self._load_next(context)
            if waits:
                context.waiters.add(
                    lambda late: self._start_when_loaded(partition, start, late, is_own=is_own),
                    reply,
                    refusal,
                    is_own=is_own,
                )
            else:
                reply(refusal)
            return
        except KafkaError as error:
            reply(error)
            return
        start(context, reply)

    def _active_context(self, partition: int, *, is_own: bool) -> CoordinatorContext[S]:
        context = self._contexts.get(partition)
        if context is None or (context.state is CoordinatorState.FAILED and not is_own):
            raise NotCoordinator(f"{self.topic}-{partition} is not led by this broker")
        if context.state is not CoordinatorState.ACTIVE:
            raise CoordinatorLoadInProgress(f"{self.topic}-{partition} is being read")
        return context

    def _shard(self, context: CoordinatorContext[S]) -> S:
        if context.shard is None:
            # Timers are not bounded by PENDING_MAX: each fires once, and there are no more of them than groups.
            context.timers = SchedulerTimer(self._scheduler, lambda operation: self._run(context, operation, _ignore))
            context.shard = self._make_shard(context.partition, context.timers)
            if context.state is CoordinatorState.ACTIVE:
                # The log was empty, so nothing had to be replayed before.
                context.shard.loaded()
        return context.shard

    def _run(
        self,
        context: CoordinatorContext[S],
        operation: Callable[[], CoordinatorResult[R, T]],
        reply: Reply[T],
        transaction: Transaction | None = None,
    ) -> None:
        try:
            result = operation()
        except Exception as error:
            reply(self._refusal(context, error))
            return
        self._commit(
            context,
            result,
            (lambda context: self._write(context, result, transaction)) if result.records else None,
            reply,
        )

    def _refusal(self, context: CoordinatorContext[S], error: Exception) -> KafkaError:
        """Returns the error for the reply, and logs it if it is a bug: the operation may be a timer's, and a request
        must not wait for ever."""
        end_if_out_of_memory(error)
        if not isinstance(error, KafkaError):
            self._logger.error("An operation on %s-%d failed", self.topic, context.partition, exc_info=error)
        return as_kafka_error(error)

    def _check_room(self, context: CoordinatorContext[S]) -> None:
        if len(context.deferred) >= PENDING_MAX:
            raise CoordinatorNotAvailable(
                f"{PENDING_MAX} responses wait for {self.topic}-{context.partition} to be replicated"
            )

    def _commit(
        self,
        context: CoordinatorContext[S],
        result: CoordinatorResult[R, T],
        write: Callable[[CoordinatorContext[S]], None] | None,
        reply: Reply[T],
    ) -> None:
        """Writes, if there is something to write, and replies when all records written so far are committed."""
        if write is not None:
            context.busy = True
            try:
                write(context)
            except Exception as error:
                context.busy = False
                refusal = self._refusal(context, error)
                if refusal.code != context.refused_with:
                    self._logger.warning("Append to %s-%d failed: %s", self.topic, context.partition, refusal)
                context.refused_with = refusal.code
                if result.done is not None:
                    result.done(refusal)
                reply(refusal)
                return
            context.busy = False
            context.refused_with = 0
        if context.high_watermark >= context.last_written_offset or self._refresh(context):
            if result.done is not None:
                result.done(None)
            reply(result.response)
            return
        self._defer(context, result, reply)

    def _refresh(self, context: CoordinatorContext[S]) -> bool:
        """Gets the high watermark of the log. Returns whether it covers all written records."""
        context.committed(self._log.high_watermark(context.partition))
        return context.high_watermark >= context.last_written_offset

    def _write(
        self, context: CoordinatorContext[S], result: CoordinatorResult[R, Any], transaction: Transaction | None
    ) -> None:
        timestamp = self._wall_ms()
        max_bytes = self._log.max_batch_bytes(context.partition)
        builder = self._builder(transaction)
        pending: list[R] = []
        for record in result.records:
            key, value = self._serde.encode(record)
            if pending and not result.atomic and builder.size_bytes + _record_bytes_max(key, value) > max_bytes:
                self._append(context, builder, pending, max_bytes, transaction)
                builder, pending = self._builder(transaction), []
            builder.append(key, value, timestamp)
            pending.append(record)
        self._append(context, builder, pending, max_bytes, transaction)

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
        context: CoordinatorContext[S],
        builder: BatchBuilder,
        records: list[R],
        max_bytes: int,
        transaction: Transaction | None,
    ) -> None:
        batch = builder.build()
        if len(batch) > max_bytes:
            raise RecordListTooLarge(
                f"{len(records)} records for {self.topic}-{context.partition} need {len(batch)} bytes in one batch, "
                f"max.message.bytes of the topic is {max_bytes}"
            )
        guard, producer_id = None, NO_PRODUCER_ID
        if transaction is not None:
            guard, producer_id = transaction.guard, transaction.producer_id
        end_offset = self._log.append(context.partition, batch, context.leader_epoch, guard=guard)
        context.last_written_offset = end_offset
        shard = context.shard
        assert shard is not None
        for offset, record in enumerate(records, end_offset - len(records)):
            shard.replay(Offset(offset), producer_id, record)

    def _defer(self, context: CoordinatorContext[S], result: CoordinatorResult[R, T], reply: Reply[T]) -> None:
        deferred = DeferredEvent(context.last_written_offset, result, reply)
        timeout_s = self._commit_timeout_ms / 1000
        deferred.timeout = self._scheduler.call_later(timeout_s, lambda: self._time_out(context, deferred))
        context.deferred.append(deferred)

    def _time_out(self, context: CoordinatorContext[S], deferred: DeferredEvent) -> None:
        # The records stay: they may still be committed, and the soft state follows them then.
        deferred.reply_once(
            RequestTimedOut(f"{self.topic}-{context.partition} was not replicated within {self._commit_timeout_ms} ms")
        )

    # --- loading ------------------------------------------------------------------------------------------------------

    def _load_next(self, context: CoordinatorContext[S]) -> None:
        queue = self._load_queue
        if len(queue) > 1 and queue[0] is not context and context in queue:
            queue.remove(context)
            queue.appendleft(context)

    def _schedule_load(self) -> None:
        if self._load_handle is None and self._load_queue:
            self._load_handle = self._scheduler.call_later(0, self._load_chunk)

    def _load_chunk(self) -> None:
        self._load_handle = None
        if not self._load_queue:
            return
        context = self._load_queue[0]
        try:
            loader = self._loader(context)
            if loader.step():
                self._load_queue.remove(context)
                self._activate(context, loader.records)
        except Exception as error:
            # A bug, too, must not keep the partitions behind this one from being loaded.
            self._fail(context, error)
        finally:
            self._schedule_load()

    def _loader(self, context: CoordinatorContext[S]) -> CoordinatorLoader[R]:
        if context.loader is None:
            name = f"{self.topic}-{context.partition}"
            shard = self._shard(context)
            start = context.log_start_offset
            context.loader = CoordinatorLoader(
                name, context.partition, start, self._log, self._serde, shard, self._logger
            )
        return context.loader

    def _activate(self, context: CoordinatorContext[S], records: int) -> None:
        context.last_written_offset = self._log.log_range(context.partition)[1]
        context.state = CoordinatorState.ACTIVE
        context.loader = None
        shard = self._shard(context)
        shard.loaded()
        took_ms = (self._scheduler.monotonic() - context.started) * 1000
        self._logger.info("Loaded %s-%d: %d records in %.0f ms", self.topic, context.partition, records, took_ms)
        context.waiters.serve(self._logger)

    def _fail(self, context: CoordinatorContext[S], error: Exception) -> None:
        end_if_out_of_memory(error)
        if context in self._load_queue:
            self._load_queue.remove(context)
        self._logger.log(
            logging.DEBUG if context.failures else logging.ERROR,  # said once, and "Loaded" when it is over
            "Loading %s-%d failed, and is tried again until it succeeds: %s",
            *(self.topic, context.partition, error),
            exc_info=None if isinstance(error, KafkaError | OSError) else error,
        )
        context.state = CoordinatorState.FAILED
        refusal = NotCoordinator(f"{self.topic}-{context.partition} could not be read: {error}")
        context.close(refusal, keeps_own_work=True)
        delay_s = min(LOAD_RETRY_S * 2 ** min(context.failures, 10), LOAD_RETRY_MAX_S)
        context.retry = self._scheduler.call_later(delay_s, lambda: self._load_again(context))

    def _load_again(self, failed: CoordinatorContext[S]) -> None:
        """Loads a partition after a failure. The timer that calls this ends with the leadership."""
        context: CoordinatorContext[S] = CoordinatorContext(failed.partition, failed.leader_epoch, self._scheduler)
        context.failures = failed.failures + 1
        self._load(context, failed)


def _ignore(response: object) -> None:
    """Drops the response of a timer's operation. Errors are logged already."""


def _record_bytes_max(key: bytes, value: bytes | None) -> int:
    return len(key) + (len(value) if value is not None else 0) + 32
