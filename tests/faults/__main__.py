"""Kills a broker with SIGKILL while its clients are at work, restarts it on its directory, checks every promise.

With `cluster`: several brokers, which are also stopped, asked to end, wiped and cut off from each other.
They are started without their mounts, with old copies of their directories, and with an old registry; a copy of the
cluster is started beside it; descriptors and memory run out, single allocations fail, disks fail or stand still, clocks
jump. A start that is refused as promised (exit codes 2 and 75) is no failure: the broker gets back what it needs, and
has to start then. Nor is one that ends as in a crash for want of memory. On machines, links lose packets, or all large
ones.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cluster.rounds
import consuming
import members
import producing
from cluster.plan import CALM_S, PAUSE_S, Deed
from confluent_kafka import KafkaException

import compaction
import crash
import rounds
import transactions
from bench.brokers import BrokerFailed, BrokerProcess, make_broker
from bench.peers import PeerUnavailable
from rounds import FaultTest

TESTS: dict[str, tuple[Callable[[BrokerProcess, int], FaultTest], tuple[str, ...]]] = {
    "produce": (crash.CrashTest, crash.SETTINGS),
    "compaction": (compaction.CompactionTest, compaction.SETTINGS),
    "consumer": (consuming.ConsumerTest, consuming.SETTINGS),
    "members": (members.MembersTest, members.SETTINGS),
    "producer": (producing.ProducerTest, producing.SETTINGS),
    "transactions": (transactions.TransactionTest, transactions.SETTINGS),
    "workers": (partial(transactions.TransactionTest, spare_broker=True), transactions.SETTINGS),
}


CLUSTER = "cluster"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/faults", description=__doc__)
    parser.add_argument(
        "test",
        choices=[*TESTS, CLUSTER],
        help="what goes on while the broker is killed; workers, members: it lives on; cluster: one of several",
    )
    parser.add_argument("--broker", default="barnabas", help="kafka, barnabas or NAME=COMMAND with {port}")
    parser.add_argument("--rounds", type=int, default=200, help="kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="default: random")
    parser.add_argument("--first-round", type=int, default=0, help="begin with a later round's moments on an empty log")
    parser.add_argument("--keep", action="store_true", help="keep the data directory after a failure")
    several = parser.add_argument_group(CLUSTER)
    several.add_argument("--seconds", type=float, default=60.0, help="of a round's faults (default: %(default)s)")
    several.add_argument(
        "--machines", action="store_true", help="each broker on a machine of its own (a namespace), with a ZooKeeper"
    )
    several.add_argument("--brokers", type=int, default=3, help="default: %(default)s")
    several.add_argument("--port", type=int, default=0, help="the first broker's (default: any free ones)")
    several.add_argument(
        "--deeds", default=",".join(deed.name.lower() for deed in Deed), help="the kinds of faults (default: all)"
    )
    several.add_argument("--calm", action="store_true", help="one fault at a time, to measure how long each is felt")
    several.add_argument(
        "--trace", default="", metavar="eos,msg", help="what librdkafka's idempotent producer tells on standard error"
    )
    several.add_argument(
        "--plant", default="", help="a bug of all brokers, one of planted.py, with the only fault that is to find it"
    )
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="barnabas-faults-"))
    if options.test == CLUSTER:
        return run_cluster(options, root)
    broker: BrokerProcess | None = None
    failed = 1
    make_test, settings = TESTS[options.test]
    try:
        broker = make_broker(options.broker, root, settings)
        print(f"{broker.name}, {options.test}: {options.rounds} rounds, seed {options.seed}", flush=True)
        replay = f"PYTHONPATH=. python tests/faults {options.test} --seed {options.seed} --rounds {{rounds}}"
        test = make_test(broker, options.seed)
        failed = rounds.run(test, options.first_round, options.rounds, replay, lambda line: print(line, flush=True))
    except (PeerUnavailable, BrokerFailed, OSError, KafkaException) as error:
        print(f"test-faults: seed {options.seed}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        failed = 130
    finally:
        if broker is not None:
            broker.stop()
        if failed and options.keep:
            print(f"kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    return failed


def run_cluster(options: argparse.Namespace, root: Path) -> int:
    print(f"{options.brokers} brokers, {options.rounds} rounds of {options.seconds:g} s from seed {options.seed}")
    fault = None
    if options.plant:
        from cluster.planted import PLANTED  # which needs pytest

        fault = PLANTED[options.plant].fault
    wanted = cluster.rounds.Options(
        options.rounds,
        options.seconds,
        options.seed,
        options.brokers,
        options.machines,
        options.port,
        frozenset(Deed[name.strip().upper()] for name in options.deeds.split(",") if name.strip()),
        keep=options.keep,
        traced=options.trace,
        planted=options.plant,
        fault=fault,
        pause_s=CALM_S if options.calm else PAUSE_S,
    )
    failed = 1
    try:
        failed = cluster.rounds.run(wanted, root, lambda line: print(line, flush=True))
    finally:
        if failed and options.keep:
            print(f"kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
