"""`barnabas delete-records`: deletes the oldest records of partitions."""

from collections.abc import Mapping
from typing import Annotated

from barnabas import Admin
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.outcomes import outcomes
from barnabas.cli.framework.output import CommandFailed, now_ms, show, table
from barnabas.cli.framework.resources import PARTITIONS, check_partitions, chosen_partitions, watermarks
from barnabas.cli.records.positions import parse_time
from barnabas.errors import UsageError
from barnabas.types import TopicPartition

app = App("Delete the oldest records of partitions.")


@app.command(
    "",
    example="barnabas delete-records orders --before-time -7d\n"
    "barnabas delete-records orders:0 --before-offset 1000 --execute",
)
def delete_records(
    topics: Annotated[
        list[str], Argument(PARTITIONS, "A topic, some of its partitions, or ^PATTERN.", check=check_partitions)
    ],
    before_offset: Annotated[int | None, Option(minimum=0, help="All records before this offset.")] = None,
    before_time: Annotated[
        str | None, Option(metavar="TIME", help="All records before the first one from this time on.")
    ] = None,
    all_records: Annotated[bool, Option("--all", help="All present records.")] = False,
    execute: Annotated[bool, Option(help="Carry it out; otherwise only show the plan.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Delete the oldest records of partitions: show the plan, or carry it out with --execute.

    The topics stay, and the other records keep their offsets. TIME is milliseconds, 2013-01-01T05:15:00Z, now, or -1h.
    """
    if sum((before_offset is not None, before_time is not None, all_records)) != 1:
        raise UsageError("delete-records: give one of --before-offset, --before-time, --all")
    before_ms = None if before_time is None else parse_time(before_time, now_ms())
    with cluster.admin() as admin:
        partitions = chosen_partitions(admin, topics)
        marks = watermarks(admin, partitions)
        plan = _plan(admin, marks, before_offset, before_ms)
        wanted: dict[tuple[str, int], int] = {tp: offset for tp, offset in plan.items() if offset > marks[tp][0]}
        _, failed = outcomes(lambda: admin.delete_records(wanted)) if execute else ({}, {})
    rows = [
        {
            **tp._asdict(),
            "from_offset": marks[tp][0],
            "to_offset": offset,
            "records": offset - marks[tp][0],
            "executed": execute and tp not in failed,
            "error": failed.get(tp),
        }
        for tp, offset in plan.items()
    ]
    cells = [tuple(row.values())[:5] for row in rows if not row["error"]]
    plain = table(("topic", "partition", "from", "up to", "offsets"), cells)
    planned = f"PLAN, nothing is deleted yet:\n{plain}\n\n--execute carries it out"
    show(rows, json, lambda: f"deleted:\n{plain}" if execute else planned)
    if failed:
        raise CommandFailed("; ".join(map(str, failed.values())))


def _plan(
    admin: Admin, marks: Mapping[TopicPartition, tuple[int, int]], before_offset: int | None, before_ms: int | None
) -> dict[TopicPartition, int]:
    """Returns for each partition the first offset that is kept. Raises CommandFailed for an offset after the end."""
    if before_ms is not None:
        found = admin.list_offsets(dict.fromkeys(marks, before_ms))
        return {tp: found[tp].offset if found[tp].offset >= 0 else end for tp, (_, end) in marks.items()}
    plan = {}
    for tp, (start, end) in marks.items():
        if before_offset is not None and before_offset > end:
            raise CommandFailed(
                f"{tp} ends at offset {end}, so nothing before {before_offset} can be deleted; use --all"
            )
        plan[tp] = end if before_offset is None else max(before_offset, start)
    return plan
