"""The tables of the registry in a SQLite file, and their rows."""

import logging
import os
import sqlite3
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Final

from barnabas.config.endpoints import Endpoint
from barnabas.errors import NotYet, UsageError
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.registry.broker_locks import BrokerLocks
from barnabas.registry.content import Move, RegistryContent
from barnabas.registry.incarnation import HAS_LOCK, INCARNATION, LOCKS
from barnabas.registry.registry import LastRegistration, LeaderChange, how_to_found_anew
from barnabas.registry.sqlite_file import Room, SqliteFile, is_read_only, may_pass
from barnabas.types import BrokerId

__all__ = [
    "DIRECTORY_COLUMNS",
    "LISTS",
    "MAX_LEADER_CHANGES",
    "IdLists",
    "add_leader_changes",
    "cannot_be_used",
    "has_tables",
    "insert",
    "insert_config",
    "insert_partitions",
    "insert_topic",
    "is_founded",
    "live_brokers",
    "make_tables",
    "open_file",
    "partition_row",
    "prepare",
    "put_brokers",
    "put_registration",
    "read_brokers",
    "read_content",
    "read_everything",
    "read_leader_changes",
    "read_move",
    "read_registrations",
    "read_secret",
    "read_state",
    "set_move",
    "texts",
]

_FORMAT: Final = 1
"""A later release may add tables, columns with defaults, kinds of settings and lists to `unsettled`, and keep the
format: during a rolling upgrade brokers of this one go on using the file. It adds no column to `brokers` and
`leader_changes`, whose rows the first releases write whole."""
MAX_LEADER_CHANGES: Final = 10_000

_SCHEMA: Final = """
CREATE TABLE state (
    format INTEGER, cluster_id TEXT, version INTEGER, broker_epoch INTEGER, controller_id INTEGER,
    controller_broker_epoch INTEGER, controller_epoch INTEGER, next_producer_id INTEGER,
    node_ids INTEGER NOT NULL DEFAULT 0
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

_STATE_COLUMNS: Final = (
    *("format", "cluster_id", "version", "broker_epoch", "controller_id", "controller_broker_epoch"),
    *("controller_epoch", "next_producer_id", "node_ids"),
)

_BROKERS: Final = """
CREATE TABLE brokers (
    node_id INTEGER PRIMARY KEY, epoch INTEGER, rack TEXT, endpoints TEXT, peer_endpoint TEXT, process TEXT,
    fenced INTEGER, returned TEXT
)
"""
"""Made anew in a file whose sessions still ended by time."""
_BROKER_COLUMNS: Final = "node_id", "epoch", "rack", "endpoints", "peer_endpoint", "process", "fenced", "returned"
DIRECTORY_COLUMNS: Final = "node_id", "directory_id", "path"
_PARTITION_COLUMNS: Final = ("leader", "leader_epoch", "partition_epoch", "replicas", "isr", "unsettled")
LISTS: Final = 4
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

_REGISTRATIONS: Final = """
CREATE TABLE IF NOT EXISTS registrations (node_id INTEGER PRIMARY KEY, registration_id TEXT, epoch INTEGER)
"""
"""Each broker's last registration. Also added to a file of format 1 that was made before registrations had ids."""

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
_SILENCES: Final = "CREATE TABLE IF NOT EXISTS leader_silences (id INTEGER PRIMARY KEY, noticed_after_ms INTEGER)"
"""For how long nothing was heard of former leaders, by the ids of leader changes."""

_NODE_IDS: Final = "ALTER TABLE state ADD COLUMN node_ids INTEGER NOT NULL DEFAULT 0"
"""The number of node ids that another store has generated. The column is also added to a file of format 1 that was made
before registries moved."""

_SECRETS: Final = "CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID"
"""Also added to a file of format 1 that was made before a cluster had a secret."""
_SECRET_BYTES: Final = 32
_CLUSTER_SECRET: Final = "SELECT value FROM secrets WHERE name = 'cluster'"

_HAS_STATE: Final = "SELECT count(*) FROM sqlite_master WHERE name = 'state'"


def is_founded(path: Path) -> bool:
    """Returns whether the file contains a registry. EmbeddedRegistry refuses a file that cannot be read."""
    if not path.exists():
        return False
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as db:
        return bool(db.execute(_HAS_STATE).fetchone()[0])
    return True


