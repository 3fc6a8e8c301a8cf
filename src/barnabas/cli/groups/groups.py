"""`barnabas groups`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from barnabas import Admin
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.outcomes import outcomes
from barnabas.cli.framework.output import CommandFailed, now_ms, print_json, show, table, time_text
from barnabas.cli.framework.replication import MISSING_REPLICAS, ids_text, replica_state
from barnabas.cli.framework.resources import (
    PARTITIONS,
    check_partitions,
    chosen_names,
    chosen_partitions,
    is_pattern,
    plural,
    split_partitions,
    watermarks,
)
from barnabas.cli.groups.lag import group_rows, lag_text, total_lag
from barnabas.cli.records.positions import parse_time
from barnabas.client.admin.group_coordinators import GroupCoordinator
from barnabas.client.admin.groups import GroupDescription, GroupListing, MemberToRemove
from barnabas.client.errors import ItemsFailed
from barnabas.errors import BarnabasError, GroupIdNotFound, KafkaError, UsageError
from barnabas.printable import printable
from barnabas.types import TopicPartition

app = App("List, describe, reset and delete consumer groups.")

Group = Annotated[str, Argument("GROUP", "The group's name.")]
Scope = Annotated[
    list[str] | None,
    Option(
        "--topic",
        "-t",
        metavar=PARTITIONS,
        help="A topic, some of its partitions, or ^PATTERN; repeat for more.",
        check=check_partitions,
    ),
]


@app.command("list", example="barnabas groups list --state Stable")
def list_groups(
    state: Annotated[
        list[str] | None, Option(help="Only groups in this state, such as Stable or Empty; repeat for more.")
    ] = None,
    no_lag: Annotated[bool, Option(help="Do not fetch offsets, which takes a request for each group.")] = False,
    quiet: Annotated[bool, Option("-q", help="Names only.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """List all groups with their state and lag.

    The lag is the number of records between a group's committed offsets and the ends of their partitions. Groups
    without commits have none (JSON: null).
    """
    with cluster.admin() as admin:
        groups = admin.list_groups(states=state or ())
        consumers = {} if no_lag or quiet else {g.group_id: None for g in groups}
        rows = group_rows(admin, consumers, skip_refused=True)
    lags = {group: total_lag(found) for group, found in rows.items()}
    names = ("group", "state", "type", "protocol_type", "lag")
    cells = [(g.group_id, g.state, g.type, g.protocol_type, lags.get(g.group_id)) for g in groups]
    if json:
        print_json([dict(zip(names, row, strict=True)) for row in cells])
    elif quiet:
        print("".join(f"{printable(g.group_id)}\n" for g in groups), end="")
    elif groups:
        headers = [name.replace("_", " ") for name in names[: 4 if no_lag else 5]]
        print(table(headers, [[None if cell == "" else cell for cell in row[: len(headers)]] for row in cells]))
    else:
        print("no groups" + (f" in state {' or '.join(state)}" if state else ""))


@app.command(example="barnabas groups describe billing\nbarnabas groups describe --all --json")
def describe(
    groups: Annotated[list[str] | None, Argument("GROUP", "A group's name, or ^PATTERN for those that match.")] = None,
    all_groups: Annotated[bool, Option("--all", help="All groups.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Show state, members, their partitions, committed offsets and lag of groups.

    The partition in which the coordinator keeps a group is shown with its replicas and ISR, and with eligible leader
    replicas (ELR) and offline ones where there are any.

    With --json one GROUP gives an object; several, a pattern or --all give a list of such objects.
    """
    if bool(groups) == all_groups:
        raise UsageError("groups describe: give either GROUP, as in `barnabas groups describe billing`, or --all")
    with cluster.admin() as admin:
        listings = {listing.group_id: listing for listing in admin.list_groups()}
        names = chosen_names(groups, listings, "group") if groups else list(listings)
        descriptions = _described(admin, names)
        rows = group_rows(admin, {name: descriptions.get(name) for name in names})
        coordinators = _coordinators(admin, names)
    for name in names:
        if name not in descriptions and name not in listings and not rows[name]:
            raise GroupIdNotFound(f"group {name!r} does not exist; `barnabas groups list` shows what does")
    reports = [
        group_report(name, descriptions.get(name), listings.get(name), rows[name], coordinators.get(name))
        for name in names
    ]
    one = groups is not None and len(groups) == 1 and not is_pattern(groups[0])
    show(reports[0] if one else reports, json, lambda: "\n\n".join(map(group_text, reports)) or "no groups")


