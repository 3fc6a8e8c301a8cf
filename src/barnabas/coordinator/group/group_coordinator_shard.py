"""The state machine over all groups of one partition of __consumer_offsets.

The committed offsets and the last GroupMetadata of each group are durable: only `replay` changes them. Sessions,
waiting requests and rebalances in progress are soft state, which starts anew after a load.
"""

import logging
from collections.abc import Callable, Iterable

from barnabas.coordinator.coordinator_shard import CoordinatorResult, CoordinatorTimer
from barnabas.coordinator.group.classic_group import ClassicGroup, ClassicGroupMember, ClassicGroupState
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.group_metadata_manager import GroupMetadataManager
from barnabas.coordinator.group.offset_metadata_manager import OffsetMetadataManager
from barnabas.coordinator.group.records import GroupMetadata, GroupMetadataValue, GroupRecord, OffsetCommit
from barnabas.errors import GroupIdNotFound, IllegalGeneration, KafkaError, NotCoordinator
from barnabas.protocol.messages.delete_groups import DeletableGroupResult
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.protocol.messages.list_groups import ListedGroup
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.types import Offset, ProducerId, TopicPartition

__all__ = ["GROUP_TYPE", "GroupCoordinatorShard"]

S = ClassicGroupState

GROUP_TYPE = "classic"
FIRST_COMMIT_VERSION_WITH_GROUP_NOT_FOUND = 9
FIRST_TXN_COMMIT_VERSION_WITH_GROUP_NOT_FOUND = 6
FIRST_DESCRIBE_VERSION_WITH_GROUP_NOT_FOUND = 6


