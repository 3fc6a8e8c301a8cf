"""What the synchronous and the asyncio producer share: all that needs no waiting."""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

from librt.threading import Lock

from barnabas.client.arguments import by_partition, flag, instance, offset, seconds, text, topic_name
from barnabas.client.offset_messages import GroupMetadata, OffsetsOfPartitions
from barnabas.client.producer.producer_batch import ProducerBatch, RecordMetadata
from barnabas.client.producer.producer_core import ProducerCore
from barnabas.client.producer.record_appender import RecordAppender
from barnabas.client.producer.transactions.transaction_manager import TransactionManager
from barnabas.client.settings import ProducerSettings
from barnabas.client.settings.tls import ssl_context
from barnabas.connection.promise import Promise
from barnabas.errors import BufferExhausted, ClientClosed, OperationTimedOut, RecordsPurged, TopicNotFound, UsageError

__all__ = ["OffsetsOfPartitions", "OnDelivery", "ProducerBase", "all_done", "nothing", "offsets_sending"]

OnDelivery = Callable[[BaseException | None, RecordMetadata], object]
T = TypeVar("T")


class ProducerBase(ABC):
    """See the module."""

    settings: ProducerSettings
    _core: ProducerCore
    _intake: RecordAppender

    def _set_up(self, settings: Mapping[str, object] | None, named: Mapping[str, object]) -> None:
        self.settings = ProducerSettings(settings, **named)
        self._tls = ssl_context(self.settings)

    @abstractmethod
    def _run(self, action: Callable[[], T]) -> T:
        """Do something with the core, at once. Raises ClientClosed."""

    @abstractmethod
    def _check_process(self) -> None:
        """After a fork the child begins anew. Raises ClientClosed."""

    def _disown(self) -> None:
        """In the child of a fork: what is not done is the parent's to send."""
        self._intake.closed = True
        self._intake.lock = Lock()
        error = ClientClosed("the record is the parent process's to send; this one was forked from it")
        for batch in self._core.accumulator.all_batches():
            batch.error = error
            batch.done = True
            for listener in batch.listeners or ():
                with contextlib.suppress(RuntimeError):  # it may ring on a loop that is closed
                    listener()

    def _block_s(self, timeout: float | None) -> float:
        """How long a call may wait."""
        return self.settings.max_block_ms / 1000 if timeout is None else seconds("timeout", timeout)

    def _block_until(self) -> float:
        return time.monotonic() + self._block_s(None)

    # --- records ----------------------------------------------------------------------------------------------------

    def _exhausted(self) -> BufferExhausted:
        return BufferExhausted(
            f"buffer.memory ({self.settings.buffer_memory} bytes) stayed full for max.block.ms: records come"
            " faster than the brokers take them"
        )

    def _check_partition(self, topic: str, partition: int | None, refreshed: Promise[None], *, is_last: bool) -> None:
        """Raises TopicNotFound for a partition that fresh metadata does not list. Without an answer (`refreshed` has
        failed or is not done) the caller may ask again, unless this was its last try."""
        lane = self._intake.lanes.get(topic)
        if partition is None or lane is None or partition < lane.partition_count:
            return
        if is_last or (refreshed.done and refreshed.error is None):
            count = int(lane.partition_count)
            numbers = f"{count} partitions, 0 to {count - 1}" if count > 1 else "one partition, 0"
            raise TopicNotFound(f"topic {topic!r} has {numbers}: there is no partition {partition}")

    def _check_bulk(self, topic: str) -> None:
        topic_name("topic", topic)
        if self._core.interceptors is not None:
            raise UsageError(
                "interceptor.classes see single records, which a bulk call does not have: use send, or a producer"
                " without interceptors"
            )

    def purge(self, *, in_flight: bool = True) -> int:
        """Give up all records that wait; without `in_flight` those that were sent already are left to their fate. The
        number of records; their handles and callbacks hear RecordsPurged."""
        flag("in_flight", in_flight)
        error = RecordsPurged("the record was purged before it was acknowledged")
        return self._run(lambda: self._core.sender.purge(error, in_flight=in_flight))

    def metrics(self) -> dict[str, int]:
        """What this producer did and has to do, and who it is to the brokers."""
        self._check_process()
        return self._core.metrics()

    def _begin_flush(self) -> list[ProducerBatch]:
        """All that is not done; nothing lingers until `_end_flush`."""

        def begin() -> list[ProducerBatch]:
            self._core.accumulator.flushing += 1
            return list(self._core.accumulator.all_batches())

        return self._run(begin)

    def _not_flushed(self, batches: list[ProducerBatch], timeout: float | None) -> OperationTimedOut:
        count = sum(batch.count for batch in batches if not batch.done)
        return OperationTimedOut(f"{count} records were not acknowledged within {timeout:g} s")

    # --- transactions -----------------------------------------------------------------------------------------------

    def begin_transaction(self) -> None:
        """What is sent from now on is seen (isolation.level=read_committed) once it is committed, or never."""
        self._run(lambda: self._transactions().begin())

    def _transactions(self) -> TransactionManager:
        transactions = self._core.transactions
        if transactions is None:
            raise UsageError("this producer writes no transactions; give it a transactional_id")
        return transactions

    def _begin(self, start: Callable[[TransactionManager], Promise[T]]) -> Promise[T]:
        """Begin what was asked for, or begin to wait for it again."""
        return self._run(lambda: start(self._transactions()))


_group_metadata = instance(GroupMetadata, "what the consumer's group_metadata() gave, or the group's name")
_offsets = by_partition(offset, "100")


def offsets_sending(
    offsets: OffsetsOfPartitions, group_metadata: GroupMetadata | str
) -> Callable[[TransactionManager], Promise[None]]:
    """`send_offsets_to_transaction` as the core wants it."""
    group = group_metadata
    if isinstance(group, str):
        group = GroupMetadata(text("group_metadata", group))
    group = _group_metadata("group_metadata", group)
    wanted = _offsets("offsets", offsets)
    return lambda transactions: transactions.send_offsets(wanted, group)


def nothing() -> None:
    """For a turn of the driver without anything else."""


def all_done(batches: list[ProducerBatch]) -> bool:
    """Whether all are; forgets those that are, so that asking again and again stays cheap."""
    while batches:
        batch = batches[-1]
        if batch.parts is not None:
            batches.pop()
            batches.extend(batch.parts)
        elif batch.done:
            batches.pop()
        else:
            return False
    return True
