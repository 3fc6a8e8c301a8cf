"""The command line in pipes beside kcat: ``python -m bench pipes``.

Keyed records come through a pipe into a topic and go out of it again into /dev/null. Both tools take turns on the same
broker, medians are compared. The time of a process is measured from its start to its end.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import random
import shutil
import statistics
import string
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import loads, peers, report
from bench.brokers import BrokerFailed, BrokerProcess, make_broker
from bench.suite import format_number

BEGIN, END = "<!-- pipes: written by `make bench-pipes` -->", "<!-- end of pipes -->"
VALUE_BYTES = 100
VALUES = 1000
KEYS = 10_000_000
"""Decimal numbers below this one: keys of up to 7 bytes."""
LOOK_S = 0.01
RATIO_MAX = 1.5
"""The target: at most this multiple of kcat's time, and of its CPU time."""

Figures = dict[str, float]
Results = dict[str, dict[str, dict[str, list[float]]]]
"""Row, tool, figure, rounds."""


class Row(NamedTuple):
    """The arguments of each tool between its name and the broker and topic."""

    name: str
    kcat: Sequence[str]
    barnabas: Sequence[str]


PRODUCE = Row("produce", ("-P", "-K", r"\t"), ("produce", "-K", r"\t"))
CONSUME = (
    Row("consume", (), ()),
    Row(r"consume %k\t%v\n", ("-K", r"\t"), ("-f", r"%k\t%v\n")),
    Row(r"consume %p %o %k %v\n", ("-f", r"%p %o %k %s\n"), ("-f", r"%p %o %k %v\n")),
    Row("consume, JSON", ("-J",), ("--json",)),
)


def main(options: argparse.Namespace) -> int:
    """`python -m bench pipes`."""
    root = Path(tempfile.mkdtemp(prefix="barnabas-bench-pipes-"))
    broker: BrokerProcess | None = None
    try:
        peers.need("kcat")
        broker = make_broker(options.broker, root)
        source = root / "records"
        write_records(source, options.records)
        broker.start()
        broker.first_ack_s()
        results = _run(broker, source, options)
    except (peers.PeerUnavailable, BrokerFailed, subprocess.SubprocessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    finally:
        if broker is not None:
            broker.stop()
        shutil.rmtree(root, ignore_errors=True)
    report.write_json({"options": vars(options), "results": results}, Path(options.json))
    text = markdown(results, options.records, options.rounds)
    print(f"\n{text}")
    if options.docs:
        report.update_block(text, Path(options.docs), BEGIN, END)
    return 0


def write_records(path: Path, count: int) -> None:
    """Returns lines of key, tab and value, the same ones in each run."""
    chosen = random.Random(1)
    letters = string.ascii_lowercase + string.digits + " "
    values = ["".join(chosen.choices(letters, k=VALUE_BYTES)) for _ in range(VALUES)]
    with path.open("w") as file:
        for number in range(count):
            file.write(f"{number * 7919 % KEYS}\t{values[number % VALUES]}\n")


def _run(broker: BrokerProcess, source: Path, options: argparse.Namespace) -> Results:
    results: Results = {}

    def note(row: Row, tool: str, figures: Figures) -> None:
        for name, value in figures.items():
            results.setdefault(row.name, {}).setdefault(tool, {}).setdefault(name, []).append(value)
        shown = ", ".join(f"{name} {format_number(value)}" for name, value in figures.items())
        print(f"{row.name}, {tool}: {shown}", flush=True)

    for _ in range(options.rounds):
        topics = {}
        for tool in ("kcat", "barnabas"):
            topics[tool] = topic = f"pipes-{uuid.uuid4().hex[:8]}"
            loads.create_topic(broker, topic)
            note(PRODUCE, tool, measure(_command(tool, PRODUCE, broker, topic), source))
        for row in CONSUME:
            for tool in ("kcat", "barnabas"):
                note(row, tool, measure(_command(tool, row, broker, topics["barnabas"])))
    return results


def _command(tool: str, row: Row, broker: BrokerProcess, topic: str) -> list[str]:
    if tool == "kcat":
        mode = () if row is PRODUCE else ("-C", "-e", "-q", "-o", "beginning")
        return ["kcat", *mode, "-b", broker.address, "-t", topic, *row.kcat]
    verb = () if row is PRODUCE else ("consume", "-e", "-q")
    return [sys.executable, "-m", "barnabas", *verb, *row.barnabas, "-b", broker.address, topic]


def measure(command: Sequence[str], source: Path | None = None) -> Figures:
    """Runs the command with the file as its input through a pipe, and drops its output. Raises CalledProcessError.

    The peak of its memory is read while it runs: the kernel's value at the end may be that of its parent.
    """
    with contextlib.ExitStack() as stack:
        if source is None:
            stdin = stack.enter_context(open(os.devnull, "rb"))
        else:
            feeder = stack.enter_context(subprocess.Popen(["cat", str(source)], stdout=subprocess.PIPE))
            assert feeder.stdout is not None
            stdin = feeder.stdout
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stdin.close()
        memory_mb = 0.0
        while True:
            done, status, used = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            memory_mb = max(memory_mb, peak_mb(process.pid))
            time.sleep(LOOK_S)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {"wall_s": wall_s, "cpu_s": used.ru_utime + used.ru_stime, "memory_MB": memory_mb}


def peak_mb(pid: int) -> float:
    """Returns the peak of the resident memory; 0 for a process that has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


def markdown(results: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]], records: int, rounds: int) -> str:
    """Returns a table of medians with the targets beside kcat."""
    lines = [
        "| row | tool | s | CPU-s | MB | to be reached |",
        "|---|---|---:|---:|---:|---|",
    ]
    for row, tools in results.items():
        medians = {
            tool: {name: statistics.median(values) for name, values in figures.items()}
            for tool, figures in tools.items()
        }
        for tool, figures in medians.items():
            cells = [format_number(figures[name]) for name in ("wall_s", "cpu_s", "memory_MB")]
            goals = ""
            if tool == "barnabas" and "kcat" in medians:
                goals = "; ".join(_verdict(name, figures, medians["kcat"]) for name in ("wall_s", "cpu_s"))
            lines.append(f"| {row} | {tool} | {' | '.join(cells)} | {goals} |")
    day = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    caption = (
        f"Medians of {rounds} alternating rounds of {records:,} records over {loads.PARTITIONS} partitions, keys of up"
        f" to 7 bytes, values of {VALUE_BYTES}; {day}, {os.cpu_count()} cores shared with the broker and the other end"
        " of the pipe."
    )
    return "\n".join([*lines, "", caption, ""])


def _verdict(name: str, figures: Mapping[str, float], kcat: Mapping[str, float]) -> str:
    ratio = figures[name] / kcat[name]
    return f"{name} <= {RATIO_MAX}x kcat: {ratio:.2f}x {'pass' if ratio <= RATIO_MAX else '**FAIL**'}"
