"""Every command in a process of its own: one-line errors, exit codes, signals, quick starts."""

import json
import signal
import subprocess
import sys

import pytest

from cli.conftest import Run, one_line
from stopwatch import Stopwatch

NOTHING_THERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("consume", "no-such-topic", "-e"), 1, "topic 'no-such-topic' does not exist"),
        (("produce", "no-such-topic"), 1, "barnabas topics create no-such-topic"),
        (("groups", "describe", "no-such-group"), 1, "group 'no-such-group' does not exist"),
        (("configs", "describe", "topic", "no-such-topic"), 1, "topic 'no-such-topic' does not exist"),
        (("configs", "describe", "broker", "99"), 1, "broker 99 is not in the cluster"),
        (("topics", "list", "-b", NOTHING_THERE), 1, "connection refused"),
        (("topics", "list", "-b", "no-such-host.invalid"), 1, "does not resolve"),
        (("topics", "list", "-b", "host:port"), 2, "a port is a number"),
        (("topics", "create"), 2, "TOPIC is missing, as in `barnabas topics create orders"),
        (("groups", "reset-offsets"), 2, "GROUP is missing"),
        (("transactions", "abort", "-t", "x"), 2, "--partition is missing"),
        (("topics",), 2, "COMMAND is missing; commands are list, create"),
        (("topics", "crate"), 2, "did you mean create?"),
        (("tpics",), 2, "did you mean topics?"),
        (("produce", "t", "--file", "/no/such/file"), 1, "/no/such/file: no such file or directory"),
        (("serve", "--set", "log.segment.byte=1"), 2, "log.segment.byte"),
        (("serve", "--listen", "nonsense"), 2, "HOST:PORT"),
        (("serve", "--config", "/no/such/file"), 2, "/no/such/file"),
        (("serve", "--nonsense"), 2, "no option --nonsense"),
        (("topics", "describe", "\udcff"), 2, "TOPIC: '\\udcff' is not UTF-8"),
        (("cluster", "elect", "\udcff"), 2, "TOPIC[:0,2,5-7]: '\\udcff' is not UTF-8"),
        (("cluster", "under-replicated", "\udcff"), 2, "is not UTF-8"),
        (("cluster", "reassign", "cancel", "\udcff"), 2, "is not UTF-8"),
        (("groups", "describe", "\udcff"), 2, "GROUP: '\\udcff' is not UTF-8"),
        (("topics", "list", "-X", "client.id=\udcff"), 2, "client.id is not UTF-8"),
        (("serve", "--brokers", "3", "--data-dir", "/no/s\udcff"), 2, "--data-dir: '/no/s\\udcff' is not UTF-8"),
        (("serve", "--data-dir", "/no/s\udcff"), 2, "--data-dir: '/no/s\\udcff' is not UTF-8"),
        (("serve", "--brokers", "3", "--listen", "\udcff:31070"), 2, "--listen: '\\udcff:31070' is not UTF-8"),
        (("serve", "--brokers", "3", "--set", "broker.rack=\udcff"), 2, "--set: 'broker.rack=\\udcff' is not UTF-8"),
        (("serve", "--brokers", "3", "--racks", "a,\udcff,c"), 2, "--racks: 'a,\\udcff,c' is not UTF-8"),
        (("cluster", "elect", "a" * 40_000), 2, "has 40,000 characters, and the name of a topic at most 249"),
        (("cluster", "elect", ""), 2, "TOPIC[:0,2,5-7]: Topic name is invalid: the empty string is not allowed"),
        (("cluster", "elect", ":0"), 2, "TOPIC[:0,2,5-7]: Topic name is invalid: the empty string is not allowed"),
        (("cluster", "elect"), 2, "barnabas: give either TOPIC, such as orders, or --all-topics"),
        (("cluster", "drain", "x"), 2, "BROKER: 'x' is not a whole number"),
        (("cluster", "roll", "--restart-command", " "), 2, "--restart-command: must not be empty, such as"),
        (("configs", "set", "topic", "", "retention.ms=1"), 2, "the empty string is not allowed"),
        (("topics", "list", "--timeout", "nan"), 2, "--timeout: 'nan' is not a number"),
    ],
)
def test_bad_input_gets_a_line_and_an_exit_code(
    barnabas: Run, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = barnabas(*arguments, input="x\n")
    assert words in done.stderr
    assert done.returncode == code
    one_line(done.stderr)


def test_errors_are_json_where_json_is_asked_for(barnabas: Run) -> None:
    done = barnabas("topics", "list", "-b", NOTHING_THERE, "--json")
    error = json.loads(done.stderr)
    assert error["error"] == "BrokerUnreachable"
    assert error["attempts"][0]["stage"] == "tcp"


def test_a_reader_that_goes_away_is_no_error(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, input="".join(f"{number:0100d}\n" for number in range(20_000)))
    command = f"{sys.executable} -m barnabas consume {name} -b {bootstrap} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert done.stdout.split() == [f"{0:0100d}", "0"]


@pytest.mark.parametrize("in_group", [False, True])
def test_ctrl_c_ends_at_once(barnabas: Run, bootstrap: str, name: str, in_group: bool, stopwatch: Stopwatch) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, input="1\n")
    command = [sys.executable, "-m", "barnabas", "consume", name, "-b", bootstrap]
    with subprocess.Popen(
        [*command, "--group", name] if in_group else command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        began = stopwatch()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert stopwatch() - began < 20
    assert process.returncode == 130
    assert b"Traceback" not in errors
    if in_group:
        state = json.loads(barnabas("groups", "describe", name, "--json").stdout)
        assert (state["state"], state["lag"]) == ("Empty", 0)


def test_what_is_not_needed_is_not_imported() -> None:
    heavy = "{'typer', 'click', 'rich', 'asyncio', 'lz4', 'zstandard', 'cramjam', 'barnabas.broker'}"
    code = f"import sys, barnabas.cli.topics.topics; bad = {heavy} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