def _way_out(path: Path, error: Exception, option: str) -> str:
    if path.is_dir():
        return f"name the file in it, such as {path}/registry.db"
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        # no copy of it from before: that would give leader epochs and producer ids out twice
        return how_to_found_anew(str(path))
    if is_read_only(path.parent):
        return f"mount the disk of {path.parent} so that it can be written, or choose another with {option}"
    if not os.access(path.parent, os.W_OK):
        way = "make" if not path.parent.exists() else "let the broker's user write in"
        return f"{way} {path.parent}, or choose another with {option}"
    return "make room for it, see that its disk takes writes, and that no other program holds it"


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


# -- from nothing to a registry ---------------------------------------------------------------------------------------


def open_file(path: Path, room: Room = nullcontext) -> SqliteFile:
    """Opens the file, or makes it empty, and lets nobody else read it. Raises sqlite3.Error."""
    if path.is_dir():  # its rights have to stay
        raise sqlite3.OperationalError("it is a directory")
    _make_private(path)
    return SqliteFile(path, room)


def cannot_be_used(path: Path, error: Exception, option: str = "--data-dir") -> UsageError:
    """Returns the error of a file that was chosen with a command's option; NotYet if it may be used later."""
    kind = NotYet if may_pass(error, path) else UsageError
    return kind(f"{path}: cannot be used as the registry: {error}; {_way_out(path, error, option)}")


def prepare(db: SqliteFile, path: Path) -> None:
    """Adds to older tables what they lack. Raises UsageError if the file is of another format. Within a transaction."""
    (found,) = db.row("SELECT format FROM state")
    if found != _FORMAT and read_move(db) is None:
        raise UsageError(
            f"{path}: registry format {found} is not the format {_FORMAT} that this version reads; "
            "use the version of barnabas that wrote it"
        )
    db.execute(_DIRECTORIES)
    db.execute(_REGISTRATIONS)
    _prepare_secret(db)
    if not db.row(_HAS_PROCESSES)[0]:
        db.execute("DROP TABLE brokers")
        db.execute(_BROKERS)
    _add_column(db, "partitions", "unsettled", _UNSETTLED)
    _add_column(db, "state", "node_ids", _NODE_IDS)
    _prepare_incarnation(db)
    db.execute(_LEADER_CHANGES)
    db.execute(_SILENCES)


def _prepare_incarnation(db: SqliteFile) -> None:
    _add_column(db, "state", "incarnation", INCARNATION)
    db.execute(LOCKS)


def has_tables(db: SqliteFile) -> bool:
    return bool(db.row(_HAS_STATE)[0])


def make_tables(db: SqliteFile, content: RegistryContent) -> None:
    """Makes the tables anew, with this content. Within a transaction."""
    tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (name,) in tables:
        db.execute(f"DROP TABLE {name}")
    own = _DIRECTORIES, _REGISTRATIONS, _LEADER_CHANGES, _SILENCES, _SECRETS, _BROKERS
    for statement in (*own, *_SCHEMA.split(";")):
        db.execute(statement)
    image = content.image
    db.execute(
        insert("state", *_STATE_COLUMNS),
        (
            *(_FORMAT, image.cluster_id, image.version, image.version, image.controller_id, 0),
            *(image.controller_epoch, content.next_producer_id, content.node_ids),
        ),
    )
    _prepare_secret(db, content.secret)
    _prepare_incarnation(db)
    put_brokers(db, image.brokers.values())
    db.executemany(
        insert("directories", *DIRECTORY_COLUMNS),
        (
            (node_id, directory_id.bytes, path)
            for node_id, directories in content.directories.items()
            for directory_id, path in directories.items()
        ),
    )
    for node_id, registration in content.registrations.items():
        put_registration(db, node_id, registration)
    for topic in image.topics.values():
        insert_topic(db, topic)
    for kind, configs in (("topic_config", image.topic_configs), ("broker_config", image.broker_configs)):
        for resource, config in configs.items():
            insert_config(db, kind, resource, config)
    add_leader_changes(db, content.leader_changes)


def _add_column(db: SqliteFile, table: str, column: str, statement: str) -> None:
    if not any(row[1] == column for row in db.execute(f"PRAGMA table_info({table})")):
        db.execute(statement)


def _prepare_secret(db: SqliteFile, secret: bytes = b"") -> None:
    """Makes the secret of the cluster if there is none."""
    db.execute(_SECRETS)
    if not db.execute(_CLUSTER_SECRET).fetchall():
        db.execute(insert("secrets", "name", "value"), ("cluster", secret or os.urandom(_SECRET_BYTES)))


