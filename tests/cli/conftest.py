"""A broker for the commands: BARNABAS_TEST_BROKER (any Kafka), or one of ours in this process."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """host:port of a broker."""
    external = os.environ.get("BARNABAS_TEST_BROKER")
    if external:
        yield external
        return
    from barnabas.testing import Broker

    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def name() -> str:
    """A topic or group name of this test alone."""
    return f"cli-{time.time_ns()}-{next(_numbers)}"


def run_barnabas(
    *arguments: str, input: str | bytes | None = None, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own."""
    data = input.encode() if isinstance(input, str) else input
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        input=b"" if data is None else data,
        capture_output=True,
        timeout=60,
        env={key: value for key, value in os.environ.items() if not key.startswith("BARNABAS_")} | (environment or {}),
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def barnabas(bootstrap: str) -> Run:
    """Runs `barnabas ...` against the broker."""

    def run(*arguments: str, input: str | bytes | None = None) -> "subprocess.CompletedProcess[str]":
        return run_barnabas(*arguments, input=input, environment={"BARNABAS_BOOTSTRAP": bootstrap})

    return run


@pytest.fixture
def in_process(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """As `barnabas`, but in this process, which is quicker; input goes to `produce` by a file."""
    from barnabas.cli.main import run

    monkeypatch.setenv("BARNABAS_BOOTSTRAP", bootstrap)

    def call(*arguments: str, input: str | bytes | None = None) -> "subprocess.CompletedProcess[str]":
        if input is not None:
            file = tmp_path / "input"
            file.write_bytes(input.encode() if isinstance(input, str) else input)
            arguments += ("--file", str(file))
        capsys.readouterr()
        code = run(arguments)
        out, errors = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, errors)

    return call


def one_line(text: str) -> str:
    """The only line of an error message."""
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text.strip()
