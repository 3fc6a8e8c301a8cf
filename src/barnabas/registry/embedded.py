"""The registry in one SQLite file: for one broker, or for several broker processes on one machine.

A write survives a killed process. Topics, settings, leaders and producer ids also survive a power loss, because they
are written with `synchronous=FULL` (one fsync each).

Other processes see a write at their next call: `check` and `load` look at SQLite's data version (3 µs), and `check`
calls the watchers. A session ends with its process, which the kernel tells for certain (`processes.py`).

Only the owner of the file can read it, because it has the secret of the cluster.
"""

import logging
import os
import sqlite3
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import Final, Literal

from barnabas.config.endpoints import Endpoint
from barnabas.errors import UsageError
from barnabas.log.directories.data_directory import new_cluster_id
from barnabas.metadata.delta import MetadataChange, MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.registry.processes import is_running
from barnabas.registry.registry import (
    AddPartitions,
    BrokerRegistration,
    Change,
    CreateTopic,
    DeleteTopic,
    Founding,
    LeaderChange,
    ProducerIdBlock,
    Registry,
    RegistryUnavailable,
    RemoveBroker,
    SetBrokerConfig,
    SetFenced,
    SetPartition,
    SetTopicConfig,
)
from barnabas.registry.sqlite_file import SqliteFile
from barnabas.types import BrokerId

__all__ = ["EmbeddedRegistry", "is_founded"]

_FORMAT: Final = 1
"""A later release may add tables, columns with defaults, kinds of settings and lists to `unsettled`, and keep the
format: during a rolling upgrade brokers of this one go on using the file."""
_CHANGES_KEPT: Final = 10_000

_SCHEMA: Final = """
CREATE TABLE state (
    format INTEGER, cluster_id TEXT, version INTEGER, broker_epoch INTEGER, controller_id INTEGER,
    controller_broker_epoch INTEGER, controller_epoch INTEGER, next_producer_id INTEGER
);
CREATE TABLE topics (name TEXT PRIMARY KEY, topic_id BLOB) WITHOUT ROWID;
CREATE TABLE partitions (
    topic TEXT, number INTEGER, leader INTEGER, leader_epoch INTEGER, partition_epoch INTEGER,
    replicas TEXT, isr TEXT, unsettled TEXT NOT NULL DEFAULT '', PRIMARY KEY (topic, number)
) WITHOUT ROWID;
CREATE TABLE configs (
    kind TEXT, resource TEXT, name TEXT, value TEXT, PRIMARY KEY (kind, resource, name)
) WITHOUT ROWID;
CREATE TABLE changes (version INTEGER, kind TEXT, name TEXT);
CREATE INDEX changes_by_version ON changes (version);
"""

_BROKERS: Final = """
CREATE TABLE brokers (
    node_id INTEGER PRIMARY KEY, epoch INTEGER, rack TEXT, endpoints TEXT, peer_endpoint TEXT, process TEXT,
    fenced INTEGER, returned TEXT
)
"""
"""Made anew in a file whose sessions still ended by time."""
_BROKER_COLUMNS: Final = "node_id", "epoch", "rack", "endpoints", "peer_endpoint", "process", "fenced", "returned"
_PARTITION_COLUMNS: Final = ("leader", "leader_epoch", "partition_epoch", "replicas", "isr", "unsettled")
_LISTS: Final = 4
"""The number of lists in `unsettled`."""
_LEADER_CHANGE_COLUMNS: Final = (
    *("time_ms", "topic", "number", "from_leader", "to_leader", "leader_epoch", "reason", "took_ms"),
)
_HAS_PROCESSES: Final = "SELECT count(*) FROM pragma_table_info('brokers') WHERE name = 'process'"

_DIRECTORIES: Final = """
CREATE TABLE IF NOT EXISTS directories (
    node_id INTEGER, directory_id BLOB, path TEXT, PRIMARY KEY (node_id, directory_id)
) WITHOUT ROWID
"""
"""Also added to a file of format 1 that was made before directory ids were recorded."""

