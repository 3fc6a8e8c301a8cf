"""Subscriptions and assignors as membership sees them: what a member tells the group, and how its leader shares."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from barnabas.client.consumer.assignors import Assignor, CooperativeStickyAssignor, LastAssignment, Member, members_of
from barnabas.client.consumer.group.consumer_protocol import Subscription, encode_assignment, encode_subscription
from barnabas.client.consumer.group.membership import Done
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
from barnabas.types import TopicPartition

__all__ = ["Leading"]

_log = logging.getLogger("barnabas.consumer")


class Leading:
    """See the module. `topics` and `owned` say what this member asks for and has."""

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
        """Raises UsageError for two assignors of one name."""
        self.cooperative = all(assignor.cooperative for assignor in assignors)
        """Whether members keep what does not move while the group rebalances (KIP-429)."""
        self.last: LastAssignment | None = None
        """What this member was given the last time."""
        self._client = client
        self._group_id = group_id
        self._assignors = {assignor.name: assignor for assignor in assignors}
        if len(self._assignors) < len(assignors):
            raise UsageError("partition.assignment.strategy has two assignors of one name")
        self._topics = topics
        self._owned = owned
        self._rack = rack or None
        self._watched: dict[str, int] = {}
        """What the assignment that we made depends on: partitions of each topic."""
        self._extra: set[str] = set()
        """Topics of other members, which are in the metadata for the leader's sake."""

    # --- what this member says --------------------------------------------------------------------------------------

    def protocols(self, generation_id: int) -> Sequence[tuple[str, bytes]]:
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

    def lead(self, protocol: str, members: Sequence[Any], skip: bool, done: Done) -> None:
        told = members_of(members)
        topics = {topic for member in told for topic in member.topics}
        self._extra |= topics - set(self._topics())
        self._client.add_topics(topics)

        def share(_: Promise[None] | None = None) -> None:
            counts = self._counts(topics)
            try:
                shares = {} if skip else self._share(protocol, told, counts)
            except KafkaError as error:
                done(None, error)
                return
            assigned = {where.topic for share in shares.values() for where in share}
            self._watched = self._counts(topics | assigned)
            done({name: encode_assignment(share) for name, share in shares.items()}, None)

        if all(topic in self._client.metadata.cluster.topics for topic in topics):
            share()
        else:
            self._client.refresh_metadata().on_done(share)

    def _counts(self, topics: Collection[str]) -> dict[str, int]:
        """Topics that do not exist have none."""
        return {name: self._count(name) or 0 for name in topics}

    def _count(self, name: str) -> int | None:
        """None if the last answer does not say."""
        topic = self._client.metadata.cluster.topics.get(name)
        if topic is None or topic.error_code not in (0, UnknownTopicOrPartition.code):
            return None
        return len(topic.partitions)

    def _share(
        self, protocol: str, members: Sequence[Member], counts: Mapping[str, int]
    ) -> dict[str, list[TopicPartition]]:
        assignor = self._assignors.get(protocol)
        if assignor is None:
            raise InconsistentGroupProtocol(
                f"the group has chosen the assignor {protocol!r}, which this member did not offer"
            )
        try:
            shares = assignor.assign(members, {name: count for name, count in counts.items() if count})
        except BarnabasError as error:
            raise UnknownServerError(f"the assignor {protocol!r} fails: {error}") from error
        except Exception as error:
            raise UnknownServerError(f"the assignor {protocol!r} fails: {error!r}") from error
        unknown = shares.keys() - {member.member_id for member in members}
        if unknown:
            raise UnknownServerError(f"the assignor {protocol!r} gives to {sorted(unknown)}, who are no members")
        if self.cooperative and not isinstance(assignor, CooperativeStickyAssignor):
            _check_moves(protocol, members, shares)
        idle = sum(not share for share in shares.values())
        _log.info(
            "group %r: %d members share %d partitions by %s%s",
            self._group_id,
            len(members),
            sum(map(len, shares.values())),
            protocol,
            f", {idle} of them get none" if idle else "",
        )
        return shares

    # --- what the assignment depends on -----------------------------------------------------------------------------

    def follow(self) -> None:
        """This member leads no longer, or is about to join again: forget the other members' topics."""
        self._watched = {}
        if self._extra:
            self._client.metadata.remove_topics(self._extra - set(self._topics()))
            self._extra = set()

    def what_changed(self) -> str | None:
        """Why the assignment that this member made should be made again; None if it still stands."""
        for name, count in self._watched.items():
            now = self._count(name)
            if now is not None and now != count:
                return f"topic {name!r} had {count} partitions and now has {now}"
        return None


def _check_moves(protocol: str, members: Sequence[Member], shares: Mapping[str, Collection[TopicPartition]]) -> None:
    """A cooperative assignor must leave what moves without an owner first."""
    owner = {where: member.member_id for member in members for where in member.owned}
    for name, share in shares.items():
        for where in share:
            if owner.get(where, name) != name and where not in shares.get(owner[where], ()):
                raise UnknownServerError(
                    f"the cooperative assignor {protocol!r} gives {where} to {name} while {owner[where]} still owns it;"
                    " leave it out, and give it away in the rebalance that follows"
                )
