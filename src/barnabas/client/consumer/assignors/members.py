"""What an assignor is told, and what it has to be."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from barnabas.client.consumer.group.consumer_protocol import decode_subscription
from barnabas.protocol.messages.join_group import JoinGroupResponseMember
from barnabas.types import TopicPartition

__all__ = ["Assignor", "LastAssignment", "Member", "Shares", "members_of", "subscribers_of"]

Shares: TypeAlias = dict[str, list[TopicPartition]]
"""Member id to partitions; every member is there."""


class Member(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    """What it has not given up: nothing in a group that rebalances eagerly."""
    generation_id: int = -1
    """That in which it got `owned`; -1 if it does not say."""
    group_instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None

    @property
    def rank(self) -> tuple[int, str]:
        """Kafka's order of members: static ones by their instance id, then the others by their member id."""
        return (1, self.member_id) if self.group_instance_id is None else (0, self.group_instance_id)


class LastAssignment(NamedTuple):
    """What a member got the last time, whether or not it still has it."""

    partitions: tuple[TopicPartition, ...]
    generation_id: int


@runtime_checkable
class Assignor(Protocol):
    """Shares partitions among members. All members of a group must have one of the same name; it keeps no state."""

    @property
    def name(self) -> str:
        """What the group agrees on."""

    @property
    def cooperative(self) -> bool:
        """Whether members keep what does not move (KIP-429): then no partition may be given to one member while
        another still owns it."""

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        """What a member tells the leader beside its topics and what it owns."""

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Shares:
        """Who gets what. Topics that do not exist have no count."""


def members_of(joined: Iterable[JoinGroupResponseMember]) -> list[Member]:
    """The members of a JoinGroup answer, as its leader gets it."""
    found = []
    for each in joined:
        told = decode_subscription(each.metadata)
        found.append(
            Member(
                each.member_id,
                told.topics,
                told.owned,
                told.generation_id,
                each.group_instance_id,
                told.rack,
                told.user_data,
            )
        )
    return found


def subscribers_of(members: Sequence[Member], partition_counts: Mapping[str, int]) -> dict[str, list[Member]]:
    """Who wants which topic, in Kafka's order of members; topics in the order of their names, those without partitions
    left out."""
    wanted: dict[str, list[Member]] = {}
    for member in sorted(members, key=lambda member: member.rank):
        for topic in dict.fromkeys(member.topics):
            wanted.setdefault(topic, []).append(member)
    return {topic: wanted[topic] for topic in sorted(wanted) if partition_counts.get(topic, 0) > 0}
