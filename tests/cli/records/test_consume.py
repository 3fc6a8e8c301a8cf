"""`barnabas consume` in processes of its own, against a broker."""

import json
import os
import subprocess
import sys

from barnabas import Producer
from cli.conftest import Run


def test_a_count_ends_in_the_middle_of_a_batch_and_the_group_goes_on_behind_it(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, input="".join(f"{number}\n" for number in range(100)))
    first = barnabas("consume", name, "-g", name, "-q", "-c", "3", "--grep-value", "[05]$")
    second = barnabas("consume", name, "-g", name, "-q", "-c", "2")
    assert (first.stdout.split(), second.stdout.split()) == (["0", "5", "10"], ["11", "12"])
    described = json.loads(barnabas("groups", "describe", name, "--json").stdout)
    assert described["partitions"][0]["committed_offset"] == 13


def test_filters_see_keys_values_and_headers(barnabas: Run, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, "-K", ":", "-H", "a=1", input="k1:x\nk2:y\n")
    barnabas("produce", name, input="k1\n")

    def read(*arguments: str) -> list[str]:
        return barnabas("consume", name, "-e", "-f", r"%k:%v\n", *arguments).stdout.split()

    assert read("--grep", "k1") == ["k1:x", ":k1"]
    assert read("--grep-key", "k") == ["k1:x", "k2:y"]
    assert read("--grep-header", "^a=1$", "--grep-value", "y") == ["k2:y"]


def test_the_end_is_found_behind_what_is_no_record(barnabas: Run, bootstrap: str, name: str) -> None:
    """Markers of transactions stand behind the last record, and nothing else in the other partition."""
    barnabas("topics", "create", name, "-p", "2")
    with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(name, b"committed", partition=0)
        producer.begin_transaction()
        producer.send(name, b"aborted", partition=0)
        producer.send(name, b"aborted", partition=1)
        producer.flush()
        producer.abort_transaction()
    assert barnabas("consume", name, "-e", "--read-committed").stdout == "committed\n"
    assert sorted(barnabas("consume", name, "-e").stdout.split()) == ["aborted", "aborted", "committed"]


def test_how_far_it_is_on_a_terminal_that_does_not_get_the_records(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, input="1\n2\n3\n")
    screen, terminal = os.openpty()
    command = [sys.executable, "-m", "barnabas", "consume", name, "-b", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        seen = b""
        while b"lag" not in seen:
            seen += os.read(screen, 4096)
        process.terminate()
    os.close(screen)
    assert b"\r\x1b[K3 records, " in seen
    assert b"/s, lag 0" in seen
