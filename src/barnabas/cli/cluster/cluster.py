"""`barnabas cluster`: the cluster as a whole, and the replicas of its partitions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from barnabas.cli.cluster import migrate_registry, roll
from barnabas.cli.cluster.doctor import cluster_doctor
from barnabas.cli.cluster.leader_history import chosen_changes, history_text
from barnabas.cli.cluster.reassignment import balance, reassign
from barnabas.cli.cluster.under_replicated import under_replicated_partitions, under_replicated_text
from barnabas.cli.exit_codes import FAILED, OK
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.output import CommandFailed, show, table
from barnabas.cli.framework.replication import replication_counts, running_reassignments
from barnabas.cli.framework.resources import (
    PARTITIONS,
    broker_ids,
    check_partitions,
    check_topic,
    known_releases,
    plural,
    some,
)
from barnabas.cli.topics.elect_leaders import elect_leaders
from barnabas.client.admin.cluster import ClusterDescription, FeatureLevels, Features
from barnabas.client.admin.reassignments import PartitionReassignment
from barnabas.connection.cluster import TopicView
from barnabas.errors import BrokerIdNotRegistered
from barnabas.printable import printable
from barnabas.types import TopicPartition

app = App("Describe the cluster, its brokers and replicas; move replicas and leaders.", default="describe")


@app.command(example="barnabas cluster")
def describe(cluster: Cluster = DEFAULT_CLUSTER, json: Json = False) -> None:
    """Show the cluster's id, its controller, its brokers, how far replicas are in sync, and the agreed features.

    A broker is live, or fenced: it has stopped, or the controller does not hear of it. One that has replicas and is not
    listed by the brokers is absent. A feature has a range of levels that the brokers support, and the level that is in
    force: finalized.
    """
    with cluster.admin() as admin:
        description, features = admin.describe_cluster(include_fenced=True), admin.describe_features()
        views = admin.list_topics(internal=True)
        reassignments = running_reassignments(admin, views) if description.controller_id >= 0 else {}
        releases = known_releases(admin)
    report = _report(description, features, views, reassignments, releases)
    show(report, json, lambda: _text(report))


@app.command(
    "under-replicated", example="barnabas cluster under-replicated\nbarnabas cluster under-replicated '^orders'"
)
def under_replicated(
    topics: Annotated[
        list[str] | None, Argument("TOPIC", "Only these topics; ^PATTERN for all that begin so.", check=check_topic)
    ] = None,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """List the partitions with a replica that is not in sync, and whether they accept records with acks=all.

    Replicas that a reassignment adds count only at its end, as with Kafka's tools. ELR are the replicas outside of the
    ISR that have all committed records. Without a name also the topics of the brokers themselves are looked at.
    """
    with cluster.admin() as admin:
        rows = under_replicated_partitions(admin, topics or ())
    show(rows, json, lambda: under_replicated_text(rows))


@app.command(example="barnabas cluster unregister 3")
def unregister(
    broker: Annotated[int, Argument("BROKER", "The node id of a broker that has stopped.")],
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """Remove a broker that has stopped for good from the cluster. Drain it before."""
    with cluster.admin() as admin:
        try:
            admin.unregister_broker(broker)
        except BrokerIdNotRegistered:
            broker_ids(admin, [broker], include_fenced=True)  # names those that are there
            raise
    show({"broker": broker, "result": "unregistered"}, json, lambda: f"unregistered broker {broker}")


app.command("elect", example="barnabas cluster elect orders\nbarnabas cluster elect --all-topics")(elect_leaders)
app.command("doctor", example="barnabas cluster doctor\nbarnabas cluster doctor --write --json")(cluster_doctor)
reassign.register(app)
balance.register(app)
roll.register(app)
migrate_registry.register(app)


@app.command(
    example="barnabas cluster recover --registry data/registry.db --data-dir data/broker-1 --data-dir data/broker-2"
)
def recover(
    registry: Annotated[
        str, Option(metavar="FILE", takes_bytes=True, help="The registry that is made; it must not be there.")
    ],
    data_dir: Annotated[
        list[str], Option(metavar="DIR", takes_bytes=True, help="A data directory of a broker; name those of all.")
    ],
    without: Annotated[
        list[int] | None,
        Option(
            metavar="BROKER",
            help="Give up what a broker has in directories that are not named, because they are lost; repeat for more.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Make the lost registry of a cluster anew, from the copies beside its brokers' logs. The brokers must be stopped.

    Of each partition the replica leads whose log reaches furthest, so no acknowledged record is lost if the directories
    of all brokers are named. If some are missing, nothing is made, they are named, and the exit code is 1: only they
    may have the latest records. What is lost for good is given up with --without. A topic or a setting that was changed
    in the last second may be missing. Exit code 1 if the registry is made, but records are likely to be missing, as no
    in-sync replica of some partitions is there.
    """
    from barnabas.broker.startup.recovery import recover_registry

    done = recover_registry(Path(registry).absolute(), data_dir, without or ())
    report = {
        "registry": registry,
        "cluster_id": done.image.cluster_id,
        "topics": len(done.image.topics),
        "partitions": done.partitions,
        "made": done.is_made,
        "missing": {str(node_id): list(map(str, replicas)) for node_id, replicas in done.missing.items()},
        "without_log": [str(partition) for partition in done.without_log],
        "out_of_isr": [str(partition) for partition in done.out_of_isr],
    }
    show(report, json, lambda: _recovered(report))
    return OK if done.is_made and not done.without_log and not done.out_of_isr else FAILED


