"""GiveUpReplicas: a broker tells the controller which replicas it cannot write, because its disk refuses that, or
cannot read, because their logs are damaged."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from barnabas.protocol.schema import Message, Request, Response, field

ZERO_UUID = UUID(int=0)


class GivenUpReplica(Message):
    topic_id: UUID = field("uuid", 0, 0, default=ZERO_UUID)
    partition: int = field("int32", 0, 0, default=-1)
    leader_epoch: int = field("int32", 0, 0, default=-1)
    is_damaged: bool = field("bool", 0, 0, default=False, tag=0)
    """Whether its log lacks records, or cannot read some."""


class GiveUpReplicasRequest(Request):
    API_KEY = 20003
    FLEXIBLE_FROM = 0
    FIRST_VERSION = 0
    LAST_VERSION = 0
    broker_id: int = field("int32", 0, 0, default=-1)
    broker_epoch: int = field("int64", 0, 0, default=-1)
    replicas: Sequence[GivenUpReplica] = field(GivenUpReplica, 0, 0, default=(), array=True)


class GiveUpReplicasResponse(Response):
    API_KEY = 20003
    FLEXIBLE_FROM = 0
    FIRST_VERSION = 0
    LAST_VERSION = 0
    error_code: int = field("int16", 0, 0, default=0)
