"""The promises hold in other worlds than the usual one, too.

With durability=fsync nothing that is acknowledged is lost, even if all brokers lose their power at once. With the
registry in ZooKeeper they hold whatever happens to sessions, connections and nodes. They hold while data directories
vanish, come back and are old.
"""

import pytest

from whole_cluster.simulation import DISKS, DURABLE, ZOOKEEPER, Options, simulate

SEEDS = 12
GROUPS = 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("options", [DURABLE, ZOOKEEPER, DISKS], ids=["power losses", "ZooKeeper", "disks"])
def test_no_promise_is_broken(options: Options, group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        simulate(seed, options)
