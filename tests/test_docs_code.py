"""The programs of docs/clients.md, docs/testing.md and docs/migration.md, each as it stands there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from code_blocks import Block, blocks_of

TEST_MODULE = "# test_"
"""How a block begins that pytest is to run."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module", params=["docs/clients.md", "docs/testing.md", "docs/migration.md"])
def page(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(page: str) -> Iterator[Broker]:
    """One broker for a page, at whose beginning it is empty."""
    with Broker() as broker:
        yield broker


def run(block: Block, broker: Broker, directory: Path) -> None:
    arguments = [sys.executable, "program.py"]
    name = "program.py"
    if block.text.startswith(TEST_MODULE):
        name = block.text.split(maxsplit=2)[1]
        arguments = [sys.executable, "-m", "pytest", "-q", name]
    elif block.text.startswith("# conftest.py"):
        name, arguments = "conftest.py", [sys.executable, "-m", "compileall", "-q", "conftest.py"]
    (directory / name).write_text(block.text.replace("127.0.0.1:9092", broker.bootstrap_servers))
    done = subprocess.run(
        arguments,
        cwd=directory,
        env={name: text for name, text in os.environ.items() if not name.startswith(("BARNABAS_", "PYTEST_"))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"line {block.line} of the page:\n{done.stdout}\n{done.stderr}"


def test_every_program_of_the_page_runs(page: str, broker: Broker, directory: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    assert blocks
    for block in blocks:
        run(block, broker, directory)
