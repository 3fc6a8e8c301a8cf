"""The small text files of a data directory, in Kafka's formats, each replaced as a whole.

Offset checkpoints (recovery points, log start offsets, high watermarks, cleaner): version, count, then a line
`topic partition offset` each. `leader-epoch-checkpoint`: the same with `epoch start_offset`. `partition.metadata` and
`meta.properties` are `key: value` and `key=value`. `.kafka_cleanshutdown` is JSON.
"""

import base64
import contextlib
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from barnabas.errors import DirectoryUnusable
from barnabas.log.directories.disk import fsync_directory
from barnabas.types import LeaderEpoch, Offset, TopicPartition

__all__ = [
    "CLEANER_CHECKPOINT",
    "CLEAN_SHUTDOWN",
    "HIGH_WATERMARK_CHECKPOINT",
    "LOG_START_CHECKPOINT",
    "METADATA_COPY",
    "META_PROPERTIES",
    "PARTITION_METADATA",
    "RECOVERY_CHECKPOINT",
    "RUNNING",
    "CorruptCheckpoint",
    "distrust_page_cache",
    "format_topic_id",
    "node_id_of",
    "parse_topic_id",
    "read_clean_shutdown",
    "read_epoch_checkpoint",
    "read_offset_checkpoint",
    "read_partition_metadata",
    "read_properties",
    "read_running",
    "remove_clean_shutdown",
    "replace_file",
    "write_clean_shutdown",
    "write_epoch_checkpoint",
    "write_offset_checkpoint",
    "write_partition_metadata",
    "write_properties",
    "write_running",
]

RECOVERY_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
METADATA_COPY: Final = "cluster-metadata-copy"
"""The metadata of the cluster, beside the logs of each of its brokers."""
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RUNNING: Final = "barnabas-running"
"""Records in which boot of the machine the logs were last verified or written, so that its page cache can be
trusted, and under which durability."""

_VERSION: Final = 0
_DISTRUST: Final = threading.Lock()
"""Held by the thread that distrusts the page cache of a directory."""


class CorruptCheckpoint(Exception):
    """A checkpoint file has an invalid format. Its content can be rebuilt from the logs."""


def replace_file(path: str, data: bytes | Callable[[int], bytes], *, sync: bool = True) -> None:
    """Replaces the file in one step: a reader finds the old or the new content, also after a crash.

    `data` may be a function that makes the content from the descriptor of the new file. `sync`: on the device before
    the call returns; without it a power loss may bring the old file back, or leave an empty one.
    """
    temporary = path + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data if isinstance(data, bytes) else data(fd))
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # the next call writes it anew
            os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    if sync:
        fsync_directory(os.path.dirname(path))


def _write_lines(path: str, lines: Sequence[str], *, sync: bool) -> None:
    text = "\n".join((str(_VERSION), str(len(lines)), *lines)) + "\n"
    replace_file(path, text.encode(), sync=sync)


def _read_lines(path: str) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error
    lines = text.splitlines()
    if not text.endswith("\n"):
        raise CorruptCheckpoint(f"{path}: its end is missing")
    if len(lines) < 2 or lines[0].strip() != str(_VERSION):
        raise CorruptCheckpoint(f"{path}: version {lines[0] if lines else 'missing'}, expected {_VERSION}")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if lines[1].strip() != str(len(entries)):
        raise CorruptCheckpoint(f"{path}: {len(entries)} entries, expected {lines[1]}")
    return entries


def read_offset_checkpoint(path: str) -> dict[TopicPartition, Offset]:
    """Returns offsets by partition; none if there is no file. Raises CorruptCheckpoint."""
    try:
        return {
            TopicPartition(topic, int(partition)): Offset(int(offset)) for topic, partition, offset in _read_lines(path)
        }
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def write_offset_checkpoint(path: str, offsets: Mapping[TopicPartition, Offset], *, sync: bool = True) -> None:
    _write_lines(path, [f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()], sync=sync)


