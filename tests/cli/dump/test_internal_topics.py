"""Records of internal topics, decoded for people."""

from pathlib import Path

import pytest

from barnabas.coordinator.transaction.records import PartitionsSchema, TransactionLogValue
from barnabas.protocol.codec import encode
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from cli.dump.golden_files import GOLDEN, SEGMENT, dump, of_type


def test_records_of_the_offsets_topic_are_decoded(capsys: pytest.CaptureFixture[str]) -> None:
    _, items = dump(capsys, GOLDEN / "__consumer_offsets-49", "--deep")
    decoded = [record["decoded"] for record in of_type(items, "record")]
    assert [entry["kind"] for entry in decoded] == ["group", "group", "offset", "group"]
    assert decoded[2] | {"commit_timestamp": 0} == {
        "kind": "offset",
        "group": "golden-group",
        "topic": "golden",
        "partition": 0,
        "deleted": False,
        "offset": 7,
        "leader_epoch": -1,
        "metadata": decoded[2]["metadata"],
        "commit_timestamp": 0,
    }
    assert decoded[1]["members"][0]["assignment"] == ["golden-0"]
    assert decoded[1]["members"][0]["subscription"] == ["golden"]


def test_records_of_newer_groups_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, items = dump(capsys, GOLDEN / "__consumer_offsets-32", "--deep")
    decoded = [record["decoded"] for record in of_type(items, "record")]
    assert code == 0
    assert {"kind": "consumer group member", "deleted": False} in decoded
    assert {"kind": "consumer group member", "deleted": True} in decoded


def test_records_of_the_transactions_topic_are_decoded(capsys: pytest.CaptureFixture[str]) -> None:
    """Three transactions of `tower`, the second aborted."""
    _, items = dump(capsys, GOLDEN / "__transaction_state-1", "--deep")
    decoded = [record["decoded"] for record in of_type(items, "record")]
    assert [entry["state"] for entry in decoded] == [
        "Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "Ongoing", "PrepareAbort", "CompleteAbort", "Ongoing",
        "PrepareCommit", "CompleteCommit",
    ]  # fmt: skip
    assert decoded[4] == {
        "kind": "transaction",
        "transactional_id": "tower",
        "deleted": False,
        "version": 1,
        "state": "Ongoing",
        "producer_id": 1000,
        "producer_epoch": 0,
        "previous_producer_id": 1000,
        "next_producer_id": -1,
        "next_producer_epoch": -1,
        "client_transaction_version": 0,
        "timeout_ms": 60000,
        "start_timestamp": 1795304778697,
        "last_update_timestamp": 1795304778697,
        "partitions": ["flights-2"],
    }


def test_older_newer_and_damaged_records_of_transactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = b"\0\0\0\5tower"
    partitions = [PartitionsSchema(topic="t", partition_ids=[2, 0])]
    value = TransactionLogValue(producer_id=7, transaction_status=1, transaction_partitions=partitions)
    values = [b"\0\0" + encode(value, 0), None, b"\0\x02later", b"\0\0\0"]
    records = [Record(number, 0, key, written, ()) for number, written in enumerate(values)]
    file = tmp_path / f"{SEGMENT}.log"
    file.write_bytes(build_batch(records))
    _, items = dump(capsys, file, "--transactions")
    first, tombstone, later, damaged = (record["decoded"] for record in of_type(items, "record"))
    assert (first["version"], first["state"], first["partitions"]) == (0, "Ongoing", ["t-0", "t-2"])
    assert tombstone == {"kind": "transaction", "transactional_id": "tower", "deleted": True}
    assert later == {"kind": "kind 0, version 2", "deleted": False}
    assert "unreadable" in damaged
