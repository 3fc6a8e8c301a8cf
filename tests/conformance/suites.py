"""The two clients' own test suites as programs: librdkafka's test-runner and franz-go's kgo suite."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from bench import peers
from expectations import FAILED, PASSED, SKIPPED, Outcome

KGO_RECORDS = 10_000
SUITE_TIMEOUT_S = 1_500
KAFKA_VERSION_OF_BROKER = "4.0.0"  # tells the runner which tests fit
SOCKEM_TESTS = ("0094_idempotence_msg_timeout",)
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


class SuiteBroken(Exception):
    """A suite ended without saying what its tests did."""


class Suite(Protocol):
    """One client's suite, which runs against a broker."""

    def run(self, address: str, only: Sequence[str] = (), without: Sequence[str] = ()) -> dict[str, Outcome]:
        """Runs the suite or only some of its tests, but for those of ``without``."""


class Librdkafka:
    """librdkafka's test-runner: five tests at a time, quick mode, without local and known-issue tests.

    Tests that disturb their sockets (sockem) hold up whatever runs beside them; the one of idempotence has a run of its
    own, the others are left out.
    """

    name = "librdkafka"

    def run(self, address: str, only: Sequence[str] = (), without: Sequence[str] = ()) -> dict[str, Outcome]:
        """Runs the suite, or only some tests of it (names as in its own list, e.g. ``0059_bsearch``)."""
        outcomes = {}
        if not only or set(only) - set(SOCKEM_TESTS):
            outcomes = self._run(address, only, without, "-E")
        wanted = [name for name in SOCKEM_TESTS if not only or name in only]
        return outcomes | (self._run(address, wanted, ()) if wanted else {})

    def _run(self, address: str, only: Sequence[str], without: Sequence[str], *flags: str) -> dict[str, Outcome]:
        runner = peers.rdkafka_test_runner()
        with tempfile.TemporaryDirectory() as folder:
            report, config, log = Path(folder, "report.json"), Path(folder, "test.conf"), Path(folder, "log")
            config.write_text(f"metadata.broker.list={address}\n")
            env = {
                **os.environ,
                "BROKERS": address,
                "KAFKA_PATH": str(peers.kafka_tools_home()),
                "LD_LIBRARY_PATH": "../src:../src-cpp",
                "RDKAFKA_TEST_CONF": str(config),
                "TEST_KAFKA_VERSION": KAFKA_VERSION_OF_BROKER,
                "TEST_REPORT": str(report),
                **({"TESTS": ",".join(_numbers(only))} if only else {}),
                **({"TESTS_SKIP": ",".join(_numbers(without))} if without else {}),
            }
            env.pop("CI", None)  # it would change what is tested
            command = [str(runner), "-p5", "-L", "-K", "-Q", *flags]
            with log.open("w") as out:
                _run(command, runner.parent, env, out, lambda: _librdkafka_progress(log))
            text = _COLOR.sub("", log.read_text(errors="replace"))
            keep_log(self.name if flags else f"{self.name}-sockem", text)
            if not report.exists():
                raise SuiteBroken(f"librdkafka's test-runner wrote no report: {text[-300:].strip()}")
            return _librdkafka_outcomes(json.loads(report.read_text())["tests"], text)


