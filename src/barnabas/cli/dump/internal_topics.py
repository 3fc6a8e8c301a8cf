"""Decodes the records of `__consumer_offsets` and `__transaction_state` for people."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from barnabas.client.consumer.group.consumer_protocol import decode_assignment, decode_subscription
from barnabas.coordinator.group import records as group_records
from barnabas.coordinator.group.records import GroupMetadata, GroupRecord, OffsetCommit
from barnabas.coordinator.transaction import records as transaction_records
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.errors import CorruptMessage

__all__ = ["decode_offsets_record", "decode_transaction_record"]

R = TypeVar("R")

OTHER_KINDS: Final = {
    3: "consumer group metadata",
    4: "consumer group partition metadata",
    5: "consumer group member",
    6: "consumer group target assignment",
    7: "consumer group target assignment of a member",
    8: "consumer group current assignment",
    9: "share group partition metadata",
    10: "share group member",
    11: "share group metadata",
    12: "share group target assignment",
    13: "share group target assignment of a member",
    14: "share group current assignment",
    15: "share group state partition metadata",
    16: "consumer group regular expression",
    17: "streams group metadata",
    18: "streams group partition metadata",
    19: "streams group member",
    20: "streams group target assignment",
    21: "streams group target assignment of a member",
    22: "streams group current assignment",
    23: "streams group topology",
}


def decode_offsets_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Returns a commit, a group, or the kind of a record of another protocol. Never raises: see `_decoded`."""
    return _decoded(group_records.decode_record, _offsets_record, key, value)


def decode_transaction_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Returns the new state of a transactional id. Never raises: see `_decoded`."""
    return _decoded(transaction_records.decode_record, _transaction_record, key, value)


def _decoded(
    decode: Callable[[bytes, bytes | None], R],
    describe: Callable[[R, bytes, bytes | None], dict[str, Any]],
    key: bytes | None,
    value: bytes | None,
) -> dict[str, Any]:
    """Describes the decoded record; the reason why one cannot be decoded is under `unreadable`."""
    if key is None or len(key) < 2:
        return {"unreadable": "a record without a key"}
    try:
        record = decode(key, value)
    except CorruptMessage as error:
        return {"unreadable": str(error)}
    return describe(record, key, value)


def _offsets_record(record: GroupRecord | None, key: bytes, value: bytes | None) -> dict[str, Any]:
    if isinstance(record, OffsetCommit):
        return _commit(record)
    if isinstance(record, GroupMetadata):
        return _group(record)
    kind = int.from_bytes(key[:2], "big")
    return {"kind": OTHER_KINDS.get(kind, f"kind {kind}"), "deleted": value is None}


def _commit(record: OffsetCommit) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": "offset",
        "group": record.group_id,
        "topic": record.topic,
        "partition": record.partition,
        "deleted": record.value is None,
    }
    if record.value is not None:
        found |= {
            "offset": record.value.offset,
            "leader_epoch": record.value.leader_epoch,
            "metadata": record.value.metadata,
            "commit_timestamp": record.value.commit_timestamp,
        }
    return found


def _group(record: GroupMetadata) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "group", "group": record.group_id, "deleted": record.value is None}
    if record.value is not None:
        value = record.value
        found |= {
            "generation": value.generation,
            "protocol_type": value.protocol_type,
            "protocol": value.protocol,
            "leader": value.leader,
            "members": [_member(member, value.protocol_type) for member in value.members],
        }
    return found


def _member(member: Any, protocol_type: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout_ms": member.session_timeout,
        "rebalance_timeout_ms": member.rebalance_timeout,
    }
    if protocol_type == "consumer":
        found["subscription"] = list(decode_subscription(member.subscription).topics)
        found["assignment"] = [str(tp) for tp in decode_assignment(member.assignment)]
    return found


def _transaction_record(record: TransactionRecord | None, key: bytes, value: bytes | None) -> dict[str, Any]:
    if record is None:
        kind, version = (int.from_bytes(part[:2], "big") for part in (key, value or b""))
        return {"kind": f"kind {kind}, version {version}", "deleted": value is None}
    found: dict[str, Any] = {
        "kind": "transaction",
        "transactional_id": record.transactional_id,
        "deleted": value is None,
    }
    metadata = record.metadata
    if value is not None and metadata is not None:
        found |= {
            "version": int.from_bytes(value[:2], "big"),
            "state": metadata.state.kafka_name,
            "producer_id": metadata.producer_id,
            "producer_epoch": metadata.producer_epoch,
            "previous_producer_id": metadata.previous_producer_id,
            "next_producer_id": metadata.next_producer_id,
            "next_producer_epoch": metadata.next_producer_epoch,
            "client_transaction_version": metadata.client_transaction_version,
            "timeout_ms": metadata.timeout_ms,
            "start_timestamp": metadata.start_timestamp_ms,
            "last_update_timestamp": metadata.last_update_timestamp_ms,
            "partitions": [str(tp) for tp in sorted(metadata.partitions)],
        }
    return found