# -- reads ------------------------------------------------------------------------------------------------------------


def read_move(db: SqliteFile) -> Move | None:
    """Returns the mark of a registry that moves; None if brokers may use it, or nothing is known of its format."""
    (found,) = db.row("SELECT format FROM state")
    with suppress(ValueError):
        return Move.parse(found)
    return None


def set_move(db: SqliteFile, move: Move | None) -> None:
    db.execute("UPDATE state SET format = ?", (_FORMAT if move is None else move.encoded(),))


def read_state(db: SqliteFile) -> tuple[object, ...]:
    """Returns the numbers of which every write by brokers changes one."""
    return db.row("SELECT version, next_producer_id FROM state")


def read_content(db: SqliteFile) -> RegistryContent:
    """Returns everything. Within a transaction that prevents writes."""
    cluster_id, version, broker_epoch, controller_id, controller_epoch, next_producer_id, node_ids = db.row(
        "SELECT cluster_id, version, broker_epoch, controller_id, controller_epoch, next_producer_id, node_ids "
        "FROM state"
    )
    delta = MetadataDelta(MetadataImage(cluster_id))
    read_everything(db, delta)
    delta.controller_id, delta.controller_epoch = controller_id, controller_epoch
    directories: dict[BrokerId, dict[uuid.UUID, str]] = {}
    for node_id, directory_id, path in db.execute("SELECT node_id, directory_id, path FROM directories"):
        directories.setdefault(node_id, {})[uuid.UUID(bytes=directory_id)] = path
    return RegistryContent(
        delta.apply(max(version, broker_epoch)).image,
        next_producer_id,
        read_secret(db),
        directories,
        node_ids,
        tuple(read_leader_changes(db, MAX_LEADER_CHANGES)),
        read_registrations(db),
    )


def read_secret(db: SqliteFile) -> bytes:
    return bytes(db.row(_CLUSTER_SECRET)[0])


def read_leader_changes(db: SqliteFile, limit: int) -> list[LeaderChange]:
    """Returns the last rows, oldest first."""
    rows = db.execute(
        f"SELECT {', '.join(_LEADER_CHANGE_COLUMNS)}, ifnull(noticed_after_ms, 0) "
        "FROM leader_changes LEFT JOIN leader_silences USING (id) ORDER BY id DESC LIMIT ?",
        (max(limit, 0),),
    ).fetchall()
    return [LeaderChange(*row) for row in reversed(rows)]


def read_registrations(db: SqliteFile) -> dict[BrokerId, LastRegistration]:
    """Returns the last registration of each broker for which it is known: a release without ids may have registered the
    broker again since."""
    rows = db.execute(
        "SELECT node_id, registration_id, r.epoch FROM registrations r LEFT JOIN brokers b USING (node_id) "
        "WHERE b.epoch IS NULL OR b.epoch <= r.epoch"
    )
    return {BrokerId(node_id): LastRegistration(*found) for node_id, *found in rows}


def read_everything(db: SqliteFile, delta: MetadataDelta) -> None:
    """Puts all brokers, topics and settings."""
    delta.clear()
    for broker in read_brokers(db):
        delta.put_broker(broker)
    partitions: dict[str, list[PartitionImage]] = {}
    rows = db.execute(
        "SELECT topic, leader, leader_epoch, replicas, isr, partition_epoch, unsettled FROM partitions "
        "ORDER BY topic, number"
    )
    ids = IdLists()
    for topic, leader, leader_epoch, replicas, isr, partition_epoch, unsettled in rows:
        partition = PartitionImage(leader, leader_epoch, ids[replicas], ids[isr], partition_epoch)
        if unsettled:
            partition = PartitionImage(*partition[:5], *(ids[text] for text in unsettled.split("/")[:LISTS]))
        partitions.setdefault(topic, []).append(partition)
    for name, topic_id in db.execute("SELECT name, topic_id FROM topics"):
        delta.put_topic(TopicImage(name, uuid.UUID(bytes=topic_id), tuple(partitions[name])))
    configs: dict[tuple[str, str], dict[str, str]] = {}
    for kind, resource, name, value in db.execute("SELECT kind, resource, name, value FROM configs"):
        configs.setdefault((kind, resource), {})[name] = value
    for (kind, resource), config in configs.items():
        if kind == "topic_config":
            delta.set_topic_config(resource, config)
        elif kind == "broker_config":
            delta.set_broker_config(resource, config)


