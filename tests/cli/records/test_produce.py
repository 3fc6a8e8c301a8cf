"""`barnabas produce` in processes of its own, against a broker."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.framework.options import Cluster
from barnabas.cli.records import produce
from barnabas.records.compiled.bulk_rows import murmur2
from barnabas.testing import Broker
from cli.conftest import Run


def started(bootstrap: str, *arguments: str, **files: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "barnabas", "produce", *arguments, "-b", bootstrap], **files)


def test_records_go_where_the_argument_says(barnabas: Run, name: str) -> None:
    """A line as consume prints it names the topic and the partition that it was read from."""
    other = f"{name}-other"
    barnabas("topics", "create", other, "-p", "4")
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", other, "-K", ":", "-p", "3", input="a:1\nb:2\n")
    read = barnabas("consume", other, "-e", "--json").stdout
    written = barnabas("produce", name, "--from-json", "--json", input=read)
    report = json.loads(written.stdout)
    assert [(p["topic"], p["partition"], p["records"]) for p in report["partitions"]] == [(name, 0, 2)]
    assert barnabas("consume", name, "-e", "-f", r"%k=%v\n").stdout == "a=1\nb=2\n"
    assert len(barnabas("consume", other, "-e").stdout.splitlines()) == 2, "nothing more went to the other topic"


def test_a_topic_is_restored_to_the_partitions_that_it_had(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "4")
    barnabas("produce", name, "-p", "3", input="1\n2\n")
    read = barnabas("consume", name, "-e", "--json").stdout
    barnabas("topics", "delete", name)
    barnabas("topics", "create", name, "-p", "4")
    barnabas("produce", name, "--from-json", input=read)
    assert barnabas("consume", name, "-e", "-f", r"%p %v\n").stdout == "3 1\n3 2\n"


def test_what_json_lines_say_themselves_is_refused_as_an_option(barnabas: Run, name: str) -> None:
    refused = barnabas("produce", name, "--from-json", "-H", "a=b", input="{}\n")
    assert refused.returncode == 2
    assert "--from-json" in refused.stderr


def test_a_bad_line_names_its_number_and_what_was_written_before(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "2")
    lines = "".join(f'{{"value": "{number}"}}\n' for number in range(5000))
    failed = barnabas("produce", name, "--from-json", input=f"{lines}{{nonsense\n{lines}")
    assert failed.returncode == 2
    summary, error = failed.stderr.splitlines()
    assert summary.startswith(f"5000 records to {name} (partition: offsets ")
    assert error.startswith("barnabas: input line 5001 is not JSON: ")
    assert error.endswith("; 5000 records were written before it")
    assert sorted(map(int, barnabas("consume", name, "-e").stdout.split())) == list(range(5000))
    first = barnabas("produce", name, "--from-json", "--json", input="{nonsense\n")
    assert json.loads(first.stdout)["error"] == json.loads(first.stderr)["message"]
    assert json.loads(first.stderr)["message"].endswith("; nothing was written")


def test_keys_keep_their_order_and_have_kafkas_partitions(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "3")
    count = 20_000
    lines = "".join(f"k{number % 100}:{number}\n" for number in range(count))
    report = json.loads(barnabas("produce", name, "-K", ":", "--json", input=lines).stdout)
    assert (report["records"], report["bytes"]) == (count, len(lines) - 2 * count)
    read: dict[str, list[int]] = {}
    for line in barnabas("consume", name, "-e", "-f", r"%p %k %v\n").stdout.splitlines():
        partition, key, number = line.split()
        assert int(partition) == (murmur2(key.encode()) & 0x7FFFFFFF) % 3
        read.setdefault(key, []).append(int(number))
    assert read == {f"k{key}": list(range(key, count, 100)) for key in range(100)}


def test_a_file_and_other_delimiters(barnabas: Run, name: str, tmp_path: Path) -> None:
    barnabas("topics", "create", name, "-p", "1")
    path = tmp_path / "input"
    path.write_bytes(b"k=>1\n;;k=>2;;no key")
    assert barnabas("produce", name, "-f", str(path), "-D", ";;", "-K", "=>", "-H", "a=1", "-H", "a=2").returncode == 0
    assert barnabas("consume", name, "-e", "-Z", "-f", "%k|%v|%h;").stdout == (
        "k|1\n|a=1,a=2;k|2|a=1,a=2;NULL|no key|a=1,a=2;"
    )


def test_a_partition_that_is_not_there_is_refused_at_once(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "2")
    failed = barnabas("produce", name, "-p", "2", input="x\n")
    assert failed.returncode == 1
    assert "has partitions 0 to 1, not 2" in failed.stderr


def test_records_that_the_broker_refuses_are_counted(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1", "-c", "cleanup.policy=compact")
    lines = "".join(f"{number}\n" for number in range(1000))
    failed = barnabas("produce", name, "--json", input=lines)
    assert failed.returncode == 1
    report = json.loads(failed.stdout)
    assert (report["records"], report["bytes"], report["failed"]) == (0, 0, 1000)
    assert json.loads(failed.stderr)["message"].startswith("1000 records were not written; input line 1: ")


def test_a_line_that_is_too_large_for_the_topic_is_named(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1", "-c", "max.message.bytes=10000")
    failed = barnabas("produce", name, input="small\n" * 2000 + "x" * 20_000 + "\n" + "small\n" * 10)
    assert failed.returncode == 1
    summary, error = failed.stderr.splitlines()
    assert summary.startswith(f"2010 records to {name} ")
    assert error.startswith("barnabas: 1 record was not written; input line 2001: ")
    assert "max.message.bytes is 10000" in error


def test_ctrl_c_says_what_was_written(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    reading, writing = os.pipe()
    with started(bootstrap, name, stdin=reading, stderr=subprocess.PIPE) as process:
        os.close(reading)
        os.write(writing, b"first\nsecond\nunfinished")
        assert barnabas("consume", name, "-c", "2").stdout == "first\nsecond\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        os.close(writing)
    assert process.returncode == 130
    assert errors.decode() == f"2 records to {name} (partition: offsets 0: 0-1)\nbarnabas: stopped by Ctrl-C\n"


def test_how_far_it_is_on_a_terminal(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    reading, writing = os.pipe()
    screen, terminal = os.openpty()
    with started(bootstrap, name, stdin=reading, stderr=terminal) as process:
        os.close(reading)
        os.close(terminal)
        seen = b""
        count = 0
        while b"/s" not in seen:
            os.write(writing, b"x\n")
            count += 1
            assert barnabas("consume", name, "-c", "1", "-o", str(count - 1)).stdout == "x\n"
            os.set_blocking(screen, False)
            try:
                seen += os.read(screen, 4096)
            except BlockingIOError:
                continue
        os.close(writing)
        os.set_blocking(screen, True)
        while True:
            try:
                seen += os.read(screen, 4096)
            except OSError:  # the last one has closed it
                break
        assert process.wait(60) == 0
    os.close(screen)
    assert b" records, " in seen
    assert seen.decode().endswith(f"\r\x1b[K{count} records to {name} (partition: offsets 0: 0-{count - 1})\r\n")


def test_keys_and_headers_may_be_bytes(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, "-k", "k\udcff", "-H", "h=\udcfe", "-D", "\udcfd", input=b"a\xfdb")
    refused = barnabas("produce", name, "-H", "\udcfe=h", input="x")
    assert (refused.returncode, "the name UTF-8" in refused.stderr) == (2, True)
    assert barnabas("consume", name, "-e", "-f", r"%v\n", "--grep-header", "h=\udcfe").stdout == "a\nb\n"
    assert barnabas("consume", name, "-e", "-f", r"%k\n", "--key-as", "hex").stdout == "6bff\n6bff\n"


def test_what_was_waited_for_before_counts_for_the_timeout(
    in_process: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []
    settings = produce.producer_settings

    def producer_settings(cluster: Cluster, **options: Any) -> dict[str, object]:
        left.append(cluster.timeout)
        return settings(cluster, **options)

    monkeypatch.setattr(produce, "producer_settings", producer_settings)
    with Broker() as broker:
        broker.create_topic(name)
        broker.faults.delay("METADATA", 1.0)
        in_process("produce", name, "--timeout", "30", "-b", broker.bootstrap_servers, input="x\n")
    assert 9 <= left[0] <= 29
