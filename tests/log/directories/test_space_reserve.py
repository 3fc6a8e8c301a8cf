"""Space that is set aside in a data directory and given back when the disk is full."""

import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.log.directories import space_reserve
from barnabas.log.directories.space_reserve import ReserveLocks, SpaceReserve
from log.log_files import refuse

SIZE = 1 << 20


class Disk:
    """A file system with so much room, less what the reserve has taken."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reserve = directory / "barnabas-reserve"
        self.free_without = 0
        monkeypatch.setattr(space_reserve.os, "statvfs", self._statvfs)
        self._allocate = os.posix_fallocate
        monkeypatch.setattr(space_reserve.os, "posix_fallocate", self._posix_fallocate)

    @property
    def reserved(self) -> int:
        return self.reserve.stat().st_size if self.reserve.exists() else 0  # st_blocks has the extents, too

    @property
    def free(self) -> int:
        return self.free_without - self.reserved

    def _posix_fallocate(self, fd: int, offset: int, size: int) -> None:
        if size > self.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._allocate(fd, offset, size)

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


def test_what_a_write_leaves_over_is_taken_back_before_others_can_have_it(disk: Disk, tmp_path: Path) -> None:
    reserve = SpaceReserve(str(tmp_path), SIZE)
    disk.free_without = 10 * SIZE
    reserve.refill()
    disk.free_without = SIZE
    for _ in range(100):
        with reserve.lent(128 * 1024):
            assert disk.free == 128 * 1024
        assert (disk.free, disk.reserved) == (0, SIZE)
    with reserve.lent(128 * 1024):
        disk.free_without -= 5000  # by the write
    assert SIZE - 2 * 4096 <= disk.reserved <= disk.free_without


def test_what_another_broker_has_cut_off_is_not_free_for_this_one(disk: Disk, tmp_path: Path) -> None:
    one, other = SpaceReserve(str(tmp_path), SIZE), SpaceReserve(str(tmp_path), SIZE)
    disk.free_without = 10 * SIZE
    one.refill()
    disk.free_without = SIZE
    ended = threading.Event()
    found: list[int] = []

    def lend() -> None:
        with other.lent(8192):
            ended.wait(10)
            found.append(disk.free)

    thread = threading.Thread(target=lend)
    with one.lent(8192):
        thread.start()
        thread.join(0.1)  # one that does not wait has looked by then
    ended.set()
    thread.join()
    assert (found, disk.free, disk.reserved) == ([8192], 0, SIZE)


def test_what_a_start_leaves_over_is_taken_back_by_the_refill(disk: Disk, tmp_path: Path) -> None:
    reserve = SpaceReserve(str(tmp_path), SIZE)
    disk.free_without = 10 * SIZE
    reserve.refill()
    disk.free_without = SIZE
    reserve.ensure(SIZE // 2)
    with reserve.lent(4096):
        assert disk.free == SIZE // 2
    assert disk.free == SIZE // 2, "the start goes on"
    disk.free_without -= 8192
    reserve.refill()
    assert (disk.free, disk.reserved) == (0, SIZE - 8192)


def test_what_another_broker_starts_with_is_not_taken_back_meanwhile(disk: Disk, tmp_path: Path) -> None:
    one, other = (SpaceReserve(str(tmp_path), SIZE, ReserveLocks(str(tmp_path))) for _ in range(2))
    disk.free_without = 10 * SIZE
    one.refill()
    disk.free_without = SIZE
    one.ensure(8192)
    other.ensure(8192)
    one.refill()
    assert disk.free == 8192, "the other one goes on to start with it"
    other.refill()
    one.refill()
    assert (disk.free, disk.reserved) == (0, SIZE)


def test_what_has_to_wait_for_room_is_refused_what_is_set_aside(disk: Disk, tmp_path: Path) -> None:
    reserve = SpaceReserve(str(tmp_path), SIZE)
    disk.free_without = 10 * SIZE
    reserve.refill()
    disk.free_without = SIZE + 8191
    with pytest.raises(OSError, match="No space left"), reserve.lent(8192, False):
        pass
    assert disk.reserved == SIZE
    disk.free_without = SIZE + 8192
    with reserve.lent(8192, False):
        assert disk.free == 8192


def test_what_a_file_system_keeps_for_root_is_room_for_root(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = SpaceReserve(str(tmp_path), SIZE)
    disk.free_without = 10 * SIZE
    reserve.refill()
    monkeypatch.setattr(space_reserve, "free_bytes", lambda _: 0)
    with reserve.lent(8192, False):
        pass
    assert disk.reserved == SIZE


def test_a_reserve_on_a_disk_that_hangs_holds_up_no_other(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_reserve, "_WAIT_MAX_S", 0.01)
    locks = ReserveLocks(str(tmp_path))
    reserve = SpaceReserve(str(tmp_path), SIZE, locks)
    disk.free_without = 10 * SIZE
    reserve.refill()
    disk.free_without = SIZE
    hangs, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        with locks.alone():
            hangs.set()
            goes_on.wait(30)

    thread = threading.Thread(target=hang)
    thread.start()
    assert hangs.wait(30)
    with reserve.lent(8192):
        assert disk.free >= 8192
    assert thread.is_alive()
    goes_on.set()
    thread.join()


def test_a_loan_that_two_threads_end_is_ended_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them has waited for the other in vain. The number of a closed descriptor may be a client's by now."""
    locks = ReserveLocks(str(tmp_path))
    closed, close = [], os.close

    def meanwhile(fd: int) -> None:
        closed.append(fd)
        if len(closed) == 1:
            locks.end_loan()
        close(fd)

    locks.begin_loan()
    monkeypatch.setattr(space_reserve.os, "close", meanwhile)
    locks.end_loan()
    assert len(closed) == 1
    assert not locks.is_lent()


def test_a_disk_that_is_full_is_reported_once(disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reserve = SpaceReserve(str(tmp_path), SIZE)
    for _ in range(2):
        disk.free_without = 10 * SIZE
        reserve.refill()
        disk.free_without = SIZE
        for _ in range(10):
            with reserve.lent(8192):
                pass
    assert len(caplog.messages) == 2
    assert str(tmp_path) in caplog.messages[0]
    assert "delete topics" in caplog.messages[0]


def test_without_a_size_there_is_no_file(disk: Disk, tmp_path: Path) -> None:
    reserve = SpaceReserve(str(tmp_path), 0)
    disk.free_without = 10 * SIZE
    reserve.refill()
    disk.free_without = 0
    reserve.ensure(8192)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_makes_no_failure_of_a_write_that_has_succeeded(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = SpaceReserve(str(tmp_path), SIZE)
    disk.free_without = 3 * SIZE
    reserve.refill()
    disk.free_without = SIZE + 10_000
    with reserve.lent(20_000):
        monkeypatch.setattr(os, "posix_fallocate", refuse(errno.EIO))
        monkeypatch.setattr(os, "ftruncate", refuse(errno.EIO))
    assert disk.reserved < SIZE
    monkeypatch.undo()
