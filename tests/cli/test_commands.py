"""The commands in processes of their own, against a broker: output, exit codes, one-line errors."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Run, run_barnabas
from stopwatch import Stopwatch

NOTHING_THERE = "127.0.0.1:1"


def one_line(text: str) -> str:
    """The only line of an error message."""
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text.strip()


# --- topics ---------------------------------------------------------------------------------------------------------


def test_the_life_of_a_topic(barnabas: Run, name: str) -> None:
    created = barnabas("topics", "create", name, "--partitions", "3", "--config", "retention.ms=60000")
    assert (created.returncode, created.stdout) == (0, f"created {name} (3 partitions)\n")
    again = barnabas("topics", "create", name)
    assert again.returncode == 1
    assert "exists already" in one_line(again.stderr)
    assert barnabas("topics", "create", name, "--if-not-exists").returncode == 0
    assert name in barnabas("topics", "list", "-q").stdout.split()
    grown = barnabas("topics", "add-partitions", name, "--to", "5", "--json")
    assert json.loads(grown.stdout) == [{"topic": name, "result": "grown", "partitions": 5, "error": None}]
    described = json.loads(barnabas("topics", "describe", name, "--json").stdout)[0]
    assert described["configs"] == {"retention.ms": "60000"}
    assert [p["partition"] for p in described["partitions_detail"]] == list(range(5))
    assert {p["end_offset"] for p in described["partitions_detail"]} == {0}
    assert barnabas("topics", "delete", name).stdout == f"deleted {name}\n"
    gone = barnabas("topics", "describe", name)
    assert gone.returncode == 1
    assert "does not exist" in one_line(gone.stderr)
    assert barnabas("topics", "delete", name, "--if-exists").returncode == 0


def test_a_setting_that_does_not_exist_is_named(barnabas: Run, name: str) -> None:
    failed = barnabas("topics", "create", name, "--config", "retention.sm=1")
    assert failed.returncode == 1
    assert "retention.sm" in one_line(failed.stderr)


# --- produce and consume --------------------------------------------------------------------------------------------


def test_lines_there_and_back(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "2")
    written = barnabas("produce", name, "-K", ":", "-H", "h=1", "-p", "1", "-z", "lz4", input="a:1\nb:2\nc\n")
    assert written.returncode == 0
    assert written.stderr == f"3 records to {name} (partition: offsets 1: 0-2)\n"
    read = barnabas("consume", name, "-e", "-f", r"%p %o %k=%v [%h]\n")
    assert read.stdout == "1 0 a=1 [h=1]\n1 1 b=2 [h=1]\n1 2 =c [h=1]\n"
    assert read.stderr == ""


def test_json_there_and_back(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    records = [
        {"key": "k", "value": "ü", "timestamp": 1357016400000, "headers": [["a", "b"], ["n", None]]},
        {"key_base64": "/w==", "value": None, "timestamp": 1357016401000, "headers": []},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    report = json.loads(barnabas("produce", name, "--from-json", "--json", input=lines).stdout)
    assert (report["records"], report["failed"], report["error"]) == (2, 0, None)
    read = [json.loads(line) for line in barnabas("consume", name, "-e", "--json").stdout.splitlines()]
    places = [{"topic": name, "partition": 0, "offset": offset} for offset in range(2)]
    assert read == [place | record for place, record in zip(places, records, strict=True)]


def test_where_to_begin_and_to_end(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    lines = "".join(json.dumps({"value": str(n), "timestamp": 1000 * n}) + "\n" for n in range(10))
    barnabas("produce", name, "--from-json", input=lines)

    def read(*arguments: str) -> list[int]:
        return [int(line) for line in barnabas("consume", name, "-e", *arguments).stdout.split()]

    assert read() == list(range(10))
    assert read("-o", "7") == [7, 8, 9]
    assert read("-o", "-2") == [8, 9]
    assert read("-o", "end") == []
    assert read("-o", "s@4000", "-o", "e@6500") == [4, 5, 6]
    assert read("-o", "beginning", "-c", "3") == [0, 1, 2]
    assert read("--grep-value", "^[135]$") == [1, 3, 5]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_lines_in_every_compression(barnabas: Run, name: str, codec: str) -> None:
    barnabas("topics", "create", name, "-p", "3")
    lines = "".join(f"{number}\n" for number in range(20_000))
    assert barnabas("produce", name, "-z", codec, input=lines).returncode == 0
    read = barnabas("consume", name, "-e")
    assert sorted(map(int, read.stdout.split())) == list(range(20_000))


def test_a_group_goes_on_where_it_stopped(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "2")
    barnabas("produce", name, input="1\n2\n3\n")
    first = barnabas("consume", name, "--group", name, "-e", "-q", "-c", "2")
    second = barnabas("consume", name, "--group", name, "-e", "-q")
    assert sorted((first.stdout + second.stdout).split()) == ["1", "2", "3"]
    assert len(first.stdout.split()) == 2
    described = json.loads(barnabas("groups", "describe", name, "--json").stdout)
    assert (described["state"], described["lag"], described["members"]) == ("Empty", 0, [])


def test_tombstones(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1", "-c", "cleanup.policy=compact")
    barnabas("produce", name, "-K", ":", "-Z", input="k:\n")
    assert barnabas("consume", name, "-e", "-Z", "-f", r"%k=%v\n").stdout == "k=NULL\n"
    refused = barnabas("produce", name, input="without key\n")
    assert refused.returncode == 1
    assert "1 record was not written" in one_line(refused.stderr.splitlines(keepends=True)[-1])


# --- groups and configs ---------------------------------------------------------------------------------------------


def test_resetting_offsets_shows_first_and_does_it_when_told(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, input="1\n2\n3\n4\n")
    barnabas("consume", name, "--group", name, "-e", "-q")

    def reset(*arguments: str) -> int:
        done = barnabas("groups", "reset-offsets", name, "--topic", name, "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)[0]["to_offset"])

    def committed() -> int:
        rows = json.loads(barnabas("groups", "describe", name, "--json").stdout)["partitions"]
        return int(rows[0]["committed_offset"])

    assert reset("--to-earliest") == 0
    assert committed() == 4, "only shown"
    assert reset("--to-earliest", "--execute") == 0
    assert committed() == 0
    assert reset("--shift-by", "3", "--execute") == 3
    assert reset("--shift-by", "100") == 4
    assert reset("--to-offset", "2") == 2
    assert reset("--to-latest") == 4
    assert reset("--to-datetime", "now") == 4
    assert reset("--to-datetime", "-1h") == 0
    assert barnabas("groups", "delete-offsets", name, "-t", name).returncode == 0
    assert barnabas("groups", "delete", name).stdout == f"deleted {name}\n"
    gone = barnabas("groups", "describe", name)
    assert gone.returncode == 1
    assert "does not exist" in one_line(gone.stderr)


def test_settings_are_set_shown_and_deleted(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name)
    assert barnabas("configs", "set", "topic", name, "retention.ms=1000").returncode == 0
    shown = json.loads(barnabas("configs", "describe", "topic", name, "retention.ms", "--json").stdout)
    assert (shown[0]["value"], shown[0]["source"]) == ("1000", "DYNAMIC_TOPIC_CONFIG")
    wrong = barnabas("configs", "set", "topic", name, "retention.ms=soon")
    assert wrong.returncode == 1
    assert "retention.ms" in one_line(wrong.stderr)
    assert barnabas("configs", "delete", "topics", name, "retention.ms").returncode == 0
    shown = json.loads(barnabas("configs", "describe", "topic", name, "retention.ms", "--json").stdout)
    assert shown[0]["source"] == "STATIC_BROKER_CONFIG"


# --- perf and doctor ------------------------------------------------------------------------------------------------


def test_perf_counts_what_was_acknowledged(barnabas: Run, name: str) -> None:
    produced = json.loads(barnabas("perf", "producer", name, "-n", "5000", "-s", "10", "--json").stdout)
    consumed = json.loads(barnabas("perf", "consumer", name, "--json").stdout)
    measured = json.loads(barnabas("perf", "latency", name, "-n", "20", "--json").stdout)
    assert (produced["records"], consumed["records"], measured["records"]) == (5000, 5000, 20)
    assert produced["bytes"] == consumed["bytes"]
    assert 0 < measured["acknowledged_ms"]["p50"] <= measured["read_ms"]["p50"]


def test_a_doctor_who_finds_nothing(barnabas: Run) -> None:
    done = barnabas("doctor", "--write", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    names = [check["name"] for check in report["checks"]]
    assert names == ["install", "dns", "tcp", "versions", "metadata", "advertised", "produce", "clock"]


# --- bad input ------------------------------------------------------------------------------------------------------


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


def test_a_busy_port_is_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_barnabas("demo", "flights", "--listen", address)
        assert done.returncode == 2
        assert f"cannot listen on {address}" in one_line(done.stderr)


def test_a_busy_port_is_a_line_for_serve_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_barnabas("serve", "--listen", address, "--data-dir", str(tmp_path))
        assert done.returncode == 2
        assert address in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


# --- signals and pipes ----------------------------------------------------------------------------------------------


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
        assert stopwatch() - began < 2
    assert process.returncode == 130
    assert b"Traceback" not in errors
    if in_group:
        state = json.loads(barnabas("groups", "describe", name, "--json").stdout)
        assert (state["state"], state["lag"]) == ("Empty", 0)


def test_slow_lines_are_sent_as_they_come(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "barnabas", "produce", name, "-b", bootstrap, "-q"]
    with subprocess.Popen(command, stdin=reading) as process:
        os.close(reading)
        os.write(writing, b"first\n")
        assert barnabas("consume", name, "-c", "1").stdout == "first\n"
        os.close(writing)
        assert process.wait(60) == 0


# --- start-up -------------------------------------------------------------------------------------------------------


def test_what_is_not_needed_is_not_imported() -> None:
    heavy = "{'typer', 'click', 'rich', 'asyncio', 'lz4', 'zstandard', 'cramjam', 'barnabas.broker'}"
    code = f"import sys, barnabas.cli.topics.topics; bad = {heavy} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
