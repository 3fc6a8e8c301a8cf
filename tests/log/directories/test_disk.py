import errno
import os
import resource

import pytest

from barnabas.log.directories.disk import Disk, HeldSlice, OpenFile, ResourcePool, default_pool_limit


class Member:
    def __init__(self) -> None:
        self.recently_used = False
        self.open = True

    def release(self) -> None:
        self.open = False


def test_a_pool_takes_back_the_oldest(tmp_path) -> None:
    pool = ResourcePool(2)
    members = [Member() for _ in range(4)]
    for member in members:
        pool.add(member)
    assert [member.open for member in members] == [False, False, True, True]
    assert len(pool) == 2


def test_a_pool_gives_what_was_used_a_second_chance() -> None:
    pool = ResourcePool(2)
    used, idle, new = Member(), Member(), Member()
    pool.add(used)
    pool.add(idle)
    used.recently_used = True
    pool.add(new)
    assert (used.open, idle.open, new.open) == (True, False, True)
    assert not used.recently_used


def test_when_all_are_used_the_oldest_goes() -> None:
    pool = ResourcePool(2)
    members = [Member() for _ in range(3)]
    for member in members[:2]:
        pool.add(member)
        member.recently_used = True
    pool.add(members[2])
    assert [member.open for member in members] == [False, True, True]


def test_what_let_go_by_itself_makes_room() -> None:
    pool = ResourcePool(1)
    first, second = Member(), Member()
    pool.add(first)
    pool.discard(first)
    pool.discard(first)
    pool.add(second)
    assert first.open


def test_a_limit_that_is_raised_meanwhile_counts() -> None:
    limits = [1]
    pool = ResourcePool(lambda: limits[0])
    members = [Member() for _ in range(3)]
    pool.add(members[0])
    pool.add(members[1])
    limits[0] = 2
    pool.add(members[2])
    assert [member.open for member in members] == [False, True, True]


def test_half_of_the_descriptors_are_for_files() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert default_pool_limit() == min(soft // 2, 1 << 16)


def test_files_are_closed_for_one_that_finds_no_descriptor() -> None:
    pool = ResourcePool(3)
    members = [Member(), Member()]
    for member in members:
        pool.add(member)

    def open_file(path: str) -> int:
        if any(member.open for member in members):
            raise OSError(errno.EMFILE, "Too many open files")
        return len(path)

    assert pool.open(open_file, "path") == 4
    assert not len(pool)


def test_a_file_is_closed_with_its_last_slice(tmp_path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    file = OpenFile(Disk().open(str(path)))
    fd = file.fd
    piece = HeldSlice(file, 2, 3)
    path.unlink()
    del file
    assert piece.read() == b"234"
    assert (piece.fd, piece.position, piece.size, len(piece)) == (fd, 2, 3, 3)
    del piece
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_descriptors_that_are_required_come_from_holders_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, member, free, opened = ResourcePool(3), Member(), 3, []
    pool.add(member)

    def open_file(path: str, flags: int) -> int:
        if len(opened) == free + (not member.open):
            raise OSError(errno.EMFILE, "Too many open files")
        opened.append(len(opened))
        return opened[-1]

    monkeypatch.setattr("os.open", open_file)
    monkeypatch.setattr("os.close", opened.remove)
    pool.require(3)
    assert member.open
    pool.require(4)
    assert (member.open, opened) == (False, [])
    with pytest.raises(OSError, match="Too many open files"):
        pool.require(5)
    assert opened == []
