"""Simulated clusters: nothing acknowledged is lost, and all replicas have the same committed records."""

from pathlib import Path

import pytest

from replication.simulated_cluster import Options, SimulatedCluster


def simulate(directory: Path, seed: int, options: Options) -> list[str]:
    """Runs one cluster and returns what happened."""
    directory.mkdir()
    cluster = SimulatedCluster(directory, seed, options)
    try:
        cluster.run()
        return cluster.trace
    except Exception as error:
        error.add_note(f"seed {seed}, {options}; the last events:\n" + "\n".join(cluster.trace[-40:]))
        raise
    finally:
        for log in cluster.logs.values():
            log.release()


FLAVOURS = {
    "page cache": Options(),
    "no power loss": Options(power_losses=False),
    "fsync": Options(fsync=True),
    "deletions": Options(deletions=True),
    "min.insync.replicas 1": Options(min_insync_replicas=1),
    "min.insync.replicas 3": Options(min_insync_replicas=3),
}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_nothing_acknowledged_is_lost(tmp_path: Path, flavour: str) -> None:
    for seed in range(40):
        simulate(tmp_path / str(seed), seed, FLAVOURS[flavour])


@pytest.mark.parametrize("flavour", ["page cache", "fsync"])
def test_a_seed_decides_everything(tmp_path: Path, flavour: str) -> None:
    traces = [simulate(tmp_path / name, 7, FLAVOURS[flavour]) for name in ("first", "second")]
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100
