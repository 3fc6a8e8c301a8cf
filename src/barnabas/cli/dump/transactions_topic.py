"""Records of `__transaction_state` in words: each is a new state of a transactional id."""

from typing import Any

from barnabas.cli.dump.decoding import in_words
from barnabas.coordinator.transaction.records import TransactionRecord, decode_record

__all__ = ["decode_transaction_record"]


def decode_transaction_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """What a record says; see `in_words`."""
    return in_words(decode_record, _describe, key, value)


def _describe(record: TransactionRecord | None, key: bytes, value: bytes | None) -> dict[str, Any]:
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
