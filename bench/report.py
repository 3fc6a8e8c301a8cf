"""Results as JSON, as a table on the terminal and as the generated part of ``docs/benchmarks.md``."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import peers
from bench.suite import Scale, Suite, format_number
from bench.targets import REFERENCE, TARGETS

BEGIN = "<!-- benchmark table: written by `make bench` -->"
END = "<!-- end of benchmark table -->"
SUBJECT = "barnabas"
Results = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]


def as_document(suite: Suite, skipped: Sequence[str]) -> dict[str, Any]:
    """Returns the document of a run, with everything that a later reader needs to judge the figures."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {_memory_gb()} GB, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "client": f"rdkafka_performance of librdkafka {peers.LIBRDKAFKA_VERSION}",
        "kafka": peers.KAFKA_VERSION,
        "brokers": [broker.name for broker in suite.brokers],
        "rounds": suite.scale.rounds,
        "quick": suite.scale.records_100b < Scale().records_100b,
        "skipped": list(skipped),
        "failures": suite.failures,
        "results": suite.results,
    }


def markdown(document: Mapping[str, Any]) -> str:
    """The table: medians, ratio of the subject to the reference, target and verdict per figure."""
    names: list[str] = document["brokers"]
    subject = _subject(names)
    header = ["row", "figure", *names]
    if subject:
        header += [f"{subject} / {REFERENCE}", "target", ""]
    lines = ["| " + " | ".join(header) + " |", "|---" * 2 + "|---:" * (len(header) - 2) + "|"]
    for row, figures in document["results"].items():
        for figure, values in figures.items():
            medians = {name: statistics.median(values[name]) for name in names if values.get(name)}
            cells = [row, figure, *(format_number(medians[name]) if name in medians else "" for name in names)]
            lines.append("| " + " | ".join(cells + (_verdict(row, figure, medians, subject) if subject else [])) + " |")
    lines += ["", _caption(document)]
    lines += [f"- not run: {reason}" for reason in document["skipped"]]
    lines += [f"- failed: {failure}" for failure in document["failures"]]
    return "\n".join(lines) + "\n"


def missed(document: Mapping[str, Any]) -> list[str]:
    """``row figure`` of each target that the subject does not reach."""
    names: list[str] = document["brokers"]
    subject = _subject(names)
    found = []
    for (row, figure), target in TARGETS.items():
        values = document["results"].get(row, {}).get(figure, {})
        if subject and values.get(subject):
            reference = statistics.median(values[REFERENCE]) if values.get(REFERENCE) else None
            if target.met(statistics.median(values[subject]), reference) is False:
                found.append(f"{row} {figure} ({target})")
    return found


def write_json(document: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def conclude(
    options: argparse.Namespace,
    document: Mapping[str, Any],
    table: str,
    missed: Sequence[str],
    marks: tuple[str, str] = (BEGIN, END),
) -> int:
    """Writes and prints the results of a run, and returns its exit code."""
    write_json(document, Path(options.json))
    print(f"\n{table}")
    if options.docs:
        update_block(table, Path(options.docs), *marks)
    if missed:
        print(f"{len(missed)} targets missed: {'; '.join(missed)}")
    return 1 if document["failures"] or (options.check and missed) else 0


def update_docs(table: str, page: Path) -> None:
    """Replaces the generated part of the page, or adds it at its end; the text around it stays."""
    update_block(table, page, BEGIN, END)


def update_block(table: str, page: Path, begin: str, end: str) -> None:
    """The same for the part between two marks."""
    text = page.read_text() if page.exists() else "# Benchmarks\n"
    block = f"{begin}\n\n{table}\n{end}"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    text = pattern.sub(lambda _: block, text) if pattern.search(text) else f"{text.rstrip()}\n\n{block}\n"
    page.write_text(text)


def _subject(names: Sequence[str]) -> str | None:
    """Returns the broker that the targets apply to: Barnabas, or else the first that is no peer."""
    if SUBJECT in names:
        return SUBJECT
    return next((name for name in names if name not in (REFERENCE, "kfake")), None)


def _verdict(row: str, figure: str, medians: Mapping[str, float], subject: str) -> list[str]:
    value, reference = medians.get(subject), medians.get(REFERENCE)
    ratio = f"{value / reference:.2f}" if value is not None and reference else ""
    target = TARGETS.get((row, figure))
    if target is None or value is None:
        return [ratio, str(target or ""), ""]
    verdict = {True: "pass", False: "**FAIL**", None: ""}[target.met(value, reference)]
    return [ratio, str(target), verdict]


def _caption(document: Mapping[str, Any]) -> str:
    scale = "quick run, figures are no results; " if document["quick"] else ""
    rounds, day = document["rounds"], document["at"][:10]
    machine = f"{document['machine']} shared with the client ({document['client']}), Python {document['python']}"
    release = reference(document["brokers"], document["kafka"])
    return f"{scale}medians of {rounds} alternating rounds, {day}, {machine}.{release}"


def reference(names: Sequence[str], release: str = peers.KAFKA_VERSION) -> str:
    """Says which release the figures of Apache Kafka are from, if some are."""
    return f" {REFERENCE} is Apache Kafka {release}." if REFERENCE in names else ""


def _memory_gb() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
