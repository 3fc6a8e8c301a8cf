"""`barnabas cluster reassign` and `drain`: move replicas to other brokers."""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

from barnabas.cli.cluster.reassignment.file import parse_assignment, reassignment_json
from barnabas.cli.cluster.reassignment.moves import (
    Throttle,
    alter_reassignments,
    assignment_of,
    begin_moves,
    live_racks,
    remove_throttle_at_end,
    without_removing,
)
from barnabas.cli.cluster.reassignment.plan import Assignment, plan_replicas
from barnabas.cli.cluster.reassignment.progress import partition_sizes, progress_rows, progress_text
from barnabas.cli.cluster.reassignment.throttle import throttle_rates
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.output import CommandFailed, notice, print_json, show, table
from barnabas.cli.framework.replication import ids_text
from barnabas.cli.framework.resources import (
    PARTITIONS,
    broker_ids,
    check_partitions,
    check_topic,
    chosen_partitions,
    chosen_topics,
    plural,
)
from barnabas.errors import UsageError
from barnabas.types import TopicPartition

__all__ = ["register"]

Wait = Annotated[bool, Option(help="Return when all is done, not when it has begun.")]


def register(app: App) -> None:
    """Adds the commands to `barnabas cluster`."""
    app.command(
        "reassign plan",
        example="barnabas cluster reassign plan orders --replication-factor 3 > plan.json\n"
        "barnabas cluster reassign plan --broker 1 --broker 2 --broker 4",
    )(plan)
    app.command(
        "reassign execute",
        example="barnabas cluster reassign execute plan.json --wait\n"
        "barnabas cluster reassign execute plan.json --throttle 50000000",
    )(execute)
    app.command("reassign status", example="barnabas cluster reassign status")(status)
    app.command(
        "reassign cancel",
        example="barnabas cluster reassign cancel orders\nbarnabas cluster reassign cancel --all",
    )(cancel)
    app.command("drain", example="barnabas cluster drain 3\nbarnabas cluster drain 3 --execute")(drain)


