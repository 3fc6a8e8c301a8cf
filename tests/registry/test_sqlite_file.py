"""Transactions of an SQLite file: committed, rolled back, seen by others."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from barnabas.registry.registry import NotWritten, RegistryUnavailable
from barnabas.registry.sqlite_file import SqliteFile


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SqliteFile]:
    with closing(SqliteFile(tmp_path / "registry.db")) as file:
        file.execute("CREATE TABLE numbers (n INTEGER)")
        yield file


def numbers(file: SqliteFile) -> list[int]:
    return [n for (n,) in file.execute("SELECT n FROM numbers ORDER BY n").fetchall()]


def test_a_transaction_commits(file: SqliteFile) -> None:
    with file.transaction():
        file.executemany("INSERT INTO numbers VALUES (?)", [(1,), (2,)])
    assert numbers(file) == [1, 2]


def test_an_exception_rolls_back_and_goes_on(file: SqliteFile) -> None:
    with pytest.raises(ZeroDivisionError), file.transaction():
        assert file.execute("INSERT INTO numbers VALUES (1)").rowcount / 0
    assert numbers(file) == []


@pytest.mark.parametrize("context", ["transaction", "reading"])
def test_errors_of_sqlite_name_the_file(file: SqliteFile, tmp_path: Path, context: str) -> None:
    with pytest.raises(RegistryUnavailable, match=f"{tmp_path}/registry.db failed"), getattr(file, context)():
        file.execute("INSERT INTO nowhere VALUES (1)")


def test_a_full_disk_leaves_no_doubt(file: SqliteFile) -> None:
    file.execute("PRAGMA max_page_count=4")
    with pytest.raises(NotWritten, match="full"), file.transaction():
        file.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(10_000)])
    assert numbers(file) == []


def test_a_commit_that_fails_leaves_doubt(file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    real = file._db

    class Failing:
        in_transaction = False

        def execute(self, query: str) -> object:
            if query == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return real.execute(query)

    monkeypatch.setattr(file, "_db", Failing())
    with pytest.raises(RegistryUnavailable) as raised, file.transaction():
        pass
    assert not isinstance(raised.value, NotWritten)
    real.execute("ROLLBACK")
    monkeypatch.undo()


def test_reading_sees_one_version(file: SqliteFile, tmp_path: Path) -> None:
    with closing(SqliteFile(tmp_path / "registry.db")) as other:
        version = file.data_version()
        with file.reading():
            assert numbers(file) == []
            with other.transaction():
                other.execute("INSERT INTO numbers VALUES (1)")
            assert numbers(file) == []
        assert numbers(file) == [1]
        assert file.data_version() != version


def test_room_is_made_for_transactions_that_ask_for_it(tmp_path: Path) -> None:
    asked: list[bool] = []

    @contextmanager
    def room(with_room: bool) -> Iterator[None]:
        asked.append(with_room)
        if not with_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield

    with closing(SqliteFile(tmp_path / "registry.db", room)) as file:
        with pytest.raises(RegistryUnavailable, match="No space left"), file.transaction(with_room=False):
            file.execute("CREATE TABLE numbers (n INTEGER)")
        with file.transaction(durable=False):
            file.execute("CREATE TABLE numbers (n INTEGER)")
    assert asked == [False, True]


def test_connections_that_make_the_file_at_the_same_moment_share_it(tmp_path: Path) -> None:
    barrier = Barrier(4, timeout=60)

    def insert(n: int) -> None:
        for number in range(50):
            barrier.wait()
            with closing(SqliteFile(tmp_path / f"{number}.db")) as file, file.transaction():
                file.execute("CREATE TABLE IF NOT EXISTS numbers (n INTEGER)")
                file.execute("INSERT INTO numbers VALUES (?)", (n,))

    with ThreadPoolExecutor(barrier.parties) as threads:
        list(threads.map(insert, range(barrier.parties)))
    for number in range(50):
        with closing(SqliteFile(tmp_path / f"{number}.db")) as file:
            assert numbers(file) == [0, 1, 2, 3]
