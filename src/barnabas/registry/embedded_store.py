"""The file of an embedded registry as a whole, for its move to another store or from there."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.errors import UsageError
from barnabas.registry import embedded_tables as tables
from barnabas.registry.broker_locks import BrokerLocks
from barnabas.registry.content import Move, RegistryContent
from barnabas.registry.migration import RegistryStore, StoredRegistry
from barnabas.registry.processes import is_running
from barnabas.registry.registry import RegistryUnavailable
from barnabas.registry.sqlite_file import SqliteFile

__all__ = ["EmbeddedStore"]


class EmbeddedStore(RegistryStore):
    """An SQLite file, which need not be there."""

    max_leader_changes = tables.MAX_LEADER_CHANGES

    def __init__(self, path: Path, *, option: str = "--from", is_running: Callable[[str], bool] = is_running) -> None:
        """`option` is that of the command which names the file. `is_running` says whether the process of a registration
        may be alive."""
        self._path = path.absolute()
        self._option = option
        self._locks = BrokerLocks(self._path, is_running)
        self._db: SqliteFile | None = None
        self._read: tuple[object, ...] | None = None
        """The row that every write by brokers changes, and the move, as of the last read; None without tables."""
        self.name = str(self._path)

    def read(self) -> StoredRegistry | None:
        if not tables.is_founded(self._path):
            return None
        with self._transaction() as db:
            tables.prepare(db, self._path)
            content, self._read = tables.read_content(db), self._version(db)
            live = tables.live_brokers(db, self._locks)
            return StoredRegistry(content, tables.read_move(db), live)

    def write(self, content: RegistryContent, move: Move) -> None:
        with self._transaction() as db:
            if self._version(db) != self._read:
                raise UsageError(f"{self._path}: was written while the registry was moved there; move it again")
            tables.make_tables(db, content)
            tables.set_move(db, move)
            self._read = self._version(db)

    def set_move(self, move: Move | None) -> bool:
        with self._transaction() as db:
            if self._version(db) != self._read:
                return False
            tables.set_move(db, move)
            self._read = self._version(db)
            return True

    def _version(self, db: SqliteFile) -> tuple[object, ...] | None:
        return (tables.read_state(db), tables.read_move(db)) if tables.has_tables(db) else None

    @contextmanager
    def _transaction(self) -> Iterator[SqliteFile]:
        try:
            if self._db is None:
                self._db = tables.open_file(self._path)
            with self._db.transaction():
                yield self._db
        except (sqlite3.Error, RegistryUnavailable) as error:
            raise tables.cannot_be_used(self._path, error, self._option) from None

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
