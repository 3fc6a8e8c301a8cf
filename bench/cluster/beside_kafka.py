"""Three brokers beside three of Apache Kafka: ``python -m bench cluster``.

A round runs every row on one cluster, then on the next, so that only one of them is up at a time; each begins with
empty directories. Medians are compared; the table has the least and the most, too.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import loads, peers, report
from bench.brokers import BrokerFailed
from bench.cluster import more_partitions
from bench.cluster.nodes import Cluster, made_clusters, make_cluster
from bench.cluster.rows import QUICK, ClusterSuite, Scale
from bench.loads import Figures
from bench.suite import chosen_scale, format_number
from bench.targets import CLUSTER_TARGETS, REFERENCE

BEGIN, END = "<!-- cluster: written by `make bench-cluster` -->", "<!-- end of cluster -->"
GROWTH = "growth"
PLOT = "growth-cluster.svg"


def main(options: argparse.Namespace) -> int:
    peers.rdkafka_performance()
    grown: dict[float, Figures] = {}
    with made_clusters(options.brokers, make_cluster) as (clusters, skipped):
        rows = [row for row in options.rows.split(",") if row]
        suite = ClusterSuite(clusters, chosen_scale(options, Scale(), QUICK), rows)
        if rows != [GROWTH]:
            suite.run()
        if suite.wanted(GROWTH):
            grown = grow(suite, clusters[-1], options.largest_partitions)
    if grown:
        from bench.growth import plot  # matplotlib is needed here only

        plot("partitions of three brokers", grown, clusters[-1].name, Path(options.out, PLOT))
    document = as_document(suite, skipped, grown)
    return report.conclude(options, document, markdown(document), missed(document), (BEGIN, END))


def grow(suite: ClusterSuite, cluster: Cluster, largest: int) -> dict[float, Figures]:
    """Measures a cluster with more and more partitions. A failure is noted, and ends it."""
    found: dict[float, Figures] = {}
    try:
        for size, figures in more_partitions.points(cluster, largest):
            found[size] = figures
            shown = "  ".join(f"{figure} {format_number(value)}" for figure, value in figures.items())
            print(f"{suite.clock()} {GROWTH} {size:>8g}  {shown}", flush=True)
    except (BrokerFailed, OSError, *loads.LOAD_ERRORS) as error:
        suite.failures.append(f"{GROWTH}, {cluster.name}: {error}")
        print(suite.failures[-1], file=sys.stderr)
    return found


def as_document(suite: ClusterSuite, skipped: Sequence[str], grown: Mapping[float, Figures]) -> dict[str, Any]:
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "kafka": peers.KAFKA_VERSION,
        "clusters": [cluster.name for cluster in suite.clusters],
        "rounds": suite.rounds,
        "quick": suite.scale.records_100b < Scale().records_100b,
        "skipped": list(skipped),
        "failures": suite.failures,
        "others_percent": suite.others,
        "results": suite.results,
        "growth": {str(size): figures for size, figures in grown.items()},
    }


def markdown(document: Mapping[str, Any]) -> str:
    """The tables: medians with the least and the most, their ratio, target and verdict; growth."""
    names: list[str] = document["clusters"]
    lines: list[str] = []
    if document["results"]:
        compared = REFERENCE in names and len(names) > 1
        header = ["row", "figure", *names, *([f"{names[-1]} / {REFERENCE}", "target", ""] if compared else [])]
        lines += ["| " + " | ".join(header) + " |", "|---" * 2 + "|---:" * (len(header) - 2) + "|"]
        for row, figures in document["results"].items():
            for figure, values in figures.items():
                cells = [row, figure, *(_cell(row, figure, values.get(name, [])) for name in names)]
                cells += _comparison(row, figure, values, names[-1]) if compared else []
                lines.append("| " + " | ".join(cells) + " |")
        lines += ["", _caption(document)]
    lines += [f"- not run: {reason}" for reason in document["skipped"]]
    lines += [f"- failed: {failure}" for failure in document["failures"]]
    if document["growth"]:
        lines += ["", *growth_table(document["growth"], names[-1])]
    return "\n".join(lines).strip() + "\n"


def missed(document: Mapping[str, Any]) -> list[str]:
    """``row figure`` of each target that the last cluster does not reach."""
    found: list[str] = []
    if document["clusters"][-1] == REFERENCE:
        return found
    for (row, figure), target in CLUSTER_TARGETS.items():
        values = document["results"].get(row, {}).get(figure, {})
        value, reference = (
            _typical(row, figure, values.get(name, [])) for name in (document["clusters"][-1], REFERENCE)
        )
        if value is not None and target.met(value, reference) is False:
            found.append(f"{row} {figure} ({target})")
    return found


def _typical(row: str, figure: str, values: Sequence[float]) -> float | None:
    """The median of the rounds; what may not happen at all is added up."""
    if not values:
        return None
    target = CLUSTER_TARGETS.get((row, figure))
    return sum(values) if target and target.absolute else statistics.median(values)


def _cell(row: str, figure: str, values: Sequence[float]) -> str:
    """The typical value, and behind it the least and the most if they differ."""
    typical = _typical(row, figure, values)
    if typical is None:
        return ""
    shown, least, most = (format_number(each) for each in (typical, min(values), max(values)))
    return shown if least == most or (least, most) == ("0", shown) else f"{shown} ({least} to {most})"


def _comparison(row: str, figure: str, values: Mapping[str, Sequence[float]], subject: str) -> list[str]:
    target = CLUSTER_TARGETS.get((row, figure))
    value, reference = (_typical(row, figure, values.get(name, [])) for name in (subject, REFERENCE))
    ratio = f"{value / reference:.2f}" if value is not None and reference else ""
    verdict = target.met(value, reference) if target and value is not None else None
    return [ratio, str(target or ""), {True: "pass", False: "**FAIL**", None: ""}[verdict]]


def growth_table(grown: Mapping[str, Figures], name: str) -> list[str]:
    sizes = list(grown)
    lines = ["| " + " | ".join([name, *(f"{float(size):,.0f} partitions" for size in sizes)]) + " |"]
    lines.append("|---" + "|---:" * len(sizes) + "|")
    for figure in dict.fromkeys(figure for size in sizes for figure in grown[size]):
        cells = [format_number(grown[size][figure]) if figure in grown[size] else "" for size in sizes]
        lines.append("| " + " | ".join([figure, *cells]) + " |")
    return lines


def _caption(document: Mapping[str, Any]) -> str:
    others = document["others_percent"] or [0.0]
    return (
        f"{'quick run, figures are no results; ' if document['quick'] else ''}medians (least to most) of "
        f"{document['rounds']} alternating rounds, {document['at'][:10]}, {document['cores']} cores shared with the "
        f"clients. Other processes used {statistics.median(others):.0f} % of the machine (median of {len(others)} "
        f"measurements, at most {max(others):.0f} %).{report.reference(document['clusters'], document['kafka'])}"
    )
