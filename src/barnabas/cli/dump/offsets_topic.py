"""Records of `__consumer_offsets` in words: commits and group metadata; kinds of other protocols by their name."""

from typing import Any, Final

from barnabas.cli.dump.decoding import in_words
from barnabas.client.consumer.group.consumer_protocol import decode_assignment, decode_subscription
from barnabas.coordinator.group.records import GroupMetadata, GroupRecord, OffsetCommit, decode_record

__all__ = ["decode_offsets_record"]

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
    """What a record says; see `in_words`."""
    return in_words(decode_record, _describe, key, value)


def _describe(record: GroupRecord | None, key: bytes, value: bytes | None) -> dict[str, Any]:
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
