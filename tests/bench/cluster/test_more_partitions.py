"""Growth with the partitions of a cluster."""

from bench.cluster.more_partitions import leads_nothing
from bench.cluster.topics import PartitionState


def test_a_dead_broker_is_replaced_when_every_partition_has_another_leader() -> None:
    assert leads_nothing([PartitionState(0, 2), PartitionState(1, 2)], 2)
    assert not leads_nothing([PartitionState(0, 2), PartitionState(2, 2)], 2)
    assert not leads_nothing([PartitionState(0, 2), PartitionState(-1, 2)], 2)
    assert not leads_nothing([], 2)  # nobody answered