def _described(admin: Admin, names: Sequence[str]) -> dict[str, GroupDescription]:
    """Describes the groups; those of KIP-848 on Apache Kafka are left out, as DescribeGroups does not show them."""
    try:
        return admin.describe_groups(names)
    except ItemsFailed as error:
        if error.only(GroupIdNotFound):
            return dict(error.succeeded)
        raise


def _coordinators(admin: Admin, names: Sequence[str]) -> Mapping[str, GroupCoordinator]:
    """Returns the partitions of the groups' coordinators; nothing where the brokers do not tell."""
    try:
        return admin.group_coordinators(names)
    except KafkaError:
        return {}


def group_report(
    group: str,
    description: GroupDescription | None,
    listing: GroupListing | None,
    rows: list[dict[str, Any]],
    coordinator: GroupCoordinator | None = None,
) -> dict[str, Any]:
    return {
        "group": group,
        "state": description.state if description else (listing.state if listing else "Unknown"),
        "type": (listing.type if listing else "") or "classic",
        "protocol_type": description.protocol_type if description else (listing.protocol_type if listing else ""),
        "protocol": description.protocol if description else None,
        "coordinator": description.coordinator if description else None,
        "coordinator_partition": None
        if coordinator is None
        else {**coordinator.partition._asdict(), **replica_state(coordinator.view, coordinator.eligible_leaders)},
        "lag": total_lag(rows),
        "members": None
        if description is None
        else [
            {
                "member_id": m.member_id,
                "group_instance_id": m.group_instance_id,
                "client_id": m.client_id,
                "host": m.client_host,
                "subscription": list(m.subscription),
                "assignment": [tp._asdict() for tp in m.assignment],
            }
            for m in description.members
        ],
        "rebalances": list(description.rebalances) if description else [],
        "partitions": rows,
    }


def group_text(report: Mapping[str, Any]) -> str:
    parts = [f"group {report['group']}", f"state {report['state']}", f"type {report['type']}"]
    if report["protocol"]:
        parts.append(f"assignor {report['protocol']}")
    if report["coordinator"] is not None:
        parts.append(f"coordinator {report['coordinator']}")
    shown = report["members"]
    parts.append("members not shown by this broker" if shown is None else plural(len(shown), "member"))
    parts.append(lag_text(report["partitions"]))
    lines = [printable(", ".join(parts))]
    if report["coordinator_partition"] is not None:
        lines.append(_coordinator_text(report["coordinator_partition"]))
    if report["members"]:
        members = [
            (m["member_id"], m["group_instance_id"], m["host"], len(m["assignment"]), ",".join(m["subscription"]))
            for m in report["members"]
        ]
        lines += ["", table(("member", "instance", "host", "partitions", "subscription"), members)]
        lines += _idle_text(report["members"])
    if report["partitions"]:
        names = ("topic", "partition", "committed_offset", "end_offset", "lag", "member_id")
        rows = [[row[name] for name in names] for row in report["partitions"]]
        lines += ["", table(("topic", "partition", "committed", "end", "lag", "member"), rows)]
    if report["rebalances"]:
        lines += ["", table(("rebalance", "generation", "members", "reason"), map(_rebalance, report["rebalances"]))]
    return "\n".join(lines)


