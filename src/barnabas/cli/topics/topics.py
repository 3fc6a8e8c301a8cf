"""`barnabas topics`."""

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from barnabas import Admin
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json, parse_settings
from barnabas.cli.framework.outcomes import outcomes
from barnabas.cli.framework.output import CommandFailed, notice, print_json, show, size_text, table, time_text
from barnabas.cli.framework.replication import (
    MISSING_REPLICAS,
    NOT_MOVING,
    eligible_leaders,
    ids_text,
    replica_state,
    running_reassignments,
)
from barnabas.cli.framework.resources import (
    check_topic,
    check_topic_name,
    chosen_names,
    chosen_topics,
    is_pattern,
    plural,
    watermarks,
)
from barnabas.client.admin.configs import ConfigResource
from barnabas.client.admin.log_dirs import LogDir, LogDirReplica
from barnabas.client.admin.reassignments import PartitionReassignment
from barnabas.client.admin.topics import EligibleLeaders, NewTopic
from barnabas.client.errors import ItemsFailed
from barnabas.connection.cluster import TopicView
from barnabas.errors import BarnabasError, KafkaError, TopicAlreadyExists, UnknownTopicOrPartition, UsageError
from barnabas.printable import printable
from barnabas.types import TopicPartition

app = App("List, create, describe, delete and grow topics.")

_SOURCES: Final = {
    "DYNAMIC_BROKER_CONFIG": "one broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "STATIC_BROKER_CONFIG": "the broker's file or command line",
}
"""The source of a setting that the topic does not have itself, in words."""

Names = Annotated[list[str], Argument("TOPIC", "The topics' names.", check=check_topic_name)]


