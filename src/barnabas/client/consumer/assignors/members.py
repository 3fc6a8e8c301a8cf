"""The interface of assignors, and the members that the group's leader passes to them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from barnabas.client.consumer.group.consumer_protocol import decode_subscription
from barnabas.protocol.messages.join_group import JoinGroupResponseMember
from barnabas.types import TopicPartition

__all__ = [
    "Assignments",
    "Assignor",
    "LastAssignment",
    "Member",
    "RackAwareAssignor",
    "ReplicaRacks",
    "members_of",
    "subscribers_of",
]

Assignments: TypeAlias = dict[str, list[TopicPartition]]
"""The partitions of each member id; every member has an entry."""

ReplicaRacks: TypeAlias = Mapping[str, Sequence[frozenset[str]]]
"""The racks of the replicas of each topic's partitions, in the order of their numbers."""


class Member(NamedTuple):
    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that the member has not given up; none in a group that rebalances eagerly."""
    generation_id: int = -1
    """The generation in which the member got `owned`, -1 if unknown."""
    group_instance_id: str | None = None
    rack: str | None = None
    """The member's `client.rack`, None if it names none."""
    user_data: bytes | None = None

    @property
    def rank(self) -> tuple[int, str]:
        """Sorts members as Kafka does: static ones by their instance id, then the others by their member id."""
        return (1, self.member_id) if self.group_instance_id is None else (0, self.group_instance_id)


class LastAssignment(NamedTuple):
    """The last assignment of a member, whether or not it still has the partitions."""

    partitions: tuple[TopicPartition, ...]
    generation_id: int


@runtime_checkable
class Assignor(Protocol):
    """Assigns partitions to members, and keeps no state. All members of a group must have an assignor of one name."""

    @property
    def name(self) -> str:
        """The name that the members agree on."""

    @property
    def cooperative(self) -> bool:
        """Whether members keep the partitions that do not move (KIP-429). Then `assign` must not give a partition to a
        member while another still owns it."""

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        """Returns the data that a member sends to the leader beside its topics and partitions."""

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignments:
        """Returns the partitions of each member. Topics that do not exist have no count."""


@runtime_checkable
class RackAwareAssignor(Assignor, Protocol):
    """An assignor that also asks where the replicas are (KIP-881)."""

    def assign_near(
        self, members: Sequence[Member], partition_counts: Mapping[str, int], racks: ReplicaRacks
    ) -> Assignments:
        """Assigns as evenly as `assign`, and as many partitions as it can to members in a rack of their replicas. The
        leader calls this one; `racks` is empty if no member names a rack."""


def members_of(joined: Iterable[JoinGroupResponseMember]) -> list[Member]:
    """Returns the members of the leader's JoinGroup response."""
    found = []
    for each in joined:
        subscription = decode_subscription(each.metadata)
        found.append(
            Member(
                each.member_id,
                subscription.topics,
                subscription.owned,
                subscription.generation_id,
                each.group_instance_id,
                subscription.rack,
                subscription.user_data,
            )
        )
    return found


def subscribers_of(members: Sequence[Member], partition_counts: Mapping[str, int]) -> dict[str, list[Member]]:
    """Returns the subscribers of each topic, sorted by rank; topics are sorted, those without partitions left out."""
    wanted: dict[str, list[Member]] = {}
    for member in sorted(members, key=lambda member: member.rank):
        for topic in dict.fromkeys(member.topics):
            wanted.setdefault(topic, []).append(member)
    return {topic: wanted[topic] for topic in sorted(wanted) if partition_counts.get(topic, 0) > 0}
