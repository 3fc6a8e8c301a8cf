"""`.snapshot` (producers), `leader-epoch-checkpoint`, offset checkpoints, `partition.metadata`, `meta.properties`."""

from collections.abc import Iterator
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
from barnabas.log.producers.producer_snapshot import CorruptSnapshot, read_snapshot

__all__ = [
    "OFFSET_CHECKPOINTS",
    "dump_epochs",
    "dump_offsets",
    "dump_partition_metadata",
    "dump_properties",
    "dump_snapshot",
]

SNAPSHOT_HEADER: Final = 10
SNAPSHOT_ENTRY: Final = 46
OFFSET_CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def dump_snapshot(path: str) -> Iterator[Item]:
    try:
        entries = read_snapshot(path)
    except CorruptSnapshot as error:
        yield problem(path, 0, str(error).removeprefix(f"{path}: "))
        return
    for number, entry in enumerate(entries):
        position = SNAPSHOT_HEADER + number * SNAPSHOT_ENTRY
        yield {"type": "entry", "file": path, "position": position, **entry._asdict()}


def dump_epochs(path: str) -> Iterator[Item]:
    """Epochs and their start offsets must go up."""
    try:
        entries = read_epoch_checkpoint(path)
    except CorruptCheckpoint as error:
        yield problem(path, 0, str(error).removeprefix(f"{path}: "))
        return
    before = (-1, -1)
    for epoch, start_offset in entries:
        yield {"type": "entry", "file": path, "epoch": epoch, "start_offset": start_offset}
        if epoch <= before[0] or start_offset < before[1]:
            yield problem(
                path, 0, f"epoch {epoch} from {start_offset} does not follow epoch {before[0]} from {before[1]}"
            )
        before = (epoch, start_offset)


def dump_offsets(path: str) -> Iterator[Item]:
    try:
        offsets = read_offset_checkpoint(path)
    except CorruptCheckpoint as error:
        yield problem(path, 0, str(error).removeprefix(f"{path}: "))
        return
    for (topic, partition), offset in offsets.items():
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
