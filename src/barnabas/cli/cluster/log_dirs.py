"""`barnabas log-dirs`: the directories of the brokers' replicas, and the room that is left."""

from typing import Annotated, Any

from barnabas.cli.framework.app import App, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.outcomes import outcomes
from barnabas.cli.framework.output import CommandFailed, show, size_text, table
from barnabas.cli.framework.resources import PARTITIONS, broker_ids, chosen_partitions
from barnabas.client.admin.cluster import LogDir
from barnabas.errors import error_for

app = App("Show the brokers' log directories and the replicas in them.", default="describe")


@app.command(example="barnabas log-dirs\nbarnabas log-dirs --topic orders --replicas")
def describe(
    broker: Annotated[list[int] | None, Option(help="Only directories of this broker; repeat for more.")] = None,
    topic: Annotated[
        list[str] | None,
        Option("-t", metavar=PARTITIONS, help="Only replicas of this topic, or of ^PATTERN; repeat for more."),
    ] = None,
    replicas: Annotated[bool, Option(help="Show each replica, too; --json always does.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Show the log directories of brokers: their size, the room that is left, and the replicas in them."""
    with cluster.admin() as admin:
        partitions = chosen_partitions(admin, topic) if topic else None
        brokers = broker_ids(admin, broker)
        found, failed = outcomes(lambda: admin.describe_log_dirs(brokers, partitions))
    rows = [_row(directory) for node_id in sorted(found) for directory in found[node_id]]
    show(rows, json, lambda: _text(rows, replicas))
    if failed:
        raise CommandFailed("; ".join(f"broker {node_id}: {error}" for node_id, error in failed.items()))


def _row(directory: LogDir) -> dict[str, Any]:
    replicas = sorted(directory.replicas, key=lambda replica: (replica.topic, replica.partition))
    return {
        "broker": directory.broker_id,
        "path": directory.path,
        "error": str(error_for(directory.error_code)) if directory.error_code else None,
        "total_bytes": directory.total_bytes if directory.total_bytes >= 0 else None,
        "usable_bytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
        "size_bytes": sum(replica.size_bytes for replica in replicas),
        "replicas": [
            {"topic": r.topic, "partition": r.partition, "size_bytes": r.size_bytes, "offset_lag": r.offset_lag}
            for r in replicas
        ],
    }


def _text(rows: list[dict[str, Any]], with_replicas: bool) -> str:
    if not rows:
        return "no log directories"
    names = ("broker", "directory", "replicas", "size", "free", "of", "error")
    cells = [
        (
            row["broker"],
            row["path"],
            len(row["replicas"]),
            size_text(row["size_bytes"]),
            size_text(row["usable_bytes"]),
            size_text(row["total_bytes"]),
            row["error"] or "",
        )
        for row in rows
    ]
    text = table(names, cells)
    if with_replicas:
        replicas = [
            (row["broker"], r["topic"], r["partition"], size_text(r["size_bytes"]), r["offset_lag"])
            for row in rows
            for r in row["replicas"]
        ]
        text += "\n\n"
        text += table(("broker", "topic", "partition", "size", "offset lag"), replicas) if replicas else "no replicas"
    return text
