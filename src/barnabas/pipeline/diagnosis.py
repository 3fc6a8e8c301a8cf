"""Finds what is wrong with a checkpoint, in its files and compared with the brokers, and how it is repaired.

Pure: the contents of the files and the brokers' view are arguments, and the repairs are returned as new contents.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.pipeline.checkpoint import Batch, Checkpoint, offsets_text
from barnabas.spark.source.offsets import StreamOffset
from barnabas.types import TopicPartition

__all__ = ["BrokerView", "Problem", "find_problems"]

_SHOWN: Final = 5


class BrokerView(NamedTuple):
    """The brokers' state of a checkpoint's topics and of its query's commits."""

    ids: Mapping[str, str]
    """The ids of the topics that exist."""
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    decided: int | None = None
    """The last batch of the query that the sink has committed."""


class Problem(NamedTuple):
    """`changes` are new contents of files, None to delete a file; None where no change of files helps."""

    what: str
    way_out: str
    changes: Mapping[Path, str | None] | None


def find_problems(checkpoint: Checkpoint, broker: BrokerView | None) -> list[Problem]:
    """Returns the problems of a checkpoint, in the order of its files. Without a broker view only the files are
    checked."""
    found = _damages(checkpoint, None if broker is None else broker.decided)
    found += _orphans(checkpoint)
    if broker is not None:
        found += _sink_ahead(checkpoint, broker)
        found += _topics(checkpoint, broker)
    return found


# --- the files --------------------------------------------------------------------------------------------------------


def _damages(checkpoint: Checkpoint, decided: int | None) -> list[Problem]:
    return [_damage(checkpoint, path, reason, decided) for path, reason in checkpoint.damages]


def _damage(checkpoint: Checkpoint, path: Path, reason: str, decided: int | None) -> Problem:
    kind, what = path.parent.name, f"{path} cannot be read: {reason}"
    if path.name == "metadata":
        return Problem(
            what,
            "it has the query's id, by which the sink knows what it has written: restore it from a copy, or begin with"
            " a new checkpoint",
            None,
        )
    number = int(path.name)
    later = [n for n in (*checkpoint.batches, *checkpoint.commits) if n > number]
    if later:
        return Problem(what, f"batch {number} is long done: the file can go", {path: None})
    if kind == "commits":
        return Problem(what, f"batch {number} counts as not done and is repeated, with the same offsets", {path: None})
    if number in checkpoint.commits:
        return Problem(
            what,
            f"batch {number} was done, and only this file says up to where it has read: restore it from a copy, or"
            " begin with a new checkpoint and startingOffsets",
            None,
        )
    if decided is not None and decided >= number:
        return Problem(
            what,
            f"the sink has committed batch {number}, and only this file says what it has read: restore it from a copy,"
            " or begin with a new checkpoint and startingOffsets",
            None,
        )
    return Problem(
        what,
        f"batch {number} was not done: without the file it is planned anew, after batch {number - 1}",
        {path: None},
    )


def _orphans(checkpoint: Checkpoint) -> list[Problem]:
    """Finds committed batches without a file of offsets."""
    unreadable = {int(path.name) for path, _ in checkpoint.damages if path.name.isdigit()}
    last = max(checkpoint.batches, default=-1)
    orphans = sorted(n for n in checkpoint.commits if n > last and n not in unreadable)
    if not orphans:
        return []
    numbers = f"{orphans[0]}" if len(orphans) == 1 else f"{orphans[0]} to {orphans[-1]}"
    changes: dict[Path, str | None] = {checkpoint.path / "commits" / str(n): None for n in orphans}
    return [
        Problem(
            f"batches {numbers} are committed, and offsets are there up to batch {last} only: the directories are of"
            " different times",
            f"restore both from the same copy; without that the query goes on after batch {last}, and what came after"
            " it is read again: an exactly-once sink will refuse batches that it has",
            changes if last >= 0 else None,
        )
    ]


# --- beside the brokers -----------------------------------------------------------------------------------------------


