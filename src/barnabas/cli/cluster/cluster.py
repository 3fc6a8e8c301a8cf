"""`barnabas cluster`: describes the cluster as a whole."""

from pathlib import Path
from typing import Annotated, Any

from barnabas.cli.framework.app import App, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.output import show, table
from barnabas.cli.framework.resources import plural
from barnabas.client.admin.cluster import ClusterDescription, FeatureLevels, Features

app = App("Describe the cluster: its id, controller, brokers and features.", default="describe")


@app.command(example="barnabas cluster")
def describe(cluster: Cluster = DEFAULT_CLUSTER, json: Json = False) -> None:
    """Show the cluster's id, its controller, its brokers, and the features that it has agreed on.

    A feature has a range of levels that the brokers support, and the level that is in force: finalized.
    """
    with cluster.admin() as admin:
        description, features = admin.describe_cluster(), admin.describe_features()
    report = _report(description, features)
    show(report, json, lambda: _text(report))


@app.command(
    example="barnabas cluster recover --registry data/registry.db --data-dir data/broker-1 --data-dir data/broker-2"
)
def recover(
    registry: Annotated[str, Option(metavar="FILE", help="The registry that is made; it must not be there.")],
    data_dir: Annotated[list[str], Option(metavar="DIR", help="A data directory of a broker; name those of all.")],
    json: Json = False,
) -> None:
    """Make the lost registry of a cluster anew, from the copies beside its brokers' logs. The brokers must be stopped.

    Of each partition the replica leads whose log reaches furthest, so no acknowledged record is lost if the directories
    of all brokers are named. A topic or a setting that was changed in the last second may be missing.
    """
    from barnabas.broker.startup.recovery import recover_registry

    done = recover_registry(Path(registry).absolute(), data_dir)
    report = {
        "registry": registry,
        "cluster_id": done.image.cluster_id,
        "topics": len(done.image.topics),
        "partitions": done.partitions,
        "without_log": [str(partition) for partition in done.without_log],
        "out_of_isr": [str(partition) for partition in done.out_of_isr],
    }
    show(report, json, lambda: _recovered(report))


def _recovered(report: dict[str, Any]) -> str:
    counts = f"{plural(report['topics'], 'topic')}, {plural(report['partitions'], 'partition')}"
    lines = [f"made {report['registry']} for cluster {report['cluster_id']}: {counts}"]
    if report["without_log"]:
        lines.append(f"no data directory has a replica of: {', '.join(report['without_log'])}")
    if report["out_of_isr"]:
        lines.append(
            "no in-sync replica was among the data directories, records may be missing: "
            + ", ".join(report["out_of_isr"])
        )
    return "\n".join(lines)


def _report(description: ClusterDescription, features: Features) -> dict[str, Any]:
    names = sorted({*features.supported, *features.finalized})
    return {
        "cluster_id": description.cluster_id,
        "controller": description.controller_id if description.controller_id >= 0 else None,
        "brokers": [broker._asdict() for _, broker in sorted(description.brokers.items())],
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


def _levels(levels: FeatureLevels | None) -> dict[str, int] | None:
    return None if levels is None else levels._asdict()


def _text(report: dict[str, Any]) -> str:
    controller = "no controller" if report["controller"] is None else f"controller {report['controller']}"
    brokers = [(b["node_id"], f"{b['host']}:{b['port']}", b["rack"]) for b in report["brokers"]]
    lines = [
        f"cluster {report['cluster_id'] or 'without an id'}, {controller}, {plural(len(brokers), 'broker')}",
        "",
        table(("broker", "address", "rack"), brokers),
    ]
    if report["features"]:
        rows = [(f["feature"], _range(f["supported"]), _range(f["finalized"])) for f in report["features"]]
        lines += ["", table(("feature", "supported", "finalized"), rows)]
    else:
        lines += ["", "no features"]
    return "\n".join(lines)


def _range(levels: dict[str, int] | None) -> str | None:
    if levels is None:
        return None
    low, high = levels["min_level"], levels["max_level"]
    return str(high) if low == high else f"{low} to {high}"