_UNSETTLED: Final = "ALTER TABLE partitions ADD COLUMN unsettled TEXT NOT NULL DEFAULT ''"
"""The lists of brokers that a partition has only during a reassignment or below min.insync.replicas, as `4,5/1//`; ''
for the other partitions. The column is also added to a file of format 1 that was made before there were such lists."""

_LEADER_CHANGES: Final = """
CREATE TABLE IF NOT EXISTS leader_changes (
    id INTEGER PRIMARY KEY, time_ms INTEGER, topic TEXT, number INTEGER, from_leader INTEGER, to_leader INTEGER,
    leader_epoch INTEGER, reason TEXT, took_ms INTEGER
)
"""
"""Also added to a file of format 1 that was made before there was a history of leaders."""

_SECRETS: Final = "CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID"
"""Also added to a file of format 1 that was made before a cluster had a secret."""
_SECRET_BYTES: Final = 32
_CLUSTER_SECRET: Final = "SELECT value FROM secrets WHERE name = 'cluster'"

_HAS_STATE: Final = "SELECT count(*) FROM sqlite_master WHERE name = 'state'"

_Kind = Literal["topic", "topic_config", "broker_config", "broker", "none"]


class _Refused(Exception):
    """A condition of a write does not hold: the transaction rolls back."""


def is_founded(path: Path) -> bool:
    """Returns whether the file contains a registry. EmbeddedRegistry refuses a file that cannot be read."""
    if not path.exists():
        return False
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as db:
        return bool(db.execute(_HAS_STATE).fetchone()[0])
    return True


def _way_out(path: Path, error: Exception) -> str:
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return "restore it from a copy: topics and their settings stand in it"
    if not os.access(path.parent, os.W_OK):
        return f"let the broker's user write in {path.parent}, or choose another with --data-dir"
    return "make room for it, and see that no other program holds it"


def _make_private(path: Path) -> None:
    """Lets only the owner read the registry: makes its file before SQLite does, or takes the rights of others away."""
    with suppress(OSError):  # SQLite reports a path where no file can be made
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    # By their names: to close a file that this process uses by SQLite would end SQLite's locks on it.
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            _take_rights_of_others(f"{path}{suffix}")


