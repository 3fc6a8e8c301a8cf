"""`barnabas cluster`: describes the cluster as a whole."""

from typing import Any

from barnabas.cli.framework.app import App
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
