"""Several commands one after the other against a broker: what one writes, another reads."""

import errno
import json
import os
import subprocess
import sys

import pytest

from barnabas.cli.main import run
from barnabas.testing import Broker
from cli.conftest import Run, one_line


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


def test_empty_results_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        for arguments, words in {
            ("topics", "list"): "no topics; --internal shows those that brokers keep for themselves",
            ("topics", "describe"): "no topics",
            ("groups", "list"): "no groups",
            ("groups", "list", "--state", "Stable"): "no groups in state Stable",
            ("groups", "describe", "--all"): "no groups",
            ("transactions", "list"): "no transactional ids",
            ("get-offsets",): "no topics",
        }.items():
            assert run([*arguments, "-b", broker.bootstrap_servers]) == 0
            assert capsys.readouterr().out == f"{words}\n"
            assert run([*arguments, "-b", broker.bootstrap_servers, "--json"]) == 0
            assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "memory has run out"),
        (
            ImportError("/lib/fetch.so: failed to map segment", path="/lib/fetch.so"),
            "/lib/fetch.so: failed to map segment",
        ),
    ],
    ids=["no-memory", "no-shared-object"],
)
def test_a_start_that_finds_no_room_for_its_code_ends_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    def no_room(arguments: list[str]) -> None:
        raise error

    monkeypatch.setattr("barnabas.cli.serve.start_broker.parse_serve", no_room)
    assert run(["serve"]) == 1
    assert capsys.readouterr().err == f"barnabas: {line}\n"


@pytest.mark.parametrize("unsaid", [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory", "barnabas/client")])
def test_a_start_that_finds_no_room_for_the_code_of_errors_ends_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unsaid: Exception
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise unsaid

    monkeypatch.setattr("barnabas.cli.main._failed", no_room)
    assert run(["serve", "--not-an-option"]) == 1
    assert capsys.readouterr().err == "barnabas: memory has run out\n"
    assert run(["serve", "--not-an-option", "--json"]) == 1
    told = {"error": "MemoryError", "message": "memory has run out", "attempts": []}
    assert json.loads(capsys.readouterr().err) == told
