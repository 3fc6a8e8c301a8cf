"""A data directory: its lock, its identity, how its last process ended, and the logs in it.

Files, with Kafka's names and formats except for the last two: `.lock`, `meta.properties`, the offset checkpoints,
`.kafka_cleanshutdown`, `barnabas-running` (JSON: the boot that the logs were last verified or written in, and the
durability), `barnabas-registration` (`registration_mark.py`).
"""

import base64
import contextlib
import errno
import fcntl
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.errors import DirectoryUnusable, UsageError
from barnabas.log.directories.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_CHECKPOINT,
    CorruptCheckpoint,
    format_topic_id,
    node_id_of,
    parse_topic_id,
    read_clean_shutdown,
    read_offset_checkpoint,
    read_partition_metadata,
    read_properties,
    read_running,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_offset_checkpoint,
    write_properties,
    write_running,
)
from barnabas.log.directories.disk import is_there
from barnabas.log.directories.registration_mark import (
    RegistrationMark,
    read_registration_mark,
    write_registration_mark,
)
from barnabas.log.log_loader import LogState, Verification
from barnabas.out_of_memory import WAY_OUT
from barnabas.types import BrokerId, Offset, TopicPartition

__all__ = [
    "DELETE_SUFFIX",
    "FSYNC",
    "FUTURE_SUFFIX",
    "METADATA_TOPIC",
    "STRAY_SUFFIX",
    "WAYS_OUT",
    "Belongs",
    "DataDirectory",
    "LogDirectory",
    "aside_directory_name",
    "new_cluster_id",
    "parse_directory_name",
    "read_boot_id",
]

_log = logging.getLogger(__name__)

WAYS_OUT: Final = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or raise the quota",
    errno.EACCES: "let the broker's user write there, or choose another with --data-dir",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "raise the machine's limit on open files (fs.file-max)",
    errno.ENOMEM: WAY_OUT,
}
"""The advice for an operator about an error of the operating system."""

FSYNC: Final = "fsync"
_PAGE_CACHE: Final = "page-cache"
_LOCK: Final = ".lock"
DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
_IDENTITY: Final = frozenset((_LOCK, META_PROPERTIES, f"{META_PROPERTIES}.tmp", "lost+found"))
"""The names that are in a directory before its logs are opened, and at the mount point of an empty disk."""
_VERSIONS: Final = ("0", "1")
"""Those of meta.properties."""
_NAME_MAX: Final = 255
_PROBE: Final = "barnabas-probe"
_LOST: Final = (errno.EIO, errno.EROFS, errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOTDIR)
"""The errors of a disk that has failed or is not mounted any more."""
_SEGMENT: Final = re.compile(r"\d{20}\.log")
METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's own registry: a directory with this name is no log of a topic."""
_LOCKED: set[str] = set()
"""The real paths of the directories that this process has locked."""
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_CHECKPOINTS: Final = (RECOVERY_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)
_WITHOUT: Final = {
    RECOVERY_CHECKPOINT: "it is made anew; after a crash of the machine all logs here are read to their ends",
    LOG_START_CHECKPOINT: "it is made anew; what delete-records has removed may be there again: remove it once more",
    HIGH_WATERMARK_CHECKPOINT: "it is made anew; consumers wait until the leaders know what their followers have",
    CLEANER_CHECKPOINT: "it is made anew; compacted logs here are cleaned from their start",
}
"""The consequences of a checkpoint that is damaged."""


def read_boot_id() -> str:
    """Returns the kernel's id of this boot; empty if there is none: the page cache is not trusted then."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def new_cluster_id() -> str:
    """Returns a random id in Kafka's form: 22 characters of URL-safe Base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _directory_id(properties: Mapping[str, str]) -> uuid.UUID | None:
    """Returns the directory id in meta.properties; None if the file is older than directory ids."""
    try:
        return parse_topic_id(properties["directory.id"])
    except (KeyError, ValueError):
        return None


def parse_directory_name(name: str) -> TopicPartition | None:
    """Returns TopicPartition("flights", 3) for `flights-3`; None if the name is not that of a log."""
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not (partition.isascii() and partition.isdigit()):
        return None
    return TopicPartition(topic, int(partition))


