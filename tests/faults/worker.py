"""A consume-process-produce loop as a process that can be killed, under each of the three delivery semantics.

It tells what happens to it on standard output, a word a line: ``assigned``, and the points that it was asked to wait
at (``--wait-at``, from its nth batch on); there it goes on with the next line of standard input, and waits no more
after the line ``free``.
Exit code 0: asked to end, or nothing is left to read (``--until-end``). 3: another worker took its place. 1: a fault.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from types import FrameType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from workload import client_settings, patiently, told

AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE = "at-most-once", "at-least-once", "exactly-once"
ASSIGNED, PROCESSED, OFFSETS_SENT, COMMITTED = "assigned", "processed", "offsets-sent", "committed"
FREE = "free"
FENCED = 3
MARK = b"done:"  # what processing does to a record's value
POLL_S = 0.05
TRANSACTION_TIMEOUT_MS = 60_000  # longer than any check waits: a transaction left open must not heal by itself
FENCING_ERRORS = frozenset(
    {
        KafkaError._FATAL,  # a consumer's: it is fenced
        KafkaError._FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


class Worker:
    """One member of the group; what it has in hand at a rebalance it forgets, as the next owner reads it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rng = random.Random(options.seed)
        self._work = {
            AT_MOST_ONCE: self._at_most_once,
            AT_LEAST_ONCE: self._at_least_once,
            EXACTLY_ONCE: self._exactly_once,
        }[options.semantics]
        self._transactional = options.semantics == EXACTLY_ONCE
        self._batches = 0
        self._batch: list[Message] = []
        self._assigned: set[int] = set()
        self._ended: set[int] = set()
        self._stopped = False
        self._undelivered: list[str] = []
        self._consumer = Consumer(self._consumer_settings())
        self._producer = Producer(self._producer_settings())
        self._metadata: object = None

    def run(self) -> None:
        """Works until it is asked to end; raises what cannot be mended."""
        signal.signal(signal.SIGTERM, self._on_signal)
        if self._transactional:
            patiently(self._producer.init_transactions)
        self._consumer.subscribe([self._options.input], on_assign=self._on_assign, on_revoke=self._on_revoke)
        while not self._stopped:
            batch = self._take()
            if batch:
                self._batches += 1
                self._work(batch)
            elif self._options.until_end and self._assigned and self._ended == self._assigned:
                break
        self._consumer.close()

    def _at_most_once(self, batch: list[Message]) -> None:
        self._commit(batch)
        self._reach(COMMITTED)
        self._process(batch)
        self._reach(PROCESSED)

    def _at_least_once(self, batch: list[Message]) -> None:
        self._process(batch)
        self._reach(PROCESSED)
        self._commit(batch)
        self._reach(COMMITTED)

    def _exactly_once(self, batch: list[Message]) -> None:
        if self._transact(batch):
            self._reach(COMMITTED)
        else:
            self._abort(batch)

    def _transact(self, batch: list[Message]) -> bool:
        """False when the transaction has to be aborted, be it on purpose."""
        self._producer.begin_transaction()
        try:
            self._process(batch)
            self._reach(PROCESSED)
            if self._rng.random() < self._options.abort_share:
                return False
            offsets, metadata = _next_offsets(batch), self._metadata
            patiently(lambda wait_s: self._producer.send_offsets_to_transaction(offsets, metadata, wait_s))
            self._reach(OFFSETS_SENT)
            patiently(self._producer.commit_transaction)
        except KafkaException as error:
            if told(error).fatal():
                raise
            print(f"aborts: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def _process(self, batch: list[Message]) -> None:
        """Returns once all is in the log; of a transaction what is not makes its commit fail."""
        heard = None if self._transactional else self._delivered
        for message in batch:
            value = message.value()
            assert value is not None
            partition = message.partition() or 0
            self._producer.produce(self._options.output, MARK + value, message.key(), partition, on_delivery=heard)
        self._producer.flush()
        if self._undelivered:
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, "; ".join(self._undelivered[:3])))

    def _commit(self, batch: list[Message]) -> None:
        offsets = _next_offsets(batch)
        patiently(lambda _: self._consumer.commit(offsets=offsets, asynchronous=False))

    def _abort(self, batch: list[Message]) -> None:
        """The batch is read again, unless somebody else has its partitions by now."""
        patiently(self._producer.abort_transaction)
        first: dict[int, int] = {}
        for message in batch:
            first.setdefault(message.partition() or 0, message.offset() or 0)
        try:
            for partition in first.keys() & self._assigned:
                self._consumer.seek(TopicPartition(self._options.input, partition, first[partition]))
                self._ended.discard(partition)
        except KafkaException as error:
            # Of a fenced consumer librdkafka has taken the partitions away without a word; the next poll tells why.
            # Were it anything else, the batch would be missing from the output.
            if told(error).code() != KafkaError._STATE:
                raise

    def _take(self) -> list[Message]:
        self._batch = []
        while len(self._batch) < self._options.batch:
            message = self._consumer.poll(0 if self._batch else POLL_S)
            if message is None:
                break
            error = message.error()
            if error is None:
                self._batch.append(message)
                self._ended.discard(message.partition() or 0)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition() or 0)
            elif error.code() in FENCING_ERRORS:
                raise KafkaException(error)
        return self._batch

    def _reach(self, point: str) -> None:
        if point in self._options.wait_at and self._batches >= self._options.from_batch:
            print(point, flush=True)
            if sys.stdin.readline().strip() == FREE:
                self._options.wait_at.clear()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The metadata that offsets are sent with is of this assignment, so that a later one fences them."""
        self._batch.clear()
        self._metadata = consumer.consumer_group_metadata()
        self._assigned = {entry.partition for entry in partitions}
        self._ended.clear()
        print(ASSIGNED, flush=True)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._batch.clear()
        self._assigned.clear()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._undelivered.append(str(error))

    def _on_signal(self, signal_number: int, frame: FrameType | None) -> None:
        self._stopped = True

    def _consumer_settings(self) -> dict[str, object]:
        options = self._options
        settings: dict[str, object] = {
            **client_settings(options.address),
            "group.id": options.group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # A static member's successor need not wait for it, and a broker takes time; a guest may not get to leave.
            "session.timeout.ms": 30_000 if options.static else 6_000,
            "heartbeat.interval.ms": 300,
            "fetch.wait.max.ms": 100,
        }
        return settings | ({"group.instance.id": options.name} if options.static else {})

    def _producer_settings(self) -> dict[str, object]:
        settings: dict[str, object] = {
            **client_settings(self._options.address),
            "linger.ms": self._rng.choice((0, 2)),
        }
        if self._transactional:
            return settings | {
                "transactional.id": self._options.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "batch.num.messages": self._rng.choice((3, 10, 1_000)),  # several batches of one transaction in flight
            }
        return settings | {"enable.idempotence": True}


def _next_offsets(batch: list[Message]) -> list[TopicPartition]:
    after = {(message.topic() or "", message.partition() or 0): (message.offset() or 0) + 1 for message in batch}
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in after.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--semantics", choices=(AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE), default=EXACTLY_ONCE)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True, help="the transactional id, and the static member's name")
    parser.add_argument("--static", action="store_true", help="a successor takes a dead worker's partitions at once")
    parser.add_argument("--batch", type=int, default=10, help="most records of a transaction")
    parser.add_argument("--abort-share", type=float, default=0.0, help="share of transactions aborted on purpose")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--wait-at", action="append", default=[], choices=(PROCESSED, OFFSETS_SENT, COMMITTED))
    parser.add_argument("--from-batch", type=int, default=1, help="wait from this batch on")
    parser.add_argument("--until-end", action="store_true", help="end when all is read")
    worker = Worker(parser.parse_args())
    try:
        worker.run()
    except KafkaException as error:
        print(f"ends: {error}", file=sys.stderr, flush=True)
        return FENCED if told(error).code() in FENCING_ERRORS else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
