"""On files that Apache Kafka 4.3.1 wrote (golden/) and on v0 and v1 files built here, whole and damaged."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.dump.dump_log import app
from barnabas.cli.main import run
from barnabas.coordinator.transaction.records import PartitionsSchema, TransactionLogValue
from barnabas.protocol.codec import encode
from barnabas.records.builder import build_batch
from barnabas.records.legacy import build_message, build_wrapper
from barnabas.records.record import Record

GOLDEN = Path(__file__).parent / "golden"
SEGMENT = "00000000000000000000"
SECOND = "00000000000000000025"


def dump(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[dict[str, Any]]]:
    """(exit code, items) of `dump-log --json`."""
    code = app.run("barnabas dump-log", [*map(str, arguments), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def of_type(items: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in items if item["type"] == kind]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A golden partition that may be damaged."""
    return Path(shutil.copytree(GOLDEN / "golden-0", tmp_path / "golden-0"))


# --- what Kafka wrote -----------------------------------------------------------------------------------------------


def test_a_whole_partition_of_apache_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    code, items = dump(capsys, GOLDEN / "golden-0", "--deep")
    assert code == 0
    assert items[-1] == {"type": "summary", "files": 11, "batches": 10, "records": 30, "problems": 0}
    batches = of_type(items, "batch")
    assert [batch["codec"] for batch in batches[:5]] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [batch["crc"] for batch in batches] == ["ok"] * 10
    records = of_type(items, "record")
    assert [record["offset"] for record in records] == list(range(30))
    for number in range(25):
        codec = batches[number // 5]["codec"]
        assert records[number]["key"] == f"{codec}-{number % 5}"
        assert records[number]["value"] == f"{codec} value {number % 5} " * 4
        assert records[number]["timestamp"] == 1357016400000 + number % 5 * 1000
        assert records[number]["headers"] == [["h", "x"], ["n", None]]


def test_transactions_markers_and_tombstones(capsys: pytest.CaptureFixture[str]) -> None:
    _, items = dump(capsys, GOLDEN / "golden-0" / f"{SECOND}.log", "--deep")
    batches = of_type(items, "batch")
    assert [(batch.get("transactional"), batch.get("control")) for batch in batches] == [
        (True, None),
        (True, True),
        (True, None),
        (True, True),
        (None, None),
    ]
    assert [record.get("marker") for record in of_type(items, "record")] == [None, "commit", None, "abort", None]
    assert of_type(items, "record")[-1]["value"] is None
    _, items = dump(capsys, GOLDEN / "golden-0" / f"{SECOND}.txnindex")
    entry = of_type(items, "entry")[0]
    assert (entry["producer_id"], entry["first_offset"], entry["last_offset"]) == (7, 27, 28)


def test_indexes_snapshots_and_small_files(capsys: pytest.CaptureFixture[str]) -> None:
    directory = GOLDEN / "golden-0"
    _, items = dump(capsys, directory / f"{SEGMENT}.index")
    found = [(entry["offset"], entry["log_position"]) for entry in of_type(items, "entry")]
    assert found == [(9, 430), (14, 607), (19, 803), (24, 1009)]
    _, items = dump(capsys, directory / f"{SEGMENT}.timeindex")
    assert [(entry["timestamp"], entry["offset"]) for entry in of_type(items, "entry")] == [(1357016404000, 4)]
    _, items = dump(capsys, directory / "00000000000000000030.snapshot")
    producers = of_type(items, "entry")
    assert [(p["producer_id"], p["last_sequence"], p["last_offset"]) for p in producers] == [(6, 4, 4), (7, 1, 27)]
    _, items = dump(capsys, directory / "leader-epoch-checkpoint", directory / "partition.metadata")
    entries = of_type(items, "entry")
    assert (entries[0]["epoch"], entries[0]["start_offset"]) == (0, 0)
    assert entries[1]["topic_id"] == "1e2719a2-3173-407c-8c26-fc0d41ba2f2c"


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


# --- damage ---------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_is_found_with_its_batch(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = copy / f"{SEGMENT}.log"
    data = bytearray(log.read_bytes())
    data[700] ^= 1
    log.write_bytes(data)
    code, items = dump(capsys, log, "--deep")
    assert code == 1
    assert [(p["position"], p["message"]) for p in of_type(items, "problem")] == [
        (607, "offsets 10 to 14: wrong checksum")
    ]
    assert len(of_type(items, "batch")) == 5, "reading goes on behind it"


def test_a_torn_tail_is_found(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = copy / f"{SEGMENT}.log"
    log.write_bytes(log.read_bytes()[:-1])
    code, items = dump(capsys, log)
    assert code == 1
    assert of_type(items, "problem")[0]["position"] == 1009
    assert "claims 173 bytes, 172 are left" in of_type(items, "problem")[0]["message"]
    log.write_bytes(log.read_bytes()[: 1009 + 10])
    _, items = dump(capsys, log)
    assert "10 bytes are left" in of_type(items, "problem")[0]["message"]


def test_zeros_at_the_end_are_a_preallocated_file(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = copy / f"{SEGMENT}.log"
    log.write_bytes(log.read_bytes() + bytes(5000))
    code, items = dump(capsys, log)
    assert code == 0
    assert of_type(items, "entry")[0]["preallocated"] == 5000


@pytest.mark.parametrize(
    ("suffix", "position", "words"),
    [(".index", 5, "no batch begins there"), (".index", 11, "does not follow"), (".timeindex", 7, "timestamp")],
)
def test_an_index_that_does_not_fit_its_segment(
    copy: Path, capsys: pytest.CaptureFixture[str], suffix: str, position: int, words: str
) -> None:
    index = copy / f"{SEGMENT}{suffix}"
    data = bytearray(index.read_bytes())
    data[position] ^= 0x04
    if words == "does not follow":
        data[8:12] = data[0:4]
    index.write_bytes(data)
    code, items = dump(capsys, index)
    assert code == 1
    assert any(words in p["message"] for p in of_type(items, "problem"))


def test_a_damaged_snapshot_and_checkpoint(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = copy / "00000000000000000030.snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"\1")
    (copy / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    code, items = dump(capsys, copy)
    assert code == 1
    messages = [problem["message"] for problem in of_type(items, "problem")]
    assert "the checksum does not fit" in messages
    assert "1 entries, expected 2" in messages


def test_offsets_that_do_not_go_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")], base_offset=5)
    (tmp_path / f"{SEGMENT}.log").write_bytes(batch + batch)
    code, items = dump(capsys, tmp_path)
    assert code == 1
    assert of_type(items, "problem")[0]["message"] == "offsets 5 to 5 do not follow 5"


# --- the old formats ------------------------------------------------------------------------------------------------

OLD = [Record(offset, 1000 + offset, b"k%d" % offset, b"v%d" % offset) for offset in range(10, 14)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_plain_and_wrapper_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str], magic: int, codec: int) -> None:
    first = build_message(9, None, b"plain", magic=magic, timestamp=999)
    log = tmp_path / f"{SEGMENT}.log"
    log.write_bytes(first + build_wrapper(OLD, codec=codec, magic=magic))
    code, items = dump(capsys, log, "--deep")
    assert code == 0
    batches = of_type(items, "batch")
    assert [(b["magic"], b["base_offset"], b["last_offset"], b["count"]) for b in batches] == [
        (magic, 9, 9, 1),
        (magic, 10, 13, 4),
    ]
    found = [(r["offset"], r["key"], r["value"]) for r in of_type(items, "record")]
    assert found == [(9, None, "plain"), *((r.offset, r.key.decode(), r.value.decode()) for r in OLD)]  # type: ignore[union-attr]


def test_a_damaged_old_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(build_message(9, None, b"plain") + build_message(10, None, b"more"))
    data[-1] ^= 1
    (tmp_path / f"{SEGMENT}.log").write_bytes(data)
    code, items = dump(capsys, tmp_path)
    assert code == 1
    assert of_type(items, "problem")[0]["message"] == "offsets 10 to 10: wrong checksum"


# --- the command ----------------------------------------------------------------------------------------------------


def test_problems_are_lines_with_the_position(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = copy / f"{SEGMENT}.log"
    log.write_bytes(log.read_bytes()[:-1])
    assert run(["dump-log", "--check", str(copy)]) == 1
    captured = capsys.readouterr()
    assert f"!! {log} at byte 1009: torn batch" in captured.out
    assert captured.err.startswith("barnabas: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("name", ["nowhere", "known.txt", "empty"])
def test_wrong_paths_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / "known.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    assert run(["dump-log", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / name) in error
    assert error.count("\n") == 1
