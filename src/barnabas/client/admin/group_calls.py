"""Calls about consumer groups: lists from every broker, the rest from the groups' coordinators."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.client.admin.base import Calls, names_of, partitions_of
from barnabas.client.admin.groups import (
    GroupDescription,
    GroupListing,
    MemberToRemove,
    delete_offsets_request,
    description_code,
    group_description,
    group_error,
    group_listings,
    leave_request,
    left_members,
)
from barnabas.client.admin.job import Answer, Query, coordinator_moves
from barnabas.client.offset_messages import (
    NAMES_UNTIL,
    OffsetAndMetadata,
    commit_answers,
    commit_request,
    committed_answers,
    committed_request,
)
from barnabas.connection.network_client import Coordinator, Node
from barnabas.errors import KafkaError, UnknownMemberId
from barnabas.types import TopicPartition

__all__ = ["GroupCalls"]

_SEVERAL_LEAVE_FROM: Final = 3
"""The version of LeaveGroup."""


class GroupCalls(Calls):
    """See the module. `timeout` is in seconds, default.api.timeout.ms by default."""

    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """The groups of every broker, sorted by id. Raises ItemsFailed, by broker: `succeeded` has those of the
        others."""
        from barnabas.protocol.messages.list_groups import ListGroupsRequest

        job = self._job("list_groups", timeout)
        request = ListGroupsRequest(states_filter=names_of(states), types_filter=names_of(types))

        def answers(response: Any, asked: list[int]) -> Iterable[Answer[int, list[GroupListing]]]:
            yield asked[0], response.error_code, group_listings(response)

        brokers = await self._brokers(job, None)
        found = (await job.each(brokers, Node, lambda _: request, answers)).result()
        return sorted({group.group_id: group for groups in found.values() for group in groups}.values())

    async def describe_groups(
        self, group_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """State, members and what they have, by group. Raises ItemsFailed (GroupIdNotFound, ...)."""
        from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest

        def answers(response: Any, asked: list[str]) -> Iterable[Answer[str, GroupDescription]]:
            node_id = self._client.coordinator(Coordinator(asked[0]))
            for group in response.groups:
                code = description_code(group)
                description = group_description(group, -1 if node_id is None else node_id)
                yield group.group_id, code and group_error(code, group.group_id), description

        job = self._job("describe_groups", timeout)
        outcome = await job.each(
            names_of(group_ids),
            Coordinator,
            lambda asked: DescribeGroupsRequest(groups=asked),
            answers,
            again=coordinator_moves,
        )
        return outcome.result()

    async def delete_groups(self, group_ids: str | Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups without members, with all their offsets. Raises ItemsFailed (NonEmptyGroup, ...)."""
        from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest

        def answers(response: Any, _: object) -> Iterable[Answer[str, None]]:
            for r in response.results:
                yield r.group_id, r.error_code and group_error(r.error_code, r.group_id), None

        job = self._job("delete_groups", timeout)
        outcome = await job.each(
            names_of(group_ids),
            Coordinator,
            lambda asked: DeleteGroupsRequest(groups_names=asked),
            answers,
            again=coordinator_moves,
        )
        outcome.result()

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str = "removed by an administrator",
        timeout: float | None = None,
    ) -> list[MemberToRemove]:
        """Make members leave their group (None: all of them), so that others take over at once; those that left.

        Static members that are gone are what this is for: one that lives joins again. Raises ItemsFailed
        (UnknownMemberId, ...), GroupIdNotFound for the members of a group that does not exist.
        """
        job = self._job("remove_members", timeout)
        if members is None:
            found = await self.describe_groups(group_id, timeout=timeout)
            wanted = [
                MemberToRemove("" if member.group_instance_id else member.member_id, member.group_instance_id)
                for member in found[group_id].members
            ]
        else:
            wanted = list(dict.fromkeys(members))

        def answers(response: Any, asked: list[MemberToRemove]) -> Iterable[Answer[MemberToRemove, None]]:
            for member, code in left_members(response, asked):
                yield member, code and _member_error(code, group_id, member), None

        outcome = await job.each(
            wanted,
            lambda _: Coordinator(group_id),
            lambda asked: Query(leave_request(group_id, asked, reason), at_least=_SEVERAL_LEAVE_FROM),
            answers,
            again=coordinator_moves,
        )
        return list(outcome.result())

    # --- offsets ----------------------------------------------------------------------------------------------------

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group committed, for these partitions or (None) all; those without a commit are left out.

        With `require_stable` not before transactions that may still change it have ended. Raises KafkaError.
        """
        from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest

        wanted = None if partitions is None else partitions_of(partitions)

        def check(response: Any) -> KafkaError | int:
            code, answers = committed_answers(response)
            code = code or next((one for one, _ in answers.values() if one), 0)
            return code and group_error(code, group_id)

        response = await self._job("list_group_offsets", timeout).ask(
            Query(
                OffsetFetchRequest,
                lambda version: committed_request(version, group_id, wanted, require_stable=require_stable),
                at_most=NAMES_UNTIL,
            ),
            Coordinator(group_id),
            check=check,
            again=coordinator_moves,
        )
        return {
            where: committed
            for where, (_, committed) in sorted(committed_answers(response)[1].items())
            if committed is not None
        }

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit from outside; the group must have no members. Raises ItemsFailed (UnknownMemberId: it has some)."""
        found = {
            where: offset if isinstance(offset := offsets[where], OffsetAndMetadata) else OffsetAndMetadata(offset)
            for where in partitions_of(offsets)
        }

        def answers(response: Any, _: object) -> Iterable[Answer[TopicPartition, None]]:
            for where, code in commit_answers(response).items():
                yield where, code and group_error(code, group_id), None

        job = self._job("alter_group_offsets", timeout)
        outcome = await job.each(
            found,
            lambda _: Coordinator(group_id),
            lambda asked: Query(
                commit_request(group_id, {where: found[where] for where in asked}), at_most=NAMES_UNTIL
            ),
            answers,
            again=coordinator_moves,
        )
        outcome.result()

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, timeout: float | None = None
    ) -> None:
        """Forget commits of topics that no member subscribes to. Raises ItemsFailed (GroupSubscribedToTopic, ...)."""

        def answers(response: Any, asked: list[TopicPartition]) -> Iterable[Answer[TopicPartition, None]]:
            if response.error_code:
                for where in asked:
                    yield where, group_error(response.error_code, group_id), None
            for topic in response.topics:
                for p in topic.partitions:
                    where = TopicPartition(topic.name, p.partition_index)
                    yield where, p.error_code and group_error(p.error_code, group_id), None

        job = self._job("delete_group_offsets", timeout)
        outcome = await job.each(
            partitions_of(partitions),
            lambda _: Coordinator(group_id),
            lambda asked: delete_offsets_request(group_id, asked),
            answers,
            again=coordinator_moves,
        )
        outcome.result()


def _member_error(code: int, group_id: str, member: MemberToRemove) -> KafkaError:
    if code == UnknownMemberId.code:
        return UnknownMemberId(f"group {group_id!r} has no member {member.group_instance_id or member.member_id!r}")
    return group_error(code, group_id)