def _take_rights_of_others(path: str) -> None:
    if not stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        return
    try:
        os.chmod(path, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        logging.getLogger("barnabas.registry").warning(
            "%s can be read by others, and the secret of the cluster's brokers is in it: %s; "
            "let the broker's user own the file, or restrict its directory",
            path,
            error.strerror,
        )


class EmbeddedRegistry(Registry):
    """The registry in an SQLite file. Each broker process makes its own object with the path of the same file."""

    max_changes_per_write = 100_000
    max_leader_changes = 10_000

    def __init__(
        self,
        path: Path,
        *,
        founding: Founding | None = None,
        room: Callable[[], AbstractContextManager[None]] = nullcontext,
        is_running: Callable[[str], bool] = is_running,
    ) -> None:
        """Opens the file, or makes it (about 3 ms) with the content of `founding`. `room` makes the context in which
        writes find space on a full disk, except for new topics and partitions. `is_running` says whether the process of
        a registration may be alive. Raises UsageError if the file cannot be opened or is no registry."""
        self._path = path
        self._is_running = is_running
        self._watchers: list[Callable[[], None]] = []
        self._node_id: int | None = None
        self._epoch = 0
        _make_private(path)
        try:
            self._db = SqliteFile(path, room)
            self._prepare(founding or Founding(new_cluster_id()))
            self._data_version = self._db.data_version()
        except (sqlite3.Error, RegistryUnavailable) as error:
            raise UsageError(f"{path}: cannot be used as the registry: {error}; {_way_out(path, error)}") from None

    def _prepare(self, founding: Founding) -> None:
        db = self._db
        with db.transaction(durable=bool(founding.changes)):
            if db.row(_HAS_STATE)[0]:
                found = db.row("SELECT format FROM state")[0]
                if found != _FORMAT:
                    raise UsageError(
                        f"{self._path}: registry format {found} is not the format {_FORMAT} that this version reads; "
                        "use the version of barnabas that wrote it"
                    )
                db.execute(_DIRECTORIES)
                self._prepare_secret()
                if not db.row(_HAS_PROCESSES)[0]:
                    db.execute("DROP TABLE brokers")
                    db.execute(_BROKERS)
                self._add_unsettled()
                db.execute(_LEADER_CHANGES)
                return
            db.execute(_DIRECTORIES)
            db.execute(_LEADER_CHANGES)
            self._prepare_secret()
            db.execute(_BROKERS)
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(
                "INSERT INTO state VALUES (?, ?, ?, ?, -1, 0, ?, ?)",
                (
                    *(_FORMAT, founding.cluster_id, founding.version, founding.broker_epoch),
                    *(founding.controller_epoch, founding.next_producer_id),
                ),
            )
            for change in founding.changes:
                self._apply(change)

    def _add_unsettled(self) -> None:
        if not any(row[1] == "unsettled" for row in self._db.execute("PRAGMA table_info(partitions)")):
            self._db.execute(_UNSETTLED)

    def _prepare_secret(self) -> None:
        """Makes the secret of the cluster if there is none."""
        self._db.execute(_SECRETS)
        if not self._db.execute(_CLUSTER_SECRET).fetchall():
            self._db.execute(_insert("secrets", "name", "value"), ("cluster", os.urandom(_SECRET_BYTES)))

    # -- what is there ----------------------------------------------------------------------------------------------

    def load(self, previous: MetadataImage | None = None) -> MetadataChange:
        with self._db.reading():
            cluster_id, version, controller_id, controller_epoch = self._db.row(
                "SELECT cluster_id, version, controller_id, controller_epoch FROM state"
            )
            base = previous if previous is not None and previous.cluster_id == cluster_id else MetadataImage(cluster_id)
            if base.version == version:
                return MetadataChange(base)
            delta = MetadataDelta(base)
            changed = self._changed_since(base.version) if base.version else None
            if changed is None:
                self._read_all(delta)
            else:
                self._read_changed(delta, changed)
            delta.controller_id, delta.controller_epoch = controller_id, controller_epoch
            return delta.apply(version)

    def _changed_since(self, version: int) -> dict[_Kind, list[str]] | None:
        """Returns the names that were written after a version; None if that is no longer known."""
        oldest = self._db.row("SELECT min(version) FROM changes")[0]
        if oldest is None or oldest > version + 1:
            return None
        changed: dict[_Kind, list[str]] = {}
        for kind, name in self._db.execute("SELECT DISTINCT kind, name FROM changes WHERE version > ?", (version,)):
            changed.setdefault(kind, []).append(name)
        return changed

    def _read_all(self, delta: MetadataDelta) -> None:
        delta.clear()
        for broker in self._brokers():
            delta.put_broker(broker)
        partitions: dict[str, list[PartitionImage]] = {}
        rows = self._db.execute(
            "SELECT topic, leader, leader_epoch, replicas, isr, partition_epoch, unsettled FROM partitions "
            "ORDER BY topic, number"
        )
        ids = _IdLists()
        for topic, leader, leader_epoch, replicas, isr, partition_epoch, unsettled in rows:
            partition = PartitionImage(leader, leader_epoch, ids[replicas], ids[isr], partition_epoch)
            if unsettled:
                partition = PartitionImage(*partition[:5], *(ids[text] for text in unsettled.split("/")[:_LISTS]))
            partitions.setdefault(topic, []).append(partition)
        for name, topic_id in self._db.execute("SELECT name, topic_id FROM topics"):
            delta.put_topic(TopicImage(name, uuid.UUID(bytes=topic_id), tuple(partitions[name])))
        configs: dict[tuple[str, str], dict[str, str]] = {}
        for kind, resource, name, value in self._db.execute("SELECT kind, resource, name, value FROM configs"):
            configs.setdefault((kind, resource), {})[name] = value
        for (kind, resource), config in configs.items():
            if kind == "topic_config":
                delta.set_topic_config(resource, config)
            elif kind == "broker_config":
                delta.set_broker_config(resource, config)

    def _read_changed(self, delta: MetadataDelta, changed: Mapping[_Kind, list[str]]) -> None:
        if "broker" in changed:
            present = {broker.node_id: broker for broker in self._brokers()}
            for node_id in (BrokerId(int(name)) for name in changed["broker"]):
                if node_id in present:
                    delta.put_broker(present[node_id])
                else:
                    delta.remove_broker(node_id)
        for name in changed.get("topic", ()):
            topic = self._topic(name)
            if topic is not None:
                delta.put_topic(topic)
            else:
                delta.remove_topic(name)
        for name in changed.get("topic_config", ()):
            delta.set_topic_config(name, self._config("topic_config", name))
        for name in changed.get("broker_config", ()):
            delta.set_broker_config(name, self._config("broker_config", name))

    def _brokers(self) -> Iterator[BrokerImage]:
        rows = self._db.execute(
            "SELECT node_id, epoch, endpoints, rack, fenced, peer_endpoint, process, returned FROM brokers"
        )
        for node_id, epoch, endpoints, rack, fenced, peer_endpoint, process, returned in rows:
            peers = _endpoints(peer_endpoint)
            yield BrokerImage(
                node_id,
                epoch,
                _endpoints(endpoints),
                rack,
                bool(fenced),
                peers[0] if peers else None,
                process,
                returned,
            )

    def _topic(self, name: str) -> TopicImage | None:
        row = self._db.execute("SELECT topic_id FROM topics WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        rows = self._db.execute(
            "SELECT leader, leader_epoch, replicas, isr, partition_epoch, unsettled FROM partitions "
            "WHERE topic = ? ORDER BY number",
            (name,),
        )
        ids = _IdLists()
        partitions = tuple(
            PartitionImage(
                *(leader, leader_epoch, ids[replicas], ids[isr], partition_epoch),
                *((ids[text] for text in unsettled.split("/")[:_LISTS]) if unsettled else ()),
            )
            for leader, leader_epoch, replicas, isr, partition_epoch, unsettled in rows
        )
        return TopicImage(name, uuid.UUID(bytes=row[0]), partitions)

    def _config(self, kind: str, resource: str) -> dict[str, str]:
        query = "SELECT name, value FROM configs WHERE kind = ? AND resource = ?"
        return dict(self._db.execute(query, (kind, resource)))

    def watch(self, callback: Callable[[], None]) -> None:
        self._watchers.append(callback)

    def check(self) -> None:
        data_version = self._db.data_version()
        if data_version != self._data_version:
            self._data_version = data_version
            self._hint()

    def _hint(self) -> None:
        for callback in self._watchers:
            callback()

    def cluster_secret(self) -> bytes:
        with self._db.reading():
            return bytes(self._db.row(_CLUSTER_SECRET)[0])

    # -- sessions ---------------------------------------------------------------------------------------------------

    def directories(self, node_id: int) -> Mapping[uuid.UUID, str]:
        with self._db.reading():
            return self._directories(node_id)

    def _directories(self, node_id: int) -> dict[uuid.UUID, str]:
        rows = self._db.execute("SELECT directory_id, path FROM directories WHERE node_id = ?", (node_id,))
        return {uuid.UUID(bytes=directory_id): path for directory_id, path in rows}

    def register_broker(self, registration: BrokerRegistration) -> int | None:
        node_id = registration.node_id
        with self._db.transaction():
            recorded = self._directories(node_id)
            query = "SELECT process, CASE WHEN fenced THEN returned ELSE '' END FROM brokers WHERE node_id = ?"
            held = self._db.execute(query, (node_id,)).fetchone()
            another = recorded and recorded.keys().isdisjoint(registration.directories)
            if held is not None and another and self._is_running(held[0]):
                return None
            if recorded != registration.directories:
                self._set_directories(node_id, registration.directories)
            returned = registration.returned(recorded, held[1] if held is not None else "")
            epoch = int(self._db.row("UPDATE state SET broker_epoch = broker_epoch + 1 RETURNING broker_epoch")[0])
            peers = () if registration.peer_endpoint is None else (registration.peer_endpoint,)
            others = self._db.row("SELECT count(*) FROM brokers WHERE node_id != ?", (node_id,))[0]
            self._db.execute(
                _insert("brokers", *_BROKER_COLUMNS, replaces=True),
                (
                    *(node_id, epoch, registration.rack, _texts(registration.endpoints)),
                    *(_texts(peers), registration.process, int(others > 0), returned),
                ),
            )
            self._record([("broker", str(node_id))])
        self._node_id, self._epoch = node_id, epoch
        self._hint()
        return epoch

    def set_peer_endpoint(self, endpoint: Endpoint) -> None:
        with self._db.transaction():
            self._db.execute(
                "UPDATE brokers SET peer_endpoint = ? WHERE node_id = ? AND epoch = ?",
                (_texts((endpoint,)), self._node_id, self._epoch),
            )
            self._record([("broker", str(self._node_id))])
        self._hint()

    def announce_brokers(self, node_ids: Iterable[int]) -> None:
        with self._db.transaction():
            known = {broker.node_id for broker in self._brokers()}
            added = [node_id for node_id in node_ids if node_id not in known]
            self._db.executemany(
                _insert("brokers", *_BROKER_COLUMNS), [(node_id, 0, None, "", "", "", 1, "") for node_id in added]
            )
            if added:
                self._record([("broker", str(node_id)) for node_id in added])
        self._hint()

    def _set_directories(self, node_id: int, directories: Mapping[uuid.UUID, str]) -> None:
        self._db.execute("DELETE FROM directories WHERE node_id = ?", (node_id,))
        self._db.executemany(
            _insert("directories", "node_id", "directory_id", "path"),
            [(node_id, directory_id.bytes, path) for directory_id, path in directories.items()],
        )

    def dead_brokers(self) -> list[tuple[BrokerId, int]]:
        with self._db.reading():
            return [(b.node_id, b.epoch) for b in self._brokers() if not b.fenced and not self._is_running(b.process)]

    def has_session(self, node_id: BrokerId, epoch: int) -> bool:
        with self._db.reading():
            return self._may_be_alive(node_id, epoch)

    def end_session(self) -> None:
        if self._node_id is None:
            return
        node_id, self._node_id = self._node_id, None
        with self._db.transaction(durable=False):
            ended = self._db.execute(
                "UPDATE brokers SET fenced = 1, process = '' WHERE node_id = ? AND epoch = ?", (node_id, self._epoch)
            ).rowcount
            if ended:
                self._db.execute("UPDATE state SET controller_id = -1 WHERE controller_id = ?", (node_id,))
                self._record([("broker", str(node_id))])
        self._hint()

    # -- controller -------------------------------------------------------------------------------------------------

    def elect_controller(self) -> int | None:
        if self._node_id is None:
            return None
        with self._db.transaction():
            registered = self._db.row(
                "SELECT count(*) FROM brokers WHERE node_id = ? AND epoch = ?", (self._node_id, self._epoch)
            )
            if not registered[0]:
                return None
            controller_id, broker_epoch, controller_epoch = self._db.row(
                "SELECT controller_id, controller_broker_epoch, controller_epoch FROM state"
            )
            if controller_id == self._node_id and broker_epoch == self._epoch:
                return int(controller_epoch)
            if controller_id not in (-1, self._node_id) and self._may_be_alive(controller_id, broker_epoch):
                return None
            self._db.execute(
                "UPDATE state SET controller_id = ?, controller_broker_epoch = ?, controller_epoch = ?",
                (self._node_id, self._epoch, controller_epoch + 1),
            )
            self._record([])
        self._hint()
        return int(controller_epoch) + 1

    def resign(self) -> None:
        if self._node_id is None:
            return
        with self._db.transaction():
            freed = self._db.execute(
                "UPDATE state SET controller_id = -1 WHERE controller_id = ? AND controller_broker_epoch = ?",
                (self._node_id, self._epoch),
            ).rowcount
            if freed:
                self._record([])
        self._hint()

    def _may_be_alive(self, node_id: int, epoch: int) -> bool:
        row = self._db.execute(
            "SELECT process FROM brokers WHERE node_id = ? AND epoch = ?", (node_id, epoch)
        ).fetchone()
        return row is not None and self._is_running(row[0])

    def write(
        self, changes: Sequence[Change], *, controller_epoch: int, leader_changes: Sequence[LeaderChange] = ()
    ) -> bool:
        assert len(changes) <= self.max_changes_per_write, len(changes)
        touched: list[tuple[_Kind, str]] = []
        grows = any(isinstance(change, CreateTopic | AddPartitions) for change in changes)
        try:
            with self._db.transaction(with_room=not grows):
                if self._db.row("SELECT controller_epoch FROM state")[0] != controller_epoch:
                    raise _Refused
                for change in changes:
                    touched.append(self._apply(change))
                    if isinstance(change, CreateTopic | DeleteTopic):
                        touched.append(("topic_config", change.name))
                self._record(touched)
                if leader_changes:
                    self._add_leader_changes(leader_changes[-self.max_leader_changes :])
        except _Refused:
            return False
        self._hint()
        return True

    def _add_leader_changes(self, rows: Sequence[LeaderChange]) -> None:
        self._db.executemany(_insert("leader_changes", *_LEADER_CHANGE_COLUMNS), rows)
        self._db.execute(
            "DELETE FROM leader_changes WHERE id <= (SELECT max(id) FROM leader_changes) - ?",
            (self.max_leader_changes,),
        )

    def leader_changes(self, limit: int) -> list[LeaderChange]:
        with self._db.reading():
            rows = self._db.execute(
                "SELECT time_ms, topic, number, from_leader, to_leader, leader_epoch, reason, took_ms "
                "FROM leader_changes ORDER BY id DESC LIMIT ?",
                (max(limit, 0),),
            ).fetchall()
        return [LeaderChange(*row) for row in reversed(rows)]

    def _apply(self, change: Change) -> tuple[_Kind, str]:
        match change:
            case CreateTopic():
                self._create_topic(change)
            case DeleteTopic():
                self._delete_topic(change)
            case AddPartitions():
                self._check_id(change.name, change.topic_id)
                if self._db.row("SELECT count(*) FROM partitions WHERE topic = ?", (change.name,))[0] != change.first:
                    raise _Refused
                self._insert_partitions(change.name, change.first, change.partitions)
            case SetPartition():
                self._set_partition(change)
            case SetTopicConfig():
                if not self._db.row("SELECT count(*) FROM topics WHERE name = ?", (change.name,))[0]:
                    raise _Refused
                self._set_config("topic_config", change.name, change.config)
                return "topic_config", change.name
            case SetBrokerConfig():
                self._set_config("broker_config", change.name, change.config)
                return "broker_config", change.name
            case RemoveBroker():
                self._remove_broker(change)
                return "broker", str(change.node_id)
            case SetFenced():
                self._set_fenced(change)
                return "broker", str(change.node_id)
        return "topic", change.name

    def _create_topic(self, change: CreateTopic) -> None:
        try:
            self._db.execute(_insert("topics", "name", "topic_id"), (change.name, change.topic_id.bytes))
        except sqlite3.IntegrityError:
            raise _Refused from None
        self._insert_partitions(change.name, 0, change.partitions)
        if change.config:
            self._set_config("topic_config", change.name, change.config)

    def _delete_topic(self, change: DeleteTopic) -> None:
        self._check_id(change.name, change.topic_id)
        self._db.execute("DELETE FROM topics WHERE name = ?", (change.name,))
        self._db.execute("DELETE FROM partitions WHERE topic = ?", (change.name,))
        self._db.execute("DELETE FROM configs WHERE kind = 'topic_config' AND resource = ?", (change.name,))

    def _set_partition(self, change: SetPartition) -> None:
        self._check_id(change.name, change.topic_id)
        partition = change.partition
        written = self._db.execute(
            "UPDATE partitions SET leader = ?, leader_epoch = ?, partition_epoch = ?, replicas = ?, isr = ?, "
            "unsettled = ? WHERE topic = ? AND number = ? AND partition_epoch = ?",
            (*_partition_row(partition), change.name, change.partition_index, change.expected_partition_epoch),
        ).rowcount
        if written != 1:
            raise _Refused

    def _remove_broker(self, change: RemoveBroker) -> None:
        removed = self._db.execute(
            "DELETE FROM brokers WHERE node_id = ? AND epoch = ? AND fenced", (change.node_id, change.epoch)
        ).rowcount
        if removed != 1:
            raise _Refused

    def _set_fenced(self, change: SetFenced) -> None:
        written = self._db.execute(
            "UPDATE brokers SET fenced = ?, returned = CASE WHEN ? THEN returned ELSE '' END "
            "WHERE node_id = ? AND epoch = ?",
            (change.fenced, change.fenced, change.node_id, change.epoch),
        ).rowcount
        if written != 1:
            raise _Refused

    def _check_id(self, name: str, topic_id: uuid.UUID) -> None:
        row = self._db.execute("SELECT topic_id FROM topics WHERE name = ?", (name,)).fetchone()
        if row is None or row[0] != topic_id.bytes:
            raise _Refused

    def _insert_partitions(self, name: str, first: int, partitions: Iterable[PartitionImage]) -> None:
        self._db.executemany(
            _insert("partitions", "topic", "number", *_PARTITION_COLUMNS),
            [(name, number, *_partition_row(partition)) for number, partition in enumerate(partitions, first)],
        )

    def _set_config(self, kind: _Kind, resource: str, config: Mapping[str, str]) -> None:
        self._db.execute("DELETE FROM configs WHERE kind = ? AND resource = ?", (kind, resource))
        self._db.executemany(
            _insert("configs", "kind", "resource", "name", "value"),
            [(kind, resource, name, value) for name, value in config.items()],
        )

    # -- producer ids -----------------------------------------------------------------------------------------------

    def allocate_producer_ids(self, size: int = 1000) -> ProducerIdBlock:
        with self._db.transaction():
            after = self._db.row(
                "UPDATE state SET next_producer_id = next_producer_id + ? RETURNING next_producer_id", (size,)
            )[0]
        return ProducerIdBlock(int(after) - size, size)

    def abandon(self) -> None:
        self._watchers.clear()
        self._db.close()

    def _record(self, touched: Iterable[tuple[_Kind, str]]) -> None:
        """Counts the write and records what it changed, so that `load` need not read everything."""
        version = self._db.row("UPDATE state SET version = version + 1 RETURNING version")[0]
        # A row is written even if no name changed: a gap in the versions would mean "no longer known".
        rows: list[tuple[int, _Kind, str]] = [(version, kind, name) for kind, name in touched]
        rows = rows or [(version, "none", "")]
        self._db.executemany(_insert("changes", "version", "kind", "name"), rows)
        if version % 1000 == 0:
            self._db.execute("DELETE FROM changes WHERE version <= ?", (version - _CHANGES_KEPT,))


class _IdLists(dict[str, tuple[BrokerId, ...]]):
    """Parses `1,2,3` to (1, 2, 3), once for each different text: 100,000 partitions have few different replica sets."""

    def __missing__(self, text: str) -> tuple[BrokerId, ...]:
        ids = tuple(BrokerId(int(node_id)) for node_id in text.split(",")) if text else ()
        self[text] = ids
        return ids


def _insert(table: str, *columns: str, replaces: bool = False) -> str:
    """Returns the statement that inserts a row, whatever columns a later release has added."""
    verb = "INSERT OR REPLACE" if replaces else "INSERT"
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def _partition_row(partition: PartitionImage) -> tuple[int, int, int, str, str, str]:
    replicas = ",".join(map(str, partition.replicas))
    isr = replicas if partition.isr == partition.replicas else ",".join(map(str, partition.isr))
    lists = partition[5:]
    unsettled = "/".join(",".join(map(str, ids)) for ids in lists) if any(lists) else ""
    return partition.leader, partition.leader_epoch, partition.partition_epoch, replicas, isr, unsettled


def _endpoints(text: str) -> tuple[Endpoint, ...]:
    return tuple(map(Endpoint.of_text, text.split()))


def _texts(endpoints: Iterable[Endpoint]) -> str:
    return " ".join(endpoint.text for endpoint in endpoints)
