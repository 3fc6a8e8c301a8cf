"""Runs librdkafka's and franz-go's own suites against one broker, or a cluster of three, and compares with what Apache
Kafka passes.

Exit code 0: everything that must pass passed. 1: a test failed, or was skipped for something that the broker lacks.
2: a suite could not be run.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench import peers
from bench.brokers import SAME_AS_KAFKA, BrokerFailed, BrokerProcess, make_broker
from bench.cluster.nodes import NODES, free_ports
from expectations import FAILED, PASSED, SKIPPED, Expectations, Outcome, Verdict, judge, load, save
from suites import KGO_RECORDS, Kgo, Librdkafka, Suite, SuiteBroken

SUITES = (Librdkafka.name, Kgo.name)
CLUSTER_SETTINGS = (
    *SAME_AS_KAFKA,
    f"default.replication.factor={NODES}",
    "min.insync.replicas=2",
    "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
)


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    if options.brokers > 1 and (options.record or options.broker != "barnabas"):
        parser.error(f"--brokers {options.brokers}: is for Barnabas; Apache Kafka is recorded on one broker")
    root = Path(tempfile.mkdtemp(prefix="barnabas-conformance-"))
    broker: BrokerProcess | None = None
    try:
        address = options.address
        if not address:
            broker = make_broker(options.broker, root) if options.brokers == 1 else _cluster(root)
            broker.start()
            broker.first_ack_s()
            address = broker.address
        print(f"broker at {address}")
        expected = {suite: part if options.brokers == 1 else part.of_cluster() for suite, part in load().items()}
        if options.record:
            return _record(address, expected, options)
        if options.repeat:
            return _repeat(address, expected, options)
        good = [_check(suite, address, expected[suite], options) for suite in options.suites]
        return 0 if all(good) else 1
    except (peers.PeerUnavailable, BrokerFailed, SuiteBroken) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        if broker is not None:
            broker.stop()
        shutil.rmtree(root, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("--broker", default="barnabas", help="kafka, kfake, barnabas or NAME=COMMAND with {port}")
    parser.add_argument("--brokers", type=int, choices=(1, NODES), default=1, help="3: a cluster of Barnabas")
    parser.add_argument("--address", help="HOST:PORT of a broker that runs already, one of --brokers")
    parser.add_argument("--records", type=int, default=KGO_RECORDS, help="how many a test of kgo moves (%(default)s)")
    parser.add_argument("--suites", type=lambda text: text.split(","), default=list(SUITES), help="librdkafka,kgo")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="some tests of one suite by name")
    parser.add_argument("--repeat", type=int, default=0, help="run so often, without a second try; ends at a failure")
    parser.add_argument("--with-exceptions", action="store_true", help="run the excepted tests too")
    parser.add_argument("--record", action="store_true", help="write what this broker (Kafka) passes as expected.toml")
    return parser


def _cluster(root: Path) -> BrokerProcess:
    """Three brokers of Barnabas, in the racks that librdkafka's test of fetches from followers names."""
    racks = ",".join(f"RACK{node + 1}" for node in range(NODES))
    command = f"{shlex.quote(sys.executable)} -m barnabas serve --data-dir data --listen {{address}}"
    command += f" --brokers {NODES} --racks {racks}" + "".join(f" --set {setting}" for setting in CLUSTER_SETTINGS)
    return BrokerProcess("barnabas", command, free_ports(NODES)[0], root / "barnabas")


def _suite(name: str, options: argparse.Namespace) -> Suite:
    return Librdkafka() if name == Librdkafka.name else Kgo(options.brokers, options.records)


def _left_out(expected: Expectations, options: argparse.Namespace) -> list[str]:
    return [*expected.three_brokers, *([] if options.with_exceptions else expected.exceptions)]


def _check(suite: str, address: str, expected: Expectations, options: argparse.Namespace) -> bool:
    print(f"\n{suite}: running", flush=True)
    without = _left_out(expected, options)
    complete = not options.only
    outcomes = _suite(suite, options).run(address, options.only, without)
    verdict = judge(expected, outcomes, complete)
    if verdict.failures:
        again = [name for name in verdict.failures if "/" not in name]
        print(f"{suite}: once more, by themselves: {', '.join(again)}", flush=True)
        second = _suite(suite, options).run(address, again, without)
        recovered = [name for name in again if name in second and second[name].result == PASSED]
        for name in recovered:
            print(f"  passed at the second try: {name} (first: {verdict.failures[name][:160]})")
        outcomes = {**outcomes, **{name: outcome for name, outcome in second.items() if outcome.result == PASSED}}
        verdict = judge(expected, outcomes, complete)
    _print(suite, verdict, outcomes, expected)
    return verdict.good


