"""What a broker must pass: all that Apache Kafka passes, but for exceptions that are named with their reason."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

PASSED, FAILED, SKIPPED = "pass", "fail", "skip"
FILE = Path(__file__).with_name("expected.toml")
HEADER = """\
# What a broker must pass: `passes` is what Apache Kafka {version} passes on one node (`make conformance-record`).
# `exceptions` are tests of that list which Barnabas need not pass yet, with the issue or feature that lifts them.
# `kafka_fails` are tests that Apache Kafka itself does not pass; `beyond_kafka` are those of them that Barnabas must
# pass all the same, with what Apache Kafka refuses; `skips` are those that skip on it. `three_brokers` are tests that
# need a cluster of three and are left out on one broker.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one test did: pass, fail or skip, and the suite's own words for it."""

    name: str
    result: str
    seconds: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class Expectations:
    """One suite's part of ``expected.toml``."""

    passes: list[str]
    exceptions: dict[str, str] = field(default_factory=dict)
    kafka_fails: dict[str, str] = field(default_factory=dict)
    beyond_kafka: dict[str, str] = field(default_factory=dict)
    skips: dict[str, str] = field(default_factory=dict)
    three_brokers: dict[str, str] = field(default_factory=dict)

    @property
    def required(self) -> list[str]:
        """All that Barnabas must pass, but for exceptions."""
        return [*self.passes, *self.beyond_kafka]

    def of_cluster(self) -> Expectations:
        """What a cluster of three brokers must pass: the tests that one broker cannot pass as well."""
        return replace(self, passes=[*self.passes, *self.three_brokers], three_brokers={})

    def excepted(self, name: str) -> bool:
        """True for an exception and for all subtests of one."""
        return any(name == exception or name.startswith(f"{exception}/") for exception in self.exceptions)


@dataclass(slots=True)
class Verdict:
    """A suite's outcomes sorted by what they mean; ``failures`` and ``gaps`` are what has to be mended."""

    passed: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    gaps: dict[str, str] = field(default_factory=dict)
    excepted: list[str] = field(default_factory=list)
    beyond_kafka: list[str] = field(default_factory=list)
    kafka_fails_too: list[str] = field(default_factory=list)
    stale_exceptions: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.failures and not self.gaps


def load(path: Path = FILE) -> dict[str, Expectations]:
    document = tomllib.loads(path.read_text())
    return {suite: Expectations(**part) for suite, part in document.items()}


def save(expectations: Mapping[str, Expectations], version: str, path: Path = FILE) -> None:
    text = HEADER.format(version=version)
    for suite, part in expectations.items():
        text += f"\n[{suite}]\npasses = [\n" + "".join(f"    {json.dumps(name)},\n" for name in part.passes) + "]\n"
        for table in ("exceptions", "kafka_fails", "beyond_kafka", "skips", "three_brokers"):
            text += f"\n[{suite}.{table}]\n"
            text += "".join(f"{json.dumps(name)} = {json.dumps(why)}\n" for name, why in getattr(part, table).items())
    path.write_text(text)


def judge(expected: Expectations, outcomes: Mapping[str, Outcome], complete: bool = True) -> Verdict:
    """Compares a run with what Apache Kafka passes; ``complete`` is False when only some tests were chosen."""
    verdict = Verdict()
    for name in expected.required:
        outcome = outcomes.get(name)
        if expected.excepted(name):
            verdict.excepted.append(name)
            if outcome and outcome.result == PASSED:
                verdict.stale_exceptions.append(name)
        elif outcome is None:
            if complete:
                verdict.gaps[name] = "did not run"
        elif outcome.result == PASSED:
            verdict.passed.append(name)
        elif outcome.result == SKIPPED:
            verdict.gaps[name] = f"skipped: {outcome.reason}"
        else:
            verdict.failures[name] = outcome.reason
    for name, outcome in outcomes.items():
        if name in expected.required or expected.excepted(name):
            continue
        if name in expected.kafka_fails:
            (verdict.beyond_kafka if outcome.result == PASSED else verdict.kafka_fails_too).append(name)
        elif outcome.result == SKIPPED and name not in expected.skips:
            verdict.gaps[name] = f"skipped: {outcome.reason}"
        elif outcome.result == FAILED and "/" not in name:
            verdict.failures[name] = f"not in the list of what Apache Kafka passes: {outcome.reason}"
    return verdict
