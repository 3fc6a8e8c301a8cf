"""Chooses the replica that a consumer should read from (KIP-392). Decisions only, made by the partition's leader."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.types import BrokerId, Offset

__all__ = ["ReplicaView", "rack_aware"]


class ReplicaView(NamedTuple):
    """A replica, as the leader knows it."""

    broker_id: BrokerId
    log_end_offset: Offset


def rack_aware(
    rack: str, leader: BrokerId, replicas: list[ReplicaView], racks: Mapping[BrokerId, str | None]
) -> BrokerId | None:
    """Returns the replica in the consumer's rack that has most records; None if the consumer should read from the
    leader. `replicas` have the records that the consumer wants; `racks` are those of the live brokers."""
    near = [replica for replica in replicas if racks.get(replica.broker_id) == rack]
    if not near or any(replica.broker_id == leader for replica in near):
        return None
    return max(near, key=lambda replica: (replica.log_end_offset, -replica.broker_id)).broker_id