def aside_directory_name(topic_partition: TopicPartition, suffix: str, unique: uuid.UUID | None = None) -> str:
    """Returns Kafka's name for a log that is not the current one: `flights-3.<32 hex digits>-delete`, cut to the length
    of file names."""
    ending = f"-{topic_partition.partition}.{(unique or uuid.uuid4()).hex}{suffix}"
    return topic_partition.topic[: _NAME_MAX - len(ending)] + ending


def _has_segments(path: str) -> bool:
    return any(_SEGMENT.fullmatch(name) for name in os.listdir(path))


Belongs = Callable[[TopicPartition, uuid.UUID | None], bool]
"""Returns whether the broker has this replica, by its name and by the topic id in its directory (None if lost)."""


class LogDirectory(NamedTuple):
    """The directory of one log."""

    topic_partition: TopicPartition
    path: str


class DataDirectory:
    """A data directory. It is locked while it is open: a second broker gets a UsageError."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.cluster_id = ""
        self.is_accepted = False
        """Whether the operator has accepted that records may be missing here: until clients are told so by new leader
        epochs, the disk must not say that the directory is current."""
        self.directory_id: uuid.UUID | None = None
        self.used = False
        """Whether a broker has used the directory: it has meta.properties. Known after `claim`."""
        self.mark = RegistrationMark()
        """The registrations of its broker that the directory knows. Known after `claim`."""
        self.mark_problem = ""
        """The problem with the file of the mark, if that says nothing."""
        self.is_old = False
        """Whether the directory has missed a registration, so that its logs may lack what the broker had. Set before
        `states`."""
        self.vanished: dict[TopicPartition, Offset] = {}
        """The offsets that the checkpoints have of logs that are not there. They stay in the checkpoints until these
        logs are made anew: a start that is killed before others know must find them again. Set before `states`."""
        self.may_have_lost_records = False
        """Whether records that were acknowledged may be missing, because the machine went down. Known after
        `states`."""
        self.is_cold = False
        """Whether the page cache has nothing of the logs: the machine went down since. Known after `states`."""
        self.may_have_unsynced_records = False
        """Whether records that were acknowledged may not be on the device. Known after `states`."""
        self.device = -1
        """The device of the file system, known after `open`."""
        self.has_failed = False
        """Whether `failure` has found last that the directory is lost."""
        self._is_in_place = True
        """Whether the directory's files were not replaced by copies, as far as the mark tells."""
        self._lock_fd = -1
        self._written: dict[str, Mapping[TopicPartition, Offset]] = {}
        """The content of the checkpoints that there are."""
        self._unsure: dict[str, Mapping[TopicPartition, Offset]] = {}
        """The offsets in checkpoints that are being written, or whose write has failed: the files may have them."""
        self._checkpoint_lock = threading.Lock()
        """Held by the thread that writes a checkpoint, through its syncs."""
        self._offsets_lock = threading.Lock()
        """Held while offsets are collected, and while `_written` and `_unsure` change: the event loop may wait."""

    def claim(self) -> None:
        """Locks the directory and reads its `directory.id`, if a broker has used it. Makes nothing otherwise: an empty
        directory may be a mount point. Raises UsageError."""
        with self._unlocked_after_errors():
            self.used = is_there(f"{self.path}/{META_PROPERTIES}")
            if self.used:
                self._lock()
                found = read_properties(f"{self.path}/{META_PROPERTIES}")
                self.directory_id = _directory_id(found)
                self._check_whole(found)
                self.mark, self._is_in_place, self.mark_problem = read_registration_mark(self.path)

    def _check_whole(self, found: Mapping[str, str]) -> None:
        """Raises UsageError for a meta.properties that is damaged: under another identity the records do not count."""
        is_whole = bool(node_id_of(found)) and found.get("version") in _VERSIONS
        if not is_whole or (self.directory_id is None and "directory.id" in found):
            raise UsageError(
                f"{self.path}/{META_PROPERTIES} is damaged: write it anew with the lines version=1, node.id=... and "
                "cluster.id=... of this broker, and directory.id=... as it was; without that line a start names it"
            )

    def open(self, *, cluster_id: str | None, node_id: BrokerId) -> None:
        """Locks the directory, makes it if necessary, and checks that it belongs to this broker. Raises UsageError."""
        with self._unlocked_after_errors():
            os.makedirs(self.path, exist_ok=True)
            self.device = os.stat(self.path).st_dev
            self._lock()
            self._load_identity(cluster_id, node_id)

    @contextlib.contextmanager
    def _unlocked_after_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.unlock()
            way_out = "give one that this user may write to"
            if error.errno in (errno.EMFILE, errno.ENFILE):
                way_out = WAYS_OUT[error.errno]
            raise DirectoryUnusable(
                f"data directory {self.path} cannot be used: {error.strerror}; {way_out}"
            ) from error
        except UsageError:
            self.unlock()
            raise

    def _lock(self) -> None:
        if self._lock_fd >= 0:
            return
        in_use = UsageError(
            f"data directory {self.path} is in use by another broker (it holds {self.path}/{_LOCK}); "
            "stop that broker or give another directory"
        )
        # closing any descriptor of a file releases the process's lockf lock on it: check before opening
        real_path = os.path.realpath(self.path)
        if real_path in _LOCKED:
            raise in_use
        fd = os.open(f"{self.path}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as Apache Kafka does
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise in_use from error
        self._lock_fd = fd
        _LOCKED.add(real_path)

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1
            _LOCKED.discard(os.path.realpath(self.path))

    def check_identity(self, cluster_id: str | None, node_id: BrokerId) -> dict[str, str]:
        """Returns meta.properties. Raises UsageError if they are those of another cluster or broker."""
        path = f"{self.path}/{META_PROPERTIES}"
        found = read_properties(path)
        stored_node, stored_cluster = node_id_of(found), found.get("cluster.id")
        if stored_cluster and cluster_id and stored_cluster != cluster_id:
            raise DirectoryUnusable(
                f"{path} says cluster.id={stored_cluster}, the broker has {cluster_id}; use a directory of this cluster"
            )
        if stored_node and stored_node != str(node_id):
            raise DirectoryUnusable(
                f"{path} says node.id={stored_node}, the broker has {node_id}; use its own data directory, or start it "
                f"with --node-id {stored_node}"
            )
        return found

    def _load_identity(self, cluster_id: str | None, node_id: BrokerId) -> None:
        found = self.check_identity(cluster_id, node_id)
        self.cluster_id = found.get("cluster.id") or cluster_id or new_cluster_id()
        self.directory_id = _directory_id(found) or uuid.uuid4()
        wanted = found | {
            "cluster.id": self.cluster_id,
            "directory.id": format_topic_id(self.directory_id),
            "node.id": str(node_id),
            "version": "1",
        }
        if wanted != found:
            write_properties(f"{self.path}/{META_PROPERTIES}", wanted)

    def failure(self) -> OSError | None:
        """Writes a file to the disk, and returns the error by which the whole directory is lost; None for others, such
        as a full disk. Blocks; safe in any thread."""
        path = f"{self.path}/{_PROBE}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                os.write(fd, b"1")
                os.fsync(fd)
            finally:
                os.close(fd)
            os.unlink(path)
        except OSError as error:
            self.has_failed = error.errno in _LOST
            return error if self.has_failed else None
        self.has_failed = False
        return None

    # -- how the last process ended ------------------------------------------------------------------------------------

    def states(self, boot_id: str) -> Callable[[TopicPartition], LogState]:
        """Returns a function that tells the state of each log before it is opened."""
        running = read_running(self.path)
        was_synced = running.pop("durability", _PAGE_CACHE) == FSYNC
        is_original = self._is_in_place and not self.is_old
        trusted = bool(boot_id) and is_original and running == self._running(boot_id)
        self.is_cold = self.used and not trusted
        verification = Verification.TAIL if trusted else Verification.FULL
        if read_clean_shutdown(self.path) and not self.is_old:
            verification = Verification.NONE
        was_crash = self.used and verification is Verification.FULL
        # what an old directory lacks is told by its replicas, not by the whole broker
        self.may_have_lost_records = was_crash and not self.is_old and not (was_synced and self._is_in_place)
        self.may_have_unsynced_records = verification is not Verification.NONE and not was_synced
        recovery_points = self._checkpoint(RECOVERY_CHECKPOINT)
        starts = self._checkpoint(LOG_START_CHECKPOINT)
        high_watermarks = self._checkpoint(HIGH_WATERMARK_CHECKPOINT)
        cleaned = self._checkpoint(CLEANER_CHECKPOINT)

        def state(tp: TopicPartition) -> LogState:
            recovery_point, start = recovery_points.get(tp, Offset(0)), starts.get(tp, Offset(0))
            return LogState(
                verification, trusted, recovery_point, start, high_watermarks.get(tp, Offset(0)), cleaned.get(tp)
            )

        return state

    def _running(self, boot_id: str) -> dict[str, str]:
        # a copy of the directory has another inode: what was being written while it was copied is not to be trusted
        status = os.stat(self.path)
        return {"bootId": boot_id, "directory": f"{status.st_dev}:{status.st_ino}"}

    def mark_running(self, boot_id: str, durability: str) -> None:
        """Records that all logs are verified: a crash of the process leaves all but their ends intact.

        `durability` tells the start after a loss of power whether what this process acknowledges can be lost. That
        start may have another setting.
        """
        remove_clean_shutdown(self.path)
        write_running(self.path, {**self._running(boot_id), "durability": durability})

    def mark_clean(self, broker_epoch: int) -> None:
        """Records that all logs are closed."""
        write_clean_shutdown(self.path, broker_epoch)

    # -- the registrations of the broker -------------------------------------------------------------------------------

    def note_next_registration(self, next_id: str, recorded: str) -> None:
        """Notes the id of a registration before it is made. `recorded` is the one that the registry has recorded last.
        Blocks for a sync. Raises OSError."""
        mark = self.mark
        if mark.next_id and mark.next_id == recorded:  # the last process was killed before it could note that
            mark = mark._replace(registration_id=recorded)
        self.mark = mark._replace(next_id=next_id)
        # a copy is one until all of it is verified, and others know what may be lost
        if not self.is_accepted:
            write_registration_mark(self.path, self.mark, in_place=self._is_in_place)

    def note_registration(self, broker_epoch: int) -> None:
        """Notes that the registration was made. Blocks for a sync. Raises OSError."""
        self.mark = RegistrationMark(self.mark.next_id, "", broker_epoch)
        write_registration_mark(self.path, self.mark)

    def was_never_opened(self) -> bool:
        """Returns whether a broker has used the directory, but no start came any further than to write its identity."""
        return self.used and set(os.listdir(self.path)) <= _IDENTITY

    # -- logs and checkpoints ------------------------------------------------------------------------------------------

    def log_names(self) -> set[TopicPartition]:
        """Returns the partitions with a log here by the names of their directories."""
        return set(filter(None, map(parse_directory_name, os.listdir(self.path)))) if self.used else set()

    def checkpointed_logs(self) -> dict[TopicPartition, Offset]:
        """Returns the partitions of which the checkpoints say that they had records here, with the offsets behind the
        last ones."""
        if not self.used:
            return {}
        one, other = (self._checkpoint(name) for name in (RECOVERY_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT))
        return {tp: offset for tp, offset in _highest(one, other).items() if offset > 0}

    def named_logs(self) -> Iterator[tuple[TopicPartition, uuid.UUID | None]]:
        """Yields the partitions with a log here by the names of their directories, and their topic ids. Raises
        OSError."""
        try:
            with os.scandir(self.path) as entries:
                paths = sorted((entry.name, entry.path) for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, path in paths:
            topic_partition = parse_directory_name(name)
            if topic_partition is not None:
                yield topic_partition, read_partition_metadata(path)

    def log_directories(self, belongs: Belongs | None) -> tuple[list[LogDirectory], list[LogDirectory]]:
        """Returns the logs of the directory for which `belongs` returns True, all without it, and the others.

        Kafka's own metadata log, and files that are only named like a log, are none. Raises OSError.
        """
        with os.scandir(self.path) as entries:
            named = sorted((entry.name, entry.path) for entry in entries if entry.is_dir())
        found, strays = [], []
        for name, path in named:
            tp = parse_directory_name(name)
            if tp is None or tp.topic == METADATA_TOPIC:
                continue
            topic_id = read_partition_metadata(path)
            if belongs is not None and belongs(tp, topic_id):
                found.append(LogDirectory(tp, path))
            elif topic_id is None and not _has_segments(path):
                continue
            elif belongs is None:
                found.append(LogDirectory(tp, path))
            else:
                strays.append(LogDirectory(tp, path))
        return found, strays

    def put_aside(self, log: LogDirectory, why: str) -> None:
        """Renames the directory of a log that is not used to Kafka's name for such ones, `-stray`, and keeps its
        records. Raises OSError."""
        aside = f"{self.path}/{aside_directory_name(log.topic_partition, STRAY_SUFFIX)}"
        os.rename(log.path, aside)
        _log.warning("%s %s: renamed to %s; remove it if nobody wants it", log.path, why, aside)

    def deleted_directories(self) -> list[str]:
        """Returns the logs whose deletion the last process has not completed."""
        return [f"{self.path}/{name}" for name in os.listdir(self.path) if name.endswith(DELETE_SUFFIX)]

    def _checkpoint(self, name: str) -> Mapping[TopicPartition, Offset]:
        path = f"{self.path}/{name}"
        try:
            found = read_offset_checkpoint(path)
        except CorruptCheckpoint as error:
            found = self._unsure[name] = {}  # it is written anew, whatever its content
            _log.warning("%s; %s", error, _WITHOUT[name])
        if is_there(path):
            self._written[name] = found
        return found

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is any checkpoint, known after `states`."""
        return bool(self._written)

    def write_checkpoint(
        self,
        name: str,
        offsets: Callable[[], Mapping[TopicPartition, Offset]],
        *,
        sync: bool,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """Replaces an offset checkpoint if its content has changed. `before` is called when its offsets are known.
        Safe in any thread. Raises OSError."""
        with self._checkpoint_lock:
            with self._offsets_lock:
                wanted = offsets()
                failed = self._unsure.get(name)
                is_current = failed is None and self._written.get(name) == wanted
                if not is_current:
                    self._unsure[name] = wanted if failed is None else _highest(failed, wanted)
            before()
            if not is_current:
                self._write(name, wanted, sync=sync)

    def lower_checkpoints(
        self,
        topic_partition: TopicPartition,
        end: Offset,
        *,
        keep: Callable[[TopicPartition], bool] = lambda _: True,
    ) -> None:
        """Lowers the offsets of a partition in the checkpoints to the end of its log. They are of other records there,
        and would be taken for those that are written next.

        The log must have no higher ones either: a thread may collect them at any time. If an offset is above, this
        blocks for a sync, and the entries of partitions for which `keep` returns False go as well. Raises OSError.
        """
        with self._offsets_lock:
            if not any(self._may_be_above(name, topic_partition, end) for name in _CHECKPOINTS):
                return
        with self._checkpoint_lock:
            for name in _CHECKPOINTS:
                if self._may_be_above(name, topic_partition, end):
                    kept = {tp: offset for tp, offset in self._written.get(name, {}).items() if keep(tp)}
                    self._write(name, {**kept, topic_partition: end}, sync=True)

    def _may_be_above(self, name: str, topic_partition: TopicPartition, end: Offset) -> bool:
        return any(known.get(name, {}).get(topic_partition, end) > end for known in (self._written, self._unsure))

    def _write(self, name: str, offsets: Mapping[TopicPartition, Offset], *, sync: bool) -> None:
        before = (self._written.get(name, {}), self._unsure.get(name, {}))
        # a power loss must not bring back what goes down, or goes
        is_lower = any(offsets.get(tp, -1) < offset for known in before for tp, offset in known.items())
        write_offset_checkpoint(f"{self.path}/{name}", offsets, sync=sync or is_lower)
        with self._offsets_lock:
            self._written[name] = offsets
            self._unsure.pop(name, None)


def _highest(
    first: Mapping[TopicPartition, Offset], second: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset]:
    return {**first, **{tp: max(offset, first.get(tp, offset)) for tp, offset in second.items()}}
