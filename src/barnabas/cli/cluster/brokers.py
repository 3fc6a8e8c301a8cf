"""`barnabas brokers`: the brokers, what each of them has, and whether one of them serves."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated

from barnabas.cli.framework.app import App, Option
from barnabas.cli.framework.options import DEFAULT_CLUSTER, Bootstrap, Client, Cluster, Json, Profile
from barnabas.cli.framework.output import CommandFailed, show, size_text, table
from barnabas.cli.framework.resources import known_releases, live_brokers
from barnabas.client.admin.log_dirs import LogDir
from barnabas.client.errors import ItemsFailed
from barnabas.connection.broker.addresses import parse_bootstrap
from barnabas.errors import UsageError

app = App("List the brokers.", default="list")


@app.command("list", example="barnabas brokers")
def list_brokers(cluster: Cluster = DEFAULT_CLUSTER, json: Json = False) -> None:
    """List the brokers with their releases, the partitions that they lead and keep, and the space that these take."""
    with cluster.admin() as admin:
        description = live_brokers(admin)
        topics = admin.list_topics(internal=True)
        directories: Mapping[int, list[LogDir]]
        try:
            directories = admin.describe_log_dirs(list(description.brokers))
        except ItemsFailed as error:  # values that a broker does not report are left out
            directories = error.succeeded
        releases = known_releases(admin)
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    leaders: Counter[int] = Counter(partition.leader for partition in partitions)
    replicas = Counter(replica for partition in partitions for replica in partition.replicas)
    rows = [
        {
            **broker._asdict(),
            "release": releases.get(node_id),
            "controller": node_id == description.controller_id,
            "leaders": leaders[node_id],
            "replicas": replicas[node_id],
            "size_bytes": _size(directories.get(node_id)),
        }
        for node_id, broker in sorted(description.brokers.items())
    ]
    headers = ("broker", "address", "rack", "release", "controller", "leaders", "replicas", "size")
    cells = [
        (
            row["node_id"], f"{row['host']}:{row['port']}", row["rack"], row["release"],
            "yes" if row["controller"] else "", row["leaders"], row["replicas"], size_text(row["size_bytes"]),
        )
        for row in rows
    ]  # fmt: skip
    show(rows, json, lambda: table(headers, cells))


def _size(directories: list[LogDir] | None) -> int | None:
    if directories is None:
        return None
    return sum(replica.size_bytes for directory in directories for replica in directory.replicas)


@app.command("check", example="barnabas brokers check --bootstrap 127.0.0.1:9092")
def check_broker(
    bootstrap: Bootstrap = None,
    timeout: Annotated[float, Option(metavar="SECONDS", minimum=0.1, help="For each of two answers.")] = 5.0,
    client: Client = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Ask the broker at one address whether it serves; exit code 1 unless it answers and is live, that is, not fenced.

    Nobody else is asked, neither other brokers nor ZooKeeper: this is for the probes of what runs a broker.
    """
    from barnabas.client.diagnosis.liveness import find_live_broker

    cluster = Cluster(bootstrap, timeout, client, profile)
    address = cluster.address()
    (host, port), *others = parse_bootstrap(address)
    if others:
        raise UsageError(f"brokers check: {address} are several addresses; one broker is asked, so give one")
    node_id = find_live_broker(host, port, cluster.settings(), timeout)
    if node_id is None:
        raise CommandFailed(f"the broker at {address} answers, but is fenced: the controller does not count on it")
    show({"node_id": node_id, "address": address}, json, lambda: f"broker {node_id} at {address} is live")
