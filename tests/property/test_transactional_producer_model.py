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

from simulation.storm import AFTER, BEFORE, FATAL, PAUSES
from simulation.storm_model import StormModel
from simulation.transaction_storm import TransactionStorm


def long_run(seed: int, *, patient: bool, version: int, verifies: bool, steps: int = 250) -> TransactionStorm:
    rng = random.Random(seed)
    nodes = rng.randint(1, 3)
    storm = TransactionStorm(seed=seed, nodes=nodes, patient=patient, version=version, verifies=verifies)
    storm.coordinator.marker_delay = rng.choice([0, 1, 3])
    calm = rng.choice([0.3, 0.6, 0.9])
    for _ in range(steps):
        links, late = storm.links(), storm.late_links()
        chance = rng.random()
        if chance < 0.3 or not links:
            if rng.random() < 0.6:
                storm.act(rng)
            else:
                storm.time_passes(rng.choice(PAUSES))
        elif late and rng.random() < 0.1:
            storm.late_bytes(rng.choice(late))
        elif rng.random() < calm:
            storm.answer(rng.choice(links))
        elif chance < 0.5:
            storm.answer(rng.choice(links), before=rng.choice(BEFORE))
        elif chance < 0.65:
            storm.answer(rng.choice(links), after=rng.choice(AFTER))
        elif chance < 0.85:
            storm.cut(rng.choice(links), rng.randint(0, 6), rng.random() < 0.5)
        elif chance < 0.92:
            storm.leader_moves(rng.randrange(2), rng.randint(1, nodes))
        elif chance < 0.96:
            storm.coordinator_moves(rng.randint(1, nodes))
        elif not patient:
            storm.answer(rng.choice(links), before=rng.choice(FATAL))
        storm.check()
    storm.rest()
    return storm


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize(("version", "verifies"), [(2, True), (0, True), (0, False)])
def test_long_runs(patient: bool, version: int, verifies: bool) -> None:
    commits = aborts = 0
    for seed in range(40):
        try:
            storm = long_run(seed, patient=patient, version=version, verifies=verifies)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, patient={patient}: {error}") from error
        commits += storm.commits
        aborts += storm.aborts
    assert commits > 40
    assert aborts > 10


# --- Hypothesis -------------------------------------------------------------------------------------------------------


class TransactionModel(StormModel):
    @initialize(
        seed=st.integers(0, 2**32),
        nodes=st.integers(1, 3),
        patient=st.booleans(),
        kind=st.sampled_from([(2, True), (0, True), (0, False)]),
        patience=st.sampled_from([0, 1, 3]),
    )
    def begin(self, seed: int, nodes: int, patient: bool, kind: tuple[int, bool], patience: int) -> None:
        version, verifies = kind
        self.storm = TransactionStorm(seed=seed, nodes=nodes, patient=patient, version=version, verifies=verifies)
        self.storm.coordinator.marker_delay = patience

    @rule(choice=st.integers(0, 1000))
    def act(self, choice: int) -> None:
        self.storm.act(random.Random(choice))

    @rule(data=st.data())
    def coordinator_moves(self, data: Any) -> None:
        self.storm.coordinator_moves(data.draw(st.integers(1, self.storm.cluster.nodes)))

    def teardown(self) -> None:
        if hasattr(self, "storm"):
            self.storm.rest()


TestTransactionalProducer = TransactionModel.TestCase
TestTransactionalProducer.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
