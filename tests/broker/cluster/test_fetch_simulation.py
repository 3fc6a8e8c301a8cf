"""Seeds of the simulation: lost connections and sessions, elections, full disks, late syncs, deleted records."""

import os
from pathlib import Path

import pytest

from broker.cluster.simulated_fetching import Simulation
from broker.virtual_loop import run

pytestmark = pytest.mark.source

SEEDS = int(os.environ.get("BARNABAS_FETCH_SEEDS", "12"))


@pytest.mark.parametrize("fsync", [False, True], ids=["no-fsync", "fsync"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_replicas_become_equal_and_keep_what_is_committed(tmp_path: Path, seed: int, fsync: bool) -> None:
    async def main() -> None:
        simulation = Simulation(tmp_path, seed, fsync=fsync)
        try:
            await simulation.run(steps=80)
        finally:
            simulation.close()

    run(main())
