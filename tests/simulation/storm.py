"""A producer in a world that does its worst: what can happen, and what must hold."""

from typing import Any

from simulation.producing import Producing
from simulation.world import Link

BEFORE = [2, 3, 5, 6, 9, 13, 16, 19, 56, 72, 74, 75, 78, 100, 103]
"""Errors of a broker that has not written."""
AFTER = [7, 13, 20]
"""Errors of a broker that has."""
FATAL = [10, 29, 87]
"""Errors after which a batch is given up."""
REQUEST_TIMEOUT_S = 5
SIZES = [5, 60, 150]
PAUSES = [0.001, 0.006, 0.2, 1.5]


class Storm:
    """A producer, and what can happen to it. With `patient` no delivery may time out or be refused, so none is lost."""

    def __init__(self, *, seed: int, nodes: int, compressed: bool, patient: bool, **more: Any) -> None:
        self.patient = patient
        self.producing = Producing(
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
        self.world = self.producing.world
        self.sent: dict[int, list[tuple[bytes, Any]]] = {0: [], 1: []}
        self.count = 0
        self.epoch = 0
        self.dead: list[Link] = []

    def links(self) -> list[Link]:
        return [link for link in self.world.links.values() if link.pending]

    def late_links(self) -> list[Link]:
        """Dead connections whose bytes are still to arrive. What is older than request.timeout.ms is gone: a producer
        that gives up a delivery trusts in that."""
        if not self.patient:
            for link in self.dead:
                while link.pending and link.pending[0].came_at + REQUEST_TIMEOUT_S <= self.world.now:
                    link.pending.popleft()
        return [link for link in self.dead if link.pending]

    # --- what happens -----------------------------------------------------------------------------------------------

    def send(self, partition: int, count: int, size: int) -> None:
        for _ in range(count):
            self.count += 1
            value = b"%06d" % self.count + b"x" * size
            self.sent[partition].append((value, self.producing.send(value, partition=partition)))
        self.world.turn()

    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.turn()

    def answer(self, link: Link, *, before: int = 0, after: int = 0) -> None:
        """With an error instead of writing, or after it."""
        brokers = self.producing.brokers
        brokers.next_error, brokers.error_after = [before] if before else [], [after] if after else []
        self.world.answer(link)
        brokers.next_error, brokers.error_after = [], []
        self.world.turn()

    def cut(self, link: Link, handled: int, late: bool) -> None:
        """Some requests are handled without an answer; the rest is lost, or handled when nobody waits for it."""
        for _ in range(min(handled, len(link.pending))):
            self.world.handle(link)
        if late:
            self.dead.append(link)
        self.world.cut(link)
        self.world.turn()

    def late_bytes(self, link: Link) -> None:
        self.world.handle(link)

    def leader_moves(self, partition: int, node_id: int) -> None:
        self.epoch += 1
        self.world.topics["t"][partition] = node_id
        self.world.epochs["t", partition] = self.epoch

    def batches_are_too_large(self, partition: int) -> None:
        self.producing.brokers.log("t", partition).batch_size_max = 280

    # --- what must hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        for partition, sent in self.sent.items():
            order = {value: index for index, (value, _) in enumerate(sent)}
            values = self.producing.values(partition)
            found = [order[value] for value in values if value in order]
            assert found == sorted(set(found)), f"partition {partition}: {found}"
            for value, handle in sent:
                if handle.done() and handle.exception() is None:
                    assert value in values
                    assert handle.offset < 0 or values[handle.offset] == value

    def end(self) -> None:
        """The storm is over: everything comes to rest."""
        for link in self.late_links():
            while link.pending:
                self.world.handle(link)
        self.producing.flush()
        self.check()
        assert self.producing.core.intake.used == 0
        if self.patient:
            for partition, sent in self.sent.items():
                assert [error for _, handle in sent if (error := handle.exception()) is not None] == []
                assert [value for value, _ in sent] == self.producing.values(partition)
