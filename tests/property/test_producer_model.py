"""An idempotent producer against brokers and a network that do their worst.

Requests are delayed, handled in any order across connections, written without an answer, answered with errors before
or after writing, doubled by a dead connection whose bytes arrive late; leaders move, batches are too large, time
passes. What is promised: a record that was acknowledged stands in the log, the records of a partition stand there in
the order in which they were sent, none twice; and while deliveries have time enough, none is missing.

Two searches: Hypothesis chooses every step and makes what it finds short; long runs from a seed get deeper.
"""

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

sys.path.insert(0, str(Path(__file__).parents[1]))

from client.core.producing import Producing
from client.core.world import Link

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

    def __init__(self, *, seed: int, nodes: int, compressed: bool, patient: bool) -> None:
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


# --- long runs --------------------------------------------------------------------------------------------------------


def long_run(seed: int, *, patient: bool, steps: int = 250) -> None:
    rng = random.Random(seed)
    storm = Storm(seed=seed, nodes=rng.randint(1, 3), compressed=rng.random() < 0.2, patient=patient)
    calm = rng.choice([0.3, 0.6, 0.9])
    for _ in range(steps):
        links, late = storm.links(), storm.late_links()
        chance = rng.random()
        if chance < 0.3 or not links:
            if rng.random() < 0.5:
                storm.send(rng.randrange(2), rng.randint(1, 5), rng.choice(SIZES))
            else:
                storm.time_passes(rng.choice(PAUSES))
        elif late and rng.random() < 0.1:
            storm.late_bytes(rng.choice(late))
        elif rng.random() < calm:
            storm.answer(rng.choice(links))
        elif chance < 0.5:
            storm.answer(rng.choice(links), before=rng.choice(BEFORE))
        elif chance < 0.7:
            storm.answer(rng.choice(links), after=rng.choice(AFTER))
        elif chance < 0.9:
            storm.cut(rng.choice(links), rng.randint(0, 6), rng.random() < 0.5)
        elif chance < 0.97:
            storm.leader_moves(rng.randrange(2), rng.randint(1, storm.world.nodes))
        elif patient:
            storm.batches_are_too_large(rng.randrange(2))
        else:
            storm.answer(rng.choice(links), before=rng.choice(FATAL))
        storm.check()
    storm.end()


@pytest.mark.parametrize("patient", [True, False])
def test_long_runs(patient: bool) -> None:
    for seed in range(150):
        try:
            long_run(seed, patient=patient)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, patient={patient}: {error}") from error


# --- Hypothesis -------------------------------------------------------------------------------------------------------

asked = precondition(lambda self: hasattr(self, "storm") and self.storm.links())


class ProducerModel(RuleBasedStateMachine):
    patient = True

    @initialize(seed=st.integers(0, 2**32), nodes=st.integers(1, 3), compressed=st.booleans())
    def begin(self, seed: int, nodes: int, compressed: bool) -> None:
        self.storm = Storm(seed=seed, nodes=nodes, compressed=compressed, patient=self.patient)

    @rule(partition=st.integers(0, 1), count=st.integers(1, 5), size=st.sampled_from(SIZES))
    def send(self, partition: int, count: int, size: int) -> None:
        self.storm.send(partition, count, size)

    @rule(seconds=st.sampled_from(PAUSES))
    def time_passes(self, seconds: float) -> None:
        self.storm.time_passes(seconds)

    @asked
    @rule(data=st.data())
    def answer(self, data: Any) -> None:
        self.storm.answer(data.draw(st.sampled_from(self.storm.links())))

    @asked
    @rule(data=st.data(), code=st.sampled_from(BEFORE))
    def answer_with_an_error(self, data: Any, code: int) -> None:
        self.storm.answer(data.draw(st.sampled_from(self.storm.links())), before=code)

    @asked
    @rule(data=st.data(), code=st.sampled_from(AFTER))
    def write_and_answer_with_an_error(self, data: Any, code: int) -> None:
        self.storm.answer(data.draw(st.sampled_from(self.storm.links())), after=code)

    @asked
    @rule(data=st.data(), handled=st.integers(0, 6), late=st.booleans())
    def cut(self, data: Any, handled: int, late: bool) -> None:
        self.storm.cut(data.draw(st.sampled_from(self.storm.links())), handled, late)

    @precondition(lambda self: hasattr(self, "storm") and self.storm.late_links())
    @rule(data=st.data())
    def late_bytes(self, data: Any) -> None:
        self.storm.late_bytes(data.draw(st.sampled_from(self.storm.late_links())))

    @rule(partition=st.integers(0, 1), data=st.data())
    def leader_moves(self, partition: int, data: Any) -> None:
        self.storm.leader_moves(partition, data.draw(st.integers(1, self.storm.world.nodes)))

    @rule(partition=st.integers(0, 1))
    def batches_are_too_large(self, partition: int) -> None:
        self.storm.batches_are_too_large(partition)

    @invariant()
    def promise(self) -> None:
        if hasattr(self, "storm"):
            self.storm.check()

    def teardown(self) -> None:
        if hasattr(self, "storm"):
            self.storm.end()


class HastyProducerModel(ProducerModel):
    """Deliveries time out while they are under way."""

    patient = False


TestPatientProducer = ProducerModel.TestCase
TestPatientProducer.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestHastyProducer = HastyProducerModel.TestCase
TestHastyProducer.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
