"""Batches from open to done: linger, compression, memory, expiry, and who hears of the end.

The intake fills batches; here they are closed when they are full or have lingered, kept by partition, and settled. The
memory of a batch counts from its first record to its end.
"""

from collections import deque
from collections.abc import Callable, Iterable

from barnabas.client.producer.partition import PartitionState
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.record_appender import BATCH_OVERHEAD, RecordAppender
from barnabas.connection.timers import NEVER
from barnabas.records.compression import CODEC_IDS, NONE, compress
from barnabas.types import TopicPartition

__all__ = ["RecordAccumulator"]


class RecordAccumulator:
    """See the module. `later` takes calls into the application, which are made when the network client is at rest."""

    def __init__(
        self,
        intake: RecordAppender,
        *,
        compression: str,
        compression_level: int | None,
        linger_s: float,
        delivery_timeout_s: float,
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self.intake = intake
        self.partitions: dict[tuple[str, int], PartitionState] = {}
        self.waiting: dict[PartitionState, None] = {}
        """Those with batches that are not in flight."""
        self.incomplete: dict[ProducerBatch, None] = {}
        """Closed and not done."""
        self.flushing = 0
        """Somebody waits for everything: nothing lingers."""
        self._codec = CODEC_IDS[compression]
        self._level = compression_level
        self._linger_s = linger_s
        self._delivery_timeout_s = delivery_timeout_s
        self._later = later
        self._opened: deque[ProducerBatch] = deque()
        self._by_age: deque[ProducerBatch] = deque()
        """Closed batches; the oldest that is not done is the next to expire."""

    # --- from open to closed ----------------------------------------------------------------------------------------

    def batch_opened(self, batch: ProducerBatch, now: float) -> bool:
        """The intake begins a batch; whether its linger is the first to be kept."""
        batch.opened_at = now
        self._opened.append(batch)
        return len(self._opened) == 1

    def collect(self, now: float) -> None:
        """Close what has lingered, and take in what is closed."""
        opened = self._opened
        hurry = self.flushing > 0 or self.intake.starved
        while opened and (not opened[0].is_open or hurry or opened[0].opened_at + self._linger_s <= now):
            batch = opened[0]
            if batch.is_open:
                lane = self.intake.lanes[batch.topic]
                if lane.open[batch.partition] is batch:
                    self.intake.close(lane, batch)
                else:  # its beginning was interrupted: it is in nobody's hands
                    batch.is_open = False
            opened.popleft()
        for batch in self.intake.take_full():
            self._take(batch)

    def _take(self, batch: ProducerBatch) -> None:
        body = self.intake.take_records(batch)
        if self._codec != NONE:
            body = compress(self._codec, body, self._level)
            self._resize(batch, BATCH_OVERHEAD + len(body))
        batch.body = body
        batch.compression = self._codec
        batch.deadline = batch.opened_at + self._delivery_timeout_s
        state = self.partitions.get((batch.topic, batch.partition))
        if state is None:
            where = TopicPartition(batch.topic, batch.partition)
            state = self.partitions[where] = PartitionState(where)
        state.add(batch)
        self.waiting[state] = None
        self.incomplete[batch] = None
        self._by_age.append(batch)

    @property
    def has_taken_all(self) -> bool:
        """Whether no batch is full that `collect` has not seen."""
        return not self.intake.full

    def _resize(self, batch: ProducerBatch, size: int) -> None:
        self.intake.used += size - batch.size
        batch.size = size

    def next_deadline(self) -> float:
        """When `collect` or `expired` has something to do."""
        opened = self._opened
        while opened and not opened[0].is_open:
            opened.popleft()
        due = opened[0].opened_at + self._linger_s if opened else NEVER
        oldest = self._oldest()
        return due if oldest is None else min(due, oldest.deadline)

    def _oldest(self) -> ProducerBatch | None:
        by_age = self._by_age
        while by_age and by_age[0] not in self.incomplete:
            by_age.popleft()
        return by_age[0] if by_age else None

    # --- the end of a batch -----------------------------------------------------------------------------------------

    def expired(self, now: float) -> list[ProducerBatch]:
        """Batches whose time is over."""
        oldest = self._oldest()
        if oldest is None or oldest.deadline > now:
            return []
        return [batch for batch in self.incomplete if batch.deadline <= now]

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The parts take the place of a batch that was too large, with its handles and callbacks."""
        batch.parts = parts
        del self.incomplete[batch]
        self.intake.used -= batch.size
        for part in parts:
            self.intake.used += part.size
            self.incomplete[part] = None
            self._by_age.appendleft(part)
        for index, timestamp, callback in batch.callbacks or ():
            for part in parts:
                if index < part.count:
                    part.add_callback(index, timestamp, callback)
                    break
                index -= part.count
        batch.callbacks = None
        self._tell(batch)

    def settle(self, batch: ProducerBatch, error: BaseException | None) -> None:
        """The batch is done; its offsets stand in it already."""
        batch.error = error
        batch.done = True
        batch.body = None
        del self.incomplete[batch]
        self.intake.used -= batch.size
        self.intake.starved = False
        self._tell(batch)

    def _tell(self, batch: ProducerBatch) -> None:
        listeners, batch.listeners = batch.listeners, None
        for listener in listeners or ():
            listener()
        if batch.callbacks is not None:
            self._later(lambda: _call_back(batch))

    def drop_open(self) -> list[ProducerBatch]:
        """Close all open batches and take them in, for `purge` and `abort`."""
        self.flushing += 1
        self.collect(NEVER)
        self.flushing -= 1
        return list(self.incomplete)

    def is_idle(self) -> bool:
        """Nothing waits, lingers or flies."""
        return not self.incomplete and not self.intake.full and not any(batch.is_open for batch in self._opened)

    def all_batches(self) -> Iterable[ProducerBatch]:
        """Open ones too. One without a record is left of a send that was interrupted, and nobody's."""
        opened = (batch for batch in self._opened if batch.is_open and batch.count)
        return [*self.incomplete, *self.intake.full, *opened]


def _call_back(batch: ProducerBatch) -> None:
    callbacks, batch.callbacks = batch.callbacks, None
    failure: BaseException | None = None
    for index, timestamp, callback in callbacks or ():
        try:
            callback(batch.error_of(index), batch.metadata(index, timestamp))
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
