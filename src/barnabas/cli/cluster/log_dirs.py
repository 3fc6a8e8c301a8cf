"""`barnabas log-dirs`: the directories of the brokers' replicas, and the room that is left."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from barnabas import Admin
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.outcomes import failures_text, outcomes
from barnabas.cli.framework.output import CommandFailed, show, size_text, table
from barnabas.cli.framework.progress import ProgressLines
from barnabas.cli.framework.resources import (
    PARTITIONS,
    broker_ids,
    check_partitions,
    chosen_partitions,
    live_brokers,
    plural,
    some,
)
from barnabas.client.admin.log_dirs import LogDir
from barnabas.errors import LogDirNotFound, UsageError, error_for
from barnabas.types import TopicPartition

app = App("Show the brokers' log directories and the replicas in them; move replicas.", default="describe")

POLL_S: Final = 0.2
NAMED_MAX: Final = 3


@app.command(example="barnabas log-dirs\nbarnabas log-dirs --topic orders --replicas")
def describe(
    broker: Annotated[list[int] | None, Option(help="Only directories of this broker; repeat for more.")] = None,
    topic: Annotated[
        list[str] | None,
        Option(
            "-t",
            metavar=PARTITIONS,
            check=check_partitions,
            help="Only replicas of this topic, or of ^PATTERN; repeat for more.",
        ),
    ] = None,
    replicas: Annotated[bool, Option(help="Show each replica, too; --json always does.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Show the log directories of brokers: their size, the room that is left, and the replicas in them."""
    with cluster.admin() as admin:
        partitions = chosen_partitions(admin, topic) if topic else None
        brokers = broker_ids(admin, broker) if broker else live_brokers(admin).brokers
        found, failed = outcomes(lambda: admin.describe_log_dirs(brokers, partitions))
    rows = [_row(directory) for node_id in sorted(found) for directory in found[node_id]]
    show(rows, json, lambda: _text(rows, replicas))
    if failed:
        raise CommandFailed(failures_text({f"broker {node_id}": error for node_id, error in failed.items()}))


def _row(directory: LogDir) -> dict[str, Any]:
    replicas = sorted(directory.replicas, key=lambda replica: (replica.topic, replica.partition))
    return {
        "broker": directory.broker_id,
        "path": directory.path,
        "error": str(error_for(directory.error_code)) if directory.error_code else None,
        "total_bytes": directory.total_bytes if directory.total_bytes >= 0 else None,
        "usable_bytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
        "is_full": directory.is_full,
        "is_cordoned": directory.is_cordoned,
        "size_bytes": sum(replica.size_bytes for replica in replicas),
        "replicas": [
            {
                "topic": r.topic,
                "partition": r.partition,
                "size_bytes": r.size_bytes,
                "offset_lag": r.offset_lag,
                "is_future": r.is_future,
                "damage": r.damage or None,
            }
            for r in replicas
        ],
    }


def _text(rows: list[dict[str, Any]], with_replicas: bool) -> str:
    if not rows:
        return "no log directories"
    names = ("broker", "directory", "replicas", "size", "free", "of", "remarks")
    cells = [
        (
            row["broker"],
            row["path"],
            len(row["replicas"]),
            size_text(row["size_bytes"]),
            size_text(row["usable_bytes"]),
            size_text(row["total_bytes"]),
            "; ".join(filter(None, _remarks(row))),
        )
        for row in rows
    ]
    text = table(names, cells)
    if with_replicas:
        replicas = [
            (
                *(row["broker"], r["topic"], r["partition"], size_text(r["size_bytes"]), r["offset_lag"]),
                f"moves to {row['path']}" if r["is_future"] else r["damage"] or row["path"],
            )
            for row in rows
            for r in row["replicas"]
        ]
        text += "\n\n"
        columns = ("broker", "topic", "partition", "size", "offset lag", "directory")
        text += table(columns, replicas) if replicas else "no replicas"
    return text


def _remarks(row: dict[str, Any]) -> Iterator[str | None]:
    yield row["error"]
    yield "the disk is full" if row["is_full"] else ""
    yield _damage_text(row["replicas"])
    yield "cordoned: it gets no new replicas" if row["is_cordoned"] else ""