def _idle_text(members: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a sentence about the members that have no partitions because there are more of them than partitions."""
    shared = sum(len(member["assignment"]) for member in members)
    idle = sum(not member["assignment"] for member in members)
    if not 0 < shared < len(members):
        return []
    have = "member has" if idle == 1 else "members have"
    return [f"{idle} {have} no partitions: {len(members)} members share {plural(shared, 'partition')}"]


def _coordinator_text(partition: Mapping[str, Any]) -> str:
    """`kept in __consumer_offsets-7: leader 1, replicas 1,2,3, isr 1,2`, with what is missing where there is any."""
    lists = {key: header for key, header in MISSING_REPLICAS.items() if partition[key]}
    leader = partition["leader"] if partition["leader"] >= 0 else "none"
    parts = [f"leader {leader}", f"replicas {ids_text(partition['replicas'])}", f"isr {ids_text(partition['isr'])}"]
    parts += [f"{header} {ids_text(partition[key])}" for key, header in lists.items()]
    return f"kept in {partition['topic']}-{partition['partition']}: {', '.join(parts)}"


def _rebalance(event: Mapping[str, Any]) -> tuple[object, ...]:
    notes = [*event.get("notes", ())]
    if event.get("notes_dropped"):
        notes.append(f"and {event['notes_dropped']} more")
    generation = "running" if event.get("completed_ms") is None else event.get("generation_id")
    reason = "; ".join([str(event.get("reason") or event.get("trigger")), *notes])
    return time_text(event.get("started_ms", -1)), generation, event.get("member_count"), reason


@app.command(
    "reset-offsets",
    example="barnabas groups reset-offsets billing --topic orders --to-earliest\n"
    "barnabas groups reset-offsets billing --all-topics --to-datetime -1h --execute",
)
def reset_offsets(
    group: Group,
    topic: Scope = None,
    all_topics: Annotated[bool, Option(help="All partitions that the group has committed.")] = False,
    to_earliest: Annotated[bool, Option(help="To the first record that still exists.")] = False,
    to_latest: Annotated[bool, Option(help="To the end, so that only new records are read.")] = False,
    to_current: Annotated[
        bool, Option(help="To the committed offsets, moved to the nearest records that still exist.")
    ] = False,
    to_offset: Annotated[int | None, Option(help="To this offset.")] = None,
    to_datetime: Annotated[
        str | None, Option(metavar="TIME", help="To the first record at or after this time.")
    ] = None,
    shift_by: Annotated[int | None, Option(help="Forward by this number of records, or back if negative.")] = None,
    execute: Annotated[bool, Option(help="Carry it out; otherwise only show the plan.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Move a group's committed offsets: show the plan, or carry it out with --execute.

    The group must have no members then. TIME is milliseconds, 2013-01-01T05:15:00Z (UTC without a zone), now, or -1h.
    """
    asked = [to_earliest, to_latest, to_current, to_offset is not None, to_datetime is not None, shift_by is not None]
    if sum(asked) != 1:
        raise UsageError(
            "reset-offsets: give one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, "
            "--shift-by"
        )
    if bool(topic) == all_topics:
        raise UsageError("reset-offsets: give either --topic or --all-topics")
    with cluster.admin() as admin:
        committed = {tp: c.offset for tp, c in admin.list_group_offsets(group).items()}
        partitions = sorted(committed) if all_topics else chosen_partitions(admin, topic or ())
        if shift_by is not None or to_current:
            for tp in partitions:
                if tp not in committed:
                    way_out = "use --to-earliest or another target"
                    raise CommandFailed(f"group {group!r} has committed nothing for {tp}; {way_out}")
        marks = watermarks(admin, partitions)
        if to_datetime is not None:
            time_ms = parse_time(to_datetime, now_ms())
            found = admin.list_offsets(dict.fromkeys(partitions, time_ms))
            target = {tp: found[tp].offset if found[tp].offset >= 0 else marks[tp][1] for tp in partitions}
        elif to_earliest or to_latest:
            target = {tp: marks[tp][0 if to_earliest else 1] for tp in partitions}
        elif to_offset is not None:
            target = dict.fromkeys(partitions, to_offset)
        else:
            target = {tp: committed[tp] + (shift_by or 0) for tp in partitions}
        plan: dict[Any, int] = {tp: min(max(offset, marks[tp][0]), marks[tp][1]) for tp, offset in target.items()}
        errors = outcomes(lambda: admin.alter_group_offsets(group, plan))[1] if execute and plan else {}
    _finish_reset(group, plan, committed, errors, execute, json)


def _finish_reset(
    group: str,
    plan: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    errors: Mapping[TopicPartition, BarnabasError],
    executed: bool,
    as_json: bool,
) -> None:
    report = [
        {
            "group": group,
            **tp._asdict(),
            "from_offset": committed.get(tp),
            "to_offset": offset,
            "executed": executed and tp not in errors,
            "error": errors.get(tp),
        }
        for tp, offset in plan.items()
    ]
    cells = [(*tp, committed.get(tp), offset) for tp, offset in plan.items() if tp not in errors]
    if as_json:
        print_json(report)
    elif not report:
        print(f"group {group} has nothing to reset")
    elif cells:
        planned = f"PLAN for group {group}, nothing is moved yet:"
        print(f"moved the offsets of group {group}:" if executed else planned)
        print(table(("topic", "partition", "from", "to"), cells))
        if not executed:
            print("\n--execute carries it out")
    for error in errors.values():
        raise error


@app.command("remove-members", example="barnabas groups remove-members billing --instance billing-1")
def remove_members(
    group: Group,
    member: Annotated[
        list[str] | None, Option(metavar="ID", help="A member's id, from `groups describe`; repeat for more.")
    ] = None,
    instance: Annotated[
        list[str] | None, Option(metavar="ID", help="A static member's group.instance.id; repeat for more.")
    ] = None,
    all_members: Annotated[bool, Option("--all", help="All members.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Make members leave their group, so that others take over their partitions at once.

    Meant for members that have crashed and whose session has not expired; a live member joins again.
    """
    members = [*map(MemberToRemove, member or ()), *(MemberToRemove("", name) for name in instance or ())]
    if bool(members) == all_members:
        raise UsageError("remove-members: give --member or --instance, or --all")
    with cluster.admin() as admin:
        removed, failed = outcomes(lambda: admin.remove_members(group, None if all_members else members))
    missing = next((error for error in failed.values() if isinstance(error, GroupIdNotFound)), None)
    if missing is not None:
        raise missing
    if json:
        found = (*removed, *failed)
        print_json([{**m._asdict(), "removed": m not in failed, "error": failed.get(m)} for m in found])
    elif not removed and not failed:
        print(f"group {group} has no members")
    else:
        for gone in removed:
            print(printable(f"removed {gone.group_instance_id or gone.member_id} from {group}"))
    if failed:
        raise CommandFailed("; ".join(map(str, failed.values())))


@app.command(example="barnabas groups delete billing")
def delete(
    groups: Annotated[list[str], Argument("GROUP", "The groups' names.")],
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Delete groups without members, with their offsets."""
    with cluster.admin() as admin:
        _, failed = outcomes(lambda: admin.delete_groups(groups))
    _finish("group", dict.fromkeys(groups), failed, "deleted", json)


@app.command("delete-offsets", example="barnabas groups delete-offsets billing --topic orders")
def delete_offsets(group: Group, topic: Scope = None, cluster: Cluster = DEFAULT_CLUSTER, json: Json = False) -> None:
    """Forget a group's committed offsets of topics that its members do not read."""
    if not topic:
        raise UsageError("delete-offsets: --topic is missing")
    with cluster.admin() as admin:
        partitions = _committed_partitions(group, admin.list_group_offsets(group), topic)
        _, failed = outcomes(lambda: admin.delete_group_offsets(group, partitions))
    _finish("partition", dict.fromkeys(partitions), failed, "forgotten", json)


def _committed_partitions(
    group: str, committed: Iterable[TopicPartition], asked: Sequence[str]
) -> list[TopicPartition]:
    """Returns the requested partitions with a commit, also those of deleted topics. Raises CommandFailed where there
    are none."""
    there = sorted(committed)
    found: dict[TopicPartition, None] = {}
    for text in asked:
        name, numbers = split_partitions(text)
        names = chosen_names([name], {tp.topic for tp in there}, "topic with a commit")
        chosen = [tp for tp in there if tp.topic in names and (numbers is None or tp.partition in numbers)]
        if not chosen:
            raise CommandFailed(
                f"group {group!r} has committed nothing for {text}; `groups describe` shows its commits"
            )
        found.update(dict.fromkeys(chosen))
    return list(found)


def _finish(thing: str, items: Iterable[object], failed: Mapping[Any, BarnabasError], done: str, as_json: bool) -> None:
    if as_json:
        print_json([{thing: str(item), "error": failed.get(item)} for item in items])
    else:
        for item in items:
            if item not in failed:
                print(printable(f"{done} {item}"))
    if failed:
        raise CommandFailed("; ".join(map(str, failed.values())))
