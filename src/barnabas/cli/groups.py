"""`barnabas groups`: list, describe, reset offsets, delete."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from barnabas import Admin
from barnabas.cli.app import App, Argument, Option
from barnabas.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Client,
    Json,
    Timeout,
    connect_admin,
    parse_partitions,
)
from barnabas.cli.outcomes import failures, refused
from barnabas.cli.output import CommandFailed, print_json, table, time_text
from barnabas.cli.positions import parse_time
from barnabas.cli.watermarks import watermarks
from barnabas.client.core.admin.groups import GroupDescription
from barnabas.client.errors import ItemsFailed
from barnabas.errors import BarnabasError, GroupIdNotFound, UnknownTopicOrPartition, UsageError
from barnabas.printable import printable
from barnabas.types import TopicPartition

app = App("List, describe, reset and delete consumer groups.")

Group = Annotated[str, Argument("GROUP")]


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None, Option("--state", help="Only groups in it, such as Stable or Empty; repeat for more.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    client: Client = None,
    json: Json = False,
) -> None:
    """List all groups."""
    with connect_admin(bootstrap, timeout, client) as admin:
        groups = admin.list_groups(states=state or ())
    if json:
        print_json(
            [{"group": g.group_id, "state": g.state, "type": g.type, "protocol_type": g.protocol_type} for g in groups]
        )
    elif groups:
        rows = [(g.group_id, g.state or None, g.type or None, g.protocol_type or None) for g in groups]
        print(table(("group", "state", "type", "protocol type"), rows))


@app.command()
def describe(
    group: Group,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    client: Client = None,
    json: Json = False,
) -> None:
    """Show state, members, their partitions, committed offsets and lag."""
    with connect_admin(bootstrap, timeout, client) as admin:
        description = _describe(admin, group)
        rows = _offset_rows(admin, group, description)
        listing = next((g for g in admin.list_groups() if g.group_id == group), None)
    if description is None and listing is None and not rows:
        raise GroupIdNotFound(f"group {group!r} does not exist; `barnabas groups list` shows what does")
    report = _report(group, description, listing, rows)
    if json:
        print_json(report)
    else:
        print(_text(report))


def _describe(admin: Admin, group: str) -> GroupDescription | None:
    """None for groups that the classic call does not show (those of KIP-848 on Apache Kafka)."""
    try:
        return admin.describe_groups(group)[group]
    except ItemsFailed as error:
        if error.only(GroupIdNotFound):
            return None
        raise


def _offset_rows(admin: Admin, group: str, description: GroupDescription | None) -> list[dict[str, Any]]:
    """A row for each partition that has a commit or a member."""
    try:
        committed = admin.list_group_offsets(group)
    except GroupIdNotFound:
        committed = {}
    owners = {tp: member for member in (description.members if description else ()) for tp in member.assignment}
    partitions = sorted({*committed, *owners})
    marks = _watermarks(admin, partitions)
    rows = []
    for tp in partitions:
        offset = committed[tp].offset if tp in committed else None
        end = marks[tp][1] if tp in marks else None
        owner = owners.get(tp)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed_offset": offset,
                "end_offset": end,
                "lag": None if offset is None or end is None else max(end - offset, 0),
                "metadata": committed[tp].metadata if tp in committed else None,
                "member_id": owner.member_id if owner else None,
                "client_id": owner.client_id if owner else None,
                "host": owner.client_host if owner else None,
            }
        )
    return rows


def _watermarks(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Of the partitions that exist: commits outlive topics."""
    try:
        views = admin.describe_topics({tp.topic for tp in partitions})
    except ItemsFailed as error:
        refused(error)
        views = error.succeeded
    there = {TopicPartition(name, number) for name, view in views.items() for number in view.partitions}
    return watermarks(admin, [tp for tp in partitions if tp in there])