def _damage_text(replicas: Sequence[Mapping[str, Any]]) -> str:
    damaged = [f"{r['topic']}-{r['partition']}: {r['damage']}" for r in replicas if r["damage"]]
    return f"damaged: {some(damaged, NAMED_MAX)}" if damaged else ""


@app.command(example="barnabas log-dirs move orders --broker 1 --to /disk2/data --wait")
def move(
    topics: Annotated[
        list[str], Argument(PARTITIONS, "A topic, some of its partitions, or ^PATTERN.", check=check_partitions)
    ],
    to: Annotated[str, Option(metavar="PATH", help="The log directory, as `barnabas log-dirs` shows it.")],
    broker: Annotated[int | None, Option(help="The broker whose replicas move; needed if there are several.")] = None,
    wait: Annotated[bool, Option(help="Return when all is done, not when it has begun.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Begin to move a broker's replicas into another of its log directories. Records are served meanwhile.

    The directory that a replica is in cancels its move. `barnabas log-dirs --replicas` shows what is on its way. An
    interrupt ends the waiting only.
    """
    with cluster.admin() as admin:
        broker_id = _broker(admin, broker)
        views = {view.name: view for view in admin.list_topics(internal=True)}
        partitions = [
            tp
            for tp in chosen_partitions(admin, topics)
            if tp.topic in views and broker_id in views[tp.topic].partitions[tp.partition].replicas
        ]
        if not partitions:
            raise CommandFailed(f"broker {broker_id} has no replica of {', '.join(topics)}")
        wanted = {(*tp, broker_id): to for tp in partitions}
        _, failed = outcomes(lambda: admin.alter_replica_log_dirs(wanted))
        if any(isinstance(error, LogDirNotFound) for error in failed.values()):
            paths = [directory.path for directory in admin.describe_log_dirs([broker_id])[broker_id]]
            raise LogDirNotFound(f"broker {broker_id} has no log directory {to}; it has {', '.join(paths)}")
        errors = {TopicPartition(*replica[:2]): str(error) for replica, error in failed.items()}
        begun = [tp for tp in partitions if tp not in errors]
        if wait:
            errors |= _wait(admin, broker_id, begun, to)
    done = "moved" if wait else "begun"
    rows = [
        {**tp._asdict(), "result": "failed" if tp in errors else done, "error": errors.get(tp)} for tp in partitions
    ]
    cells = [(row["topic"], row["partition"], row["result"]) for row in rows]
    show(rows, json, lambda: table(("topic", "partition", "result"), cells))
    if errors:
        raise CommandFailed(failures_text(errors))


def _broker(admin: Admin, asked: int | None) -> int:
    if asked is not None:
        return broker_ids(admin, [asked])[0]
    there = broker_ids(admin, None)
    if len(there) > 1:
        raise UsageError("log-dirs move: the cluster has several brokers; name one with --broker")
    return there[0]


def _wait(admin: Admin, broker_id: int, partitions: Sequence[TopicPartition], path: str) -> dict[TopicPartition, str]:
    """Waits until none of these replicas moves, and tells the progress on a terminal's standard error. Returns those
    that are elsewhere."""
    progress = ProgressLines()
    while partitions:
        homes: dict[TopicPartition, str] = {}
        lags: dict[TopicPartition, int] = {}
        for directory in admin.describe_log_dirs([broker_id], partitions)[broker_id]:
            for replica in directory.replicas:
                tp = TopicPartition(replica.topic, replica.partition)
                if replica.is_future:
                    lags[tp] = replica.offset_lag
                else:
                    homes[tp] = directory.path
        if not lags:
            stayed = f"it did not move; the log of broker {broker_id} says why"
            return {tp: stayed for tp in partitions if homes.get(tp) != os.path.normpath(path)}
        text = f"{plural(len(lags), 'partition')} of {len(partitions)} to go, {sum(lags.values()):,} offsets to copy"
        progress.tell(text)
        time.sleep(POLL_S)
    return {}
