"""An idempotent producer against brokers and a network that do their worst.

Requests are delayed, handled in any order across connections, written without an answer, answered with errors before
or after writing, doubled by a dead connection whose bytes arrive late; leaders move, batches are too large, time
passes. What is promised: a record that was acknowledged stands in the log, the records of a partition stand there in
the order in which they were sent, none twice; and while deliveries have time enough, none is missing.

Two searches: Hypothesis chooses every step and makes what it finds short; long runs from a seed get deeper.
"""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from simulation.chaos_model import ChaosModel
from simulation.producer_chaos import SIZES, ProducerChaos

# --- long runs --------------------------------------------------------------------------------------------------------


def long_run(seed: int, *, patient: bool, steps: int = 250) -> None:
    rng = random.Random(seed)
    chaos = ProducerChaos(seed=seed, nodes=rng.randint(1, 3), compressed=rng.random() < 0.2, patient=patient)
    chaos.run(rng, steps)
    chaos.end()


@pytest.mark.parametrize("patient", [True, False])
def test_long_runs(patient: bool) -> None:
    for seed in range(150):
        try:
            long_run(seed, patient=patient)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, patient={patient}: {error}") from error


# --- Hypothesis -------------------------------------------------------------------------------------------------------


class ProducerModel(ChaosModel):
    patient = True

    @initialize(seed=st.integers(0, 2**32), nodes=st.integers(1, 3), compressed=st.booleans())
    def begin(self, seed: int, nodes: int, compressed: bool) -> None:
        self.chaos = ProducerChaos(seed=seed, nodes=nodes, compressed=compressed, patient=self.patient)

    @rule(partition=st.integers(0, 1), count=st.integers(1, 5), size=st.sampled_from(SIZES))
    def send(self, partition: int, count: int, size: int) -> None:
        self.chaos.send(partition, count, size)

    @rule(partition=st.integers(0, 1))
    def batches_are_too_large(self, partition: int) -> None:
        self.chaos.batches_are_too_large(partition)

    def teardown(self) -> None:
        if hasattr(self, "chaos"):
            self.chaos.end()


class HastyProducerModel(ProducerModel):
    """Deliveries time out while they are under way."""

    patient = False


TestPatientProducer = ProducerModel.TestCase
TestPatientProducer.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestHastyProducer = HastyProducerModel.TestCase
TestHastyProducer.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
