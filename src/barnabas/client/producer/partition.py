"""What the producer knows of one partition: batches that wait, batches in flight, and its numbers with the broker.

Batches of a partition have an order that nothing changes: `number`. A batch that failed and will be tried again goes
back to its place in front of those that were never sent.
"""

from collections import deque

from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

__all__ = ["PartitionState"]


class PartitionState:
    """See the module."""

    __slots__ = (
        "gap",
        "in_flight",
        "known",
        "next_number",
        "next_sequence",
        "producer_epoch",
        "producer_id",
        "queue",
        "quiet_from",
        "where",
    )

    def __init__(self, where: TopicPartition) -> None:
        self.where = where
        self.queue: deque[ProducerBatch] = deque()
        """Closed batches that are not in flight, in their order."""
        self.in_flight: list[ProducerBatch] = []
        """In their order; also such as were given up and are not answered yet."""
        self.next_number = 0
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.next_sequence = 0
        self.known = False
        """The partition has acknowledged a batch of this producer id. A broker takes any sequence for the first one of
        an id, so a second one must not overtake it: it waits for the answer."""
        self.gap: float | None = None
        """Number of the last batch that had a sequence and was given up: those behind it are out of sequence, unless
        it was written after all."""

        self.quiet_from = float("-inf")
        """Until then bytes of a lost connection may still reach the broker: after a gap nothing is numbered anew
        before."""

    def add(self, batch: ProducerBatch) -> None:
        """A batch that was just closed."""
        batch.number = float(self.next_number)
        self.next_number += 1
        self.queue.append(batch)

    def put_back(self, batches: list[ProducerBatch]) -> None:
        """Batches that wait again, in their places."""
        for batch in batches:
            later = []
            while self.queue and self.queue[0].number < batch.number:
                later.append(self.queue.popleft())
            self.queue.appendleft(batch)
            self.queue.extendleft(reversed(later))

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch waits or is in flight."""
        if self.queue and self.queue[0].number < batch.number:
            return False
        return not any(other.number < batch.number for other in self.in_flight)

    def adopt(self, producer_id: int, producer_epoch: int) -> None:
        """Number from 0 under this id and epoch. Only while nothing is in flight that may be written."""
        if producer_id != self.producer_id:
            self.known = False
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0
        self.gap = None
        for batch in self.queue:
            batch.base_sequence = -1
