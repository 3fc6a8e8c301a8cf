"""Operations on consumer groups: every broker lists its groups, each group's coordinator does the rest."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas.client.admin.operations import coordinator_moves, partitions_of
from barnabas.client.admin.topics import TopicOperations
from barnabas.client.consumer.group.consumer_protocol import decode_assignment, decode_subscription
from barnabas.client.offset_messages import (
    LATEST,
    NAMES_UNTIL,
    OffsetAndMetadata,
    by_topic,
    commit_answers,
    commit_request,
    committed_answers,
    committed_request,
    with_epoch,
)
from barnabas.connection.network_client import Coordinator
from barnabas.connection.retry import Answer, RequestBuilder
from barnabas.errors import ClientError, GroupIdNotFound, ItemsFailed, KafkaError, UnknownMemberId, error_for
from barnabas.types import NO_LEADER_EPOCH, BrokerId, TopicPartition

__all__ = [
    "GroupDescription",
    "GroupListing",
    "GroupMemberView",
    "GroupOperations",
    "MemberToRemove",
    "rebalances_of",
]

_REBALANCES: Final = "rebalances"
"""The attribute of DescribedGroup that holds the tagged field."""
_SEVERAL_MEMBERS_FROM: Final = 3
"""The first version of LeaveGroup that takes several members."""
_ERROR_TEXTS: Final = {
    22: "group {!r} has members, so it alone commits; stop its consumers first",
    25: "group {!r} has members, so it alone commits; stop its consumers first",
    68: "group {!r} has members; stop its consumers first",
    69: "group {!r} does not exist",
    86: "group {!r} subscribes to the topic; stop its consumers first",
}


class GroupListing(NamedTuple):
    """A group in a list; state and type are empty where the broker is too old to say."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMemberView(NamedTuple):
    """A group's member as its coordinator knows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    subscription: tuple[str, ...]


class GroupDescription(NamedTuple):
    """A classic group; `protocol` is the chosen assignor.

    `rebalances` are the last ones, oldest first: started_ms, completed_ms, from_generation_id, generation_id, trigger,
    reason, notes, members, ... Barnabas's brokers send them in a tagged field of their own, other brokers send none.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: BrokerId
    members: tuple[GroupMemberView, ...]
    rebalances: tuple[dict[str, Any], ...] = ()


class MemberToRemove(NamedTuple):
    """A member that is to leave its group: by its id, or a static one by its group.instance.id."""

    member_id: str = ""
    group_instance_id: str | None = None