def _report(
    group: str, description: GroupDescription | None, listing: Any, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    return {
        "group": group,
        "state": description.state if description else (listing.state if listing else "Unknown"),
        "type": (listing.type if listing else "") or "classic",
        "protocol_type": description.protocol_type if description else (listing.protocol_type if listing else ""),
        "protocol": description.protocol if description else None,
        "coordinator": description.coordinator if description else None,
        "lag": sum(lags),
        "members": None
        if description is None
        else [
            {
                "member_id": m.member_id,
                "group_instance_id": m.group_instance_id,
                "client_id": m.client_id,
                "host": m.client_host,
                "subscription": list(m.subscription),
                "assignment": [{"topic": tp.topic, "partition": tp.partition} for tp in m.assignment],
            }
            for m in description.members
        ],
        "rebalances": list(description.rebalances) if description else [],
        "partitions": rows,
    }


def _text(report: Mapping[str, Any]) -> str:
    parts = [f"group {report['group']}", f"state {report['state']}", f"type {report['type']}"]
    if report["protocol"]:
        parts.append(f"assignor {report['protocol']}")
    if report["coordinator"] is not None:
        parts.append(f"coordinator {report['coordinator']}")
    shown = report["members"]
    parts.append("members not shown by this broker" if shown is None else f"{len(shown)} members")
    parts.append(f"lag {report['lag']}")
    lines = [printable(", ".join(parts))]
    if report["members"]:
        members = [
            (m["member_id"], m["group_instance_id"], m["host"], len(m["assignment"]), ",".join(m["subscription"]))
            for m in report["members"]
        ]
        lines += ["", table(("member", "instance", "host", "partitions", "subscription"), members)]
    if report["partitions"]:
        names = ("topic", "partition", "committed_offset", "end_offset", "lag", "member_id")
        rows = [[row[name] for name in names] for row in report["partitions"]]
        lines += ["", table(("topic", "partition", "committed", "end", "lag", "member"), rows)]
    if report["rebalances"]:
        lines += ["", table(("rebalance", "generation", "members", "reason"), map(_rebalance, report["rebalances"]))]
    return "\n".join(lines)


def _rebalance(event: Mapping[str, Any]) -> tuple[object, ...]:
    notes = [*event.get("notes", ())]
    if event.get("notes_dropped"):
        notes.append(f"and {event['notes_dropped']} more")
    generation = "running" if event.get("completed_ms") is None else event.get("generation_id")
    reason = "; ".join([str(event.get("reason") or event.get("trigger")), *notes])
    return time_text(event.get("started_ms", -1)), generation, event.get("member_count"), reason


@app.command("reset-offsets")
def reset_offsets(
    group: Group,
    topic: Annotated[
        list[str] | None, Option("--topic", "-t", metavar="TOPIC[:0,2,5-7]", help="What to reset; repeat for more.")
    ] = None,
    all_topics: Annotated[bool, Option("--all-topics", help="All that the group has committed.")] = False,
    to_earliest: Annotated[bool, Option("--to-earliest", help="To the first offset that is there.")] = False,
    to_latest: Annotated[bool, Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[bool, Option("--to-current", help="To what is committed, put within what is there.")] = False,
    to_offset: Annotated[int | None, Option("--to-offset", help="To this offset.")] = None,
    to_datetime: Annotated[
        str | None, Option("--to-datetime", metavar="TIME", help="To the first record from then on.")
    ] = None,
    shift_by: Annotated[int | None, Option("--shift-by", help="By so many records, back if negative.")] = None,
    execute: Annotated[bool, Option("--execute", help="Do it; otherwise only show what would be done.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    client: Client = None,
    json: Json = False,
) -> None:
    """Move a group's committed offsets. Shows the plan; --execute carries it out (the group must have no members).

    TIME is milliseconds, 2013-01-01T05:15:00Z (UTC without a zone), now, or -1h.
    """
    asked = [to_earliest, to_latest, to_current, to_offset is not None, to_datetime is not None, shift_by is not None]
    if sum(asked) != 1:
        raise UsageError(
            "reset-offsets: give one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, "
            "--shift-by"
        )
    if bool(topic) == all_topics:
        raise UsageError("reset-offsets: give either --topic or --all-topics")
    with connect_admin(bootstrap, timeout, client) as admin:
        committed = {tp: c.offset for tp, c in admin.list_group_offsets(group).items()}
        partitions = sorted(committed) if all_topics else _scope(admin, topic or ())
        if shift_by is not None or to_current:
            _must_be_committed(group, partitions, committed)
        marks = watermarks(admin, partitions)
        if to_datetime is not None:
            time_ms = parse_time(to_datetime, time.time_ns() // 1_000_000)
            found = admin.list_offsets(dict.fromkeys(partitions, time_ms))
            target = {tp: found[tp].offset if found[tp].offset >= 0 else marks[tp][1] for tp in partitions}
        elif to_earliest or to_latest:
            target = {tp: marks[tp][0 if to_earliest else 1] for tp in partitions}
        elif to_offset is not None:
            target = dict.fromkeys(partitions, to_offset)
        else:
            target = {tp: committed[tp] + (shift_by or 0) for tp in partitions}
        plan: dict[TopicPartition, int] = {
            tp: min(max(offset, marks[tp][0]), marks[tp][1]) for tp, offset in target.items()
        }
        errors = failures(lambda: _move(admin, group, plan)) if execute and plan else {}
    _finish_reset(group, plan, committed, errors, execute, json)


def _move(admin: Admin, group: str, plan: Mapping[TopicPartition, int]) -> None:
    admin.alter_group_offsets(group, {(tp.topic, tp.partition): offset for tp, offset in plan.items()})


def _scope(admin: Admin, topics: Sequence[str]) -> list[TopicPartition]:
    """`flights` and `flights:0,2` to partitions that exist. Raises UnknownTopicOrPartition, UsageError."""
    found = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        view = admin.describe_topics(name)[name]
        wanted = parse_partitions(numbers) if colon else list(view.partitions)
        for number in wanted:
            if number not in view.partitions:
                last = len(view.partitions) - 1
                raise UnknownTopicOrPartition(f"topic {name!r} has partitions 0 to {last}, not {number}")
            found.append(TopicPartition(name, number))
    return found


def _must_be_committed(
    group: str, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]
) -> None:
    missing = next((tp for tp in partitions if tp not in committed), None)
    if missing is not None:
        raise CommandFailed(f"group {group!r} has committed nothing for {missing}; use --to-earliest or another target")


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
            "topic": tp.topic,
            "partition": tp.partition,
            "from_offset": committed.get(tp),
            "to_offset": offset,
            "executed": executed and tp not in errors,
            "error": str(errors[tp]) if tp in errors else None,
        }
        for tp, offset in plan.items()
    ]
    if as_json:
        print_json(report)
    elif report:
        rows = [(r["topic"], r["partition"], r["from_offset"], r["to_offset"]) for r in report]
        print(table(("topic", "partition", "from", "to"), rows))
        if not executed:
            print("\nnothing is changed yet; add --execute to do it")
    else:
        print(f"group {group} has nothing to reset")
    failed = next(iter(errors.values()), None)
    if failed is not None:
        raise failed if not as_json else CommandFailed("")


@app.command()
def delete(
    groups: Annotated[list[str], Argument("GROUP")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    client: Client = None,
    json: Json = False,
) -> None:
    """Delete groups without members, with their offsets."""
    with connect_admin(bootstrap, timeout, client) as admin:
        failed = failures(lambda: admin.delete_groups(groups))
    _finish("group", dict.fromkeys(groups), failed, "deleted", json)


@app.command("delete-offsets")
def delete_offsets(
    group: Group,
    topic: Annotated[
        list[str] | None, Option("--topic", "-t", metavar="TOPIC[:0,2,5-7]", help="What to forget; repeat for more.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    client: Client = None,
    json: Json = False,
) -> None:
    """Forget a group's committed offsets of topics that its members do not read."""
    if not topic:
        raise UsageError("delete-offsets: give at least one --topic")
    with connect_admin(bootstrap, timeout, client) as admin:
        partitions = _scope(admin, topic)
        failed = failures(lambda: admin.delete_group_offsets(group, partitions))
    _finish("partition", dict.fromkeys(partitions), failed, "forgotten", json)


def _finish(thing: str, items: Iterable[object], failed: Mapping[Any, BarnabasError], done: str, as_json: bool) -> None:
    if as_json:
        print_json([{thing: str(item), "error": str(failed[item]) if item in failed else None} for item in items])
    else:
        for item in items:
            if item not in failed:
                print(printable(f"{done} {item}"))
    if failed:
        raise CommandFailed("" if as_json else "; ".join(map(str, failed.values())))
