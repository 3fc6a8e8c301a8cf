"""`barnabas dump-log`: several files of a partition, problems and wrong paths."""

from pathlib import Path

import pytest

from barnabas.cli.main import run
from cli.dump.golden_files import GOLDEN, SEGMENT, dump, of_type


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
