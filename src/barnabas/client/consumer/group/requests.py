"""Requests of a group's member to its coordinator."""

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.client.consumer.group.generation import Generation
from barnabas.client.consumer.group.heartbeat import MembershipSettings
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

__all__ = ["CONSUMER", "heartbeat_request", "join_request", "leave_request", "sync_request"]

CONSUMER: Final = "consumer"
REASON_MAX: Final = 255
"""The longest reason that Kafka stores."""


def join_request(
    settings: MembershipSettings, member_id: str, protocols: Sequence[tuple[str, bytes]], reason: str
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=round(settings.session_timeout_s * 1000),
        rebalance_timeout_ms=round(settings.max_poll_interval_s * 1000),
        member_id=member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=CONSUMER,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        reason=reason[:REASON_MAX],
    )


def sync_request(
    settings: MembershipSettings, generation: Generation, assignments: Mapping[str, bytes]
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=settings.group_id,
        generation_id=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=CONSUMER,
        protocol_name=generation.protocol,
        assignments=[SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in assignments.items()],
    )


def heartbeat_request(settings: MembershipSettings, generation: Generation) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=settings.group_id,
        generation_id=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=settings.group_instance_id,
    )


def leave_request(settings: MembershipSettings, member_id: str, reason: str) -> LeaveGroupRequest:
    member = MemberIdentity(member_id=member_id, reason=reason[:REASON_MAX])
    return LeaveGroupRequest(group_id=settings.group_id, members=[member], member_id=member_id)