@app.command("list", example="barnabas topics list '^orders'")
def list_topics(
    topics: Annotated[
        list[str] | None,
        Argument("TOPIC", "Only these topics; ^PATTERN for all whose names begin so.", check=check_topic),
    ] = None,
    internal: Annotated[bool, Option(help="Also internal topics of the brokers, such as __consumer_offsets.")] = False,
    quiet: Annotated[bool, Option("-q", help="Names only.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """List topics with the numbers of their partitions and replicas."""
    with cluster.admin() as admin:
        views = chosen_topics(admin, topics) if topics else admin.list_topics(internal=internal)
    if json:
        print_json([_summary(view) for view in views])
    elif quiet:
        print("".join(f"{view.name}\n" for view in views), end="")
    elif views:
        print(table(("topic", "partitions", "replicas"), [(v.name, len(v.partitions), _replication(v)) for v in views]))
    else:
        print("no topics" + ("" if internal else "; --internal shows those that brokers keep for themselves"))


@app.command(example="barnabas topics create orders --partitions 3 --config retention.ms=86400000")
def create(
    topics: Names,
    partitions: Annotated[int, Option("-p", help="How many partitions each has; -1 leaves that to the brokers.")] = -1,
    replication_factor: Annotated[
        int, Option("-r", help="How many copies there are of each partition; -1 leaves that to the brokers.")
    ] = -1,
    config: Annotated[
        list[str] | None, Option("-c", metavar="NAME=VALUE", help="A setting of the topics; repeat for more.")
    ] = None,
    if_not_exists: Annotated[bool, Option(help="No error for topics that exist.")] = False,
    validate_only: Annotated[bool, Option(help="Only check whether they could be created.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Create topics. Partitions, replicas and settings that are not given are the brokers' defaults."""
    settings = parse_settings(config or (), "--config")
    new = [NewTopic(name, partitions, replication_factor, settings) for name in topics]
    with cluster.admin() as admin:
        made, failed = outcomes(lambda: admin.create_topics(new, validate_only=validate_only))
    done = "checked" if validate_only else "created"
    report: list[dict[str, Any]] = []
    for name in dict.fromkeys(topics):
        if name in made:
            report.append({"topic": name, "result": done, "partitions": made[name].partitions, "error": None})
        elif if_not_exists and isinstance(failed[name], TopicAlreadyExists):
            report.append({"topic": name, "result": "exists", "error": None})
        else:
            report.append(_failure(name, failed[name]))
    _finish(report, json)


@app.command(example="barnabas topics delete orders")
def delete(
    topics: Annotated[list[str], Argument("TOPIC", "A name, or ^PATTERN for all that begin so.", check=check_topic)],
    if_exists: Annotated[bool, Option(help="No error for topics that do not exist.")] = False,
    execute: Annotated[bool, Option(help="With a pattern: carry it out; otherwise only show the plan.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Delete topics with all their records.

    What a pattern matches is shown as a plan, and deleted with --execute.
    """
    with cluster.admin() as admin:
        names = list(dict.fromkeys(topics))
        if any(map(is_pattern, topics)):
            names = chosen_names(topics, (view.name for view in admin.list_topics()), "topic")
            if not execute:
                _show_plan(names, json)
                return
        _, failed = outcomes(lambda: admin.delete_topics(names))
    report: list[dict[str, Any]] = []
    for name in names:
        absent = if_exists and isinstance(failed.get(name), UnknownTopicOrPartition)
        if name not in failed or absent:
            report.append({"topic": name, "result": "absent" if absent else "deleted", "error": None})
        else:
            report.append(_failure(name, failed[name]))
    _finish(report, json)


def _show_plan(names: Sequence[str], as_json: bool) -> None:
    head = f"PLAN, nothing is deleted yet; with --execute {plural(len(names), 'topic')} and their records will be:"
    report = [{"topic": name, "result": "planned", "error": None} for name in names]
    show(report, as_json, lambda: "\n".join([head, *names]))


@app.command("add-partitions", example="barnabas topics add-partitions orders --to 6")
def add_partitions(
    topic: Annotated[str, Argument("TOPIC", "The topic's name.", check=check_topic_name)],
    to: Annotated[int, Option(metavar="TOTAL", help="The total number of partitions afterwards.")] = 0,
    by: Annotated[int, Option(metavar="N", help="How many partitions to add.")] = 0,
    validate_only: Annotated[bool, Option(help="Only check whether they could be added.")] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Give a topic more partitions. Keys will map to other partitions from then on."""
    if (to > 0) == (by > 0):
        raise UsageError("add-partitions: give either --to TOTAL or --by N, as a number above 0")
    with cluster.admin() as admin:
        total = to or len(chosen_topics(admin, [topic])[0].partitions) + by
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, failed = outcomes(lambda: admin.create_partitions({topic: total}, validate_only=validate_only))
    for warning in caught:
        notice(f"barnabas: {warning.message}")
    grown = {"topic": topic, "result": "checked" if validate_only else "grown", "partitions": total, "error": None}
    _finish([_failure(topic, failed[topic]) if failed else grown], json)


@app.command(example="barnabas topics describe orders")
def describe(
    topics: Annotated[
        list[str] | None, Argument("TOPIC", "A name, or ^PATTERN for all that begin so.", check=check_topic)
    ] = None,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Show the partitions of topics with leaders, replicas, offsets and sizes, and settings that were changed.

    ELR, the eligible leader replicas, are outside of the ISR and have all committed records; these, the replicas on
    brokers that are offline, and those that a reassignment adds and removes are shown where there are any. Without a
    name all topics are described.
    """
    with cluster.admin() as admin:
        views = chosen_topics(admin, topics or ())
        marks, replicas, leaders = _marks(admin, views), _replicas(admin), eligible_leaders(admin, views)
        reassignments = running_reassignments(admin, views)
        described = [_description(admin, view, marks, replicas, leaders, reassignments) for view in views]
    show(described, json, lambda: "\n\n".join(map(_description_text, described)) or "no topics")


def _marks(admin: Admin, views: Sequence[TopicView]) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the (start, end) offsets of every partition with a leader."""
    led = [(view.name, p) for view in views for p in view.partitions.values() if p.leader >= 0]
    return watermarks(admin, [TopicPartition(name, p.partition) for name, p in led])


def _description(
    admin: Admin,
    view: TopicView,
    marks: Mapping[TopicPartition, tuple[int, int]],
    replicas: Mapping[TopicPartition, LogDirReplica],
    leaders: Mapping[TopicPartition, EligibleLeaders],
    reassignments: Mapping[TopicPartition, PartitionReassignment],
) -> dict[str, Any]:
    resource = ConfigResource("topic", view.name)
    configs = admin.describe_configs([resource])[resource].values()
    changed = {config.name: config.value for config in configs if config.source == "DYNAMIC_TOPIC_CONFIG"}
    from_brokers = {
        config.name: {"value": config.value, "from": _SOURCES[config.source]}
        for config in configs
        if config.source in _SOURCES
    }
    rows = []
    for p in view.partitions.values():
        tp = TopicPartition(view.name, p.partition)
        start, end = marks.get(tp, (None, None))
        replica = replicas.get(tp)
        rows.append(
            {
                "partition": p.partition,
                **replica_state(p, leaders.get(tp, EligibleLeaders()), reassignments.get(tp, NOT_MOVING)),
                "log_start_offset": start,
                "end_offset": end,
                "size_bytes": None if replica is None else replica.size_bytes,
                "compaction": None if replica is None else replica.compaction,
            }
        )
    return {**_summary(view), "configs": changed, "broker_configs": from_brokers, "partitions_detail": rows}


def _replicas(admin: Admin) -> dict[TopicPartition, LogDirReplica]:
    """Returns the largest replica of each partition; nothing where the brokers do not tell."""
    found: Mapping[int, list[LogDir]]
    try:
        found = admin.describe_log_dirs()
    except ItemsFailed as error:
        found = error.succeeded
    replicas: dict[TopicPartition, LogDirReplica] = {}
    for directory in itertools.chain.from_iterable(found.values()):
        for replica in directory.replicas:
            if replica.is_future:
                continue
            tp = TopicPartition(replica.topic, replica.partition)
            if tp not in replicas or replica.size_bytes > replicas[tp].size_bytes:
                replicas[tp] = replica
    return replicas


def _description_text(description: dict[str, Any]) -> str:
    details = description["partitions_detail"]
    lists = {"replicas": "replicas", "isr": "isr"}
    lists |= {key: header for key, header in MISSING_REPLICAS.items() if any(p[key] for p in details)}
    rows = [
        (
            p["partition"],
            p["leader"] if p["leader"] >= 0 else "none",
            *(ids_text(p[key]) for key in lists),
            p["log_start_offset"],
            p["end_offset"],
            size_text(p["size_bytes"]),
        )
        for p in details
    ]
    texts = [f"{name}={value}" for name, value in description["configs"].items()]
    inherited = description["broker_configs"].items()
    texts += [f"{name}={config['value']} (from {config['from']})" for name, config in inherited]
    configs = ", ".join(texts) or "all default"
    head = f"{description['topic']}  id {description['topic_id']}  configs: {configs}"
    text = printable(head) + "\n" + table(("partition", "leader", *lists.values(), "start", "end", "size"), rows)
    compacted = [p for p in details if p["compaction"]]
    if compacted:
        rows = [(p["partition"], *_compaction_row(p["compaction"])) for p in compacted]
        text += "\n" + table(("partition", "cleaned up to", "dirty", "share", "last cleaning", "note"), rows)
    return text


def _compaction_row(found: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the cells of a compacted topic's partition."""
    last = None
    if found["last_cleaned_ms"] >= 0:
        before, after = size_text(found["last_bytes_before"]), size_text(found["last_bytes_after"])
        last = f"{time_text(found['last_cleaned_ms'])}, {before} to {after}"
    note = ""
    if found["uncleanable"]:
        note = f"not cleaned any more: {found['uncleanable']}"
    elif found["is_running"]:
        note = "being cleaned"
    elif found["failure"]:
        note = f"failed, to be tried again: {found['failure']}"
    return found["cleaned_offset"], size_text(found["dirty_bytes"]), f"{found['dirty_ratio']:.0%}", last, note


def _summary(topic: TopicView) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "partitions": len(topic.partitions),
        "replicas": _replication(topic),
        "internal": topic.is_internal,
    }


def _replication(topic: TopicView) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _failure(name: str, error: BarnabasError) -> dict[str, Any]:
    text = f"topic {name!r}: {error} ({error.kafka_name})" if isinstance(error, KafkaError) else str(error)
    if isinstance(error, TopicAlreadyExists):
        text = f"topic {name!r} exists already; choose another name or add --if-not-exists"
    elif isinstance(error, UnknownTopicOrPartition):
        text = f"topic {name!r} does not exist; `barnabas topics list` shows what does"
    return {"topic": name, "result": "failed", "error": text}


def _finish(report: list[dict[str, Any]], as_json: bool) -> None:
    """Prints the result of each topic. Raises CommandFailed if one failed."""
    failed = [entry for entry in report if entry["error"]]
    if as_json:
        print_json(report)
    else:
        for entry in report:
            if not entry["error"]:
                count = entry.get("partitions", -1)
                more = f" ({plural(count, 'partition')})" if count > 0 else ""
                unchanged = "; nothing was changed" if entry["result"] == "checked" else ""
                print(f"{entry['result']} {entry['topic']}{more}{unchanged}")
    if failed:
        raise CommandFailed("; ".join(entry["error"] for entry in failed))
