from pathlib import Path
from struct import pack

import pytest
from crc32c import crc32c

from barnabas.log.producers.producer_snapshot import (
    CorruptSnapshot,
    SnapshotEntry,
    read_snapshot,
    snapshot_offsets,
    write_snapshot,
)

ENTRY = SnapshotEntry(7, 2, 41, 1000, 4, 1_700_000_000_000, 3, 990)


def test_the_format_is_kafkas_version_1(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000001001.snapshot"
    write_snapshot(str(path), [ENTRY])
    body = pack(">i", 1) + pack(">qhiqiqiq", *ENTRY)
    assert path.read_bytes() == pack(">hI", 1, crc32c(body)) + body
    assert read_snapshot(str(path)) == [ENTRY]


def test_an_empty_snapshot_has_ten_bytes(tmp_path: Path) -> None:
    path = tmp_path / "0.snapshot"
    write_snapshot(str(path), [])
    assert len(path.read_bytes()) == 10
    assert read_snapshot(str(path)) == []


@pytest.mark.parametrize("damage", ["version", "crc", "cut", "longer", "empty"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "0.snapshot"
    write_snapshot(str(path), [ENTRY, ENTRY])
    data = bytearray(path.read_bytes())
    if damage == "version":
        data[1] = 9
    elif damage == "crc":
        data[20] ^= 1
    elif damage == "cut":
        del data[-10:]
    elif damage == "longer":
        data += b"\0"
    else:
        data.clear()
    path.write_bytes(data)
    with pytest.raises(CorruptSnapshot):
        read_snapshot(str(path))


def test_only_snapshot_names_count(tmp_path: Path) -> None:
    for name in ("00000000000000000009.snapshot", "00000000000000000100.snapshot", "x.snapshot", "5.log"):
        (tmp_path / name).touch()
    assert snapshot_offsets(str(tmp_path)) == [9, 100]
