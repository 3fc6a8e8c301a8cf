"""With the registry in ZooKeeper the promises hold too, whatever happens to sessions, connections and nodes."""

import pytest

from whole_cluster.simulation import ZOOKEEPER, simulate

SEEDS = 20
GROUPS = 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", range(GROUPS))
def test_no_promise_is_broken(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        simulate(seed, ZOOKEEPER)
