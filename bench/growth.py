"""Measures the cost of a broker as partitions, log size and group members grow; writes figures, slopes and plots."""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench import groups, loads, peers, wire
from bench.brokers import HOST, BrokerFailed, BrokerProcess, make_broker
from bench.loads import Figures
from bench.suite import format_number

TOPIC = "growth"
RANDOM_READS = 200
READ_BYTES = 1 << 20
WORSE_THAN_LINEAR = 1.1
AXES = {"partitions": "partitions", "log": "log size (GB)", "groups": "group members"}

Points = dict[float, Figures]


def main(options: argparse.Namespace) -> int:
    """Measures the chosen kinds of growth, and writes the JSON and one SVG for each."""
    root = Path(tempfile.mkdtemp(prefix="barnabas-growth-"))
    results: dict[str, Points] = {}
    broker: BrokerProcess | None = None
    try:
        broker = make_broker(options.broker, root)
        for what in options.what.split(","):
            results[what] = {}
            for size, figures in _points(what, broker, options):
                results[what][size] = figures
                shown = "  ".join(f"{figure} {format_number(value)}" for figure, value in figures.items())
                print(f"{what:10} {size:>8g}  {shown}", flush=True)
            broker.stop()
            broker.clear()
    except (peers.PeerUnavailable, BrokerFailed, OSError, *loads.LOAD_ERRORS) as error:
        print(f"growth: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        if broker is not None:
            broker.stop()
        shutil.rmtree(root, ignore_errors=True)
    Path(options.json).parent.mkdir(parents=True, exist_ok=True)
    Path(options.json).write_text(json.dumps({"broker": broker.name, "results": results}, indent=1) + "\n")
    for what, points in results.items():
        for figure, slope in slopes(points).items():
            if slope > WORSE_THAN_LINEAR:
                print(f"worse than linear: {what}: {figure} grows with n^{slope:.2f}")
        plot(AXES[what], points, broker.name, Path(options.out, f"growth-{what}.svg"))
    return 0


def slopes(points: Mapping[float, Figures]) -> dict[str, float]:
    """Exponent of each figure's growth over the upper decade: 1 is linear, 0 does not grow."""
    found = {}
    for figure in {name for figures in points.values() for name in figures}:
        sizes = [size for size in sorted(points) if points[size].get(figure, 0) > 0]
        if len(sizes) > 1:
            below, above = sizes[-2], sizes[-1]
            growth = points[above][figure] / points[below][figure]
            found[figure] = math.log(growth) / math.log(above / below)
    return found


def _points(what: str, broker: BrokerProcess, options: argparse.Namespace) -> Iterator[tuple[float, Figures]]:
    if what == "partitions":
        for count in _up_to((10, 100, 1_000, 10_000), options.largest_partitions):
            yield count, _partitions(broker, int(count))
    elif what == "log":
        yield from _log_sizes(broker, _up_to((0.1, 0.5, 2, 5, 10, 20), options.largest_log_gb))
    elif what == "groups":
        _fresh(broker)
        for count in _up_to((1, 10, 100, 300, 1_000), options.largest_group):
            yield count, groups.measure(broker, int(count))
    else:
        raise BrokerFailed(f"no growth called {what!r}: use {', '.join(AXES)}")


def _up_to(sizes: Sequence[float], largest: float) -> list[float]:
    return sorted({min(size, largest) for size in sizes})


def _fresh(broker: BrokerProcess) -> None:
    broker.stop()
    broker.clear()
    broker.start()
    broker.first_ack_s()


def _partitions(broker: BrokerProcess, count: int) -> Figures:
    """Measures one topic of ``count`` partitions: creation, listing, writes to all partitions, restart."""
    _fresh(broker)
    began = time.perf_counter()
    loads.create_topic(broker, TOPIC, count)
    figures = {"create_s": time.perf_counter() - began, "metadata_ms": loads.metadata_ms(broker)}
    command = loads.performance_command(broker, *loads.producer_arguments(TOPIC, 100, 500_000, -1, "none"))
    figures["produce_records_per_s"] = loads.records_per_s(command)
    idle = loads.idle(broker, 2.0, 4.0)
    figures |= {"memory_MB": idle["memory_MB"], "idle_cpu_percent": idle["cpu_percent"]}
    return figures | _restarts(broker)


def _log_sizes(broker: BrokerProcess, sizes: Sequence[float]) -> Iterator[tuple[float, Figures]]:
    """Measures one log that grows in steps: writes, reads at random offsets, memory, restarts."""
    _fresh(broker)
    loads.create_topic(broker, TOPIC)
    written = 0
    for gigabytes in sizes:
        records = max(1, int(gigabytes * 1e9 / 1024) - written)
        command = loads.performance_command(broker, *loads.producer_arguments(TOPIC, 1024, records, -1, "none"))
        figures = {"produce_records_per_s": loads.records_per_s(command)}
        written += records
        figures |= {"memory_MB": broker.memory_mb()} | _random_reads(broker)
        yield gigabytes, figures | _restarts(broker)


def _random_reads(broker: BrokerProcess) -> Figures:
    """Fetch from random offsets, one at a time."""
    rng = random.Random(1)
    ends = loads.end_offsets(broker, TOPIC)
    milliseconds = []
    with socket.create_connection((HOST, broker.port), 60) as connection:
        for _ in range(RANDOM_READS):
            partition = rng.choice([partition for partition, end in ends.items() if end])
            offset = rng.randrange(ends[partition])
            body = wire.fetch_body(TOPIC, {partition: offset}, READ_BYTES)
            began = time.perf_counter()
            answer = wire.call(connection, wire.frame(wire.FETCH, wire.FETCH_VERSION, 1, body))
            milliseconds.append((time.perf_counter() - began) * 1000)
            wire.fetched_ranges(answer)
    found = loads.percentiles(sorted(milliseconds))
    return {"random_read_p50_ms": found["p50_ms"], "random_read_p99_ms": found["p99_ms"]}


def _restarts(broker: BrokerProcess) -> Figures:
    broker.stop(signal.SIGTERM)
    broker.start()
    clean = broker.first_ack_s()
    broker.stop(signal.SIGKILL)
    broker.start()
    return {"restart_clean_s": clean, "restart_killed_s": broker.first_ack_s()}


def plot(axis_name: str, points: Mapping[float, Figures], name: str, path: Path) -> None:
    """One SVG: a panel per figure on logarithmic axes, with a dotted line that grows linearly from the first point."""
    try:
        import matplotlib
    except ImportError:
        print("no plots: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
        return
    matplotlib.use("svg")
    from matplotlib import pyplot

    sizes = sorted(points)
    names = list(dict.fromkeys(figure for size in sizes for figure in points[size]))
    columns = 3
    rows = math.ceil(len(names) / columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(4 * columns, 3 * rows), squeeze=False, layout="constrained")
    exponent = slopes(points)
    for axis, measured in zip([axis for row in axes for axis in row], names, strict=False):
        at = [size for size in sizes if points[size].get(measured, 0) > 0]
        values = [points[size][measured] for size in at]
        if not at:
            axis.set_visible(False)
            continue
        axis.loglog(at, values, marker="o", color="#2a6f97")
        if not measured.endswith("per_s"):
            axis.loglog(at, [values[0] * size / at[0] for size in at], linestyle=":", color="#999999")
            axis.set_ylim(min(values) / 2, max(values) * 3)
        label = f"  (n^{exponent[measured]:.1f})" if measured in exponent else ""
        axis.set_title(f"{measured}{label}", fontsize=9)
        axis.set_xlabel(axis_name, fontsize=8)
        axis.grid(visible=True, which="major", alpha=0.3)
    for axis in [axis for row in axes for axis in row][len(names) :]:
        axis.set_visible(False)
    figure.suptitle(f"{name}: growth with {axis_name}; dotted: linear", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")
