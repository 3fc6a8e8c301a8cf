"""Failover and growth with the registry in ZooKeeper, beside the file and Apache Kafka: ``python -m bench zookeeper``.

``zookeeper`` are three brokers of one machine. Those of ``machines`` see nothing of each other's processes, as each is
in a namespace of processes of its own: what they know of a dead one comes from the network and from ZooKeeper.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from barnabas.broker.supervisor.cluster_plan import cluster_defaults
from bench import peers, report
from bench.brokers import HOST, BrokerProcess
from bench.cluster import beside_kafka, failover
from bench.cluster.nodes import NODES, Cluster, free_ports, made_clusters, make_cluster
from bench.cluster.rows import QUICK, ClusterSuite, Scale
from bench.loads import Figures
from bench.suite import chosen_scale, format_number

BEGIN, END = "<!-- written by `make bench-zookeeper` -->", "<!-- end of what is written -->"
ONE_MACHINE, MACHINES = "zookeeper", "machines"
TITLES = {
    "kafka": f"Apache Kafka {peers.KAFKA_VERSION} (KRaft)",
    "barnabas": "one machine, file",
    ONE_MACHINE: "one machine, ZooKeeper",
    MACHINES: "several machines, ZooKeeper",
}
TICK_MS = 2000


class ClusterWithZooKeeper(Cluster):
    """Broker processes, and a ZooKeeper that is up before them. It counts neither in their CPU nor in their memory."""

    def __init__(self, name: str, root: Path) -> None:
        peers.need("java", *(["unshare"] if name == MACHINES else []))
        directory = root / name
        *ports, zookeeper = free_ports(NODES + 1)
        paths = ":".join(map(str, peers.zookeeper_jars()))
        if not paths:
            raise peers.PeerUnavailable(f"{name}: ZooKeeper's jars come with pyspark: pip install pyspark")
        server = f"java -Xmx256m -cp {paths} org.apache.zookeeper.server.ZooKeeperServerMain {zookeeper} data {TICK_MS}"
        self._zookeeper = BrokerProcess(name, server, zookeeper, directory / "zookeeper")
        settings = [f"{name}={value}" for name, value in cluster_defaults(NODES).items()]
        prefix = "unshare --pid --fork --kill-child --mount-proc " if name == MACHINES else ""
        command = f"{prefix}{shlex.quote(sys.executable)} -m barnabas serve --zookeeper {HOST}:{zookeeper}/barnabas"
        command += f" --data-dir data --listen {{address}}{''.join(f' --set {each}' for each in settings)}"
        processes = [
            BrokerProcess(name, f"{command} --node-id {node + 1}", port, directory / f"broker-{node + 1}")
            for node, port in enumerate(ports)
        ]
        super().__init__(name, processes, ports, directory)

    def start(self) -> None:
        self._zookeeper.start()
        self._zookeeper.wait_for_port(60.0)
        super().start()

    def stop(self) -> None:
        super().stop()
        self._zookeeper.stop()


def make(spec: str, root: Path) -> Cluster:
    """A cluster from ``zookeeper``, ``machines`` or what `make_cluster` knows. Raises ``PeerUnavailable``."""
    if spec not in (ONE_MACHINE, MACHINES):
        return make_cluster(spec, root)
    if spec == MACHINES and os.geteuid() != 0:
        raise peers.PeerUnavailable(f"{MACHINES}: only root may make namespaces of processes; run it as root")
    return ClusterWithZooKeeper(spec, root)


def main(options: argparse.Namespace) -> int:
    grown: dict[float, Figures] = {}
    with made_clusters(options.brokers, make) as (clusters, skipped):
        rows = [event.row for event in failover.EVENTS]
        suite = ClusterSuite(clusters, chosen_scale(options, Scale(), QUICK), rows)
        suite.run()
        for cluster in clusters:
            if cluster.name == ONE_MACHINE:
                grown = beside_kafka.grow(suite, cluster, options.largest_partitions)
    document = beside_kafka.as_document(suite, skipped, grown)
    names = [cluster.name for cluster in clusters]
    lines = [*failover_table(names, suite.results), ""]
    quick = "Quick run, figures are no results. " if options.quick else ""
    rounds = f"{suite.rounds} alternating rounds" if suite.rounds > 1 else "one round"
    lines.append(
        f"{quick}Medians (and the longest) of {rounds}, {document['at'][:10]}, {document['cores']} cores shared with "
        "ZooKeeper and the clients."
    )
    lines += [f"- failed: {failure}" for failure in suite.failures] + [f"- not run: {reason}" for reason in skipped]
    if grown:
        lines += ["", *beside_kafka.growth_table(grown, TITLES[ONE_MACHINE])]
    return report.conclude(options, document, "\n".join(lines) + "\n", [], (BEGIN, END))


def failover_table(names: Sequence[str], results: Mapping[str, Mapping[str, Mapping[str, list[float]]]]) -> list[str]:
    """A line for each event: how long partitions were not acknowledged that the broker led, and the others; what was
    lost, doubled or disordered, if anything was."""
    lines = ["| | " + " | ".join(TITLES.get(name, name) for name in names) + " |", "|---" * (len(names) + 1) + "|"]
    for row, figures in results.items():
        cells = [row]
        for name in names:
            led, elsewhere = (figures.get(figure, {}).get(name, []) for figure in ("gap_s", "gap_elsewhere_s"))
            cell = f"{_median_and_most(led)}, elsewhere {_median_and_most(elsewhere)}" if led else ""
            for anomaly in ("lost", "doubled", "disordered", "given_up"):
                if count := sum(figures.get(anomaly, {}).get(name, [])):
                    cell += f"; {anomaly.replace('_', ' ')} {count:g}"
            cells.append(cell)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _median_and_most(values: Sequence[float]) -> str:
    median, most = format_number(statistics.median(values)), format_number(max(values))
    return median if median == most else f"{median} ({most})"
