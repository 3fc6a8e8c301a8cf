"""Space that is set aside in a data directory and given back when the disk is full."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.log import space_reserve
from barnabas.log.space_reserve import SpaceReserve

SIZE = 1 << 20


class Disk:
    """What statvfs says is free, less what the reserve has taken."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reserve = directory / "barnabas-reserve"
        self.free_without = 0
        monkeypatch.setattr(space_reserve.os, "statvfs", self._statvfs)

    @property
    def reserved(self) -> int:
        return self.reserve.stat().st_blocks * 512 if self.reserve.exists() else 0

    @property
    def free(self) -> int:
        return self.free_without - self.reserved

    def _statvfs(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=self.free, f_frsize=1)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_only_as_much_is_given_back_as_is_missing(disk: Disk, tmp_path: Path) -> None:
    reserve = SpaceReserve(str(tmp_path), SIZE)
    disk.free_without = 10 * SIZE
    reserve.refill()
    assert disk.reserved == SIZE
    reserve.ensure(4096)
    assert disk.reserved == SIZE, "there is room"
    disk.free_without = SIZE
    for _ in range(3):
        reserve.ensure(8192)
        assert (disk.free, disk.reserved) == (8192, SIZE - 8192)
    disk.free_without -= 8192
    reserve.ensure(8192)
    assert (disk.free, disk.reserved) == (8192, SIZE - 2 * 8192)


def test_more_than_there_is_gives_all_of_it(disk: Disk, tmp_path: Path) -> None:
    reserve = SpaceReserve(str(tmp_path), SIZE)
    disk.free_without = 10 * SIZE
    reserve.refill()
    disk.free_without = SIZE
    for _ in range(2):
        reserve.ensure(4 * SIZE)
        assert (disk.free, disk.reserved) == (SIZE, 0)


def test_it_is_filled_again_where_as_much_would_still_be_free(disk: Disk, tmp_path: Path) -> None:
    reserve = SpaceReserve(str(tmp_path), SIZE)
    disk.free_without = 2 * SIZE - 1
    reserve.refill()
    assert disk.reserved == 0, "the records need it more"
    disk.free_without = 2 * SIZE
    reserve.refill()
    assert disk.reserved == SIZE
    disk.free_without = SIZE
    reserve.ensure(8192)
    disk.free_without = 2 * SIZE
    reserve.refill()
    assert disk.reserved == SIZE


def test_without_a_size_there_is_no_file(disk: Disk, tmp_path: Path) -> None:
    reserve = SpaceReserve(str(tmp_path), 0)
    disk.free_without = 10 * SIZE
    reserve.refill()
    disk.free_without = 0
    reserve.ensure(8192)
    assert list(tmp_path.iterdir()) == []
