"""The state of one partition in a producer: its queued batches, its batches in flight, and its sequence numbers."""

from collections import deque
from typing import Final

from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.producer_id import NO_PRODUCER_ID_AND_EPOCH, ProducerIdAndEpoch
from barnabas.types import TopicPartition

__all__ = ["Leadership", "PartitionBatches"]

Leadership = tuple[int, int, bytes]
"""A leader's node id, its leader epoch, and the topic's id: where any of them changes, the leader may not know of the
producer."""

REMEMBERED_S: Final = 600.0
"""The time for which a leader is trusted to know a producer that sends nothing. Brokers forget it after
producer.id.expiration.ms, which is a day where nobody has changed it."""


class PartitionBatches:
    """The closed batches of one partition. Their order never changes: a batch that is retried goes back to its place in
    front of the batches that were never sent."""

    __slots__ = (
        "_acknowledged_at",
        "_last_acknowledged",
        "gap",
        "has_acknowledged",
        "in_flight",
        "leadership",
        "next_position",
        "next_sequence",
        "producer_id_and_epoch",
        "queue",
        "quiet_from",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.queue: deque[ProducerBatch] = deque()
        """The closed batches that are not in flight, in their order."""
        self.in_flight: list[ProducerBatch] = []
        """The batches in flight, in their order, also those that were given up and are not answered yet."""
        self.next_position = 0
        self.producer_id_and_epoch = NO_PRODUCER_ID_AND_EPOCH
        self.next_sequence = 0
        self.has_acknowledged = False
        """Whether the leader has acknowledged a batch of this producer id. A leader takes any sequence for the first
        batch that it gets of an id, so the second one waits for the first one's answer and cannot overtake it."""
        self.leadership: Leadership = (-1, -1, b"")
        """The leader to which the batches in flight were sent, or the last one if there are none."""
        self._acknowledged_at = float("-inf")
        self._last_acknowledged = -1.0
        """The last position that was acknowledged under this producer id and epoch; -1 if there is none."""
        self.gap: float | None = None
        """The position of the last batch that had a sequence and was given up: the batches behind it are out of
        sequence, unless it was written after all."""
        self.quiet_from = float("-inf")
        """The time until which bytes of a lost connection may still reach the broker. After a gap, batches get no new
        sequences before."""

    def add(self, batch: ProducerBatch) -> None:
        """Queues a batch that was just closed, behind all others."""
        batch.position = float(self.next_position)
        self.next_position += 1
        self.queue.append(batch)

    def put_back(self, batches: list[ProducerBatch]) -> None:
        """Queues batches again, at their places in the order."""
        for batch in batches:
            earlier = []
            while self.queue and self.queue[0].position < batch.position:
                earlier.append(self.queue.popleft())
            self.queue.appendleft(batch)
            self.queue.extendleft(reversed(earlier))

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch is queued or in flight."""
        if self.queue and self.queue[0].position < batch.position:
            return False
        return not any(other.position < batch.position for other in self.in_flight)

    def sends_to(self, leadership: Leadership, now: float) -> None:
        """Notes the leader to which a batch is sent while no other is in flight. A new leader may lack all batches of
        the producer: its topic was created again, or its replica had none when it was elected. An old one may have
        forgotten a producer that paused."""
        if leadership != self.leadership or now - self._acknowledged_at > REMEMBERED_S:
            self.leadership = leadership
            self.has_acknowledged = False

    def note_acknowledged(self, batch: ProducerBatch, now: float) -> None:
        """Notes that the partition has acknowledged a batch."""
        self.has_acknowledged = True
        self._acknowledged_at = now
        if self._is_of_current(batch):
            self._last_acknowledged = max(self._last_acknowledged, batch.position)

    def is_overtaken(self, batch: ProducerBatch) -> bool:
        """Whether a later batch was acknowledged in the same epoch: a leader that knows the producer takes that one
        behind this one alone. So an earlier attempt was written, by a leader that did not answer before others had
        written many batches more."""
        return self._is_of_current(batch) and batch.position < self._last_acknowledged

    def _is_of_current(self, batch: ProducerBatch) -> bool:
        return (batch.producer_id, batch.producer_epoch) == self.producer_id_and_epoch

    def leave_gap(self, batch: ProducerBatch) -> None:
        """Notes that a batch was given up: if it had a sequence, the batches behind it are out of sequence."""
        if batch.base_sequence >= 0:
            self.gap = batch.position if self.gap is None else max(self.gap, batch.position)

    def restart_sequences(self, current: ProducerIdAndEpoch) -> None:
        """Restarts the sequences from 0 under a producer id and epoch. Allowed only while no batch in flight may be
        written."""
        if current.producer_id != self.producer_id_and_epoch.producer_id:
            self.has_acknowledged = False
        self.producer_id_and_epoch = current
        self.next_sequence = 0
        self._last_acknowledged = -1.0
        self.gap = None
        for batch in self.queue:
            batch.base_sequence = -1
