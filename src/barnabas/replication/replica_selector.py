"""Chooses the replica that a consumer should read from (KIP-392). Decisions only, made by the partition's leader."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.types import BrokerId, Offset

__all__ = ["ReplicaView", "rack_aware"]


class ReplicaView(NamedTuple):
    """A follower, as the leader knows it."""

    broker_id: BrokerId
    log_end_offset: Offset


def rack_aware(
    rack: str, leader: BrokerId, followers: list[ReplicaView], racks: Mapping[BrokerId, str | None]
) -> BrokerId | None:
    """Returns the follower in the consumer's rack that has most records; None if the consumer should read from the
    leader, because that is in the rack itself or no follower is. `followers` have the records that the consumer wants;
    `racks` are those of the live brokers."""
    if racks.get(leader) == rack:
        return None
    near = [follower for follower in followers if racks.get(follower.broker_id) == rack]
    if not near:
        return None
    return max(near, key=lambda follower: (follower.log_end_offset, -follower.broker_id)).broker_id