def read_epoch_checkpoint(path: str) -> list[tuple[LeaderEpoch, Offset]]:
    """Returns (epoch, start offset) in order; none if there is no file. Raises CorruptCheckpoint."""
    try:
        return [(LeaderEpoch(int(epoch)), Offset(int(offset))) for epoch, offset in _read_lines(path)]
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def write_epoch_checkpoint(path: str, entries: Iterable[tuple[LeaderEpoch, Offset]], *, sync: bool = True) -> None:
    _write_lines(path, [f"{epoch} {offset}" for epoch, offset in entries], sync=sync)


def format_topic_id(topic_id: uuid.UUID) -> str:
    """Returns a UUID in Kafka's text form: URL-safe Base64 without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def parse_topic_id(text: str) -> uuid.UUID:
    """Parses Kafka's text form of a UUID. Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def read_partition_metadata(directory: str) -> uuid.UUID | None:
    """Returns the topic id of a log directory; None if the file is missing or a crash left it empty."""
    try:
        with open(f"{directory}/{PARTITION_METADATA}", encoding="utf-8", errors="replace") as file:
            fields = dict(line.partition(":")[::2] for line in file.read().splitlines())
        return parse_topic_id(fields["topic_id"].strip())
    except (FileNotFoundError, KeyError, ValueError):
        return None


def write_partition_metadata(directory: str, topic_id: uuid.UUID) -> None:
    """Writes the topic id without a sync: the registry has it too, and a thousand new topics should not wait for the
    device."""
    text = f"version: {_VERSION}\ntopic_id: {format_topic_id(topic_id)}"
    replace_file(f"{directory}/{PARTITION_METADATA}", text.encode(), sync=False)


def read_properties(path: str) -> dict[str, str]:
    """Reads `key=value` lines; none if there is no file. Raises DirectoryUnusable."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DirectoryUnusable(
            f"{path} cannot be read: {error.strerror}; mend the disk, or the permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise DirectoryUnusable(
            f"{path} is not a properties file: {error}; restore it from another directory"
        ) from error
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith(("#", "!")))
    return {key.strip(): value.strip() for key, _, value in pairs}


def node_id_of(properties: Mapping[str, str]) -> str:
    """Returns the node id in a meta.properties, under its old name if necessary; empty if there is none."""
    return properties.get("node.id", properties.get("broker.id", ""))


def write_properties(path: str, properties: Mapping[str, str]) -> None:
    text = "#\n" + "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
    replace_file(path, text.encode())


def read_clean_shutdown(data_dir: str) -> bool:
    """Returns whether the last process has closed all logs of the directory. Kafka's file counts too."""
    return os.path.exists(f"{data_dir}/{CLEAN_SHUTDOWN}")


def write_clean_shutdown(data_dir: str, broker_epoch: int) -> None:
    """Records that all logs of the directory are closed."""
    marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
    replace_file(f"{data_dir}/{CLEAN_SHUTDOWN}", marker.encode())


def remove_clean_shutdown(data_dir: str) -> None:
    """Removes the clean-shutdown file: the next start after a crash has to verify the logs."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{data_dir}/{CLEAN_SHUTDOWN}")
        fsync_directory(data_dir)


def read_running(data_dir: str) -> dict[str, str]:
    """Returns what `write_running` has written; nothing if the file is missing or damaged."""
    try:
        with open(f"{data_dir}/{RUNNING}", encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_running(data_dir: str, running: Mapping[str, str], *, sync: bool = True) -> None:
    replace_file(f"{data_dir}/{RUNNING}", json.dumps(running).encode(), sync=sync)


def distrust_page_cache(data_dir: str) -> None:
    """Makes the next start verify the device instead of the page cache, which may hold pages that were not written.

    The durability stays in the file, which is not synced: on the device is what another boot distrusts as well. Safe
    in any thread: when a disk fails, many syncs fail together.
    """
    with _DISTRUST:
        running = read_running(data_dir)
        durability = {name: value for name, value in running.items() if name == "durability"}
        if running and running == durability:
            return
        try:
            write_running(data_dir, durability, sync=False)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(f"{data_dir}/{RUNNING}")
