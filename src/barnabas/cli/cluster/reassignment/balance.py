"""`barnabas cluster balance`: evens out bytes, replicas and leaders over the brokers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from barnabas import Admin
from barnabas.cli.cluster.reassignment.moves import Throttle, assignment_of, begin_moves, live_racks
from barnabas.cli.cluster.reassignment.plan import Assignment, Racks, plan_replicas
from barnabas.cli.cluster.reassignment.progress import partition_sizes
from barnabas.cli.framework.app import App, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.outcomes import outcomes
from barnabas.cli.framework.output import CommandFailed, notice, show, size_text, table
from barnabas.cli.framework.replication import ids_text
from barnabas.cli.framework.resources import check_topic, chosen_topics, plural
from barnabas.types import TopicPartition

__all__ = ["balanced", "movable", "register"]


def register(app: App) -> None:
    """Adds the command to `barnabas cluster`."""
    app.command(
        "balance",
        example="barnabas cluster balance\nbarnabas cluster balance --execute --throttle 50000000",
    )(balance)


def balance(
    topic: Annotated[
        list[str] | None, Option(help="Move only this topic; ^PATTERN for more; repeat.", check=check_topic)
    ] = None,
    execute: Annotated[bool, Option(help="Carry it out and wait for the end; otherwise only show the plan.")] = False,
    throttle: Throttle = 0,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Even out bytes, replicas and leaders over the live brokers: show the plan, or --execute it.

    Replicas leave or join only a broker whose load is more than a tenth away from the mean, and racks stay or become as
    spread as they can be. Load is bytes, with at least 10 MB added for each replica. Partitions with a replica on a
    broker that is not live stay as they are. In the end the preferred leaders are elected. An interrupt ends the
    waiting only: `barnabas cluster reassign status` shows what is left.
    """
    with cluster.admin() as admin:
        if running := admin.list_partition_reassignments():
            raise CommandFailed(
                f"{plural(len(running), 'reassignment')} in progress; `barnabas cluster reassign status` shows how far"
            )
        views = admin.list_topics(internal=True)
        racks = live_racks(admin)
        everything = assignment_of(views)
        chosen = assignment_of(chosen_topics(admin, topic) if topic else views)
        present = movable(chosen, racks)
        if kept := len(chosen) - len(present):
            notice(f"{plural(kept, 'partition')} with a replica on a broker that is not live: not moved")
        sizes = partition_sizes(admin)
        changed = balanced(present, everything, racks, sizes)
        report = _report(everything, changed, racks, sizes)
        if not execute:
            show(report, json, lambda: _plan_text(report))
            return
        failed = begin_moves(admin, changed, wait=True, throttle=throttle)
        elected, refused = _elect(admin, [tp for tp in present if tp not in failed])
    errors = {**refused, **failed}
    for row in report["partitions"]:
        error = failed.get(TopicPartition(row["topic"], row["partition"]))
        row |= {"result": "failed" if error else "moved", "error": error}
    report |= {"executed": True, "elected": elected}
    moved = len(changed) - len(failed)
    show(report, json, lambda: f"moved {plural(moved, 'partition')}, elected {plural(elected, 'preferred leader')}")
    if errors:
        raise CommandFailed("; ".join(str(error) for error in errors.values()))


def movable(assignment: Assignment, racks: Racks) -> Assignment:
    """Leaves out the partitions with a replica on a broker that is not live."""
    return {tp: replicas for tp, replicas in assignment.items() if racks.keys() >= set(replicas)}


def balanced(
    present: Assignment, everything: Assignment, racks: Racks, sizes: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[int]]:
    """Returns the replicas of those partitions of `present` that have to change for an even load."""
    others = {tp: replicas for tp, replicas in everything.items() if tp not in present}
    planned = plan_replicas(present, racks, others=others, sizes=sizes)
    return {tp: replicas for tp, replicas in planned.items() if list(present[tp]) != replicas}


def _elect(admin: Admin, partitions: Sequence[TopicPartition]) -> tuple[int, Mapping[TopicPartition, Exception]]:
    """Makes the preferred replicas the leaders. Returns how many became it, and the errors."""
    if not partitions:
        return 0, {}
    elected, failed = outcomes(lambda: admin.elect_leaders(partitions))
    return sum(map(bool, elected.values())), failed


def _report(
    present: Assignment, changed: Assignment, racks: Mapping[int, str | None], sizes: Mapping[TopicPartition, int]
) -> dict[str, Any]:
    after = {**present, **changed}
    counts = [_counts(each, sizes) for each in (present, after)]
    copied = {tp: sizes.get(tp, 0) * len(set(replicas) - set(present[tp])) for tp, replicas in changed.items()}
    return {
        "executed": False,
        "bytes_to_copy": sum(copied.values()),
        "brokers": [
            {
                "node_id": node_id,
                "rack": rack,
                **{name: counts[0][name][node_id] for name in counts[0]},
                **{f"planned_{name}": counts[1][name][node_id] for name in counts[1]},
            }
            for node_id, rack in sorted(racks.items())
        ],
        "partitions": [
            {
                **tp._asdict(),
                "replicas": list(present[tp]),
                "planned": list(replicas),
                "bytes_to_copy": copied[tp],
            }
            for tp, replicas in sorted(changed.items())
        ],
    }


def _counts(assignment: Assignment, sizes: Mapping[TopicPartition, int]) -> dict[str, Counter[int]]:
    """Returns how many replicas each broker has, of how many partitions it is the preferred leader, and its bytes."""
    size: Counter[int] = Counter()
    for tp, replicas in assignment.items():
        size.update(dict.fromkeys(replicas, sizes.get(tp, 0)))
    return {
        "replicas": Counter(node_id for replicas in assignment.values() for node_id in replicas),
        "leaders": Counter(replicas[0] for replicas in assignment.values()),
        "bytes": size,
    }


def _plan_text(report: dict[str, Any]) -> str:
    moves = [
        (
            *(row["topic"], row["partition"], ids_text(row["replicas"]), ids_text(row["planned"])),
            size_text(row["bytes_to_copy"]),
        )
        for row in report["partitions"]
    ]
    brokers = [
        (
            *(row["node_id"], row["rack"]),
            *(f"{row[name]} -> {row['planned_' + name]}" for name in ("replicas", "leaders")),
            f"{size_text(row['bytes'])} -> {size_text(row['planned_bytes'])}",
        )
        for row in report["brokers"]
    ]
    brokers_text = table(("broker", "rack", "replicas", "leaders", "bytes"), brokers)
    if not moves:
        return f"balanced: nothing to move\n\n{brokers_text}"
    to_copy = size_text(report["bytes_to_copy"])
    head = f"PLAN, nothing is moved yet; with --execute {plural(len(moves), 'partition')} will be, {to_copy} to copy:"
    return "\n".join([head, table(("topic", "partition", "replicas", "planned", "to copy"), moves), "", brokers_text])
