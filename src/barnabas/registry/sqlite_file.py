"""An SQLite file: transactions that commit or roll back, and one exception for all failures."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeAlias

from barnabas.registry.registry import NotWritten, RegistryUnavailable

__all__ = ["Room", "SqliteFile", "is_read_only", "may_pass"]

Room: TypeAlias = Callable[[bool], AbstractContextManager[object]]
"""Makes the context in which a transaction finds space on a full disk, and is told whether it may use what is set aside
for that. Raises OSError if it may not, and there is no other space."""

_BUSY_TIMEOUT_S: Final = 5.0
_BUSY_PAUSE_S: Final = 0.001
_ERROR_KIND: Final = 0xFF
"""The bits of an SQLite error that do not tell its details."""
_PASSING: Final = frozenset(
    (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
)
"""Another program holds the file, or its disk is full or fails."""
_NOT_OPENED: Final = frozenset((sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY))
"""The file may not be opened or written: because of its disk, of descriptors, or of the rights."""
_WAL_PAGES: Final = 100
"""The number of pages after which the write-ahead log is copied into the file and restarted, so that it does not grow
on a full disk."""


def may_pass(error: Exception, path: Path) -> bool:
    """Returns whether a failure at the file may pass without anybody's work at the file itself."""
    if isinstance(error, RegistryUnavailable):
        return error.may_pass
    if isinstance(error, OSError):  # there was no room
        return True
    kind = getattr(error, "sqlite_errorcode", 0) & _ERROR_KIND
    return kind in _PASSING or (kind in _NOT_OPENED and not _is_kept_from_user(path))


def _is_kept_from_user(path: Path) -> bool:
    """Returns whether the file or its directory lacks rights, or there is no such directory."""
    return not is_read_only(path.parent) and not os.access(path if path.exists() else path.parent, os.R_OK | os.W_OK)


def is_read_only(directory: Path) -> bool:
    """Returns whether nobody can write in a directory, whatever its rights."""
    try:
        return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    except OSError:
        return False


class SqliteFile:
    """A connection in WAL mode. sqlite3's errors inside `transaction` and `reading` become RegistryUnavailable."""

    def __init__(self, path: Path, room: Room = nullcontext) -> None:
        """Raises sqlite3.Error."""
        self._room = room
        self._path = path
        # Calls must not overlap, but the thread that opens the file is not the one that uses it.
        self._db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        self._switch_to_wal()
        self._db.execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}")
        self._opened = os.stat(path)

    def _switch_to_wal(self) -> None:
        """Two connections that switch a new file at the same moment could wait for each other forever, therefore
        SQLite's own timeout does not apply here: one of them fails at once and has to ask again."""
        deadline = time.monotonic() + _BUSY_TIMEOUT_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _ERROR_KIND != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_BUSY_PAUSE_S)

    def execute(self, query: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._db.execute(query, parameters)

    def executemany(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        self._db.executemany(query, rows)

    def row(self, query: str, parameters: Sequence[object] = ()) -> tuple[Any, ...]:
        # fetchall, not fetchone: an UPDATE ... RETURNING is only over once all its rows are read.
        row: tuple[Any, ...] = self._db.execute(query, parameters).fetchall()[0]
        return row

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A context in which all reads see one version."""
        try:
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from error

    @contextmanager
    def transaction(self, *, durable: bool = True, with_room: bool = True) -> Iterator[None]:
        """A context that commits, or rolls back after an exception. `durable` says that it is on the disk afterwards,
        not only in the page cache. Without `with_room` it fails on a disk that is full but for what is set aside.
        Raises NotWritten where nothing has been committed for certain, and else RegistryUnavailable."""
        commits = False
        try:
            self._db.execute("PRAGMA synchronous=FULL" if durable else "PRAGMA synchronous=NORMAL")
            self._db.execute("BEGIN IMMEDIATE")  # one that waits for another takes no room from it
            try:
                with self._room(with_room):
                    yield
                    commits = True
                    self._db.execute("COMMIT")
            except BaseException:
                # After a full disk SQLite may have rolled back by itself.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError) as error:
            full = getattr(error, "sqlite_errorcode", 0) & _ERROR_KIND == sqlite3.SQLITE_FULL
            raise self._failed(error, RegistryUnavailable if commits and not full else NotWritten) from error

    def data_version(self) -> int:
        """Returns a number that changes whenever another connection has written."""
        try:
            return int(self.row("PRAGMA data_version")[0])
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def is_at_path(self) -> bool:
        """Returns whether the file still has its name: it may have been removed, moved or replaced. Safe in any
        thread."""
        try:
            return os.path.samestat(os.stat(self._path), self._opened)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # nobody knows

    @property
    def number(self) -> str:
        """The device and the number of the file there: a copy has others."""
        return f"{self._opened.st_dev}:{self._opened.st_ino}"

    def close(self) -> None:
        self._db.close()

    def _failed(self, error: Exception, kind: type[RegistryUnavailable] = RegistryUnavailable) -> RegistryUnavailable:
        failure = kind(f"the registry {self._path} failed: {error}")
        failure.may_pass = may_pass(error, self._path)
        return failure
