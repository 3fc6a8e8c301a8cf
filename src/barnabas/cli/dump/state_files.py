"""Dumps the small files of a log directory: `.txnindex`, `.snapshot`, checkpoints, and those with properties."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from barnabas.cli.dump.items import Item, problem
from barnabas.log.directories.checkpoints import (
    CorruptCheckpoint,
    parse_topic_id,
    read_epoch_checkpoint,
    read_offset_checkpoint,
    read_properties,
)
from barnabas.log.directories.disk import Disk
from barnabas.log.indexes.transaction_index import CorruptTransactionIndex, TransactionIndex
from barnabas.log.producers.producer_snapshot import CorruptSnapshot, read_snapshot

__all__ = [
    "OFFSET_CHECKPOINTS",
    "dump_epochs",
    "dump_offsets",
    "dump_partition_metadata",
    "dump_properties",
    "dump_snapshot",
    "dump_transaction_index",
]

SNAPSHOT_HEADER: Final = 10
SNAPSHOT_ENTRY: Final = 46
OFFSET_CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def _reports_damage(dump: Callable[[str], Iterator[Item]]) -> Callable[[str], Iterator[Item]]:
    """Decorates a function so that a damaged file is a problem."""

    def dump_or_report(path: str) -> Iterator[Item]:
        try:
            yield from dump(path)
        except (CorruptCheckpoint, CorruptSnapshot, CorruptTransactionIndex) as error:
            yield problem(path, 0, str(error).removeprefix(f"{path}: "))

    return dump_or_report


@_reports_damage
def dump_transaction_index(path: str) -> Iterator[Item]:
    index = TransactionIndex.load(path, Disk())
    size = os.path.getsize(path) // max(len(index), 1)
    for number, entry in enumerate(index.entries):
        yield {"type": "entry", "file": path, "position": number * size, **entry._asdict()}


@_reports_damage
def dump_snapshot(path: str) -> Iterator[Item]:
    for number, entry in enumerate(read_snapshot(path)):
        position = SNAPSHOT_HEADER + number * SNAPSHOT_ENTRY
        yield {"type": "entry", "file": path, "position": position, **entry._asdict()}


@_reports_damage
def dump_epochs(path: str) -> Iterator[Item]:
    """Epochs and their start offsets must go up."""
    before = (-1, -1)
    for epoch, start_offset in read_epoch_checkpoint(path):
        yield {"type": "entry", "file": path, "epoch": epoch, "start_offset": start_offset}
        if epoch <= before[0] or start_offset < before[1]:
            message = f"epoch {epoch} from {start_offset} does not follow epoch {before[0]} from {before[1]}"
            yield problem(path, 0, message)
        before = (epoch, start_offset)


@_reports_damage
def dump_offsets(path: str) -> Iterator[Item]:
    for (topic, partition), offset in read_offset_checkpoint(path).items():
        yield {"type": "entry", "file": path, "topic": topic, "partition": partition, "offset": offset}


def dump_partition_metadata(path: str) -> Iterator[Item]:
    fields = dict(line.partition(":")[::2] for line in Path(path).read_text(errors="replace").splitlines())
    text = fields.get("topic_id", "").strip()
    try:
        topic_id = str(parse_topic_id(text))
    except ValueError:
        yield problem(path, 0, f"topic_id {text!r} is none")
        return
    yield {"type": "entry", "file": path, "version": fields.get("version", "").strip(), "topic_id": topic_id}


def dump_properties(path: str) -> Iterator[Item]:
    yield {"type": "entry", "file": path, **read_properties(path)}