def plan(
    topics: Annotated[
        list[str] | None, Argument("TOPIC", "Only these topics; ^PATTERN for all that begin so.", check=check_topic)
    ] = None,
    broker: Annotated[list[int] | None, Option(help="Put replicas on this broker; repeat for more.")] = None,
    replication_factor: Annotated[
        int | None, Option("-r", help="How many replicas each partition gets; as many as now if left out.", minimum=1)
    ] = None,
    current: Annotated[bool, Option(help="Print the replicas of now, to go back to them later.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Print a plan that spreads replicas and preferred leaders evenly over brokers and their racks, with few moves.

    It has the format of Kafka's kafka-reassign-partitions, for `reassign execute`. Nothing is moved. Without brokers it
    is for all that are live, and without a topic for all topics. A reassignment in progress counts as carried out.
    """
    with cluster.admin() as admin:
        running = admin.list_partition_reassignments()
        views = admin.list_topics(internal=True)
        wanted = chosen_topics(admin, topics) if topics else views
        racks, sizes = live_racks(admin, broker), partition_sizes(admin)
    present = without_removing(assignment_of(wanted), running)
    if current:
        print_json(reassignment_json(present))
        return
    everything = without_removing(assignment_of(views), running)
    others = {tp: replicas for tp, replicas in everything.items() if tp not in present}
    planned = plan_replicas(present, racks, replication_factor=replication_factor, others=others, sizes=sizes)
    print_json(reassignment_json(planned))
    if not json:
        changed = [tp for tp in planned if list(present[tp]) != planned[tp]]
        copies = sum(len(set(planned[tp]) - set(present[tp])) for tp in planned)
        notice(f"{len(changed)} of {plural(len(planned), 'partition')} change, {plural(copies, 'replica')} to copy")


def execute(
    file: Annotated[
        str,
        Argument("FILE", "A plan, in the format of kafka-reassign-partitions; - for standard input.", takes_bytes=True),
    ],
    throttle: Throttle = 0,
    wait: Wait = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Begin to move replicas as a plan says. The first broker of each list becomes the preferred leader.

    Partitions that are as the plan says already stay as they are. Records are served meanwhile. A throttle limits the
    copies, not producers and consumers; to change it, execute the plan again. It is removed at the end with --wait,
    and otherwise by `reassign status` after the end.
    """
    planned = parse_assignment(_read(file), "standard input" if file == "-" else file)
    with cluster.admin() as admin:
        present = assignment_of(admin.list_topics(internal=True))
        failed = begin_moves(admin, planned, wait=wait, throttle=throttle)
    if throttle and not wait:
        notice("the throttle stays until `barnabas cluster reassign status` finds that all is done")
    as_before = {tp for tp, replicas in planned.items() if list(present.get(tp, ())) == list(replicas)}
    _finish(planned, failed, "reassigned" if wait else "begun", json, unchanged=as_before - failed.keys())


def status(cluster: Cluster = DEFAULT_CLUSTER, json: Json = False) -> None:
    """List the reassignments in progress, which new replicas are in sync already, and how much is to copy.

    The time left is what the copies take at least, by the throttle. When none is in progress any more, this removes
    the throttle that `reassign execute` or Kafka's kafka-reassign-partitions has set.
    """
    with cluster.admin() as admin:
        rows = progress_rows(admin, rates=throttle_rates(admin))
        if not rows:
            remove_throttle_at_end(admin)
    show(rows, json, lambda: progress_text(rows))


def cancel(
    topics: Annotated[
        list[str] | None, Argument(PARTITIONS, "A topic, some of its partitions, or ^PATTERN.", check=check_partitions)
    ] = None,
    all_reassignments: Annotated[bool, Option("--all", help="All reassignments in progress.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Cancel reassignments in progress: the partitions keep the replicas that they had before."""
    if bool(topics) == all_reassignments:
        raise UsageError(
            "reassign cancel: give either TOPIC, as in `barnabas cluster reassign cancel orders`, or --all"
        )
    with cluster.admin() as admin:
        running = admin.list_partition_reassignments()
        chosen = [tp for tp in chosen_partitions(admin, topics) if tp in running] if topics else list(running)
        failed = alter_reassignments(admin, dict.fromkeys(chosen))
        remove_throttle_at_end(admin)
    _finish(dict.fromkeys(chosen, ()), failed, "cancelled", json, nothing="no reassignment is in progress")


def drain(
    broker: Annotated[int, Argument("BROKER", "The node id of the broker.")],
    execute: Annotated[bool, Option(help="Carry it out and wait for the end; otherwise only show the plan.")] = False,
    throttle: Throttle = 0,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Move all replicas away from a broker, so that it can be stopped for good: show the plan, or --execute it.

    The other live brokers get them, spread over their racks. The broker may be dead. An interrupt ends the waiting
    only: `barnabas cluster reassign status` shows what is left.
    """
    with cluster.admin() as admin:
        running = admin.list_partition_reassignments()
        present = assignment_of(admin.list_topics(internal=True))
        racks = live_racks(admin)
        racks.pop(broker, None)
        kept = without_removing(present, running)
        # What leaves the broker already is waited for as well: it has these replicas until that is done.
        all_replicas = present | {tp: each.replicas for tp, each in running.items()}
        leaving = {tp: replicas for tp, replicas in kept.items() if broker in all_replicas[tp]}
        if not leaving:  # one that was unregistered before it was drained may have replicas yet
            broker_ids(admin, [broker], include_fenced=True)
        others = {tp: replicas for tp, replicas in kept.items() if tp not in leaving}
        planned = plan_replicas(leaving, racks, others=others, sizes=partition_sizes(admin))
        if not execute:
            _show_plan(present, planned, broker, json)
            return
        failed = begin_moves(admin, planned, wait=True, throttle=throttle)
    _finish(planned, failed, "moved", json, nothing=f"broker {broker} has no replicas")


def _show_plan(present: Assignment, planned: Assignment, broker: int, as_json: bool) -> None:
    report = {
        "executed": False,
        "partitions": [
            {**tp._asdict(), "replicas": list(present[tp]), "planned": list(replicas)}
            for tp, replicas in sorted(planned.items())
        ],
    }

    def text() -> str:
        if not planned:
            return f"broker {broker} has no replicas"
        head = f"PLAN, nothing is moved yet; with --execute {plural(len(planned), 'partition')} will be:"
        rows = [(*tp, ids_text(present[tp]), ids_text(replicas)) for tp, replicas in sorted(planned.items())]
        return f"{head}\n{table(('topic', 'partition', 'replicas', 'planned'), rows)}"

    show(report, as_json, text)


def _finish(
    planned: Assignment,
    failed: Mapping[TopicPartition, Exception],
    done: str,
    as_json: bool,
    *,
    nothing: str = "nothing to do",
    unchanged: Collection[TopicPartition] = (),
) -> None:
    results = dict.fromkeys(planned, done) | dict.fromkeys(unchanged, "unchanged") | dict.fromkeys(failed, "failed")
    report = [
        {**tp._asdict(), "replicas": list(replicas), "result": results[tp], "error": failed.get(tp)}
        for tp, replicas in sorted(planned.items())
    ]
    succeeded = len(planned) - len(failed) - len(unchanged)

    def text() -> str:
        if not planned:
            return nothing
        return f"{done} {plural(succeeded, 'partition')}" + (f", {len(unchanged)} unchanged" if unchanged else "")

    if as_json or succeeded or unchanged or not planned:
        show(report, as_json, text)
    if failed:
        raise CommandFailed("; ".join(str(error) for error in failed.values()))


def _read(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