class GroupOperations(TopicOperations):
    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """Returns the groups of every broker, sorted by id.

        Raises ItemsFailed, by broker: `succeeded` has the groups of the others.
        """
        from barnabas.protocol.messages.list_groups import ListGroupsRequest

        driver = self._driver("list_groups", timeout)
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        def answers(response: Any, asked: list[BrokerId]) -> Iterable[Answer[BrokerId, list[GroupListing]]]:
            groups = [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups]
            yield asked[0], response.error_code, groups

        found = await self._at_brokers(driver, None, lambda _: request, answers)
        return sorted({group.group_id: group for groups in found.values() for group in groups}.values())

    async def describe_groups(
        self, group_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Returns state, members and their assignments, by group. Raises ItemsFailed (GroupIdNotFound, ...)."""
        from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest

        def answers(response: Any, asked: list[str]) -> Iterable[Answer[str, GroupDescription]]:
            node_id = self._client.coordinator(Coordinator(asked[0]))
            for group in response.groups:
                # newer brokers answer that a group does not exist, or is of a newer type
                code = group.error_code or (GroupIdNotFound.code if group.group_state == "Dead" else 0)
                description = _description(group, -1 if node_id is None else node_id)
                yield group.group_id, code and _group_error(code, group.group_id), description

        return await self._at_coordinators(
            self._driver("describe_groups", timeout),
            list(group_ids),
            Coordinator,
            lambda asked: DescribeGroupsRequest(groups=asked),
            answers,
        )

    async def delete_groups(self, group_ids: str | Iterable[str], *, timeout: float | None = None) -> None:
        """Deletes groups without members, with all their offsets. Raises ItemsFailed (NonEmptyGroup, ...)."""
        from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest

        def answers(response: Any, _: object) -> Iterable[Answer[str, None]]:
            for r in response.results:
                yield r.group_id, r.error_code and _group_error(r.error_code, r.group_id), None

        await self._at_coordinators(
            self._driver("delete_groups", timeout, changes=True),
            list(group_ids),
            Coordinator,
            lambda asked: DeleteGroupsRequest(groups_names=asked),
            answers,
        )

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str = "removed by an administrator",
        timeout: float | None = None,
    ) -> list[MemberToRemove]:
        """Removes members (None: all) from their group, so that others take over at once. Returns those that left.

        The call is meant for static members that are gone; members that live join again. Raises ItemsFailed
        (UnknownMemberId, ...), GroupIdNotFound for the members of a group that does not exist.
        """
        from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

        driver = self._driver("remove_members", timeout, changes=True)
        if members is None:
            found = await self.describe_groups([group_id], timeout=timeout)
            wanted = [
                MemberToRemove("" if member.group_instance_id else member.member_id, member.group_instance_id)
                for member in found[group_id].members
            ]
        else:
            wanted = list(dict.fromkeys(members))

        def request(leaving: list[MemberToRemove]) -> RequestBuilder:
            identities = [
                MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=reason)
                for member_id, instance_id in leaving
            ]
            return RequestBuilder(
                LeaveGroupRequest(group_id=group_id, members=identities), at_least=_SEVERAL_MEMBERS_FROM
            )

        def answers(response: Any, asked: list[MemberToRemove]) -> Iterable[Answer[MemberToRemove, None]]:
            codes = {(m.group_instance_id or m.member_id): m.error_code for m in response.members}
            for member in asked:
                name = member.group_instance_id or member.member_id
                code = response.error_code or codes.get(name, 0)
                if code == UnknownMemberId.code:
                    yield member, UnknownMemberId(f"group {group_id!r} has no member {name!r}"), None
                else:
                    yield member, code and _group_error(code, group_id), None

        return list(await self._at_coordinators(driver, wanted, lambda _: Coordinator(group_id), request, answers))

    # --- offsets ----------------------------------------------------------------------------------------------------

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the group's committed offsets of these partitions or (None) of all; those without one are left out.

        With `require_stable` it waits for the end of transactions that may still change them. Raises KafkaError.
        """
        from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest

        wanted = None if partitions is None else partitions_of(partitions)

        def check(response: Any) -> KafkaError | int:
            code, answers = committed_answers(response)
            code = code or next((one for one, _ in answers.values() if one), 0)
            return code and _group_error(code, group_id)

        response = await self._driver("list_group_offsets", timeout).send(
            RequestBuilder(
                OffsetFetchRequest,
                lambda version: committed_request(version, group_id, wanted, require_stable=require_stable),
                at_most=NAMES_UNTIL,
            ),
            Coordinator(group_id),
            check,
            is_retriable=coordinator_moves,
        )
        found = sorted(committed_answers(response)[1].items())
        return {partition: committed for partition, (_, committed) in found if committed is not None}

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> None:
        """Commits offsets for a group, which must have no members. Raises ItemsFailed (UnknownMemberId: it has
        some).

        Offsets without a leader epoch get the present one, by which the group's members notice a log that was cut: the
        leaders are asked for it. An offset behind the end, or of a partition whose leader does not answer in
        `timeout` / 4, stays without.
        """
        driver = self._driver("alter_group_offsets", timeout, changes=True)
        wanted = await self._with_epochs(
            {
                partition: offset
                if isinstance(offset := offsets[partition], OffsetAndMetadata)
                else OffsetAndMetadata(offset)
                for partition in partitions_of(offsets)
            },
            driver.timeout_ms / 4000,
        )

        def answers(response: Any, _: object) -> Iterable[Answer[TopicPartition, None]]:
            for partition, code in commit_answers(response).items():
                yield partition, code and _group_error(code, group_id), None

        await self._at_coordinators(
            driver,
            wanted,
            lambda _: Coordinator(group_id),
            lambda asked: RequestBuilder(commit_request(group_id, {p: wanted[p] for p in asked}), at_most=NAMES_UNTIL),
            answers,
        )

    async def _with_epochs(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        bare = [partition for partition, each in offsets.items() if each.leader_epoch == NO_LEADER_EPOCH]
        if not bare:
            return offsets
        try:
            ends = await self.list_offsets(dict.fromkeys(bare, LATEST), timeout=timeout_s)
        except ItemsFailed as error:
            ends = error.succeeded
        except (KafkaError, ClientError):
            # the commit is worth more than its epoch, and meets the same error if it lasts
            ends = {}
        return {
            partition: with_epoch(each, ends[partition].offset, ends[partition].leader_epoch)
            if partition in ends
            else each
            for partition, each in offsets.items()
        }

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, timeout: float | None = None
    ) -> None:
        """Deletes a group's committed offsets of topics that no member subscribes to. Raises ItemsFailed
        (GroupSubscribedToTopic, ...)."""
        from barnabas.protocol.messages import offset_delete as messages

        def request(asked: list[TopicPartition]) -> messages.OffsetDeleteRequest:
            topics = [
                messages.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[messages.OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
                )
                for topic, indexes in by_topic(asked).items()
            ]
            return messages.OffsetDeleteRequest(group_id=group_id, topics=topics)

        def answers(response: Any, asked: list[TopicPartition]) -> Iterable[Answer[TopicPartition, None]]:
            if response.error_code:
                for partition in asked:
                    yield partition, _group_error(response.error_code, group_id), None
            for partition, code in commit_answers(response).items():
                yield partition, code and _group_error(code, group_id), None

        driver = self._driver("delete_group_offsets", timeout, changes=True)
        await self._at_coordinators(
            driver, partitions_of(partitions), lambda _: Coordinator(group_id), request, answers
        )


def _description(group: Any, coordinator: int) -> GroupDescription:
    members = [_member(m, group.protocol_type) for m in group.members]
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        BrokerId(coordinator),
        tuple(sorted(members, key=lambda m: (m.client_id, m.member_id))),
        rebalances_of(getattr(group, _REBALANCES, None)),
    )


def _member(member: Any, protocol_type: str) -> GroupMemberView:
    assignment: tuple[TopicPartition, ...] = ()
    subscription: tuple[str, ...] = ()
    if protocol_type == "consumer":
        assignment = decode_assignment(member.member_assignment)
        subscription = decode_subscription(member.member_metadata).topics
    return GroupMemberView(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, assignment, subscription
    )


def rebalances_of(text: str | None) -> tuple[dict[str, Any], ...]:
    """Returns the rebalances of a group description's tagged field."""
    import json

    try:
        return tuple(json.loads(text)) if text else ()
    except (ValueError, TypeError):
        return ()  # the tag means something else to this broker


def _group_error(code: int, group_id: str) -> KafkaError:
    return error_for(code, _ERROR_TEXTS.get(code, "").format(group_id))
