"""SIGTERM and Ctrl-C: what a command does before it ends."""

import json
import signal
import subprocess
import sys

import pytest

from cli.conftest import Run
from stopwatch import Stopwatch

ENDINGS = {signal.SIGINT: (130, "stopped by Ctrl-C"), signal.SIGTERM: (143, "stopped by SIGTERM")}


def start(*arguments: str, bootstrap: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas", *arguments, "-b", bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", ENDINGS)
def test_a_member_commits_leaves_and_says_so(
    barnabas: Run, bootstrap: str, name: str, number: signal.Signals, stopwatch: Stopwatch
) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, input="1\n2\n")
    with start("consume", name, "--group", name, bootstrap=bootstrap) as process:
        assert process.stdout is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["1\n", "2\n"]
        began = stopwatch()
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert stopwatch() - began < 20
    code, words = ENDINGS[number]
    assert process.returncode == code
    assert errors.splitlines()[-2:] == [
        f"% group {name}: committed {name}-0 at 2; left the group",
        f"barnabas: {words}",
    ]
    described = json.loads(barnabas("groups", "describe", name, "--json").stdout)
    assert (described["state"], described["lag"], described["members"]) == ("Empty", 0, [])


def test_what_was_not_printed_is_not_committed(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    with start("consume", name, "--group", name, bootstrap=bootstrap) as process:
        assert process.stderr is not None
        assert "assigned" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert errors.splitlines()[0] == f"% group {name}: nothing to commit; left the group"
    described = barnabas("groups", "describe", name).stdout
    assert "no commits" in described
    assert "lag 0" not in described
    assert json.loads(barnabas("groups", "describe", name, "--json").stdout)["lag"] is None
    assert {g["group"]: g["lag"] for g in json.loads(barnabas("groups", "list", "--json").stdout)}[name] is None


@pytest.mark.parametrize("number", ENDINGS)
def test_commands_that_wait_for_input_end_likewise(
    barnabas: Run, bootstrap: str, name: str, number: signal.Signals
) -> None:
    barnabas("topics", "create", name, "-p", "1")
    with start("produce", name, bootstrap=bootstrap) as process:
        assert process.stdin is not None
        process.stdin.write("x\n")
        process.stdin.flush()
        assert barnabas("consume", name, "-c", "1").stdout == "x\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    code, words = ENDINGS[number]
    assert process.returncode == code
    assert errors.splitlines()[-1] == f"barnabas: {words}"
    assert "Traceback" not in errors


def test_programs_are_told_in_json(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, input="1\n")
    with start("consume", name, "--json", bootstrap=bootstrap) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["value"] == "1"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert json.loads(errors) == {"error": "Terminated", "message": "stopped by SIGTERM", "attempts": []}
    assert process.returncode == 143
