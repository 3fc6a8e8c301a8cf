"""A producer on a cluster in which everything goes wrong: what can happen, and what must hold."""

import random
from typing import Any

from barnabas.types import TopicPartition
from simulation.cluster import Link
from simulation.producer import SimulatedProducer

BEFORE = [2, 3, 5, 6, 9, 13, 16, 19, 56, 72, 74, 75, 78, 100, 103]
"""Errors of brokers that have not written the batch."""
AFTER = [7, 13, 20]
"""Errors of brokers that have written it."""
FATAL = [10, 29, 87]
"""Errors after which a producer gives a batch up."""
REQUEST_TIMEOUT_S = 5
SIZES = [5, 60, 150]
PAUSES = [0.001, 0.006, 0.2, 1.5]


class ProducerChaos:
    """A producer and the faults that can happen to it. With `patient` no delivery may time out or be refused, so none
    is lost."""

    def __init__(self, *, seed: int, nodes: int, compressed: bool, patient: bool, **more: Any) -> None:
        self.patient = patient
        self.producer = SimulatedProducer(
            nodes=nodes,
            partitions=2,
            seed=seed,
            linger_ms=5,
            batch_size=300,
            request_timeout_ms=REQUEST_TIMEOUT_S * 1000,
            compression_type="gzip" if compressed else "none",
            delivery_timeout_ms=2**31 - 1 if patient else 6000,
            **more,
        )
        self.cluster = self.producer.cluster
        self.sent: dict[int, list[tuple[bytes, Any]]] = {0: [], 1: []}
        self.count = 0
        self.dead: list[Link] = []

    def links(self) -> list[Link]:
        return [link for link in self.cluster.links.values() if link.pending]

    def late_links(self) -> list[Link]:
        """Returns the broken connections whose bytes may still arrive. Requests older than request.timeout.ms are gone:
        a producer that gives up a delivery trusts in that."""
        if not self.patient:
            for link in self.dead:
                while link.pending and link.pending[0].received_at + REQUEST_TIMEOUT_S <= self.cluster.now:
                    link.pending.popleft()
        return [link for link in self.dead if link.pending]

    # --- what happens -----------------------------------------------------------------------------------------------

    def run(self, rng: random.Random, steps: int) -> None:
        """Lets so many things happen by chance, and checks after each."""
        calm = rng.choice([0.3, 0.6, 0.9])
        for _ in range(steps):
            self._step(rng, calm)
            self.check()

    def _step(self, rng: random.Random, calm: float) -> None:
        links, late = self.links(), self.late_links()
        chance = rng.random()
        if chance < 0.3 or not links:
            if rng.random() < 0.55:
                self.act(rng)
            else:
                self.time_passes(rng.choice(PAUSES))
        elif late and rng.random() < 0.1:
            self.late_bytes(rng.choice(late))
        elif rng.random() < calm:
            self.answer(rng.choice(links))
        elif chance < 0.5:
            self.answer(rng.choice(links), before=rng.choice(BEFORE))
        elif chance < 0.67:
            self.answer(rng.choice(links), after=rng.choice(AFTER))
        elif chance < 0.87:
            self.cut(rng.choice(links), rng.randint(0, 6), rng.random() < 0.5)
        elif chance < 0.93:
            self.leader_moves(rng.randrange(2), rng.randint(1, self.cluster.nodes))
        elif chance < 0.97:
            self.rare_fault(rng)
        elif not self.patient:
            self.answer(rng.choice(links), before=rng.choice(FATAL))

    def act(self, rng: random.Random) -> None:
        """Does what the application does next."""
        self.send(rng.randrange(2), rng.randint(1, 5), rng.choice(SIZES))

    def rare_fault(self, rng: random.Random) -> None:
        if self.patient:
            self.batches_are_too_large(rng.randrange(2))

    def send(self, partition: int, count: int, size: int) -> None:
        for _ in range(count):
            self.count += 1
            value = b"%06d" % self.count + b"x" * size
            self.sent[partition].append((value, self.producer.send(value, partition=partition)))
        self.cluster.turn()

    def time_passes(self, seconds: float) -> None:
        self.cluster.advance(seconds)
        self.cluster.turn()

    def answer(self, link: Link, *, before: int = 0, after: int = 0) -> None:
        """Answers the oldest request, with an error instead of writing, or after it."""
        cluster = self.cluster
        cluster.produce_errors, cluster.produce_errors_after_write = [before] * bool(before), [after] * bool(after)
        cluster.answer(link)
        cluster.produce_errors, cluster.produce_errors_after_write = [], []
        cluster.turn()

    def cut(self, link: Link, handled: int, late: bool) -> None:
        """Cuts a connection. Some of its requests are handled before; the rest is lost, or handled later (`late`)."""
        for _ in range(min(handled, len(link.pending))):
            self.cluster.handle(link)
        if late:
            self.dead.append(link)
        self.cluster.cut(link)
        self.cluster.turn()

    def late_bytes(self, link: Link) -> None:
        self.cluster.handle(link)

    def leader_moves(self, partition: int, node_id: int) -> None:
        self.cluster.move_leader(TopicPartition("t", partition), node_id)

    def batches_are_too_large(self, partition: int) -> None:
        self.cluster.log("t", partition).batch_size_max = 280

    # --- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        for partition, sent in self.sent.items():
            order = {value: index for index, (value, _) in enumerate(sent)}
            values = self.cluster.log("t", partition).values
            found = [order[value] for value in values.values() if value in order]
            assert found == sorted(set(found)), f"partition {partition}: {found}"
            for value, handle in sent:
                if handle.done() and handle.exception() is None:
                    assert order[value] in found
                    assert handle.offset < 0 or values[handle.offset] == value

    def end(self) -> None:
        """Ends the chaos, lets everything come to rest, and checks."""
        for link in self.late_links():
            while link.pending:
                self.cluster.handle(link)
        self.producer.flush()
        self.check()
        assert self.producer.kafka_producer.appender.used_bytes == 0
        if self.patient:
            for partition, sent in self.sent.items():
                assert [error for _, handle in sent if (error := handle.exception()) is not None] == []
                assert [value for value, _ in sent] == self.producer.values(partition)
