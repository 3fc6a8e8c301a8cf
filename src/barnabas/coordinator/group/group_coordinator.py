"""The group coordinator's interface to the broker: methods take requests and reply by callback.

A group lives on one partition of __consumer_offsets, by Java's hash of its id, and the partition's leader coordinates
it. Every method here finds the partition, runs the operation there, and turns errors into the codes that clients of the
API understand. A reply comes exactly once, maybe before the method returns.
"""

from __future__ import annotations  # annotations of nested functions would be evaluated at every call

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

from barnabas.coordinator.coordinator_runtime import CoordinatorLog, CoordinatorRuntime, Scheduler
from barnabas.coordinator.coordinator_shard import CoordinatorResult, Transaction
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.group_coordinator_shard import GroupCoordinatorShard
from barnabas.coordinator.group.group_metadata_manager import Joiner
from barnabas.coordinator.group.rebalance_history import Rebalance
from barnabas.coordinator.group.records import CODEC, GroupRecord
from barnabas.coordinator.responses import STARTED_AT_ONCE, client_error, each, joined
from barnabas.errors import (
    CoordinatorLoadInProgress,
    InvalidGroupId,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from barnabas.log.producers.verification_guards import VerificationGuard
from barnabas.metadata.partitioning import partition_for
from barnabas.protocol.messages.delete_groups import DeletableGroupResult
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.types import LeaderEpoch, Offset, ProducerId, TopicPartition

__all__ = ["OFFSETS_MAX", "OFFSETS_TOPIC", "GroupCoordinator"]

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_MAX: Final = 250_000
"""The bound on the offsets of many groups in one response. A single group is answered whole."""

T = TypeVar("T")


class GroupCoordinator:
    """Coordinates all groups whose partition this broker leads."""

    def __init__(
        self,
        *,
        config: GroupConfig,
        log: CoordinatorLog,
        scheduler: Scheduler,
        wall_ms: Callable[[], int],
        partition_count: Callable[[], int],
        new_id: Callable[[], str] = lambda: str(uuid4()),
        compression: str = "none",
        later: Callable[[Callable[[], None]], object] | None = None,
        may_be_replaced: Callable[[], bool] = lambda: False,
        logger: logging.Logger | None = None,
    ) -> None:
        """`partition_count()` returns the partitions of __consumer_offsets, `new_id()` the random part of a member id.
        `later` calls back when the next part of a request about many groups may run. The runtime explains
        `may_be_replaced`."""
        self.config = config
        self._later = later or partial(scheduler.call_later, 0.0)
        self._partition_count = partition_count
        self._new_id = new_id
        self._logger = logger or logging.getLogger(__name__)
        self.runtime: CoordinatorRuntime[GroupCoordinatorShard, GroupRecord] = CoordinatorRuntime(
            topic=OFFSETS_TOPIC,
            log=log,
            serde=CODEC,
            make_shard=lambda partition, timers: GroupCoordinatorShard(config, timers, wall_ms, self._logger),
            scheduler=scheduler,
            wall_ms=wall_ms,
            commit_timeout_ms=config.offset_commit_timeout_ms,
            may_be_replaced=may_be_replaced,
            compression=compression,
            logger=self._logger,
        )

    # --- leadership ---------------------------------------------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        """Loads a partition of __consumer_offsets, because this broker leads it now."""
        self.runtime.load(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: LeaderEpoch | None = None) -> None:
        """Unloads a partition, because this broker no longer leads it or its replica is deleted."""
        self.runtime.unload(partition, leader_epoch)

    def on_high_watermark(self, partition: int, high_watermark: Offset) -> None:
        """Sends the responses that the new high watermark of a partition covers."""
        self.runtime.on_high_watermark(partition, high_watermark)

    def shutdown(self) -> None:
        """Fails all waiting requests with NOT_COORDINATOR, because the broker shuts down."""
        self.runtime.close()

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self._partition_count())

    # --- periodic and triggered work ----------------------------------------------------------------------------------

    def expire_offsets(self) -> None:
        """Removes expired offsets and empty groups. Called every offsets.retention.check.interval.ms."""
        for partition in self.runtime.used_partitions():
            if self.runtime.is_active(partition):
                self.runtime.run(partition, lambda shard: shard.expire(), self._log_failure, is_own=True)

    def on_partitions_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes the offsets of deleted partitions from all groups, also of those that are being loaded."""
        gone = tuple(partitions)
        for partition in self.runtime.used_partitions():
            self.runtime.run(partition, lambda shard: shard.partitions_deleted(gone), self._log_failure, is_own=True)

    def _log_failure(self, response: object) -> None:
        if isinstance(response, KafkaError):
            self._logger.warning("Clean-up of committed offsets failed: %s", response)

    # --- membership ---------------------------------------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        *,
        client_id: str | None,
        client_host: str,
        api_version: int,
        reply: Callable[[JoinGroupResponse], None],
    ) -> None:
        """Handles JoinGroup. The reply comes when the generation is complete."""
        once = _Once(reply)

        def failed(error: KafkaError) -> None:
            once(JoinGroupResponse(member_id=request.member_id, error_code=client_error(error)))

        if not request.group_id:
            failed(InvalidGroupId())
            return
        prefix = request.group_instance_id if request.group_instance_id is not None else client_id or ""
        joiner = Joiner(client_id or "", client_host, api_version, f"{prefix}-{self._new_id()}")
        self._run(request.group_id, lambda shard: shard.membership.join(request, joiner, once), _ignore, failed)

    def sync(self, request: SyncGroupRequest, *, reply: Callable[[SyncGroupResponse], None]) -> None:
        """Handles SyncGroup. The reply comes when the leader's assignment is stored."""
        once = _Once(reply)

        def failed(error: KafkaError) -> None:
            once(SyncGroupResponse(error_code=client_error(error)))

        if not request.group_id:
            failed(InvalidGroupId())
            return
        self._run(request.group_id, lambda shard: shard.membership.sync(request, once), _ignore, failed)

    def heartbeat(self, request: HeartbeatRequest, *, reply: Callable[[HeartbeatResponse], None]) -> None:
        """Handles Heartbeat. While the group is loading every heartbeat succeeds at once."""

        def failed(error: KafkaError) -> None:
            loading = isinstance(error, CoordinatorLoadInProgress)
            reply(HeartbeatResponse(error_code=0 if loading else client_error(error)))

        if not request.group_id:
            failed(InvalidGroupId())
            return
        self._run(request.group_id, lambda shard: shard.membership.heartbeat(request), reply, failed, waits=False)

    def leave(self, request: LeaveGroupRequest, *, reply: Callable[[LeaveGroupResponse], None]) -> None:
        """Handles LeaveGroup with `members` filled in, whatever the version."""

        def failed(error: KafkaError) -> None:
            reply(LeaveGroupResponse(error_code=client_error(error)))

        if not request.group_id:
            failed(InvalidGroupId())
            return
        self._run(request.group_id, lambda shard: shard.membership.leave(request), reply, failed)

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit_offsets(
        self, request: OffsetCommitRequest, *, api_version: int, reply: Callable[[OffsetCommitResponse], None]
    ) -> None:
        """Handles OffsetCommit of existing topics, with name and id filled in."""

        def failed(error: KafkaError) -> None:
            reply(_failed_commit(request, client_error(error)))

        self._run(request.group_id, lambda shard: shard.commit_offsets(request, api_version), reply, failed)

    def fetch_offsets(
        self,
        groups: Sequence[OffsetFetchRequestGroup],
        *,
        require_stable: bool,
        reply: Callable[[list[OffsetFetchResponseGroup]], None],
    ) -> None:
        """Handles OffsetFetch of any number of groups. `reply` gets one response for each, in order. Groups after the
        first OFFSETS_MAX offsets get an error that clients retry."""
        fetched = 0

        def one(group: OffsetFetchRequestGroup, done: Callable[[OffsetFetchResponseGroup], None]) -> None:
            def failed(error: KafkaError) -> None:
                done(OffsetFetchResponseGroup(group_id=group.group_id, error_code=_fetch_error(error)))

            def found(response: OffsetFetchResponseGroup) -> None:
                nonlocal fetched
                fetched += sum(len(topic.partitions) for topic in response.topics)
                done(response)

            if fetched >= OFFSETS_MAX:
                failed(CoordinatorLoadInProgress(f"the answer has {fetched} offsets already"))
                return
            self._run(
                group.group_id,
                lambda shard: CoordinatorResult(response=shard.fetch_offsets(group, require_stable)),
                found,
                failed,
            )

        each(groups, one, reply, self._later)

    def delete_offsets(self, request: OffsetDeleteRequest, *, reply: Callable[[OffsetDeleteResponse], None]) -> None:
        """Handles OffsetDelete of existing topics."""

        def failed(error: KafkaError) -> None:
            reply(OffsetDeleteResponse(error_code=client_error(error)))

        if not request.group_id:
            failed(InvalidGroupId())
            return
        self._run(request.group_id, lambda shard: shard.delete_offsets(request), reply, failed)

    def commit_transactional_offsets(
        self,
        request: TxnOffsetCommitRequest,
        guard: VerificationGuard | None,
        *,
        api_version: int,
        reply: Callable[[TxnOffsetCommitResponse | KafkaError], None],
    ) -> None:
        """Handles TxnOffsetCommit of existing topics, with the guard for the log. The offsets count when the end marker
        commits the transaction."""
        self.runtime.run(
            self.partition_for(request.group_id),
            lambda shard: shard.commit_transactional_offsets(request, api_version),
            reply,
            transaction=Transaction(ProducerId(request.producer_id), request.producer_epoch, guard),
        )

    def end_transaction(
        self,
        partition: int,
        *,
        producer_id: ProducerId,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        reply: Callable[[KafkaError | None], None],
    ) -> None:
        """Writes the end marker of a transaction to a partition of __consumer_offsets: its pending offsets are
        committed or dropped."""
        self.runtime.end_transaction(
            partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
            reply=reply,
        )

    # --- administration -----------------------------------------------------------------------------------------------

    def describe_groups(
        self, group_ids: Sequence[str], *, api_version: int, reply: Callable[[list[DescribedGroup]], None]
    ) -> None:
        """Handles DescribeGroups. `reply` gets one description for each id, in order."""

        def one(group_id: str, done: Callable[[DescribedGroup], None]) -> None:
            def failed(error: KafkaError) -> None:
                done(DescribedGroup(group_id=group_id, error_code=client_error(error)))

            self._run(
                group_id, lambda shard: CoordinatorResult(response=shard.describe(group_id, api_version)), done, failed
            )

        each(group_ids, one, reply, self._later)

    def list_groups(
        self, states: Sequence[str], types: Sequence[str], *, reply: Callable[[ListGroupsResponse], None]
    ) -> None:
        """Handles ListGroups of this broker. It waits for partitions that are loading, because the list would be
        incomplete, and replies with an error if that takes too long."""

        def one(partition: int, done: Callable[[list[ListedGroup] | KafkaError], None]) -> None:
            self.runtime.run(partition, lambda shard: CoordinatorResult(response=shard.listed(states, types)), done)

        def finish(parts: list[list[ListedGroup] | KafkaError]) -> None:
            groups = joined(parts)
            if isinstance(groups, KafkaError):
                reply(ListGroupsResponse(error_code=groups.code))
            else:
                reply(ListGroupsResponse(groups=groups))

        each(self.runtime.used_partitions(), one, finish, self._later)

    def delete_groups(self, group_ids: Sequence[str], *, reply: Callable[[list[DeletableGroupResult]], None]) -> None:
        """Handles DeleteGroups. Groups of one partition share a write, STARTED_AT_ONCE at most."""
        names = list(dict.fromkeys(group_ids))
        by_partition: dict[int, list[str]] = {}
        for group_id in names:
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        writes = [
            (partition, of_partition[first : first + STARTED_AT_ONCE])
            for partition, of_partition in by_partition.items()
            for first in range(0, len(of_partition), STARTED_AT_ONCE)
        ]

        def one(entry: tuple[int, list[str]], done: Callable[[list[DeletableGroupResult] | KafkaError], None]) -> None:
            self.runtime.run(entry[0], lambda shard: shard.delete_groups(entry[1]), done)

        def finish(parts: list[list[DeletableGroupResult] | KafkaError]) -> None:
            results: list[DeletableGroupResult] = []
            for (_, written), part in zip(writes, parts, strict=True):
                if isinstance(part, KafkaError):
                    code = client_error(part)
                    results += [DeletableGroupResult(group_id=name, error_code=code) for name in written]
                else:
                    results += part
            reply(results)

        each(writes, one, finish, self._later, at_once=STARTED_AT_ONCE if len(names) <= STARTED_AT_ONCE else 1)

    def history(self, group_id: str) -> list[Rebalance]:
        """Returns the last rebalances of the group, oldest first; none if this broker does not know the group."""
        shard = self.runtime.peek(self.partition_for(group_id))
        group = None if shard is None else shard.groups.get(group_id)
        return [] if group is None else group.history.events()

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _run(
        self,
        group_id: str,
        operation: Callable[[GroupCoordinatorShard], CoordinatorResult[Any, T]],
        reply: Callable[[T], None],
        failed: Callable[[KafkaError], None],
        *,
        waits: bool = True,
    ) -> None:
        def deliver(response: T | KafkaError) -> None:
            if isinstance(response, KafkaError):
                failed(response)
            else:
                reply(response)

        self.runtime.run(self.partition_for(group_id), operation, deliver, waits=waits)


class _Once:
    """Passes on the first of two replies: that of the waiting request, or that of a failed write."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Callable[[Any], None]) -> None:
        self._reply: Callable[[Any], None] | None = reply

    def __call__(self, response: Any) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply(response)


def _ignore(response: None) -> None:
    """Drops the response of the operation: the waiting request gets its own."""


def _fetch_error(error: KafkaError) -> int:
    """Translates errors for consumers before 3.9, which do not handle timeouts and unavailable coordinators here, but
    find the coordinator anew."""
    if isinstance(error, (UnknownTopicOrPartition, NotEnoughReplicas, RequestTimedOut)):
        return NotCoordinator.code
    return client_error(error)


def _failed_commit(request: OffsetCommitRequest, error_code: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error_code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
