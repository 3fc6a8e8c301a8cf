"""Assigns the partitions to a group's members if this member is the leader, and sends the leader its subscription."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from barnabas.client.consumer.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    LastAssignment,
    Member,
    RackAwareAssignor,
    ReplicaRacks,
    members_of,
    moved_to_other_racks,
    replica_racks,
)
from barnabas.client.consumer.group.consumer_protocol import Subscription, encode_assignment, encode_subscription
from barnabas.client.consumer.group.membership import OnAssigned
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import (
    BarnabasError,
    InconsistentGroupProtocol,
    KafkaError,
    UnknownServerError,
    UnknownTopicOrPartition,
    UsageError,
)
from barnabas.protocol.messages.join_group import JoinGroupResponseMember
from barnabas.types import TopicPartition

__all__ = ["LeaderAssignment"]

_log = logging.getLogger("barnabas.consumer")


class LeaderAssignment:
    """The assignors of a member. `topics` and `owned` return the member's subscribed topics and its partitions."""

    def __init__(
        self,
        client: NetworkClient,
        group_id: str,
        assignors: Sequence[Assignor],
        *,
        topics: Callable[[], Collection[str]],
        owned: Callable[[], Collection[TopicPartition]],
        rack: str | None = None,
    ) -> None:
        """Takes the assignors in the order of preference. Raises UsageError for two assignors of one name."""
        self.cooperative = all(assignor.cooperative for assignor in assignors)
        """Whether members keep the partitions that do not move during a rebalance (KIP-429)."""
        self.last: LastAssignment | None = None
        """The last assignment of this member, for sticky assignors."""
        self._client = client
        self._group_id = group_id
        self._assignors = {assignor.name: assignor for assignor in assignors}
        if len(self._assignors) < len(assignors):
            raise UsageError("partition.assignment.strategy has two assignors of one name")
        self._topics = topics
        self._owned = owned
        self._rack = rack or None
        self._assigned_counts: dict[str, int] = {}
        """The number of partitions of each topic in the assignment that this member made as the leader."""
        self._assigned_racks: ReplicaRacks = {}
        """The racks of the replicas at that assignment, if it went by them."""
        self._members_topics: set[str] = set()
        """The topics of other members, which the leader keeps in the metadata."""

    # --- this member -------------------------------------------------------------------------------------------------

    def metadata(self, generation_id: int) -> Sequence[tuple[str, bytes]]:
        topics, owned = tuple(self._topics()), tuple(self._owned())
        return [
            (
                name,
                encode_subscription(
                    Subscription(topics, owned, generation_id, self._rack, assignor.user_data(self.last))
                ),
            )
            for name, assignor in self._assignors.items()
        ]

    def owns_nothing(self) -> bool:
        return not self._owned()

    # --- leading ----------------------------------------------------------------------------------------------------

    def on_leader_elected(
        self, protocol: str, members: Sequence[JoinGroupResponseMember], skip: bool, done: OnAssigned
    ) -> None:
        subscribed = members_of(members)
        topics = {topic for member in subscribed for topic in member.topics}
        self._members_topics |= topics - set(self._topics())
        self._client.add_topics(topics)

        def assign(_: Promise[None] | None = None) -> None:
            counts = self._counts(topics)
            racks = self._racks(protocol, subscribed, topics)
            try:
                assignments = {} if skip else self._assign(protocol, subscribed, counts, racks)
            except KafkaError as error:
                done(None, error)
                return
            self._assigned_racks = racks
            assigned = {partition.topic for partitions in assignments.values() for partition in partitions}
            self._assigned_counts = self._counts(topics | assigned)
            done({name: encode_assignment(partitions) for name, partitions in assignments.items()}, None)

        if all(topic in self._client.metadata.cluster.topics for topic in topics):
            assign()
        else:
            self._client.refresh_metadata().on_done(assign)

    def _counts(self, topics: Collection[str]) -> dict[str, int]:
        """Returns the number of partitions of each topic; topics that do not exist have none."""
        return {name: self._count(name) or 0 for name in topics}

    def _count(self, name: str) -> int | None:
        """Returns the number of a topic's partitions, None if the metadata lacks the topic."""
        topic = self._client.metadata.cluster.topics.get(name)
        if topic is None or topic.error_code not in (0, UnknownTopicOrPartition.code):
            return None
        return len(topic.partitions)

    def _racks(self, protocol: str, members: Sequence[Member], topics: Collection[str]) -> ReplicaRacks:
        """Returns the racks of the topics' replicas if the assignor goes by them and a member has one."""
        if isinstance(self._assignors.get(protocol), RackAwareAssignor) and any(member.rack for member in members):
            return replica_racks(self._client.metadata.cluster, topics)
        return {}

    def _assign(
        self, protocol: str, members: Sequence[Member], counts: Mapping[str, int], racks: ReplicaRacks
    ) -> dict[str, list[TopicPartition]]:
        assignor = self._assignors.get(protocol)
        if assignor is None:
            raise InconsistentGroupProtocol(
                f"the group has chosen the assignor {protocol!r}, which this member did not offer"
            )
        try:
            existing = {name: count for name, count in counts.items() if count}
            if isinstance(assignor, RackAwareAssignor):
                assignments = assignor.assign_near(members, existing, racks)
            else:
                assignments = assignor.assign(members, existing)
        except BarnabasError as error:
            raise UnknownServerError(f"the assignor {protocol!r} fails: {error}") from error
        except Exception as error:
            raise UnknownServerError(f"the assignor {protocol!r} fails: {error!r}") from error
        unknown = assignments.keys() - {member.member_id for member in members}
        if unknown:
            raise UnknownServerError(f"the assignor {protocol!r} gives to {sorted(unknown)}, who are no members")
        if self.cooperative and not isinstance(assignor, CooperativeStickyAssignor):
            _check_moves(protocol, members, assignments)
        idle = sum(not partitions for partitions in assignments.values())
        _log.info(
            "group %r: %d members share %d partitions by %s%s",
            self._group_id,
            len(members),
            sum(map(len, assignments.values())),
            protocol,
            f", {idle} of them get none" if idle else "",
        )
        return assignments

    # --- changes after the assignment -------------------------------------------------------------------------------

    def forget(self) -> None:
        """Drops the other members' topics: this member is not the leader, or will join again."""
        self._assigned_counts = {}
        self._assigned_racks = {}
        if self._members_topics:
            self._client.metadata.remove_topics(self._members_topics - set(self._topics()))
            self._members_topics = set()

    def reason_to_reassign(self) -> str | None:
        """Returns the reason why the leader's assignment is out of date, None if it is not."""
        for name, count in self._assigned_counts.items():
            now = self._count(name)
            if now is not None and now != count:
                return f"topic {name!r} had {count} partitions and now has {now}"
        moved = moved_to_other_racks(self._client.metadata.cluster, self._assigned_racks)
        return None if moved is None else f"{moved} has its replicas in other racks now"


def _check_moves(
    protocol: str, members: Sequence[Member], assignments: Mapping[str, Collection[TopicPartition]]
) -> None:
    """Raises UnknownServerError if an assignor moves a partition that its owner has not given up yet."""
    owner = {partition: member.member_id for member in members for partition in member.owned}
    for name, partitions in assignments.items():
        for partition in partitions:
            if owner.get(partition, name) != name and partition not in assignments.get(owner[partition], ()):
                raise UnknownServerError(
                    f"the cooperative assignor {protocol!r} gives {partition} to {name} while {owner[partition]} still"
                    " owns it; leave it out, and give it away in the rebalance that follows"
                )