@app.command(example="barnabas cluster history\nbarnabas cluster history orders:0 --limit 1000 --json")
def history(
    topics: Annotated[
        list[str] | None,
        Argument(PARTITIONS, "Only a topic, some of its partitions, or ^PATTERN.", check=check_partitions),
    ] = None,
    limit: Annotated[int, Option("-n", help="Only the last ones.", minimum=1)] = 50,
    cluster: Cluster = DEFAULT_CLUSTER,
    json: Json = False,
) -> None:
    """List why and when partitions got other leaders, and how long each election took, oldest first.

    Two times are told: for how long nothing was heard of the former leader before that was noticed, and from then
    to the election. A leader may also stay in a new leader epoch, as it does after a restart. Barnabas's brokers
    keep the last 10,000 changes, 1,000 with ZooKeeper.
    """
    with cluster.admin() as admin:
        changes = admin.leader_changes() if topics else admin.leader_changes(limit)
        if changes is None:
            raise CommandFailed("these brokers keep no history of leaders; Barnabas's brokers do")
        rows = chosen_changes(admin, changes, topics or ())[-limit:]
    show([row._asdict() for row in rows], json, lambda: history_text(rows, topics or ()))


def _recovered(report: dict[str, Any]) -> str:
    counts = f"{plural(report['topics'], 'topic')}, {plural(report['partitions'], 'partition')}"
    name, missing = printable(report["registry"]), report["missing"]
    lines = [f"{'made' if report['made'] else 'did not make'} {name} for cluster {report['cluster_id']}: {counts}"]
    for node_id, replicas in missing.items():
        which = f", with its replicas of {some(replicas)}" if replicas else ""
        lines.append(f"a data directory of broker {node_id} is missing{which}")
    if not report["made"]:
        options = " ".join(f"--without {node_id}" for node_id in missing)
        lines.append(
            "the latest records may be there, and would be lost: name these directories, too; what is lost for good is "
            f"given up with {options}"
        )
    if report["without_log"]:
        lines.append(f"no data directory has a replica of: {', '.join(report['without_log'])}")
    if report["out_of_isr"]:
        lines.append(
            "no in-sync replica was among the data directories, records may be missing: "
            + ", ".join(report["out_of_isr"])
        )
    return "\n".join(lines)


def _report(
    description: ClusterDescription,
    features: Features,
    views: Sequence[TopicView],
    reassignments: Mapping[TopicPartition, PartitionReassignment],
    releases: Mapping[int, str],
) -> dict[str, Any]:
    names = sorted({*features.supported, *features.finalized})
    return {
        "cluster_id": description.cluster_id,
        "controller": description.controller_id if description.controller_id >= 0 else None,
        "brokers": _brokers(description, views, releases),
        **replication_counts(views, reassignments),
        "features_epoch": features.epoch if features.epoch >= 0 else None,
        "features": [
            {
                "feature": name,
                "supported": _levels(features.supported.get(name)),
                "finalized": _levels(features.finalized.get(name)),
            }
            for name in names
        ],
    }


def _brokers(
    description: ClusterDescription, views: Sequence[TopicView], releases: Mapping[int, str]
) -> list[dict[str, Any]]:
    partitions = [partition for view in views for partition in view.partitions.values()]
    leaders: Counter[int] = Counter(partition.leader for partition in partitions)
    replicas = Counter(node_id for partition in partitions for node_id in partition.replicas)
    in_sync = Counter(node_id for partition in partitions for node_id in partition.in_sync_replicas)
    rows = []
    for node_id in sorted({*description.brokers, *replicas}):
        broker = description.brokers.get(node_id)
        state = "absent" if broker is None else "fenced" if node_id in description.fenced else "live"
        rows.append(
            {
                "node_id": node_id,
                "host": broker.host if broker else None,
                "port": broker.port if broker else None,
                "rack": broker.rack if broker else None,
                "release": releases.get(node_id),
                "state": state,
                "leaders": leaders[node_id],
                "replicas": replicas[node_id],
                "in_sync_replicas": in_sync[node_id],
            }
        )
    return rows


def _levels(levels: FeatureLevels | None) -> dict[str, int] | None:
    return None if levels is None else levels._asdict()


def _text(report: dict[str, Any]) -> str:
    controller = "no controller" if report["controller"] is None else f"controller {report['controller']}"
    brokers = [
        (
            b["node_id"],
            None if b["host"] is None else f"{b['host']}:{b['port']}",
            *(b["rack"], b["release"], b["state"], b["leaders"], b["replicas"], b["in_sync_replicas"]),
        )
        for b in report["brokers"]
    ]
    lines = [
        f"cluster {report['cluster_id'] or 'without an id'}, {controller}, {plural(len(brokers), 'broker')}",
        _replication_text(report),
        "",
        table(("broker", "address", "rack", "release", "state", "leaders", "replicas", "in sync"), brokers),
    ]
    if report["features"]:
        rows = [(f["feature"], _range(f["supported"]), _range(f["finalized"])) for f in report["features"]]
        lines += ["", table(("feature", "supported", "finalized"), rows)]
    else:
        lines += ["", "no features"]
    return "\n".join(lines)


def _replication_text(report: dict[str, Any]) -> str:
    replicas, in_sync = report["replicas"], report["in_sync_replicas"]
    share = f"{in_sync:,} of {replicas:,} replicas in sync ({in_sync / replicas:.1%})" if replicas else "no replicas"
    without_leader = f", {report['without_leader']:,} without a leader" if report["without_leader"] else ""
    partitions = f"{plural(report['partitions'], 'partition')}, {report['under_replicated'] or 'none'} under-replicated"
    return f"{partitions}{without_leader}; {share}"


def _range(levels: dict[str, int] | None) -> str | None:
    if levels is None:
        return None
    low, high = levels["min_level"], levels["max_level"]
    return str(high) if low == high else f"{low} to {high}"
