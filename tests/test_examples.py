"""The programs in examples, run as their readers run them: all against one broker, and each of them twice."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from barnabas.testing import Broker
from code_blocks import ROOT

EXAMPLES = ROOT / "examples"
PRINTED = {
    "archive.py": "10000 rows\n",
    "dead_letters.py": "1750 in 3 orders, 1 dead letter\n",
    "request_reply.py": "[1, 4, 9, 16]\n",
    "table.py": "{'apple': 1.4}\n",
    "word_count.py": "3 times 'the'\n",
}
"""What each program prints when it runs for the first time."""
AGAIN = PRINTED | {"word_count.py": "6 times 'the'\n"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def run(broker: Broker, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=EXAMPLES,
        env={**os.environ, "BARNABAS_BOOTSTRAP": broker.bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    return done.stdout


def test_each_example_has_a_test() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == PRINTED.keys() | {"test_service.py"}


@pytest.mark.parametrize("program", PRINTED)
def test_the_program_runs_and_runs_again(broker: Broker, program: str) -> None:
    if program == "archive.py":
        pytest.importorskip("pyarrow")
    assert run(broker, program) == PRINTED[program]
    assert run(broker, program) == AGAIN[program]


def test_the_example_of_a_test_passes(broker: Broker) -> None:
    assert "2 passed" in run(broker, "-m", "pytest", "-p", "no:cacheprovider", "test_service.py")
