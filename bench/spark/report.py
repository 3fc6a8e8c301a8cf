"""Writes the Spark comparison as a table and a plot, with the targets."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench import report
from bench.spark.orders import READY
from bench.suite import format_number

BEGIN, END = "<!-- Spark: written by `make bench-spark` -->", "<!-- end of Spark -->"
PLOT = "spark-partitions.svg"
REFERENCE = "kafka"
PARTITIONS = re.compile(r"read 100 B, (\d+) partitions")

Figures = Mapping[str, Mapping[str, Any]]
"""Of one row: format, then `unit`, `values`, and the most memory seen, `jvm_MB` and `workers_MB`."""


class Goal(NamedTuple):
    """The targets of our format, as multiples of the JVM connector's median."""

    ratio: float
    at_least: bool = True

    def met(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.at_least else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.ratio:g}x"


GOALS = {
    "batch read 100 B": Goal(2.5),
    "AvailableNow 100 B": Goal(2.5),
    "batch read 1 KB": Goal(2.5),
    "AvailableNow 1 KB": Goal(2.5),
    "batch write 100 B": Goal(1.5),
    "batch write 1 KB": Goal(2.0),
    "micro-batch topic to topic, 8 partitions": Goal(0.35, at_least=False),
    "read with JSON parsed": Goal(1.2),
}


def markdown(document: Mapping[str, Any]) -> str:
    """Medians, ratios, memory; a table for each kind of session."""
    lines = []
    for session, rows in document["results"].items():
        lines += [
            f"Session {session}:",
            "",
            "| row | unit | JVM connector | barnabas | ratio | goal | | JVM MB | workers MB |",
            "|---|---|---:|---:|---:|---|---|---:|---:|",
        ]
        for row, figures in rows.items():
            lines += [_line(row, figures, how) for how in figures if how != REFERENCE] or [_line(row, figures, "")]
        lines.append("")
    lines.append(_caption(document))
    lines += [f"- failed: {failure}" for failure in document["failures"]]
    return "\n".join(lines) + "\n"


def _line(row: str, figures: Figures, how: str) -> str:
    reference, ours = figures.get(REFERENCE), figures.get(how)
    values = [statistics.median(each["values"]) if each and each["values"] else None for each in (reference, ours)]
    ratio = values[1] / values[0] if values[0] and values[1] else None
    goal = GOALS.get(row)
    is_bound = how == READY
    verdict = "" if ratio is None or goal is None or is_bound else "pass" if goal.met(ratio) else "**FAIL**"
    variant = " at most (ready batches)" if is_bound else how.removeprefix("barnabas")
    cells = [
        f"{row},{variant}" if variant else row,
        next(iter(figures.values()))["unit"],
        *("" if value is None else format_number(value) for value in values),
        "" if ratio is None else f"{ratio:.2f}",
        "" if is_bound else str(goal or ""),
        verdict,
        *(f"{ours[name]:.0f}" if ours and name in ours else "" for name in ("jvm_MB", "workers_MB")),
    ]
    return "| " + " | ".join(cells) + " |"


def _caption(document: Mapping[str, Any]) -> str:
    scale = "quick run, figures are no results; " if document["quick"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    return (
        f"{scale}medians of {document['rounds']} alternating rounds after one for warming up, {document['records']:,}"
        f" records of 100 B and a quarter of 1 KB, `local[2]`, {document['machine']} shared with the broker;"
        f" {versions}; {document['at'][:10]}."
    )


def update_docs(document: Mapping[str, Any], page: Path) -> None:
    """Writes table and plot into the page's part for Spark."""
    text = markdown(document)
    if plot(document, page.parent / PLOT):
        text += f"\n![records per second against partitions]({PLOT})\n"
    report.update_block(text, page, BEGIN, END)


def scaling(rows: Mapping[str, Figures]) -> dict[str, dict[int, float]]:
    """Format, then rec/s by number of partitions."""
    found: dict[str, dict[int, float]] = {}
    for row, figures in rows.items():
        if match := PARTITIONS.fullmatch(row):
            for how, each in figures.items():
                if each["values"]:
                    found.setdefault(how, {})[int(match[1])] = statistics.median(each["values"])
    return found


def plot(document: Mapping[str, Any], path: Path) -> bool:
    sessions = {name: curves for name, rows in document["results"].items() if (curves := scaling(rows))}
    if not sessions:
        return False
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
        return False
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(sessions), figsize=(4 * len(sessions), 3.2), squeeze=False, sharey=True, layout="constrained"
    )
    for axis, (session, curves) in zip(axes[0], sessions.items(), strict=True):
        for how, points in curves.items():
            label = "JVM connector" if how == REFERENCE else how
            color = "#999999" if how == REFERENCE else "#2a6f97"
            axis.plot(list(points), [rate / 1e6 for rate in points.values()], marker="o", label=label, color=color)
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(points), [str(count) for count in points])
        axis.set_title(f"session {session}", fontsize=9)
        axis.set_xlabel("partitions = tasks, two at a time", fontsize=8)
        axis.set_ylim(bottom=0)
        axis.grid(visible=True, alpha=0.3)
    axes[0][0].set_ylabel("million records/s, 100 B", fontsize=8)
    axes[0][0].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")
    return True
