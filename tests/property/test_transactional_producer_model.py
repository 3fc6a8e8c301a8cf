"""A transactional producer against brokers and a network that do their worst, in either transaction version.

As for the idempotent producer, requests are delayed, lost, answered with errors before or after their effect, doubled
by bytes that arrive late; leaders and coordinators move, markers take their time. Two searches as there: Hypothesis
chooses every step, long runs from a seed get deeper.
"""

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from simulation.chaos_model import ChaosModel
from simulation.transaction_chaos import TransactionChaos


def long_run(seed: int, *, patient: bool, version: int, verifies: bool, steps: int = 250) -> TransactionChaos:
    rng = random.Random(seed)
    chaos = TransactionChaos(seed=seed, nodes=rng.randint(1, 3), patient=patient, version=version, verifies=verifies)
    chaos.coordinator.marker_delay = rng.choice([0, 1, 3])
    chaos.run(rng, steps)
    chaos.rest()
    return chaos


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize(("version", "verifies"), [(2, True), (0, True), (0, False)])
def test_long_runs(patient: bool, version: int, verifies: bool) -> None:
    commits = aborts = 0
    for seed in range(40):
        try:
            chaos = long_run(seed, patient=patient, version=version, verifies=verifies)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, patient={patient}: {error}") from error
        commits += chaos.commits
        aborts += chaos.aborts
    assert commits > 40
    assert aborts > 10


# --- Hypothesis -------------------------------------------------------------------------------------------------------


class TransactionModel(ChaosModel):
    @initialize(
        seed=st.integers(0, 2**32),
        nodes=st.integers(1, 3),
        patient=st.booleans(),
        kind=st.sampled_from([(2, True), (0, True), (0, False)]),
        patience=st.sampled_from([0, 1, 3]),
    )
    def begin(self, seed: int, nodes: int, patient: bool, kind: tuple[int, bool], patience: int) -> None:
        version, verifies = kind
        self.chaos = TransactionChaos(seed=seed, nodes=nodes, patient=patient, version=version, verifies=verifies)
        self.chaos.coordinator.marker_delay = patience

    @rule(choice=st.integers(0, 1000))
    def act(self, choice: int) -> None:
        self.chaos.act(random.Random(choice))

    @rule(data=st.data())
    def coordinator_moves(self, data: Any) -> None:
        self.chaos.coordinator_moves(data.draw(st.integers(1, self.chaos.cluster.nodes)))

    def teardown(self) -> None:
        if hasattr(self, "chaos"):
            self.chaos.rest()


TestTransactionalProducer = TransactionModel.TestCase
TestTransactionalProducer.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
