"""Standard streams that are closed, full, or have lost their reader: one line at most, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Run


def shell(command: str, bootstrap: str) -> "subprocess.CompletedProcess[str]":
    """`barnabas` in a command of the shell."""
    line = command.replace("barnabas", f"{sys.executable} -m barnabas")
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": bootstrap, "PYTHONUNBUFFERED": ""}
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, env=environment, check=False
    )


def test_output_that_cannot_be_written_is_a_failure(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name)
    closed = shell("barnabas topics list >&-", bootstrap)
    assert (closed.returncode, closed.stderr) == (1, "barnabas: standard output: bad file descriptor\n")
    full = shell("barnabas topics list > /dev/full", bootstrap)
    assert (full.returncode, full.stderr) == (1, "barnabas: standard output: no space left on device\n")


def test_what_could_not_be_written_is_not_committed(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    barnabas("produce", name, input="1\n")
    lost = shell(f"barnabas consume {name} --group {name} --exit > /dev/full", bootstrap)
    assert lost.returncode == 1
    assert "Traceback" not in lost.stderr
    assert "no space left on device" in lost.stderr
    assert barnabas("consume", name, "--group", name, "--exit", "-q").stdout == "1\n"


def test_closed_input_is_wrong_usage(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name)
    done = shell(f"barnabas produce {name} <&-", bootstrap)
    assert done.returncode == 2
    assert done.stderr == "barnabas: standard input is closed; give records by a pipe, or --file FILE\n"
    assert shell("barnabas topics list <&-", bootstrap).returncode == 0


def test_messages_that_nobody_can_read_end_nothing(barnabas: Run, bootstrap: str, name: str) -> None:
    barnabas("topics", "create", name, "-p", "1")
    closed = shell(f"echo 1 | barnabas produce {name} 2>&-", bootstrap)
    assert (closed.returncode, closed.stdout) == (0, "")
    broken = shell(f"(sleep 0.2; echo 2) | barnabas produce {name} 2> >(exec true)", bootstrap)
    assert broken.returncode == 0
    failed = shell("barnabas consume no-such-topic 2>&-", bootstrap)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert barnabas("consume", name, "--exit").stdout == "1\n2\n"


@pytest.mark.parametrize("command", ["topics list", "topics describe", "configs describe broker 1 --all", "help"])
def test_a_reader_that_goes_away_is_no_failure(barnabas: Run, bootstrap: str, name: str, command: str) -> None:
    barnabas("topics", "create", name)
    done = shell(f"barnabas {command} | true; echo ${{PIPESTATUS[0]}}", bootstrap)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_broker_starts_without_any_stream(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    line = f"exec {sys.executable} -m barnabas serve --data-dir {tmp_path}/data --listen 127.0.0.1:0"
    with subprocess.Popen(["bash", "-c", f"{line} --ready-file {ready} <&- >&- 2>&-"]) as broker:
        try:
            while not ready.exists():
                assert broker.poll() is None
        finally:
            broker.terminate()
    assert broker.returncode == 0
