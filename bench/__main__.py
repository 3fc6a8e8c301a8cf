"""``python -m bench`` compares brokers and clients. ``python -m bench --help`` lists the benchmarks."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from bench import peers, report
from bench.brokers import BrokerFailed, BrokerProcess, make_broker
from bench.spark import comparison as spark
from bench.suite import QUICK, Scale, Suite, chosen_scale, stop_all


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _carry_out(options)
    except (peers.PeerUnavailable, BrokerFailed) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130


def _carry_out(options: argparse.Namespace) -> int:
    if options.command == "run":
        return _run(options)
    if options.command == "growth":
        from bench import growth  # matplotlib is needed here only

        return growth.main(options)
    if options.command == "compaction":
        from bench import compaction

        return compaction.main(options)
    if options.command == "clients":
        from bench.clients import comparison

        return comparison.main(options)
    if options.command == "pipes":
        from bench.clients import pipes

        return pipes.main(options)
    if options.command == "cluster":
        from bench.cluster import beside_kafka

        return beside_kafka.main(options)
    if options.command == "zookeeper":
        from bench.cluster import with_zookeeper

        return with_zookeeper.main(options)
    if options.command == "spark":
        return spark.main(options)
    document = json.loads(Path(options.json).read_text())
    print(report.markdown(document))
    if options.docs:
        report.update_docs(report.markdown(document), Path(options.docs))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the table's rows alternately on every broker")
    run.add_argument(
        "--brokers",
        default="kafka,kfake,barnabas",
        help="comma-separated: kafka, kfake, barnabas, or NAME=COMMAND with {port} or {address} (default: %(default)s)",
    )
    run.add_argument("--rows", default="", help="comma-separated regular expressions over row names; default: all rows")
    run.add_argument("--rounds", type=int, help="rounds per row (default: 3, quick: 1)")
    run.add_argument("--quick", action="store_true", help="a tenth of the data, one round: shows that everything runs")
    _add_output(run, "bench")
    run.add_argument("--check", action="store_true", help="exit code 1 when a target is missed")
    again = commands.add_parser("report", help="print the table of an earlier run")
    again.add_argument("json")
    again.add_argument("--docs", default="", help="also write the table into this page")
    growing = commands.add_parser("growth", help="cost against partitions, log size and group members; plots")
    growing.add_argument("--broker", default="barnabas", help="as in run; one broker (default: %(default)s)")
    growing.add_argument("--what", default="partitions,log,groups", help="comma-separated (default: %(default)s)")
    growing.add_argument(
        "--largest-log-gb", type=float, default=20.0, help="upper end of the log sizes (default: %(default)s)"
    )
    growing.add_argument("--largest-partitions", type=int, default=10_000, help="(default: %(default)s)")
    growing.add_argument("--largest-group", type=int, default=1_000, help="(default: %(default)s)")
    growing.add_argument("--out", default="docs", help="folder of the plots (default: %(default)s)")
    growing.add_argument("--json", default="build/growth.json", help="where the figures go (default: %(default)s)")
    cleaning = commands.add_parser("compaction", help="CPU of cleaning beside Kafka's; latency while it goes on")
    cleaning.add_argument("what", choices=("speed", "serving"))
    cleaning.add_argument("--brokers", default="kafka,barnabas", help="for speed (default: %(default)s)")
    cases = "1000:none:16384,100:none:16384,1000:lz4:16384,100:lz4:16384,100:none:1"
    cleaning.add_argument("--cases", default=cases, help="value bytes:codec:batch bytes (default: %(default)s)")
    cleaning.add_argument("--gb", type=float, default=0.7, help="size of the log for speed (default: %(default)s)")
    cleaning.add_argument("--keys", type=int, default=1_000_000, help="distinct keys for speed (default: %(default)s)")
    cleaning.add_argument("--written-gb", type=float, default=2.0, help="for serving (default: %(default)s)")
    cleaning.add_argument("--live-mb", type=float, default=20.0, help="for serving (default: %(default)s)")
    cleaning.add_argument("--rate-mb", type=float, default=30.0, help="MB/s for serving (default: %(default)s)")
    cleaning.add_argument("--value-bytes", type=int, default=500, help="for serving (default: %(default)s)")
    cleaning.add_argument("--seconds", type=int, default=15, help="without a cleaner, serving (default: %(default)s)")
    _add_clients(commands)
    _add_pipes(commands)
    _add_cluster(commands)
    _add_zookeeper(commands)
    spark.add_options(commands)
    return parser


def _add_output(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--json", default=f"build/{name}.json", help="where the figures go (default: %(default)s)")
    parser.add_argument("--docs", default="", help="also write the table into this page, e.g. docs/benchmarks.md")


def _add_clients(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    beside = commands.add_parser("clients", help="Python clients beside each other, in processes of their own")
    beside.add_argument("--brokers", default="barnabas", help="as in run (default: %(default)s)")
    beside.add_argument("--rows", default="", help="comma-separated: send, send_many, iterate, ...; default: all")
    beside.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    beside.add_argument("--records", type=int, default=2_000_000, help="of 100 B in a round (default: %(default)s)")
    beside.add_argument("--beside", default="", metavar="SRC", help="src of another checkout, whose client takes part")
    _add_output(beside, "clients")


def _add_pipes(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    beside = commands.add_parser("pipes", help="barnabas produce and consume beside kcat, in pipes")
    beside.add_argument("--broker", default="barnabas", help="as in run; one broker (default: %(default)s)")
    beside.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    beside.add_argument("--records", type=int, default=5_000_000, help="of 100 B in a round (default: %(default)s)")
    _add_output(beside, "pipes")


def _add_cluster(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    three = commands.add_parser(
        "cluster", help="three brokers beside three of Apache Kafka: speed and failover; a plot"
    )
    three.add_argument(
        "--brokers",
        default="kafka,barnabas",
        help="comma-separated: kafka, barnabas, or NAME=COMMAND with {port} or {address} of the first of its three "
        "brokers (default: %(default)s)",
    )
    three.add_argument("--rows", default="", help="as in run; growth is measured of the last cluster alone")
    three.add_argument("--rounds", type=int, help="rounds, each from empty directories (default: 3, quick: 1)")
    three.add_argument("--quick", action="store_true", help="little data, one round: shows that everything runs")
    three.add_argument("--largest-partitions", type=int, default=10_000, help="of growth (default: %(default)s)")
    three.add_argument("--out", default="docs", help="folder of the plot (default: %(default)s)")
    _add_output(three, "cluster")
    three.add_argument("--check", action="store_true", help="exit code 1 when a target is missed")


def _add_zookeeper(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    three = commands.add_parser("zookeeper", help="failover and growth of three brokers with ZooKeeper")
    three.add_argument(
        "--brokers",
        default="kafka,barnabas,zookeeper,machines",
        help="comma-separated: as in cluster, zookeeper, and machines for brokers that see nothing of each other's "
        "processes (default: %(default)s)",
    )
    three.add_argument("--rounds", type=int, help="rounds, each from empty directories (default: 3, quick: 1)")
    three.add_argument("--quick", action="store_true", help="shows that everything runs")
    three.add_argument("--largest-partitions", type=int, default=10_000, help="of growth (default: %(default)s)")
    _add_output(three, "zookeeper")
    three.set_defaults(check=False)


def _run(options: argparse.Namespace) -> int:
    scale = chosen_scale(options, Scale(), QUICK)
    root = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    brokers: list[BrokerProcess] = []
    try:
        peers.rdkafka_performance()
        brokers, skipped = peers.make_available(options.brokers, partial(make_broker, root=root))
        suite = Suite(brokers, scale, [row for row in options.rows.split(",") if row])
        suite.run()
    finally:
        stop_all(brokers)
        shutil.rmtree(root, ignore_errors=True)
    document = report.as_document(suite, skipped)
    return report.conclude(options, document, report.markdown(document), report.missed(document))


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
