"""The registry in one SQLite file: for one broker, or for several broker processes on one machine.

A write survives a killed process. Topics, settings, leaders and producer ids also survive a power loss, because they
are written with `synchronous=FULL` (one fsync each).

Other processes see a write at their next call: `check` and `load` look at SQLite's data version (3 µs), and `check`
calls the watchers. A session ends with its process, which the kernel tells for certain: by its table of processes
(`processes.py`), and in other containers by a lock beside the file (`broker_locks.py`).

Only the owner of the file can read it, because it has the secret of the cluster.
"""

import logging
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final, Literal

from barnabas.config.endpoints import Endpoint
from barnabas.errors import UsageError
from barnabas.log.directories.data_directory import new_cluster_id, read_boot_id
from barnabas.metadata.delta import MetadataChange, MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.registry import embedded_tables as tables
from barnabas.registry.broker_locks import BrokerLocks
from barnabas.registry.content import RegistryContent
from barnabas.registry.incarnation import HAS_LOCK, settle_incarnation
from barnabas.registry.processes import describe_process, is_running, is_visible
from barnabas.registry.registry import (
    PRODUCER_IDS_BLOCK,
    AddPartitions,
    BrokerRegistration,
    Change,
    CreateTopic,
    DeleteTopic,
    Evidence,
    Known,
    LastRegistration,
    LeaderChange,
    ProducerIdBlock,
    Registry,
    RegistryUnavailable,
    RemoveBroker,
    SetBrokerConfig,
    SetFenced,
    SetPartition,
    SetTopicConfig,
    Superseded,
)
from barnabas.registry.sqlite_file import Room
from barnabas.types import BrokerId

__all__ = ["EmbeddedRegistry"]

_CHANGES_KEPT: Final = 10_000

_log = logging.getLogger("barnabas.registry")

_Kind = Literal["topic", "topic_config", "broker_config", "broker", "none"]


class _Refused(Exception):
    """A condition of a write does not hold: the transaction rolls back."""


