"""Kills a broker with SIGKILL while its clients are at work, restarts it on its directory, checks every promise."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import consuming
import members
import producing
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/faults", description=__doc__)
    parser.add_argument(
        "test", choices=list(TESTS), help="what goes on while the broker is killed; workers, members: it lives on"
    )
    parser.add_argument("--broker", default="barnabas", help="kafka, barnabas or NAME=COMMAND with {port}")
    parser.add_argument("--rounds", type=int, default=200, help="kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="default: random")
    parser.add_argument("--first-round", type=int, default=0, help="begin with a later round's moments on an empty log")
    parser.add_argument("--keep", action="store_true", help="keep the data directory after a failure")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="barnabas-faults-"))
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


if __name__ == "__main__":
    sys.exit(main())
