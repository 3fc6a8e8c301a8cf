"""Snapshots and checkpoints, damaged."""

from pathlib import Path

import pytest

from cli.dump.golden_files import dump, of_type


def test_a_damaged_snapshot_and_checkpoint(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = copy / "00000000000000000030.snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"\1")
    (copy / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    code, items = dump(capsys, copy)
    assert code == 1
    messages = [problem["message"] for problem in of_type(items, "problem")]
    assert "the checksum does not fit" in messages
    assert "1 entries, expected 2" in messages
