"""Simulated clusters with clients and faults: the promises to clients hold, by one seed after the other."""

import os
import subprocess
import sys

import pytest

from whole_cluster.simulation import simulate

SEEDS = 60
"""Enough to see that a change breaks nothing at once; `make test-simulation` has ten thousand."""
GROUPS = 4


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", range(GROUPS))
def test_no_promise_is_broken(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        simulate(seed)


@pytest.mark.parametrize("registry", [[], ["--zookeeper"]], ids=["file", "zookeeper"])
def test_a_seed_decides_everything(registry: list[str]) -> None:
    """The trace is the same in another process, whose sets of texts are in another order."""
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "whole_cluster", "--first", "7", "--seeds", "3", "--digests", *registry]
        digests.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(digests) == 1
    assert len(digests.pop().splitlines()) >= 3
