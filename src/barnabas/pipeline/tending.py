"""Status, lag and repair of a pipeline's checkpoints: files and brokers are asked here, decided is in `diagnosis`."""

import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from barnabas import Admin
from barnabas.cli.output import CommandFailed
from barnabas.client.errors import ClientError, ItemsFailed
from barnabas.client.settings import AdminSettings
from barnabas.errors import UnknownTopicOrPartition
from barnabas.pipeline.checkpoint import Checkpoint
from barnabas.pipeline.declarative import is_of_flow
from barnabas.pipeline.diagnosis import BrokerView, Problem
from barnabas.spark.decision import NOTHING, read_decision
from barnabas.spark.two_phase import group_of
from barnabas.types import TopicPartition

__all__ = ["admin_of", "backup_of", "check_broker", "ends_of", "lag_rows", "repair", "status_row", "view"]

_RECENT: Final = 10
"""Batches that a throughput is the mean of."""
_CHECK_MS: Final = "30000"


def view(admin: Admin, checkpoint: Checkpoint) -> BrokerView:
    """What the brokers have of what the checkpoint names."""
    done = checkpoint.done
    topics = sorted({where.topic for where in done.offsets}) if done else []
    there = _described(admin, topics)
    partitions = [TopicPartition(name, number) for name, each in there.items() for number in each.partitions]
    starts = admin.list_offsets(dict.fromkeys(partitions, "earliest")) if partitions else {}
    ends = admin.list_offsets(dict.fromkeys(partitions, "latest")) if partitions else {}
    return BrokerView(
        {name: str(each.topic_id) for name, each in there.items()},
        {where: each.offset for where, each in starts.items()},
        {where: each.offset for where, each in ends.items()},
        _decided(admin, checkpoint.query_id),
    )


def _described(admin: Admin, topics: list[str]) -> dict[str, Any]:
    if not topics:
        return {}
    try:
        return dict(admin.describe_topics(topics))
    except ItemsFailed as error:
        if not error.only(UnknownTopicOrPartition):
            raise
        return dict(error.succeeded)


def _decided(admin: Admin, query_id: str | None) -> int | None:
    if query_id is None:
        return None
    decision = read_decision(admin.list_group_offsets(group_of(query_id)), f"{query_id}/")
    return None if decision is None or decision.batch == NOTHING else decision.batch


# --- what is told -----------------------------------------------------------------------------------------------------


def status_row(checkpoint: Checkpoint, ends: Mapping[TopicPartition, int] | None) -> dict[str, Any]:
    """Of one query: its last batches, and how far behind it is where it reads topics and the brokers were asked."""
    last, done = checkpoint.last, checkpoint.done
    read = {} if done is None else done.offsets
    lag = None if not ends else sum(max(end - read.get(where, 0), 0) for where, end in ends.items())
    return {
        "query": checkpoint.name,
        "id": checkpoint.query_id,
        "batch": None if last is None else last.number,
        "state": _state(checkpoint),
        "begun_ms": None if last is None else last.time_ms,
        "offsets_per_second": _throughput(checkpoint),
        "watermark_ms": None if last is None else last.watermark_ms,
        "lag": lag,
        "unreadable": [str(path) for path, _ in checkpoint.damages],
    }


def _state(checkpoint: Checkpoint) -> str:
    if checkpoint.last is None:
        return "nothing read"
    return "done" if checkpoint.last.number in checkpoint.commits else "under way, or interrupted"


def _throughput(checkpoint: Checkpoint) -> float | None:
    """Offsets a second from the first of the recent batches to the last one that is done."""
    numbers = sorted(n for n in checkpoint.batches if n in checkpoint.commits)[-_RECENT:]
    if len(numbers) < 2:
        return None
    first, last = checkpoint.batches[numbers[0]], checkpoint.batches[numbers[-1]]
    passed = (last.time_ms - first.time_ms) / 1000
    count = sum(offset - first.offsets.get(where, 0) for where, offset in last.offsets.items())
    return round(count / passed, 1) if passed > 0 and last.offsets else None


def lag_rows(checkpoint: Checkpoint, ends: Mapping[TopicPartition, int]) -> list[dict[str, Any]]:
    """Of each partition: up to where it is read, where it ends."""
    done = checkpoint.done
    read = {} if done is None else done.offsets
    rows = []
    for where, end in sorted(ends.items()):
        at = read.get(where)
        lag = max(end - (at or 0), 0)
        names = {"query": checkpoint.name, "topic": where.topic, "partition": where.partition}
        rows.append({**names, "read": at, "end": end, "lag": lag})
    return rows


# --- repair -----------------------------------------------------------------------------------------------------------


def backup_of(path: Path) -> Path:
    """Beside it. Beside the numbered ones of a flow Spark would take it for another one."""
    kept = path.parent if is_of_flow(path) else path
    return kept.with_name(f"{kept.name}.backup-{time.strftime('%Y%m%d-%H%M%S')}")


def repair(path: Path, problems: Iterable[Problem], backup: Path) -> None:
    """Copy the checkpoint, then change what the problems say. Hadoop's checksums of changed files go."""
    shutil.copytree(path, backup)
    changes: dict[Path, str | None] = {}
    for problem in problems:
        changes |= problem.changes or {}
    for file, text in changes.items():
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
        if text is None:
            file.unlink(missing_ok=True)
            continue
        new = file.with_name(f".{file.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(file)


# --- brokers ----------------------------------------------------------------------------------------------------------


def admin_of(options: Mapping[str, str]) -> Admin:
    """By the options of format("barnabas"). Connects at its first use; who typed a wrong address hears so at once."""
    known = AdminSettings.definitions.names()
    given = {name.removeprefix("kafka."): value for name, value in options.items()}
    settings = {name: value for name, value in given.items() if name in known}
    return Admin({"client.id": "barnabas-pipeline", "bootstrap.timeout.ms": 0, **settings})


def check_broker(options: Mapping[str, str]) -> None:
    """Raises CommandFailed unless a broker answers before long: a query would find that out a minute after Spark has
    started."""
    limits = {"bootstrap.timeout.ms": _CHECK_MS, "default.api.timeout.ms": _CHECK_MS}
    try:
        with admin_of({**limits, **options}) as admin:
            admin.describe_cluster()
    except ClientError as error:
        raise CommandFailed(f"{error}; the address is bootstrap.servers of [kafka] in pipeline.toml") from error


def ends_of(admin: Admin, checkpoint: Checkpoint) -> dict[TopicPartition, int]:
    """Where the partitions end that the topics of a checkpoint have now."""
    return dict(view(admin, checkpoint).ends)