class Kgo:
    """franz-go's client suite: topics with so many replicas, tests that move so many records."""

    name = "kgo"

    def __init__(self, replicas: int = 1, records: int = KGO_RECORDS) -> None:
        self._replicas = replicas
        self._records = records

    def run(self, address: str, only: Sequence[str] = (), without: Sequence[str] = ()) -> dict[str, Outcome]:
        """Runs the suite, or only some tests of it; subtests are named ``TestParent/child``.

        Subtests are not left out one by one: theirs is a semaphore that only a subtest which begins gives back. Those
        of what a broker does not have skip themselves.
        """
        source = peers.franz_go_source()
        env = {
            **os.environ,
            "KGO_SEEDS": address,
            "KGO_TEST_RF": str(self._replicas),
            "KGO_TEST_RECORDS": str(self._records),
            "KGO_LOG_LEVEL": "none",
        }
        command = ["go", "test", "./pkg/kgo", "-count=1", "-json", f"-timeout={SUITE_TIMEOUT_S - 60}s"]
        if only:
            command.append(f"-run={_go_patterns(sorted({name.split('/')[0] for name in only}))}")
        whole = [name for name in without if "/" not in name]
        if whole:
            command.append(f"-skip={_go_patterns(whole)}")
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log")
            with log.open("w") as out:
                _run(command, source, env, out, lambda: _kgo_progress(log))
            text = log.read_text(errors="replace")
            keep_log(self.name, text)
            outcomes = _kgo_outcomes(text.splitlines())
        if not outcomes:
            raise SuiteBroken(f"kgo's suite ran no test: {text[-300:].strip()}")
        return outcomes


def keep_log(suite: str, text: str) -> Path:
    """The suite's whole output, kept for a look at a failure."""
    path = peers.BUILD / "conformance" / f"{suite}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _librdkafka_outcomes(tests: Mapping[str, Mapping[str, object]], log: str) -> dict[str, Outcome]:
    """Outcomes from the runner's report; tests that its own flags filtered out are left out."""
    reasons = {}
    for line in log.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) >= 5 and cells[2] in ("FAILED", "SKIPPED"):
            reasons[cells[1]] = "|".join(cells[4:]).strip()
    results = {"PASSED": PASSED, "SKIPPED": SKIPPED}
    outcomes = {}
    for name, entry in tests.items():
        reason = reasons.get(name, "")
        left_out = not reason or reason.startswith(("Filtered due to", "included in TESTS_SKIP"))
        if name == "<MAIN>" or (entry["state"] == "SKIPPED" and left_out):
            continue
        result = results.get(str(entry["state"]), FAILED)
        outcomes[name] = Outcome(name, result, float(str(entry["duration"])), reason)
    return outcomes


def _kgo_outcomes(lines: Iterable[str]) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    said: dict[str, list[str]] = {}
    for line in lines:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        name, action = event.get("Test"), event.get("Action")
        if not name:
            continue
        if action == "output":
            text = event["Output"].strip()
            if text and not text.startswith(("=== ", "--- ")):
                said.setdefault(name, []).append(text)
        elif action in (PASSED, FAILED, SKIPPED):
            reason = "" if action == PASSED else " ".join(said.get(name, []))[:300]
            outcomes[name] = Outcome(name, action, event.get("Elapsed", 0.0), reason)
    return outcomes


def _run(
    command: Sequence[str], folder: Path, env: Mapping[str, str], out: IO[str], progress: Callable[[], str]
) -> None:
    """Runs a suite in a process group of its own, with a line of progress every ten seconds."""
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=out,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while True:
            try:
                process.wait(10)
                return
            except subprocess.TimeoutExpired:
                elapsed_s = time.monotonic() - began
                print(f"  {elapsed_s:4.0f} s  {progress()}", flush=True)
                if elapsed_s > SUITE_TIMEOUT_S:
                    raise SuiteBroken(f"{command[0]} did not end in {SUITE_TIMEOUT_S} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _librdkafka_progress(log: Path) -> str:
    text = log.read_text(errors="replace")
    started, failed = text.count("= Running test "), text.count("TEST FAILURE")
    return f"{started} tests started, {failed} failures"


def _kgo_progress(log: Path) -> str:
    outcomes = _kgo_outcomes(log.read_text(errors="replace").splitlines())
    top = [outcome for name, outcome in outcomes.items() if "/" not in name]
    return f"{len(top)} tests ended, {sum(outcome.result == FAILED for outcome in top)} failures"


def _numbers(names: Sequence[str]) -> list[str]:
    return sorted({name.split("_")[0] for name in names})


def _go_patterns(names: Sequence[str]) -> str:
    return "|".join("/".join(f"^{re.escape(part)}$" for part in name.split("/")) for name in names)
