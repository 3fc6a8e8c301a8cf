"""Segments of a log, of all formats, whole and damaged."""

from pathlib import Path

import pytest

from barnabas.records.builder import build_batch
from barnabas.records.legacy import build_message, build_wrapper
from barnabas.records.record import Record
from cli.dump.golden_files import GOLDEN, SECOND, SEGMENT, dump, of_type


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


def test_offsets_that_do_not_go_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")], base_offset=5)
    (tmp_path / f"{SEGMENT}.log").write_bytes(batch + batch)
    code, items = dump(capsys, tmp_path)
    assert code == 1
    assert of_type(items, "problem")[0]["message"] == "offsets 5 to 5 do not follow 5"


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
