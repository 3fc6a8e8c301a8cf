"""The choice of the replica that a consumer reads from (KIP-392)."""

import pytest

from barnabas.replication.replica_selector import ReplicaView, rack_aware

RACKS = {1: "a", 2: "b", 3: "b", 4: None, 5: "a"}


@pytest.mark.parametrize(
    ("rack", "ends", "chosen"),
    [
        ("b", {2: 10, 3: 20}, 3),
        ("b", {2: 20, 3: 20}, 2),
        ("b", {2: 10}, 2),
        ("a", {2: 10, 5: 20}, None),
        ("c", {2: 10, 3: 20}, None),
        ("b", {4: 10}, None),
        ("b", {9: 10}, None),
        ("b", {}, None),
    ],
    ids=["most records", "lowest id", "only one", "leader is as near", "nobody is near", "no rack", "not live", "none"],
)
def test_the_replica_in_the_rack_with_most_records(rack: str, ends: dict[int, int], chosen: int | None) -> None:
    followers = [ReplicaView(node_id, end) for node_id, end in ends.items()]
    assert rack_aware(rack, 1, followers, RACKS) == chosen