def _repeat(address: str, expected: Mapping[str, Expectations], options: argparse.Namespace) -> int:
    """For a test that fails now and then, or must be shown not to: every run counts."""
    for number in range(1, options.repeat + 1):
        for suite in options.suites:
            without = _left_out(expected[suite], options)
            outcomes = _suite(suite, options).run(address, options.only, without)
            verdict = judge(expected[suite], outcomes, complete=not options.only)
            seconds = sum(outcome.seconds for name, outcome in outcomes.items() if "/" not in name)
            told = "; ".join(f"{name}: {reason}" for name, reason in {**verdict.failures, **verdict.gaps}.items())
            passed = [*verdict.passed, *verdict.stale_exceptions]
            print(f"{number}/{options.repeat} {suite}: {len(passed)} passed in {seconds:.1f} s {told}", flush=True)
            if not verdict.good or not passed:
                return 1
    return 0


def _print(suite: str, verdict: Verdict, outcomes: Mapping[str, Outcome], expected: Expectations) -> None:
    counts = {result: _top_level(outcomes, result) for result in (PASSED, FAILED, SKIPPED)}
    print(f"\n{suite}: {', '.join(f'{len(names)} {result}' for result, names in counts.items())}; tests by name:")
    for result, names in counts.items():
        print(f"  {result}: {', '.join(names) or 'none'}")
    sections: dict[str, Mapping[str, str]] = {
        "FAILED, Apache Kafka passes": verdict.failures,
        "GAP, skipped or not run": verdict.gaps,
        "excepted": expected.exceptions,
        "Apache Kafka fails too": {name: expected.kafka_fails[name] for name in verdict.kafka_fails_too},
        "passes where Apache Kafka fails": {name: expected.kafka_fails[name] for name in verdict.beyond_kafka},
        "exception no longer needed": dict.fromkeys(verdict.stale_exceptions, "passes"),
    }
    for title, reasons in sections.items():
        for name, reason in reasons.items():
            print(f"  {title}: {name}: {reason}")
    total = len(verdict.passed) + len(verdict.failures) + len(verdict.gaps)
    outcome = "PASS" if verdict.good else "FAIL"
    print(f"{suite}: {outcome}: {len(verdict.passed)} of {total} that must pass; {len(verdict.excepted)} excepted")


def _record(address: str, expected: Mapping[str, Expectations], options: argparse.Namespace) -> int:
    """Takes this run's passes as what must pass; reasons already written for failures and skips are kept."""
    updated = dict(expected)
    for suite in options.suites:
        outcomes = _suite(suite, options).run(address)
        old = expected[suite]
        failing = {name: outcome.reason for name, outcome in outcomes.items() if outcome.result == FAILED}
        skipping = {name: outcome.reason for name, outcome in outcomes.items() if outcome.result == SKIPPED}
        updated[suite] = Expectations(
            passes=sorted(name for name, outcome in outcomes.items() if outcome.result == PASSED and _named(name)),
            exceptions=old.exceptions,
            three_brokers=old.three_brokers,
            kafka_fails={name: old.kafka_fails.get(name, reason) for name, reason in sorted(failing.items())},
            beyond_kafka={name: why for name, why in old.beyond_kafka.items() if name in failing},
            skips={name: old.skips.get(name, reason) for name, reason in sorted(skipping.items())},
        )
        print(f"{suite}: {len(updated[suite].passes)} pass, {len(failing)} fail, {len(skipping)} skip")
    save(updated, peers.KAFKA_VERSION)
    return 0


def _named(name: str) -> bool:
    """Tests, and the subtests of those that vary by group protocol; other subtests are covered by their parents."""
    return "/" not in name or name.startswith(("TestGroup", "TestTxn"))


def _top_level(outcomes: Mapping[str, Outcome], result: str) -> list[str]:
    return sorted(name for name, outcome in outcomes.items() if outcome.result == result and "/" not in name)


if __name__ == "__main__":
    sys.exit(main())
