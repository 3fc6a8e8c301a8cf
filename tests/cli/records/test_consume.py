"""`barnabas consume` in processes of its own, against a broker."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from barnabas import Producer
from barnabas.cli.records import consume
from barnabas.errors import CoordinatorNotAvailable, TopicAuthorizationFailed
from barnabas.testing import Broker
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


# --- commits that fail ------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker with two records, for a command that commits often."""
    monkeypatch.setattr(consume, "COMMIT_INTERVAL_S", 0.05)
    monkeypatch.setattr(consume, "CLOSE_TIMEOUT_S", 0.2)
    with Broker() as broker:
        broker.create_topic(name)
        for value in (b"1", b"2"):
            broker.produce(name, value)
        yield broker


def test_a_commit_that_fails_for_a_time_does_not_end_the_reading(
    broker: Broker, in_process: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third record is there only once the command has said that it cannot commit the first two."""
    tell = consume.notice

    def notice(text: str) -> None:
        tell(text)
        if "cannot be committed" in text:
            broker.faults.clear()
            broker.produce(name, b"3")

    monkeypatch.setattr(consume, "notice", notice)
    broker.faults.error("OFFSET_COMMIT", CoordinatorNotAvailable, times=None)
    done = in_process("consume", name, "-g", name, "-c", "3", "-b", broker.bootstrap_servers)
    assert (done.returncode, done.stdout) == (0, "1\n2\n3\n")
    assert done.stderr.count("cannot be committed") == 1
    assert f"% group {name}: committed {name}-0 at 3; left the group" in done.stderr
    assert broker.committed(name) == {(name, 0): 3}


def test_a_last_commit_that_fails_is_not_claimed(broker: Broker, in_process: Run, name: str) -> None:
    broker.faults.error("OFFSET_COMMIT", CoordinatorNotAvailable, times=None)
    done = in_process("consume", name, "-g", name, "-c", "2", "-b", broker.bootstrap_servers)
    assert (done.returncode, done.stdout) == (1, "1\n2\n")
    assert f"% group {name}: could not commit all that was printed, so it will be read again; the group" in done.stderr
    assert "left the group" not in done.stderr
    assert "COORDINATOR_NOT_AVAILABLE" in done.stderr.splitlines()[-1]
    assert broker.committed(name) == {}


def test_a_commit_that_is_not_allowed_ends_the_reading(broker: Broker, in_process: Run, name: str) -> None:
    broker.faults.error("OFFSET_COMMIT", TopicAuthorizationFailed, times=None)
    done = in_process("consume", name, "-g", name, "-b", broker.bootstrap_servers)
    assert (done.returncode, done.stdout) == (1, "1\n2\n")
    assert "TOPIC_AUTHORIZATION_FAILED" in done.stderr.splitlines()[-1]