class GroupCoordinatorShard:
    """The state machine over the groups of one partition."""

    def __init__(
        self,
        config: GroupConfig,
        timers: CoordinatorTimer,
        now_ms: Callable[[], int],
        logger: logging.Logger | None = None,
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self._log = logger or logging.getLogger(__name__)
        self.groups: dict[str, ClassicGroup] = {}
        self.stored: dict[str, GroupMetadataValue] = {}
        """The group records of the log by group id, while it is loaded."""
        self.offsets = OffsetMetadataManager(config)
        self.membership = GroupMetadataManager(self.groups, config, timers, now_ms, self._keeps, self._log)
        self._loading = True
        self._timers = timers

    def _keeps(self, group_id: str) -> bool:
        return group_id in self.stored or self.offsets.has_any(group_id)

    # --- the log ------------------------------------------------------------------------------------------------------

    def replay(self, offset: Offset, producer_id: ProducerId, record: GroupRecord) -> None:
        """Applies a record of the log: the only place where durable state changes."""
        if isinstance(record, OffsetCommit):
            self.offsets.replay(offset, producer_id, record)
            if record.value is not None and not self._loading:
                self._ensure(record.group_id)
            return
        if record.value is not None:
            self.stored[record.group_id] = record.value
            return
        self.stored.pop(record.group_id, None)
        group = self.groups.pop(record.group_id, None)
        if group is not None:
            self.membership.drop(group)

    def replay_end_transaction(self, producer_id: ProducerId, committed: bool) -> None:
        """Commits or drops the pending offsets of a transaction."""
        self.offsets.replay_end_transaction(producer_id, committed)

    def _ensure(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = ClassicGroup(group_id, self._now_ms(), self._config.history_events_max)
            self.groups[group_id] = group
        return group

    def loaded(self) -> None:
        """Makes groups of the loaded records. Their members get one session timeout to return."""
        self._loading = False
        now_ms = self._now_ms()
        for group_id, value in self.stored.items():
            group = ClassicGroup.from_record(group_id, value, now_ms, self._config.history_events_max)
            self.groups[group_id] = group
            self._log.info(
                "Loaded group %s: generation %d, %d members", group_id, group.generation_id, len(group.members)
            )
            for member in group.members.values():
                self.membership.start_session(group, member)
            if len(group.members) > self._config.max_size:
                self.membership.shrink(group)
        for group_id in self.offsets.groups():
            self._ensure(group_id)

    def unloaded(self) -> None:
        """Fails all waiting requests, because another broker leads the partition."""
        for group in self.groups.values():
            group.transition_to(S.DEAD, self._now_ms())
            group.fail_waiting(NotCoordinator)
        self.groups.clear()

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit_offsets(
        self, request: OffsetCommitRequest, api_version: int
    ) -> CoordinatorResult[GroupRecord, OffsetCommitResponse]:
        """Handles OffsetCommit of existing topics, with name and id filled in. Raises KafkaError for the whole
        request."""
        member = self._check_commit(request, api_version)
        if member is not None:
            group = self.groups[request.group_id]
            if group.is_in(S.STABLE, S.PREPARING_REBALANCE):
                self.membership.prolong_session(group, member)
        records, response = self.offsets.commit(request, self._now_ms())
        return CoordinatorResult(records, response)

    def _check_commit(self, request: OffsetCommitRequest, api_version: int) -> ClassicGroupMember | None:
        group = self.groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            if generation_id < 0:
                # A consumer that assigns partitions itself, or an administrator: the replay makes a simple group.
                return None
            raise _not_found(request.group_id, api_version >= FIRST_COMMIT_VERSION_WITH_GROUP_NOT_FOUND)
        group.check_offset_commit(request.member_id, request.group_instance_id, generation_id)
        return group.members.get(request.member_id)

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, api_version: int
    ) -> CoordinatorResult[GroupRecord, TxnOffsetCommitResponse]:
        """Handles TxnOffsetCommit of existing topics. Raises KafkaError for the whole request.

        A sender that names its member is checked against the group (KIP-447); older ones name none.
        """
        group = self.groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise _not_found(request.group_id, api_version >= FIRST_TXN_COMMIT_VERSION_WITH_GROUP_NOT_FOUND)
        else:
            group.check_offset_commit(
                request.member_id, request.group_instance_id, request.generation_id, transactional=True
            )
        records, response = self.offsets.commit_transactional(request, self._now_ms())
        return CoordinatorResult(records, response)

    def fetch_offsets(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """Handles OffsetFetch of one group. An unknown group has no offsets, which is no error."""
        if request.topics is None:
            topics = self.offsets.fetch_all(request.group_id, require_stable)
        else:
            topics = self.offsets.fetch(request.group_id, request.topics, require_stable)
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def delete_offsets(self, request: OffsetDeleteRequest) -> CoordinatorResult[GroupRecord, OffsetDeleteResponse]:
        """Handles OffsetDelete. Raises GroupIdNotFound, NonEmptyGroup."""
        group = self._find(request.group_id)
        group.check_offset_delete()
        records, response = self.offsets.delete(group, request)
        return CoordinatorResult(records, response, atomic=False)

    def partitions_deleted(self, partitions: Iterable[TopicPartition]) -> CoordinatorResult[GroupRecord, int]:
        """Removes the offsets of deleted partitions. The response is their number."""
        gone = set(partitions)
        records = self.offsets.tombstones_of_partitions(lambda topic, partition: (topic, partition) in gone)
        return CoordinatorResult(records, len(records), atomic=False)

    def expire(self) -> CoordinatorResult[GroupRecord, int]:
        """Removes expired offsets and empty groups without offsets. The response is the number of records."""
        records: list[GroupRecord] = []
        now_ms = self._now_ms()
        for group in list(self.groups.values()):
            tombstones, nothing_left = self.offsets.expired(group, now_ms)
            records += tombstones
            if nothing_left and group.is_in(S.EMPTY) and not group.pending_members:
                records.append(GroupMetadata(group.group_id, None))
        if records:
            self._log.info("%d offsets and groups expired", len(records))
        return CoordinatorResult(records, len(records), atomic=False)

    # --- administration -----------------------------------------------------------------------------------------------

    def _find(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group

    def delete_groups(self, group_ids: Iterable[str]) -> CoordinatorResult[GroupRecord, list[DeletableGroupResult]]:
        """Handles DeleteGroups of this partition's groups, with all their offsets."""
        records: list[GroupRecord] = []
        results = []
        for group_id in dict.fromkeys(group_ids):
            try:
                self._find(group_id).check_delete()
            except KafkaError as error:
                results.append(
                    DeletableGroupResult(group_id=group_id, error_code=error.code, error_message=error.message or None)
                )
                continue
            records += self.offsets.tombstones(group_id)
            records.append(GroupMetadata(group_id, None))
            results.append(DeletableGroupResult(group_id=group_id))
            self._log.info("Group %s was deleted", group_id)
        return CoordinatorResult(records, results, atomic=False)

    def describe(self, group_id: str, api_version: int) -> DescribedGroup:
        """Describes a group for DescribeGroups. An unknown group is Dead, since version 6 with an error."""
        group = self.groups.get(group_id)
        if group is None:
            described = DescribedGroup(group_id=group_id, group_state=S.DEAD.value)
            if api_version >= FIRST_DESCRIBE_VERSION_WITH_GROUP_NOT_FOUND:
                described.error_code = GroupIdNotFound.code
                described.error_message = f"Group {group_id} not found."
            return described
        protocol = (group.protocol_name or "") if group.is_in(S.STABLE) else ""
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol,
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.protocols.get(protocol, b"") if protocol else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def listed(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """Returns the groups whose state and type match the filters. An empty filter matches all. Case does not
        matter."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        if wanted_types and GROUP_TYPE not in wanted_types:
            return []
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=GROUP_TYPE,
            )
            for group in self.groups.values()
            if not wanted_states or group.state.value.lower() in wanted_states
        ]


def _not_found(group_id: str, is_told: bool) -> KafkaError:
    """Returns the error for a commit of a member whose group does not exist, which older clients know by another."""
    return (GroupIdNotFound if is_told else IllegalGeneration)(f"Group {group_id} not found.")
