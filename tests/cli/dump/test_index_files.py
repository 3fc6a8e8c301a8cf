"""Indexes that do not fit their segments."""

from pathlib import Path

import pytest

from cli.dump.golden_files import SEGMENT, dump, of_type


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
