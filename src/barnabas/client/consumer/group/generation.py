"""States and generations of a group's member, and the errors of its group with what to do about them."""

from enum import Enum
from typing import NamedTuple

from barnabas.client.consumer.group.heartbeat import MembershipSettings
from barnabas.connection.broker.client_request import Error
from barnabas.errors import (
    ClientError,
    FencedInstanceId,
    GroupAuthorizationFailed,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    UnsupportedVersion,
    error_for,
)

__all__ = ["Generation", "MemberState", "explained", "name_of"]


class MemberState(Enum):
    UNJOINED = "unjoined"
    """The member is not in the group."""
    PREPARING = "preparing rebalance"
    """JoinGroup is in flight, or will be sent again."""
    COMPLETING = "completing rebalance"
    """The member has joined, and waits for its assignment."""
    STABLE = "stable"


class Generation(NamedTuple):
    """The generation of the group that this member joined, and its id in it."""

    generation_id: int = -1
    member_id: str = ""
    protocol: str = ""


def name_of(error: Error) -> str:
    return type(error).__name__ if isinstance(error, ClientError) else error.kafka_name


def explained(error: Error, settings: MembershipSettings) -> Error:
    """Returns the error with the group in its text, and what to do about it."""
    group = f"group {settings.group_id!r}"
    if isinstance(error, ClientError):
        return error
    text = f"{group}: {error}"
    if isinstance(error, FencedInstanceId):
        instance = settings.group_instance_id
        text = f"{group}: another member has taken over group.instance.id={instance!r}; each member needs its own"
    elif isinstance(error, InconsistentGroupProtocol):
        text = (
            f"{group}: its members share partitions by other assignors, or it is not a consumer group; give all of"
            f" them a common one in partition.assignment.strategy ({error})"
        )
    elif isinstance(error, GroupMaxSizeReached):
        text = f"{group} is full; the broker's group.max.size allows no more members"
    elif isinstance(error, GroupAuthorizationFailed):
        text = f"{group}: this user may not use it; it needs the right to READ the group"
    elif isinstance(error, UnsupportedVersion) and settings.group_instance_id is not None:
        text = f"{group}: the broker does not know static members; leave group.instance.id out"
    elif error.code == 26:
        text = (
            f"{group}: the broker does not allow session.timeout.ms={round(settings.session_timeout_s * 1000)}; it must"
            " lie between its group.min.session.timeout.ms and group.max.session.timeout.ms"
        )
    return error_for(error.code, text)
