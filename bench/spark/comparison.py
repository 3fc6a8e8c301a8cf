"""Spark's own Kafka connector (JVM) beside ``format("barnabas")``: ``python -m bench spark``, or ``make bench-spark``.

Both in the same Spark session, in turn, on the same broker (ours) and the same two threads. How to run it by hand, with
any Python that has pyspark 4.2 (the newest that has a connector), pyarrow, pandas, numpy and confluent-kafka:

    make spark-connector                                          # the connector's jars into build/spark-connector
    PYTHONPATH=src python -m bench spark                          # every row in both kinds of session, 25 minutes
    PYTHONPATH=src python -m bench spark --quick                  # a tenth of the data, one round
    PYTHONPATH=src python -m bench spark --rows 'read 100,micro' --sessions plain --rounds 3
    PYTHONPATH=src python -m bench spark --formats barnabas       # without jars, so also with pyspark 4.3
    PYTHONPATH=src python -m bench spark --rows lag --lag-gb 100  # memory of driver and workers

``plain`` sessions have Spark's own settings, ``tuned`` ones those of ``barnabas.spark.session()``. Each kind is a
process of its own (``bench.spark.session``), because some settings count only at the start. Format ``ready`` is what a
source or sink in Python could reach at most (``bench.spark.ready``).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import peers, report
from bench.brokers import BrokerFailed, BrokerProcess, make_broker
from bench.spark import report as spark_report
from bench.spark.orders import SESSIONS, Orders

SETTINGS = ("num.partitions=4", "transaction.two.phase.commit.enable=true")
"""The second setting is the one that the sink's guarantee requires (docs/spark.md); it does not affect the JVM
connector."""
CONNECTOR = "4.2.0"
SESSION_TIMEOUT_S = 3600


def add_options(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ours = commands.add_parser("spark", help="Spark's JVM connector beside ours, in the same session")
    ours.add_argument("--sessions", default=",".join(SESSIONS), help="comma-separated (default: %(default)s)")
    ours.add_argument("--formats", default="kafka,barnabas,ready", help="comma-separated (default: %(default)s)")
    ours.add_argument("--rows", default="", help="comma-separated regular expressions over row names; default: all")
    ours.add_argument("--rounds", type=int, default=5, help="after one for warming up (default: %(default)s)")
    ours.add_argument("--records", type=int, default=2_000_000, help="of 100 B; a quarter of 1 KB (%(default)s)")
    ours.add_argument("--quick", action="store_true", help="a tenth of the data, one round: shows that everything runs")
    ours.add_argument("--lag-gb", type=float, default=0.0, help="size of the row `lag`, which is left out else")
    ours.add_argument("--json", default="build/spark.json", help="where the figures go (default: %(default)s)")
    ours.add_argument("--docs", default="", help="also write table and plot into this page, e.g. docs/benchmarks.md")


def main(options: argparse.Namespace) -> int:
    """`python -m bench spark`."""
    if options.quick:
        options.records, options.rounds = options.records // 10, 1
    root = Path(tempfile.mkdtemp(prefix="barnabas-bench-spark-"))
    try:
        broker = make_broker("barnabas", root, SETTINGS)
        broker.start()
        try:
            broker.first_ack_s()
            document = _measure(broker, options, root)
        finally:
            broker.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    report.write_json(document, Path(options.json))
    print(f"\n{spark_report.markdown(document)}")
    if options.docs:
        spark_report.update_docs(document, Path(options.docs))
    return 1 if document["failures"] else 0


def _measure(broker: BrokerProcess, options: argparse.Namespace, root: Path) -> dict[str, object]:
    formats = options.formats.split(",")
    results, failures, versions = {}, [], {}
    for session in options.sessions.split(","):
        orders = Orders(
            broker.address,
            session,
            formats,
            rows=[row for row in options.rows.split(",") if row],
            rounds=options.rounds,
            records=options.records,
            lag_gb=options.lag_gb,
            jars=connector_jars() if "kafka" in formats else [],
            directory=str(root / session),
        )
        began = time.perf_counter()
        found = _run(orders, root / f"{session}.json")
        print(f"session {session}: {time.perf_counter() - began:.0f} s", flush=True)
        results[session] = found["results"]
        failures += found["failures"]
        versions = found["versions"]
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores",
        "rounds": options.rounds,
        "records": options.records,
        "quick": options.quick,
        "versions": versions,
        "results": results,
        "failures": failures,
    }


def _run(orders: Orders, out: Path) -> dict[str, dict[str, object]]:
    """Runs one Spark session in a process of its own."""
    command = [sys.executable, "-m", "bench.spark.session", json.dumps(orders._asdict()), str(out)]
    done = subprocess.run(command, cwd=peers.ROOT, timeout=SESSION_TIMEOUT_S, check=False)
    if done.returncode or not out.exists():
        raise BrokerFailed(f"the {orders.session} session ended with code {done.returncode}")
    found: dict[str, dict[str, object]] = json.loads(out.read_text())
    return found


def connector_jars() -> list[str]:
    """Of the JVM connector, from `make spark-connector`, or from the directory that KAFKA_SPARK_JARS names."""
    folder = Path(os.environ.get("KAFKA_SPARK_JARS") or peers.BUILD / "spark-connector" / CONNECTOR)
    jars = sorted(str(path) for path in folder.glob("*.jar"))
    if not jars:
        raise peers.PeerUnavailable(f"no jars of Spark's Kafka connector in {folder}: make spark-connector")
    return jars
