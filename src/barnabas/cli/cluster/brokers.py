"""`barnabas brokers`: the brokers, and what each of them has."""

from collections import Counter
from collections.abc import Mapping

from barnabas.cli.framework.app import App
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Cluster, Json
from barnabas.cli.framework.output import show, size_text, table
from barnabas.client.admin.log_dirs import LogDir
from barnabas.client.errors import ItemsFailed

app = App("List the brokers.", default="list")


@app.command("list", example="barnabas brokers")
def list_brokers(cluster: Cluster = DEFAULT_CLUSTER, json: Json = False) -> None:
    """List the brokers with the partitions that they lead and keep, and the space that these take."""
    with cluster.admin() as admin:
        description = admin.describe_cluster()
        topics = admin.list_topics(internal=True)
        directories: Mapping[int, list[LogDir]]
        try:
            directories = admin.describe_log_dirs(list(description.brokers))
        except ItemsFailed as error:  # values that a broker does not report are left out
            directories = error.succeeded
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    leaders: Counter[int] = Counter(partition.leader for partition in partitions)
    replicas = Counter(replica for partition in partitions for replica in partition.replicas)
    rows = [
        {
            **broker._asdict(),
            "controller": node_id == description.controller_id,
            "leaders": leaders[node_id],
            "replicas": replicas[node_id],
            "size_bytes": _size(directories.get(node_id)),
        }
        for node_id, broker in sorted(description.brokers.items())
    ]
    headers = ("broker", "address", "rack", "controller", "leaders", "replicas", "size")
    cells = [
        (
            row["node_id"], f"{row['host']}:{row['port']}", row["rack"], "yes" if row["controller"] else "",
            row["leaders"], row["replicas"], size_text(row["size_bytes"]),
        )
        for row in rows
    ]  # fmt: skip
    show(rows, json, lambda: table(headers, cells))


def _size(directories: list[LogDir] | None) -> int | None:
    if directories is None:
        return None
    return sum(replica.size_bytes for directory in directories for replica in directory.replicas)
