"""`barnabas serve` in processes of its own, for tests of one broker and of several."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "barnabas", "serve", "--listen", "127.0.0.1:0", *arguments]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("BARNABAS_")}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environment,
        )
        running.append(process)
        return process

    yield start
    for each in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.communicate()


def ready_addresses(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"^barnabas cluster of \d brokers is ready on (\S+(, \S+)*) \(", line)
    assert found is not None, line or process.communicate()[1]
    return found[1].split(", ")


def broker_pids(process: "subprocess.Popen[str]") -> dict[int, int]:
    """Returns the process id of each of three brokers, from the log of their start."""
    found = [log_until(process, r"broker (\d) \(pid (\d+)\) is ready") for _ in range(3)]
    return {int(each[1]): int(each[2]) for each in found}


def log_until(process: "subprocess.Popen[str]", pattern: str) -> "re.Match[str]":
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(pattern)
