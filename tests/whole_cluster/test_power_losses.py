"""With durability=fsync nothing that is acknowledged is lost, even if all brokers lose their power at once."""

import pytest

from whole_cluster.simulation import DURABLE, simulate

SEEDS = 20
GROUPS = 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", range(GROUPS))
def test_no_promise_is_broken(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        simulate(seed, DURABLE)
