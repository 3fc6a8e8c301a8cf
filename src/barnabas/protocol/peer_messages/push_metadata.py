"""PushMetadata: the controller sends a part of a metadata update to a broker (`metadata/update.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from barnabas.protocol.schema import Message, Request, Response, field

ZERO_UUID = UUID(int=0)


class BrokerEntryData(Message):
    node_id: int = field("int32", 0, 0, default=-1)
    epoch: int = field("int64", 0, 0, default=-1)
    """-1 for a broker that is not registered any more."""
    rack: str | None = field("string", 0, 0, default=None, nullable_from=0)
    endpoints: Sequence[str] = field("string", 0, 0, default=(), array=True)
    peer_endpoint: str | None = field("string", 0, 0, default=None, nullable_from=0)
    fenced: bool = field("bool", 0, 0, default=False)
    process: str = field("string", 0, 0, default="")
    returned: str = field("string", 0, 0, default="")


class PartitionData(Message):
    leader: int = field("int32", 0, 0, default=-1)
    leader_epoch: int = field("int32", 0, 0, default=-1)
    partition_epoch: int = field("int32", 0, 0, default=-1)
    replicas: Sequence[int] = field("int32", 0, 0, default=(), array=True)
    isr: Sequence[int] = field("int32", 0, 0, default=(), array=True)
    adding_replicas: Sequence[int] = field("int32", 0, 0, default=(), array=True)
    removing_replicas: Sequence[int] = field("int32", 0, 0, default=(), array=True)
    elr: Sequence[int] = field("int32", 0, 0, default=(), array=True)
    last_known_elr: Sequence[int] = field("int32", 0, 0, default=(), array=True)


class TopicEntryData(Message):
    name: str = field("string", 0, 0, default="")
    topic_id: UUID = field("uuid", 0, 0, default=ZERO_UUID)
    """Zero for a topic that was deleted."""
    partitions: Sequence[PartitionData] = field(PartitionData, 0, 0, default=(), array=True)


class SettingData(Message):
    name: str = field("string", 0, 0, default="")
    value: str = field("string", 0, 0, default="")


class ConfigEntryData(Message):
    name: str = field("string", 0, 0, default="")
    settings: Sequence[SettingData] = field(SettingData, 0, 0, default=(), array=True)


class PushMetadataRequest(Request):
    API_KEY = 20001
    FLEXIBLE_FROM = 0
    FIRST_VERSION = 0
    LAST_VERSION = 0
    cluster_id: str = field("string", 0, 0, default="")
    controller_id: int = field("int32", 0, 0, default=-1)
    controller_epoch: int = field("int32", 0, 0, default=-1)
    controller_broker_epoch: int = field("int64", 0, 0, default=-1, tag=0)
    """The epoch of the controller's registration; releases before say none."""
    from_version: int = field("int64", 0, 0, default=0)
    version: int = field("int64", 0, 0, default=0)
    part: int = field("int32", 0, 0, default=0)
    is_last: bool = field("bool", 0, 0, default=True)
    brokers: Sequence[BrokerEntryData] = field(BrokerEntryData, 0, 0, default=(), array=True)
    broker_configs: Sequence[ConfigEntryData] = field(ConfigEntryData, 0, 0, default=(), array=True)
    topics: Sequence[TopicEntryData] = field(TopicEntryData, 0, 0, default=(), array=True)
    topic_configs: Sequence[ConfigEntryData] = field(ConfigEntryData, 0, 0, default=(), array=True)


class PushMetadataResponse(Response):
    API_KEY = 20001
    FLEXIBLE_FROM = 0
    FIRST_VERSION = 0
    LAST_VERSION = 0
    error_code: int = field("int16", 0, 0, default=0)
    version: int = field("int64", 0, 0, default=0)
    """The version of the image that the broker has afterwards."""