class EmbeddedRegistry(Registry):
    """The registry in an SQLite file. Each broker process makes its own object with the path of the same file."""

    max_changes_per_write = 100_000
    max_leader_changes = tables.MAX_LEADER_CHANGES

    def __init__(
        self,
        path: Path,
        *,
        founding: RegistryContent | None = None,
        room: Room = nullcontext,
        is_running: Callable[[str], bool] = is_running,
        node_id: int | None = None,
        boot: str | None = None,
    ) -> None:
        """Opens the file, or makes it (about 3 ms) with the content of `founding`. `room` makes the context in which
        writes find space on a full disk, except for new topics and partitions. `is_running` says whether the process of
        a registration may be alive. `node_id` is that of a broker that opens the file to register, `boot` another boot
        than that of this machine. Raises UsageError if the file cannot be opened, is no registry, or one that has been
        moved to another store."""
        self._path = path
        self._locks = BrokerLocks(path, is_running)
        self._watchers: list[Callable[[], None]] = []
        self._node_id: int | None = None
        self._epoch = 0
        try:
            self._db = tables.open_file(path, room)
            if node_id is not None:
                self._locks.hold(node_id)  # before others look whether anybody uses the file, which is there by now
            content = founding or RegistryContent(MetadataImage(new_cluster_id(), version=1))
            with self._db.transaction(durable=bool(content.image.topics or content.image.broker_configs)):
                if tables.has_tables(self._db):
                    tables.prepare(self._db, path)
                else:
                    tables.make_tables(self._db, content)
                move = tables.read_move(self._db)
                self._incarnation = settle_incarnation(self._db, read_boot_id() if boot is None else boot, self._locks)
            self._data_version = self._db.data_version()
        except (sqlite3.Error, RegistryUnavailable) as error:
            self._locks.release()
            raise tables.cannot_be_used(path, error) from None
        if move is not None:
            self.abandon()
            raise UsageError(f"{path}: cannot be used as the registry: {move.refusal(str(path))}")

    @contextmanager
    def _writing(self, *, with_room: bool = True) -> Iterator[None]:
        """A transaction that writes, unless the registry has been moved since it was opened, or is an older one."""
        known = self._known()
        with self._db.transaction(with_room=with_room):
            self._refuse_unusable(known)
            yield

    def _refuse_unusable(self, known: Known) -> None:
        version, controller_epoch = self._db.row("SELECT version, controller_epoch FROM state")
        if known.is_newer_than(version, controller_epoch):
            self._refuse_outdated(str(self._path), version, controller_epoch, known)
        if (move := tables.read_move(self._db)) is not None:
            raise RegistryUnavailable(f"the registry {self._path} cannot be used: {move.refusal(str(self._path))}")

    # -- what is there ----------------------------------------------------------------------------------------------

    def load(self, previous: MetadataImage | None = None) -> MetadataChange:
        known = self._known()
        with self._db.reading():
            cluster_id, version, controller_id, controller_epoch = self._db.row(
                "SELECT cluster_id, version, controller_id, controller_epoch FROM state"
            )
            if known.is_newer_than(version, controller_epoch):
                self._refuse_outdated(str(self._path), version, controller_epoch, known)
            self._note_read(version, controller_epoch)
            base = previous if previous is not None and previous.cluster_id == cluster_id else MetadataImage(cluster_id)
            if base.version == version:
                return MetadataChange(base)
            delta = MetadataDelta(base)
            changed = self._changed_since(base.version) if base.version else None
            if changed is None:
                tables.read_everything(self._db, delta)
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

    def _read_changed(self, delta: MetadataDelta, changed: Mapping[_Kind, list[str]]) -> None:
        if "broker" in changed:
            present = {broker.node_id: broker for broker in tables.read_brokers(self._db)}
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

    def _topic(self, name: str) -> TopicImage | None:
        row = self._db.execute("SELECT topic_id FROM topics WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        rows = self._db.execute(
            "SELECT leader, leader_epoch, replicas, isr, partition_epoch, unsettled FROM partitions "
            "WHERE topic = ? ORDER BY number",
            (name,),
        )
        ids = tables.IdLists()
        partitions = tuple(
            PartitionImage(
                *(leader, leader_epoch, ids[replicas], ids[isr], partition_epoch),
                *((ids[text] for text in unsettled.split("/")[: tables.LISTS]) if unsettled else ()),
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

    def loss(self) -> str:
        return self._outdated if self._outdated or self._db.is_at_path() else f"{self._path} was removed or replaced"

    def space(self) -> tuple[int, int]:
        try:
            disk = os.statvfs(self._path)
        except OSError:  # the file was moved, or its disk fails: others tell that
            return 0, 0
        return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize

    def _hint(self) -> None:
        for callback in self._watchers:
            callback()

    def cluster_secret(self) -> bytes:
        with self._db.reading():
            return tables.read_secret(self._db)

    def incarnation(self) -> str:
        return self._incarnation

    # -- sessions ---------------------------------------------------------------------------------------------------

    def session(self, node_id: int, directories: Iterable[str] = ()) -> Evidence:
        if not self._locks.hold(node_id):
            return Evidence.RUNS
        with self._db.reading():
            return self._former(node_id)[0]

    def _former(self, node_id: int) -> tuple[Evidence, str, str]:
        """Returns what is certain about another process that has registered as this broker, whose lock is held here or
        nowhere, with its process and its text for `BrokerImage.returned`."""
        row = self._db.execute(
            f"SELECT process, {HAS_LOCK}, CASE WHEN fenced THEN returned ELSE '' END FROM brokers WHERE node_id = ?",
            (node_id,),
        ).fetchone()
        if row is None:
            return Evidence.ENDED, "", ""
        process, has_lock, returned = row
        if has_lock and not is_visible(process) and self._locks.holds(node_id):
            return Evidence.ENDED, process, returned
        return self._locks.evidence(node_id, process, has_lock), process, returned

    def directories(self, node_id: int) -> Mapping[uuid.UUID, str]:
        with self._db.reading():
            return self._directories(node_id)

    def _directories(self, node_id: int) -> dict[uuid.UUID, str]:
        rows = self._db.execute("SELECT directory_id, path FROM directories WHERE node_id = ?", (node_id,))
        return {uuid.UUID(bytes=directory_id): path for directory_id, path in rows}

    def last_registration(self, node_id: int) -> LastRegistration:
        with self._db.reading():
            return tables.read_registrations(self._db).get(BrokerId(node_id), LastRegistration())

    def register_broker(self, registration: BrokerRegistration, *, upon: int | None = None) -> int | None:
        node_id = registration.node_id
        if not self._locks.hold(node_id):
            return None
        with self._writing():
            if upon is not None and self._db.row("SELECT version FROM state")[0] != upon:
                raise Superseded
            recorded = self._directories(node_id)
            former, process, before = self._former(node_id)
            if process != registration.process and not registration.may_replace(former, recorded):
                return None
            if former is Evidence.UNSEEN:
                _log.warning(
                    "broker %d takes over from %s, which cannot be seen and held no lock: its release is older, or "
                    "%s is gone; see that it has ended",
                    *(node_id, describe_process(process), self._locks.path(node_id)),
                )
            if recorded != registration.directories:
                self._set_directories(node_id, registration.directories)
            returned = registration.returned(recorded, before)
            epoch = int(self._db.row("UPDATE state SET broker_epoch = broker_epoch + 1 RETURNING broker_epoch")[0])
            others = self._db.row("SELECT count(*) FROM brokers WHERE node_id != ?", (node_id,))[0]
            broker = BrokerImage(
                BrokerId(node_id),
                epoch,
                registration.endpoints,
                registration.rack,
                others > 0,
                registration.peer_endpoint,
                registration.process,
                returned,
            )
            tables.put_brokers(self._db, [broker])
            tables.put_registration(self._db, broker.node_id, LastRegistration(registration.registration_id, epoch))
            if self._locks.holds(node_id):
                self._db.execute(tables.insert("locks", "node_id", "epoch", replaces=True), (node_id, epoch))
            self._record([("broker", str(node_id))])
        self._node_id, self._epoch = node_id, epoch
        self._hint()
        return epoch

    def set_peer_endpoint(self, endpoint: Endpoint) -> None:
        with self._writing():
            self._db.execute(
                "UPDATE brokers SET peer_endpoint = ? WHERE node_id = ? AND epoch = ?",
                (tables.texts((endpoint,)), self._node_id, self._epoch),
            )
            self._record([("broker", str(self._node_id))])
        self._hint()

    def announce_brokers(self, node_ids: Iterable[int]) -> None:
        with self._writing():
            known = {broker.node_id for broker in tables.read_brokers(self._db)}
            added = [BrokerId(node_id) for node_id in node_ids if node_id not in known]
            tables.put_brokers(self._db, [BrokerImage(node_id, 0, (), fenced=True) for node_id in added])
            if added:
                self._record([("broker", str(node_id)) for node_id in added])
        self._hint()

    def _set_directories(self, node_id: int, directories: Mapping[uuid.UUID, str]) -> None:
        self._db.execute("DELETE FROM directories WHERE node_id = ?", (node_id,))
        self._db.executemany(
            tables.insert("directories", *tables.DIRECTORY_COLUMNS),
            [(node_id, directory_id.bytes, path) for directory_id, path in directories.items()],
        )

    def dead_brokers(self) -> list[tuple[BrokerId, int]]:
        with self._db.reading():
            columns = f"node_id, epoch, process, {HAS_LOCK}"
            rows = self._db.execute(f"SELECT {columns} FROM brokers WHERE NOT fenced").fetchall()
            return [
                (BrokerId(node_id), epoch)
                for node_id, epoch, process, has_lock in rows
                if not self._locks.may_run(node_id, process, has_lock)
            ]

    def has_session(self, node_id: BrokerId, epoch: int) -> bool:
        with self._db.reading():
            return self._may_be_alive(node_id, epoch)

    def end_session(self) -> None:
        if self._node_id is None:
            return
        node_id, self._node_id = self._node_id, None
        with self._writing():  # durable: copies of the metadata must not be ahead of it after a loss of power
            ended = self._db.execute(
                "UPDATE brokers SET fenced = 1, process = '' WHERE node_id = ? AND epoch = ?", (node_id, self._epoch)
            ).rowcount
            if ended:
                self._db.execute("UPDATE state SET controller_id = -1 WHERE controller_id = ?", (node_id,))
                self._record([("broker", str(node_id))])
        self._locks.release()
        self._hint()

    # -- controller -------------------------------------------------------------------------------------------------

    def elect_controller(self) -> int | None:
        if self._node_id is None:
            return None
        known = self._known()
        with self._db.reading():  # a process that stands still may have the lock for writing
            self._refuse_unusable(known)
            if self._has_another_controller():
                return None
        with self._writing():
            registered = self._db.row(
                "SELECT count(*) FROM brokers WHERE node_id = ? AND epoch = ?", (self._node_id, self._epoch)
            )
            if not registered[0] or self._has_another_controller():
                return None
            controller_id, broker_epoch, controller_epoch = self._controller()
            if controller_id == self._node_id and broker_epoch == self._epoch:
                return controller_epoch
            self._db.execute(
                "UPDATE state SET controller_id = ?, controller_broker_epoch = ?, controller_epoch = ?",
                (self._node_id, self._epoch, controller_epoch + 1),
            )
            self._record([])
        self._hint()
        return controller_epoch + 1

    def _controller(self) -> tuple[int, int, int]:
        """Returns the node id and the broker epoch of the controller, and its controller epoch."""
        return self._db.row("SELECT controller_id, controller_broker_epoch, controller_epoch FROM state")

    def _has_another_controller(self) -> bool:
        controller_id, broker_epoch, _ = self._controller()
        return controller_id not in (-1, self._node_id) and self._may_be_alive(controller_id, broker_epoch)

    def resign(self) -> None:
        if self._node_id is None:
            return
        with self._writing():
            freed = self._db.execute(
                "UPDATE state SET controller_id = -1 WHERE controller_id = ? AND controller_broker_epoch = ?",
                (self._node_id, self._epoch),
            ).rowcount
            if freed:
                self._record([])
        self._hint()

    def _may_be_alive(self, node_id: int, epoch: int) -> bool:
        row = self._db.execute(
            f"SELECT process, {HAS_LOCK} FROM brokers WHERE node_id = ? AND epoch = ?", (node_id, epoch)
        ).fetchone()
        return row is not None and self._locks.may_run(node_id, *row)

    def write(
        self, changes: Sequence[Change], *, controller_epoch: int, leader_changes: Sequence[LeaderChange] = ()
    ) -> bool:
        assert len(changes) <= self.max_changes_per_write, len(changes)
        touched: list[tuple[_Kind, str]] = []
        grows = any(isinstance(change, CreateTopic | AddPartitions) for change in changes)
        try:
            with self._writing(with_room=not grows):
                if self._db.row("SELECT controller_epoch FROM state")[0] != controller_epoch:
                    raise _Refused
                for change in changes:
                    touched.append(self._apply(change))
                    if isinstance(change, CreateTopic | DeleteTopic):
                        touched.append(("topic_config", change.name))
                self._record(touched)
                if leader_changes:
                    tables.add_leader_changes(self._db, leader_changes)
        except _Refused:
            return False
        self._hint()
        return True

    def leader_changes(self, limit: int) -> list[LeaderChange]:
        with self._db.reading():
            return tables.read_leader_changes(self._db, limit)

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
                tables.insert_partitions(self._db, change.name, change.first, change.partitions)
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
            tables.insert_topic(self._db, TopicImage(change.name, change.topic_id, change.partitions))
        except sqlite3.IntegrityError:
            raise _Refused from None
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
            (*tables.partition_row(partition), change.name, change.partition_index, change.expected_partition_epoch),
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

    def _set_config(self, kind: _Kind, resource: str, config: Mapping[str, str]) -> None:
        self._db.execute("DELETE FROM configs WHERE kind = ? AND resource = ?", (kind, resource))
        tables.insert_config(self._db, kind, resource, config)

    # -- producer ids -----------------------------------------------------------------------------------------------

    def allocate_producer_ids(self, size: int = PRODUCER_IDS_BLOCK) -> ProducerIdBlock:
        with self._writing():
            after = self._db.row(
                "UPDATE state SET next_producer_id = next_producer_id + ? RETURNING next_producer_id", (size,)
            )[0]
            self._record([])
        self._hint()
        return ProducerIdBlock(int(after) - size, size)

    def abandon(self) -> None:
        self._watchers.clear()
        self._db.close()
        self._locks.release()

    def _record(self, touched: Iterable[tuple[_Kind, str]]) -> None:
        """Counts the write and records what it changed, so that `load` need not read everything."""
        version = self._db.row("UPDATE state SET version = version + 1 RETURNING version")[0]
        # A row is written even if no name changed: a gap in the versions would mean "no longer known".
        rows: list[tuple[int, _Kind, str]] = [(version, kind, name) for kind, name in touched]
        rows = rows or [(version, "none", "")]
        self._db.executemany(tables.insert("changes", "version", "kind", "name"), rows)
        if version % 1000 == 0:
            self._db.execute("DELETE FROM changes WHERE version <= ?", (version - _CHANGES_KEPT,))