def _sink_ahead(checkpoint: Checkpoint, broker: BrokerView) -> list[Problem]:
    known = [*checkpoint.batches, *(int(path.name) for path, _ in checkpoint.damages if path.name.isdigit())]
    if broker.decided is None or broker.decided <= max(known, default=-1):
        return []
    last = f"its last batch is {max(known)}" if known else "it has no batch"
    return [
        Problem(
            f"the checkpoint was rolled back: {last}, the sink has committed batch {broker.decided}",
            "restore the newest copy of the checkpoint; or begin with a new checkpoint, and startingOffsets behind what"
            " is written already",
            None,
        )
    ]


def _topics(checkpoint: Checkpoint, broker: BrokerView) -> list[Problem]:
    batch = checkpoint.done
    if batch is None:
        return []
    problems, sources = [], list(batch.sources)
    for index, source in enumerate(sources):
        now, found = _corrected(source, broker)
        problems += found
        sources[index] = now
    if not problems or tuple(sources) == batch.sources:
        return problems
    changes = _restart_from(checkpoint, batch, tuple(sources), broker.decided)
    return [problem._replace(changes=changes) for problem in problems]


def _corrected(source: StreamOffset, broker: BrokerView) -> tuple[StreamOffset, list[Problem]]:
    """Returns the offset from which the query can go on, and the problems that it corrects."""
    offsets, ids = dict(source.offsets), dict(source.ids)
    problems = []
    for topic in sorted({partition.topic for partition in source.offsets}):
        mine = sorted(partition for partition in source.offsets if partition.topic == topic)
        if topic not in broker.ids:
            problems.append(
                Problem(
                    f"topic {topic} is not there any more",
                    "the query leaves it out from now on; what was not read of it is lost",
                    {},
                )
            )
            offsets = {partition: offset for partition, offset in offsets.items() if partition.topic != topic}
            ids.pop(topic, None)
        elif source.ids.get(topic, broker.ids[topic]) != broker.ids[topic]:
            problems.append(
                Problem(
                    f"topic {topic} was deleted and made again (its id was {source.ids[topic]}, now"
                    f" {broker.ids[topic]})",
                    "the query reads the new one from its beginning",
                    {},
                )
            )
            offsets = {partition: offset for partition, offset in offsets.items() if partition.topic != topic}
            offsets |= {partition: start for partition, start in broker.starts.items() if partition.topic == topic}
            ids[topic] = broker.ids[topic]
        else:
            problems += _out_of_range(mine, offsets, broker)
    return source._replace(offsets=offsets, ids=ids), problems


def _out_of_range(mine: list[TopicPartition], offsets: dict[TopicPartition, int], broker: BrokerView) -> list[Problem]:
    problems = []
    for partition in mine:
        offset, start, end = offsets[partition], broker.starts.get(partition), broker.ends.get(partition)
        if start is None or end is None:
            continue
        if offset < start:
            what = f"{partition}: offsets {offset} to {start - 1} are gone, the query has not read them"
            problems.append(Problem(what, f"the query goes on at {start}", {}))
            offsets[partition] = start
        elif offset > end:
            what = (
                f"{partition}: read up to {offset}, but the log ends at {end}: records were lost on the brokers' side"
            )
            problems.append(Problem(what, f"the query goes on at {end}", {}))
            offsets[partition] = end
    return problems


def _restart_from(
    checkpoint: Checkpoint, batch: Batch, sources: tuple[StreamOffset, ...], decided: int | None
) -> dict[Path, str | None] | None:
    """Gives the last committed batch the new offsets, and deletes a later batch, which was planned with the old ones.
    Returns None where the sink has committed that later batch."""
    last = checkpoint.last
    if last is not None and decided is not None and decided >= last.number > batch.number:
        return None
    offsets = checkpoint.path / "offsets"
    changes: dict[Path, str | None] = {offsets / str(batch.number): offsets_text(batch, sources)}
    if last is not None and last.number > batch.number:
        changes |= {offsets / str(number): None for number in range(batch.number + 1, last.number + 1)}
    return changes
