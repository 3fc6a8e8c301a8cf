"""One member of a classic consumer group: join, sync, heartbeat, commit, leave. No thread: call `keep` between polls.

A rebalance runs inside `keep`, and the caller learns of it by the returned assignment. Eager protocol with the range
assignor: all partitions are given up before the join, so offsets are committed by the caller first.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.commits import commit, fetch_committed
from barnabas.client.core.assignors import RangeAssignor, members_of
from barnabas.client.core.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from barnabas.client.deadline import Deadline
from barnabas.client.errors import ClientError
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
    error_for,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.types import TopicPartition

__all__ = ["GroupMember"]

CONSUMER: Final = "consumer"
JOIN_MARGIN_S: Final = 10.0

_REJOIN: Final = (RebalanceInProgress, IllegalGeneration, UnknownMemberId)
_FIND_AGAIN: Final = (NotCoordinator, CoordinatorNotAvailable, CoordinatorLoadInProgress)


class GroupMember:
    """See the module. After `keep` returned an assignment, read it from `committed` offsets."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Sequence[str],
        *,
        group_instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        heartbeat_interval_ms: int = 3_000,
    ) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.topics = tuple(topics)
        self.group_instance_id = group_instance_id
        self.member_id = ""
        self.generation_id = -1
        self.assignment: tuple[TopicPartition, ...] = ()
        self.rebalances = 0
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._heartbeat_s = heartbeat_interval_ms / 1000
        self._joined = False
        self._next_heartbeat = 0.0
        self._reason = "joining"
        self._counts: dict[str, int] = {}

    def keep(self, before_join: Callable[[], None] | None = None) -> tuple[TopicPartition, ...] | None:
        """Heartbeat if it is time; join if there is need. The new assignment after a rebalance, otherwise None.

        `before_join` commits what was read, while the old generation may still do so.
        """
        if self._joined and time.monotonic() >= self._next_heartbeat:
            self._heartbeat()
        if self._joined:
            return None
        if before_join is not None and self.generation_id >= 0:
            before_join()
        self._join()
        return self.assignment

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        self._next_heartbeat = time.monotonic() + self._heartbeat_s
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
        )
        try:
            connection = self.cluster.coordinator(self.group_id, Deadline(self._session_timeout_ms / 1000))
            code = connection.call(request, Deadline(self._session_timeout_ms / 1000)).error_code
        except ClientError:
            # the session outlives a lost connection: the next heartbeat finds the coordinator, or is told to join
            self.cluster.forget_coordinator(self.group_id)
            return
        if code:
            self._take_error(error_for(code))

    def _take_error(self, error: KafkaError) -> None:
        """Join again where that helps; raise what does not pass."""
        if isinstance(error, _FIND_AGAIN):
            self.cluster.forget_coordinator(self.group_id)
            return
        if not isinstance(error, _REJOIN):
            raise _explained(error, self.group_id, self.group_instance_id)
        self._joined = False
        self._reason = f"{error.kafka_name.lower().replace('_', ' ')} on heartbeat"
        if isinstance(error, UnknownMemberId):
            self.member_id, self.generation_id = "", -1
        if isinstance(error, IllegalGeneration):
            self.generation_id = -1

    # --- joining ----------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        def once(deadline: Deadline) -> None:
            for topic in self.topics:
                self._counts[topic] = len(self.cluster.topic(topic, deadline=deadline).partitions)
            while not self._join_once(deadline):
                pass

        self.cluster.retrying(
            once,
            before_retry=lambda _: self.cluster.forget_coordinator(self.group_id),
            timeout_s=self._rebalance_timeout_ms / 1000 + JOIN_MARGIN_S,
        )
        self._joined = True
        self.rebalances += 1
        self._next_heartbeat = time.monotonic() + self._heartbeat_s

    def _join_once(self, deadline: Deadline) -> bool:
        """One JoinGroup and SyncGroup; False if another round is needed. Raises retriable errors for `retrying`."""
        metadata = encode_subscription(Subscription(self.topics))
        protocol = JoinGroupRequestProtocol(name=RangeAssignor.name, metadata=metadata)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=CONSUMER,
            protocols=[protocol],
            reason=self._reason,
        )
        response: JoinGroupResponse = self.cluster.coordinator(self.group_id, deadline).call(request, deadline)
        if response.error_code == MemberIdRequired.code:
            self.member_id = response.member_id
            return False
        if response.error_code:
            return self._failed_join(error_for(response.error_code))
        self.member_id, self.generation_id = response.member_id, response.generation_id
        return self._sync(response, deadline)

    def _failed_join(self, error: KafkaError) -> bool:
        if isinstance(error, UnknownMemberId):
            self.member_id = ""
            return False
        if isinstance(error, RebalanceInProgress | IllegalGeneration):
            return False
        raise _explained(error, self.group_id, self.group_instance_id)

    def _sync(self, joined: JoinGroupResponse, deadline: Deadline) -> bool:
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = self._assign(joined.members, deadline)
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=CONSUMER,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        response = self.cluster.coordinator(self.group_id, deadline).call(request, deadline)
        if response.error_code:
            return self._failed_join(error_for(response.error_code))
        self.assignment = decode_assignment(response.assignment)
        return True

    def _assign(self, members: Sequence[Any], deadline: Deadline) -> list[SyncGroupRequestAssignment]:
        joined = members_of(members)
        counts = dict(self._counts)
        for topic in {topic for member in joined for topic in member.topics} - counts.keys():
            try:
                counts[topic] = len(self.cluster.topic(topic, deadline=deadline).partitions)
            except KafkaError:
                counts[topic] = 0  # another member waits for a topic that is not there: it gets nothing
        shares = RangeAssignor().assign(joined, counts)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(share))
            for member, share in shares.items()
        ]

    # --- offsets ----------------------------------------------------------------------------------------------------

    def committed(self) -> dict[TopicPartition, int]:
        """The group's committed offsets of the assignment; partitions without one are left out."""
        if not self.assignment:
            return {}
        found = self.cluster.retrying(
            lambda deadline: fetch_committed(self.cluster, self.group_id, self.assignment, deadline),
            before_retry=lambda _: self.cluster.forget_coordinator(self.group_id),
        )
        return {where: offset for where, (offset, _, _) in found.items()}

    def commit(self, offsets: Mapping[TopicPartition, int], *, timeout_s: float = 10.0) -> bool:
        """Commit the next offsets to read. False if the group has moved on: others may read the records again."""
        if not offsets:
            return True

        def once(deadline: Deadline) -> dict[TopicPartition, KafkaError | None]:
            return commit(
                self.cluster,
                self.group_id,
                offsets,
                deadline,
                generation_id=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.group_instance_id,
            )

        results = self.cluster.retrying(
            once, before_retry=lambda _: self.cluster.forget_coordinator(self.group_id), timeout_s=timeout_s
        )
        failed = next((error for error in results.values() if error is not None), None)
        if failed is None:
            return True
        if isinstance(failed, _REJOIN):
            self._joined = False if not isinstance(failed, RebalanceInProgress) else self._joined
            return False
        raise _explained(failed, self.group_id, self.group_instance_id)

    def leave(self, *, timeout_s: float = 3.0) -> None:
        """Tell the coordinator, so that the others need not wait for the session to end. A static member stays."""
        if not self.member_id or self.group_instance_id is not None:
            return
        member = MemberIdentity(member_id=self.member_id, reason="the consumer is closed")
        request = LeaveGroupRequest(group_id=self.group_id, members=[member], member_id=self.member_id)
        deadline = Deadline(timeout_s)
        try:
            self.cluster.coordinator(self.group_id, deadline).call(request, deadline)
        except (KafkaError, ClientError):
            return  # the session timeout does it
        finally:
            self.member_id, self.generation_id, self._joined = "", -1, False


def _explained(error: KafkaError, group_id: str, group_instance_id: str | None) -> KafkaError:
    if isinstance(error, FencedInstanceId):
        return FencedInstanceId(f"another member of group {group_id!r} has the instance id {group_instance_id!r}")
    if error.code == 23:
        return error_for(23, f"group {group_id!r} is used with another protocol; choose another group")
    return error_for(error.code, f"group {group_id!r}: {error}")