def read_brokers(db: SqliteFile) -> Iterator[BrokerImage]:
    rows = db.execute("SELECT node_id, epoch, endpoints, rack, fenced, peer_endpoint, process, returned FROM brokers")
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


def live_brokers(db: SqliteFile, locks: BrokerLocks) -> list[BrokerId]:
    """Returns the brokers that may be alive."""
    rows = db.execute(f"SELECT node_id, process, {HAS_LOCK} FROM brokers").fetchall()
    return [BrokerId(row[0]) for row in rows if locks.may_run(*row)]


# -- rows --------------------------------------------------------------------------------------------------------------


class IdLists(dict[str, tuple[BrokerId, ...]]):
    """Parses `1,2,3` to (1, 2, 3), once for each different text: 100,000 partitions have few different replica sets."""

    def __missing__(self, text: str) -> tuple[BrokerId, ...]:
        ids = tuple(BrokerId(int(node_id)) for node_id in text.split(",")) if text else ()
        self[text] = ids
        return ids


def insert(table: str, *columns: str, replaces: bool = False) -> str:
    """Returns the statement that inserts a row, whatever columns a later release has added."""
    verb = "INSERT OR REPLACE" if replaces else "INSERT"
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def partition_row(partition: PartitionImage) -> tuple[int, int, int, str, str, str]:
    replicas = ",".join(map(str, partition.replicas))
    isr = replicas if partition.isr == partition.replicas else ",".join(map(str, partition.isr))
    lists = partition[5:]
    unsettled = "/".join(",".join(map(str, ids)) for ids in lists) if any(lists) else ""
    return partition.leader, partition.leader_epoch, partition.partition_epoch, replicas, isr, unsettled


def _endpoints(text: str) -> tuple[Endpoint, ...]:
    return tuple(map(Endpoint.of_text, text.split()))


def texts(endpoints: Iterable[Endpoint]) -> str:
    return " ".join(endpoint.text for endpoint in endpoints)


def put_brokers(db: SqliteFile, brokers: Iterable[BrokerImage]) -> None:
    """Inserts registrations, or replaces those of the same brokers."""
    db.executemany(
        insert("brokers", *_BROKER_COLUMNS, replaces=True),
        [
            (
                *(broker.node_id, broker.epoch, broker.rack, texts(broker.endpoints)),
                "" if broker.peer_endpoint is None else broker.peer_endpoint.text,
                *(broker.process, int(broker.fenced), broker.returned),
            )
            for broker in brokers
        ],
    )


def put_registration(db: SqliteFile, node_id: BrokerId, registration: LastRegistration) -> None:
    db.execute(insert("registrations", "node_id", "registration_id", "epoch", replaces=True), (node_id, *registration))


def insert_topic(db: SqliteFile, topic: TopicImage) -> None:
    """Raises sqlite3.IntegrityError if there is a topic of that name."""
    db.execute(insert("topics", "name", "topic_id"), (topic.name, topic.topic_id.bytes))
    insert_partitions(db, topic.name, 0, topic.partitions)


def insert_partitions(db: SqliteFile, name: str, first: int, partitions: Iterable[PartitionImage]) -> None:
    db.executemany(
        insert("partitions", "topic", "number", *_PARTITION_COLUMNS),
        [(name, number, *partition_row(partition)) for number, partition in enumerate(partitions, first)],
    )


def insert_config(db: SqliteFile, kind: str, resource: str, config: Mapping[str, str]) -> None:
    db.executemany(
        insert("configs", "kind", "resource", "name", "value"),
        [(kind, resource, name, value) for name, value in config.items()],
    )


def add_leader_changes(db: SqliteFile, changes: Sequence[LeaderChange]) -> None:
    """Inserts the last of these rows, and deletes those that are too old."""
    changes = changes[-MAX_LEADER_CHANGES:]
    known = len(_LEADER_CHANGE_COLUMNS)
    db.executemany(insert("leader_changes", *_LEADER_CHANGE_COLUMNS), [change[:known] for change in changes])
    (last,) = db.row("SELECT ifnull(max(id), 0) FROM leader_changes")
    silences = [
        (row_id, change.noticed_after_ms)
        for row_id, change in enumerate(changes, last - len(changes) + 1)
        if change.noticed_after_ms
    ]
    db.executemany(insert("leader_silences", "id", "noticed_after_ms", replaces=True), silences)
    for table in ("leader_changes", "leader_silences"):
        db.execute(f"DELETE FROM {table} WHERE id <= ?", (last - MAX_LEADER_CHANGES,))
