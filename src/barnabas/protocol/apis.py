"""The API table: which requests a broker serves, at which versions, and the classes of their messages.

ApiVersions answers from `SERVED`: an API is listed only when all of it works, because clients switch features on by
this list. Versions are those of Kafka 4.x; lower bounds are Kafka's own (KIP-896).

Brokers that have authenticated to each other also speak the APIs of `SERVED_TO_BROKERS`. Those from 20000 on
are our own: Kafka's numbers are far below.
"""

from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple, cast

from barnabas.late_imports import import_late
from barnabas.protocol.messages.index import REQUESTS
from barnabas.protocol.schema import Request, Response

__all__ = [
    "FORWARDABLE",
    "FORWARDED_IN_PART",
    "SERVED",
    "SERVED_TO_BROKERS",
    "ApiKey",
    "VersionRange",
    "is_flexible",
    "message_classes",
    "request_header_version",
    "response_header_version",
]


class ApiKey(IntEnum):
    """The API keys that Barnabas uses by name."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    PEER_HELLO = 20000
    PUSH_METADATA = 20001
    CREATE_MISSING_TOPICS = 20002
    GIVE_UP_REPLICAS = 20003


class VersionRange(NamedTuple):
    """A range of versions, both ends included."""

    first: int
    last: int


SERVED: Final[dict[int, VersionRange]] = {
    ApiKey.PRODUCE: VersionRange(3, 13),
    ApiKey.FETCH: VersionRange(4, 18),
    ApiKey.LIST_OFFSETS: VersionRange(1, 11),
    ApiKey.METADATA: VersionRange(0, 13),
    ApiKey.OFFSET_COMMIT: VersionRange(2, 10),
    ApiKey.OFFSET_FETCH: VersionRange(1, 10),
    ApiKey.FIND_COORDINATOR: VersionRange(0, 6),
    ApiKey.JOIN_GROUP: VersionRange(0, 9),
    ApiKey.HEARTBEAT: VersionRange(0, 4),
    ApiKey.LEAVE_GROUP: VersionRange(0, 5),
    ApiKey.SYNC_GROUP: VersionRange(0, 5),
    ApiKey.DESCRIBE_GROUPS: VersionRange(0, 6),
    ApiKey.LIST_GROUPS: VersionRange(0, 5),
    ApiKey.API_VERSIONS: VersionRange(0, 5),
    ApiKey.CREATE_TOPICS: VersionRange(2, 7),
    ApiKey.DELETE_TOPICS: VersionRange(1, 6),
    ApiKey.DELETE_RECORDS: VersionRange(0, 2),
    ApiKey.INIT_PRODUCER_ID: VersionRange(0, 6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: VersionRange(2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: VersionRange(0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: VersionRange(0, 4),
    ApiKey.END_TXN: VersionRange(0, 5),
    ApiKey.WRITE_TXN_MARKERS: VersionRange(1, 2),
    ApiKey.TXN_OFFSET_COMMIT: VersionRange(0, 6),
    ApiKey.DESCRIBE_CONFIGS: VersionRange(1, 4),
    ApiKey.ALTER_CONFIGS: VersionRange(0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: VersionRange(1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: VersionRange(1, 5),
    ApiKey.CREATE_PARTITIONS: VersionRange(0, 3),
    ApiKey.DELETE_GROUPS: VersionRange(0, 3),
    ApiKey.ELECT_LEADERS: VersionRange(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: VersionRange(0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
    ApiKey.OFFSET_DELETE: VersionRange(0, 0),
    ApiKey.UPDATE_FEATURES: VersionRange(0, 2),
    ApiKey.DESCRIBE_CLUSTER: VersionRange(0, 2),
    ApiKey.DESCRIBE_PRODUCERS: VersionRange(0, 0),
    ApiKey.UNREGISTER_BROKER: VersionRange(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
    ApiKey.LIST_TRANSACTIONS: VersionRange(0, 2),
    ApiKey.LIST_CONFIG_RESOURCES: VersionRange(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: VersionRange(0, 0),
}

SERVED_TO_BROKERS: Final[dict[int, VersionRange]] = {
    **SERVED,
    ApiKey.SASL_HANDSHAKE: VersionRange(1, 1),  # after version 0 come messages without headers
    ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2),
    ApiKey.ALTER_PARTITION: VersionRange(3, 3),
    ApiKey.ENVELOPE: VersionRange(0, 0),
    ApiKey.BROKER_HEARTBEAT: VersionRange(0, 2),
    ApiKey.PEER_HELLO: VersionRange(0, 0),
    ApiKey.PUSH_METADATA: VersionRange(0, 0),
    ApiKey.CREATE_MISSING_TOPICS: VersionRange(0, 0),
    ApiKey.GIVE_UP_REPLICAS: VersionRange(0, 0),
}
"""The APIs on the listener for brokers."""
for _key in (ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.FIND_COORDINATOR):
    del SERVED_TO_BROKERS[_key]  # they tell a client the addresses that belong to its listener

FORWARDABLE: Final = frozenset(
    (
        *(ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS),
        *(ApiKey.ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.UNREGISTER_BROKER),
    )
)
"""The APIs that change metadata. A broker that is not the controller forwards them as they are."""
FORWARDED_IN_PART: Final = frozenset((ApiKey.INCREMENTAL_ALTER_CONFIGS,))
"""The APIs that change metadata and what belongs to one broker: their handlers forward the part about metadata."""

_PEER_MESSAGES: Final = "barnabas.protocol.peer_messages"
_PRIVATE: Final[dict[int, tuple[str, str, str]]] = {
    ApiKey.PEER_HELLO: (f"{_PEER_MESSAGES}.peer_hello", "PeerHelloRequest", "PeerHelloResponse"),
    ApiKey.PUSH_METADATA: (f"{_PEER_MESSAGES}.push_metadata", "PushMetadataRequest", "PushMetadataResponse"),
    ApiKey.CREATE_MISSING_TOPICS: (
        *(f"{_PEER_MESSAGES}.create_missing_topics", "CreateMissingTopicsRequest", "CreateMissingTopicsResponse"),
    ),
    ApiKey.GIVE_UP_REPLICAS: (f"{_PEER_MESSAGES}.give_up_replicas", "GiveUpReplicasRequest", "GiveUpReplicasResponse"),
}
"""Our own APIs: module, request class, response class."""

ADVERTISED_PRODUCE_FIRST: Final = 0
"""The lowest Produce version in ApiVersions, 0 as in Kafka: librdkafka chooses compressions by it (KAFKA-18659)."""


@cache
def message_classes(api_key: int) -> tuple[type[Request], type[Response]]:
    """Returns the request class and the response class, whose module is imported at its first use. Raises KeyError."""
    module_name, request, response = REQUESTS.get(api_key) or _PRIVATE[api_key]
    module = import_late(module_name)
    return cast(type[Request], getattr(module, request)), cast(type[Response], getattr(module, response))


@cache
def is_flexible(api_key: int, version: int) -> bool:
    return version >= message_classes(api_key)[0].FLEXIBLE_FROM


def request_header_version(api_key: int, version: int) -> int:
    """Returns the header's version: 2 with tagged fields, 1 without."""
    return 2 if is_flexible(api_key, version) else 1


@cache
def response_header_version(api_key: int, version: int) -> int:
    """Returns the header's version: 1 with tagged fields, 0 without. ApiVersions always answers with header 0, as the
    client may not know the broker's versions yet."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if is_flexible(api_key, version) else 0
