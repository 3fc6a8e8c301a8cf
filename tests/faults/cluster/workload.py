"""The clients of a round, and the reading of everything at its end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

import barnabas
from barnabas.client.admin.topics import NewTopic
from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition
from cluster.brokers import BrokersFailed
from cluster.clients import (
    BACKOFF,
    Client,
    ConfluentReader,
    ConfluentWriter,
    EndWatcher,
    GroupMember,
    GroupWatcher,
    Reader,
    Writer,
)
from cluster.history import History, Record, record_of
from cluster.transactional_clients import Copier, Feeder

__all__ = ["FEED", "GROUP", "LEDGER", "PARTITIONS", "TRANSACTIONAL_ID", "Workload"]

LEDGER, SCRATCH, FEED, COPY = "ledger", "scratch", "feed", "copy"
PARTITIONS = {
    topic: [TopicPartition(topic, number) for number in range(count)]
    for topic, count in {LEDGER: 6, SCRATCH: 2, FEED: 3, COPY: 3}.items()
}
GROUP, COPIERS, TRANSACTIONAL_ID = "readers", "copiers", "copier-0"
SOON_S = 15.0
MENDED_TIMEOUT_S = 90.0
"""The time after the last fault in which all must be well again: everything acknowledged, read, copied and in sync."""

Logs = dict[TopicPartition, list[Record]]


class Workload:
    """Idempotent producers and one without a promise, readers, a group, feeders of transactions and their copiers."""

    def __init__(
        self,
        bootstrap: str,
        rng: random.Random,
        traced: str = "",
        witnesses: Callable[[list[TopicPartition], History], list[Client]] = lambda *_: [],
    ) -> None:
        """`traced` is for librdkafka's idempotent producer. `witnesses` makes more writers of the ledger."""
        self.history = history = History()
        self._overdue: list[str] = []
        self._bootstrap, self._rng = bootstrap, rng
        ledger, scratch, feed, copy = PARTITIONS.values()
        timeout_ms = rng.choice((1_500, 6_000))

        def seeded() -> random.Random:
            return random.Random(rng.random())

        confluent_writer = partial(ConfluentWriter, traced=traced)
        self._writers: list[Client] = [
            make(name, bootstrap, ledger, history, seeded(), interval_s=0.03)
            for make, name in ((Writer, "writer-0"), (Writer, "writer-1"), (confluent_writer, "librdkafka"))
        ]
        self._writers.append(Writer("hasty", bootstrap, scratch, history, seeded(), interval_s=0.02, acks="1"))
        self._writers += [Feeder(f"feeder-{number}", bootstrap, feed, history, seeded()) for number in range(2)]
        self._writers += witnesses(ledger, history)
        self._reader = Reader("reader", bootstrap, [*ledger, *scratch], history)
        self._readers: list[Reader] = [
            self._reader,
            Reader("committed-reader", bootstrap, [*feed, *copy], history, read_committed=True),
            ConfluentReader("librdkafka-reader", bootstrap, [*ledger, *feed], history, read_committed=True),
        ]
        self._members: list[Client] = [
            GroupMember(f"member-{number}", bootstrap, LEDGER, GROUP, history, session_timeout_ms=timeout_ms)
            for number in range(2)
        ]
        history.copies.update(zip(copy, feed, strict=True))
        self._copiers = [
            Copier(f"copier-{number}", bootstrap, FEED, COPY, COPIERS, history, seeded(), session_timeout_ms=timeout_ms)
            for number in range(2)
        ]
        self._watchers: list[Client] = [
            EndWatcher("ends", bootstrap, [*ledger, *scratch, *feed], history),
            GroupWatcher("offsets", bootstrap, GROUP, history),
        ]

    @property
    def clients(self) -> list[Client]:
        return [*self._writers, *self._readers, *self._members, *self._copiers, *self._watchers]

    @property
    def failures(self) -> list[str]:
        return [failure for client in self.clients for failure in client.failures[:3]] + self._overdue

    @property
    def copied(self) -> int:
        return sum(copier.copied for copier in self._copiers)

    def start(self, replicas: int) -> None:
        with barnabas.Admin(bootstrap_servers=self._bootstrap, **BACKOFF) as admin:
            admin.create_topics([NewTopic(topic, len(found), replicas) for topic, found in PARTITIONS.items()])
        for client in self.clients:
            client.start()

    def stop(self) -> None:
        """Asks all clients to end."""
        for client in self.clients:
            client.stopping.set()

    def finish(self) -> None:
        """Ends the clients once everything is acknowledged, read and copied, and reads all partitions. What does not
        come to its end is a failure, and no reason to leave the rest unchecked."""
        self._finish(self._writers)
        self.wait_until("every transaction has ended", self._open_transactions)
        self.history.log = self._read_all(read_committed=False)
        self.wait_until("the readers are at the end", self._behind)
        self._finish([*self._readers, *self._members])
        self.wait_until("the copiers are at the end", self._not_copied)
        self._finish([*self._copiers, *self._watchers])
        self.wait_until("every transaction has ended", self._open_transactions)
        self.history.log = self._read_all(read_committed=False)
        self.history.committed_log = self._read_all(read_committed=True)

    def wait_until(self, what: str, left: Callable[[], list[str]]) -> None:
        """Waits until nothing is left. It is a failure if something is after MENDED_TIMEOUT_S, or, once there has been
        a failure, soon."""
        began_s = time.monotonic()
        found = ["nobody answers"]
        while time.monotonic() < began_s + (SOON_S if self.failures else MENDED_TIMEOUT_S):
            try:
                found = left()
            except BarnabasError as error:
                found = [str(error)]
            if not found:
                return
            time.sleep(0.1)
        seconds = time.monotonic() - began_s
        self._overdue.append(f"not after {seconds:.0f} s: {what}: {len(found)}: {'; '.join(found[:6])}")

    def _finish(self, clients: list[Client]) -> None:
        for client in clients:
            client.stopping.set()
        deadline = time.monotonic() + (SOON_S if self.failures else MENDED_TIMEOUT_S)
        for client in clients:
            client.finish(max(deadline - time.monotonic(), 1.0))

    # --- what is left to do -----------------------------------------------------------------------------------------

    def _open_transactions(self) -> list[str]:
        ends, stable = self._ends(read_committed=False), self._ends(read_committed=True)
        return [
            f"{topic_partition}: last stable offset {stable[topic_partition]}, end {end}"
            for topic_partition, end in ends.items()
            if stable[topic_partition] != end
        ]

    def _behind(self) -> list[str]:
        """Returns the readers that have not got the last record of a partition."""
        last = {each: records[-1].offset for each, records in self.history.log.items() if records}
        got = {(run.topic_partition, run.records[-1].offset) for run in self.history.runs if run.group and run.records}
        found = [
            f"{self._reader.name} in {each}"
            for each in (*PARTITIONS[LEDGER], *PARTITIONS[SCRATCH])
            if each in last and not self._reader.has_read(each, last[each])
        ]
        return found + [
            f"{GROUP} in {each}" for each in PARTITIONS[LEDGER] if each in last and (each, last[each]) not in got
        ]

    def _not_copied(self) -> list[str]:
        log = self._read_all(read_committed=True)
        return [
            f"{copy}: {len(log[copy])} of {len(log[source])}"
            for copy, source in self.history.copies.items()
            if len(log[copy]) < len(log[source])
        ]

    # --- reading ----------------------------------------------------------------------------------------------------

    def _ends(self, *, read_committed: bool) -> dict[TopicPartition, int]:
        with self._consumer(read_committed=read_committed) as consumer:
            return consumer.end_offsets([each for found in PARTITIONS.values() for each in found], timeout=5.0)

    def _read_all(self, *, read_committed: bool) -> Logs:
        """Returns all partitions as they are now."""
        ends = self._ends(read_committed=read_committed)
        found: Logs = {topic_partition: [] for topic_partition in ends}
        with self._consumer(read_committed=read_committed) as consumer:
            consumer.assign([*ends])
            for topic_partition in ends:
                consumer.seek(topic_partition, 0)
            deadline = time.monotonic() + MENDED_TIMEOUT_S
            left = set(ends)
            while left and time.monotonic() < deadline:
                for record in consumer.poll(0.05, max_records=5_000):
                    topic_partition = TopicPartition(record.topic, record.partition)
                    found[topic_partition].append(
                        record_of(record.offset, record.leader_epoch, record.key, record.value)
                    )
                left = {each for each in left if consumer.position(each) < ends[each]}
        if left:
            raise BrokersFailed(f"{sorted(left)} could not be read to their ends")
        return found

    def _consumer(self, *, read_committed: bool) -> barnabas.Consumer[bytes, bytes]:
        return barnabas.Consumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="none",
            isolation_level="read_committed" if read_committed else "read_uncommitted",
            **BACKOFF,
        )
