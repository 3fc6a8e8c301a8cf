"""A replica that is copied at a limited rate, on a loop whose time jumps."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.metadata.image import PartitionImage
from barnabas.replication.replication_quota import ReplicationQuota
from barnabas.types import LeaderEpoch
from broker.cluster.simulated_fetching import NODES, Simulation
from broker.virtual_loop import run
from replication.rig import validated_batch

LEADER, COPY = NODES
RATE = 10_000
BATCHES = 100
WINDOW_S = 1.0
Throttle = Callable[[Simulation, int], None]


def quota_of(simulation: Simulation) -> ReplicationQuota:
    return ReplicationQuota(simulation.loop, RATE, window_s=WINDOW_S)


def as_leader(simulation: Simulation, partitions: int) -> None:
    quota = quota_of(simulation)
    for number in range(partitions):
        simulation.replica(LEADER, number).leader_quota = quota


def as_follower(simulation: Simulation, partitions: int) -> None:
    quota = quota_of(simulation)
    for number in range(partitions):
        simulation.replica(COPY, number).follower_quota = quota


def as_both(simulation: Simulation, partitions: int) -> None:
    as_leader(simulation, partitions)
    as_follower(simulation, partitions)


@pytest.mark.source
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("throttle", [as_leader, as_follower, as_both])
def test_a_copy_takes_as_long_as_its_bytes_need(tmp_path: Path, throttle: Throttle, partitions: int) -> None:
    async def main() -> None:
        simulation = Simulation(tmp_path, 0, partitions=partitions)
        simulation.nodes[COPY].config = BrokerConfig.of({"replica.fetch.max.bytes": RATE})
        simulation.partitions = [PartitionImage(LEADER, LeaderEpoch(1), NODES, (LEADER,), 1)] * partitions
        for node in simulation.nodes.values():
            node.take(simulation.image())
        throttle(simulation, partitions)
        size = 0
        for number in range(partitions):
            replica = simulation.replica(LEADER, number)
            for _ in range(BATCHES):
                replica.append_as_leader(validated_batch(b"x" * 800), 1)
            size += sum(segment.size for segment in replica.log.segments)
        try:
            begun = simulation.loop.time()
            while not all(map(simulation.is_equal, range(partitions))):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            took_s = simulation.loop.time() - begun
        finally:
            simulation.close()
        assert size / RATE - 2 * WINDOW_S <= took_s <= size / RATE + WINDOW_S

    run(main())
