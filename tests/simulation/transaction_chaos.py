"""A transactional producer on a cluster in which everything goes wrong."""

import random
from collections import deque
from typing import Any

from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.client.producer.transactions.transaction_manager import TransactionManager, TransactionState
from barnabas.connection.promise import Promise
from barnabas.errors import TransactionFailed
from barnabas.types import TopicPartition
from simulation.cluster import Link
from simulation.producer_chaos import ProducerChaos

PRODUCE = 0
PASSES = [14, 15, 16, 51]
"""Errors of coordinators that have not done what was asked."""
PASSES_AFTER = [7, 14, 16]
"""Errors of coordinators that have done it, as when the response comes too late for the client."""
INPUT = TopicPartition("in", 0)


class TransactionChaos(ProducerChaos):
    """A transactional producer and the faults that can happen to it. A reader of committed records must see each
    transaction that was committed once, whole and in order, and nothing of any other.

    With transaction.version 0 only batches may come late on dead connections: for late requests to coordinators that
    version has no cure, which is why there is another one.
    """

    def __init__(self, *, seed: int, nodes: int, patient: bool, version: int, verifies: bool = True) -> None:
        super().__init__(
            seed=seed,
            nodes=nodes,
            compressed=False,
            patient=patient,
            transactional_id="tx",
            transaction_version=version,
            verifies_transactions=verifies,
        )
        transactions = self.producer.kafka_producer.transactions
        assert transactions is not None
        self.coordinator = self.cluster.transactions
        self.version = version
        self.verifies = verifies
        self.transactions: TransactionManager = transactions
        self.offset = 0
        self.offered = 0
        """The number of offsets sent with the open transaction."""
        self.open: dict[int, list[bytes]] = {0: [], 1: []}
        self.committed: dict[int, list[bytes]] = {0: [], 1: []}
        self.ending: Promise[Any] | None = None
        self.commits = self.aborts = 0
        self.cluster.result(self.transactions.init())

    # --- what the application does ----------------------------------------------------------------------------------

    def act(self, rng: random.Random) -> None:
        """Does what a transactional application may do now."""
        self.take_result()
        state = self.transactions.state
        if self.ending is not None:
            self.time_passes(0.02)
        elif state is TransactionState.READY:
            self.transactions.begin()
        elif state is TransactionState.ABORTABLE_ERROR:
            self.end(commit=False)
        elif rng.random() < 0.7:
            self.send(rng.randrange(2), rng.randint(1, 5), rng.choice([5, 60, 150]))
        elif rng.random() < 0.3:
            self.offered += 1
            offset = {INPUT: OffsetAndMetadata(self.offset + self.offered)}
            self.transactions.send_offsets(offset, GroupMetadata("g"))
        else:
            self.end(commit=rng.random() < 0.7)
        self.cluster.turn()

    def send(self, partition: int, count: int, size: int) -> None:
        for _ in range(count):
            value = b"%06d" % (self.count + 1) + b"x" * size
            if self.producer.send(value, partition=partition) is None:
                return  # the transaction failed
            self.count += 1
            self.open[partition].append(value)
        self.cluster.turn()

    def end(self, *, commit: bool) -> None:  # type: ignore[override]
        self.ending_commits = commit
        self.ending = self.transactions.commit() if commit else self.transactions.abort()

    def take_result(self) -> None:
        """Takes the result of the transaction's end, if there is one."""
        ending = self.ending
        if ending is None or not ending.done:
            return
        self.ending = None
        self.transactions.heard(ending)
        if ending.error is not None:
            assert self.ending_commits, ending.error
            assert not self.patient, ending.error
            assert isinstance(ending.error, TransactionFailed), ending.error
            return  # it is aborted next
        if self.ending_commits:
            self.commits += 1
            self.offset += self.offered
            for partition, values in self.open.items():
                self.committed[partition] += values
        else:
            self.aborts += 1
        self.offered = 0
        self.open = {0: [], 1: []}

    # --- what happens to it -----------------------------------------------------------------------------------------

    def answer(self, link: Link, *, before: int = 0, after: int = 0) -> None:
        if link.pending[0].api_key == PRODUCE:
            super().answer(link, before=before, after=after)
            return
        coordinator = self.coordinator
        if before:
            coordinator.errors = [PASSES[before % len(PASSES)]]
        if after:
            coordinator.errors_after = [PASSES_AFTER[after % len(PASSES_AFTER)]]
        self.cluster.answer(link)
        coordinator.errors, coordinator.errors_after = [], []
        self.cluster.turn()

    def late_links(self) -> list[Link]:
        if self.version < 2:
            for link in self.dead:
                link.pending = deque(received for received in link.pending if received.api_key == PRODUCE)
                if not self.verifies:
                    while link.pending and link.pending[0].received_at + 5 <= self.cluster.now:
                        link.pending.popleft()
        return [link for link in self.dead if link.pending]

    def rare_fault(self, rng: random.Random) -> None:
        self.coordinator_moves(rng.randint(1, self.cluster.nodes))

    def coordinator_moves(self, node_id: int) -> None:
        self.cluster.coordinator = node_id

    # --- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.take_result()
        for partition in (0, 1):
            seen = self.cluster.log("t", partition).committed_values()
            expected = self.committed[partition]
            if self.ending is not None and self.ending_commits:
                expected = expected + self.open[partition]
            assert seen == expected[: len(seen)], f"partition {partition}: {seen} is no beginning of {expected}"

    def rest(self) -> None:
        """Ends the chaos and the transaction, and checks that a reader sees everything that was committed."""
        for link in self.late_links():
            while link.pending:
                self.cluster.handle(link)
        while self.ending is not None or self.transactions.state is not TransactionState.READY:
            if self.ending is None:
                self.end(commit=self.transactions.state is TransactionState.IN_TRANSACTION)
            assert self.ending is not None
            assert self.producer.run(lambda: self.ending is None or self.ending.done)
            self.take_result()
        self.coordinator.write_markers(self.coordinator.transactions["tx"])
        for partition in (0, 1):
            assert self.cluster.log("t", partition).committed_values() == self.committed[partition]
        if self.offset:
            assert self.coordinator.offsets["g", "in", 0] == self.offset
        assert self.producer.kafka_producer.appender.used_bytes == 0
