"""The programs of docs/clients.md, docs/testing.md and docs/migration.md, each as it stands there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing import Broker
from code_blocks import FILE_NAME, blocks_of


@pytest.mark.parametrize("page", ["docs/clients.md", "docs/testing.md", "docs/migration.md"])
def test_every_program_of_the_page_runs(page: str, tmp_path: Path) -> None:
    """In the order of the page, against one broker; what is for pytest in one run of pytest."""
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    assert blocks
    with Broker() as broker:
        for block in blocks:
            text = block.text.replace("127.0.0.1:9092", broker.bootstrap_servers)
            name = FILE_NAME.match(text)
            program = tmp_path / (name[1] if name else "program.py")
            program.write_text(text)
            if not name:
                run([sys.executable, program.name], tmp_path, f"line {block.line}")
    tests = sorted(path.name for path in tmp_path.glob("test_*.py"))
    if tests:
        run([sys.executable, "-m", "pytest", "-q", *tests], tmp_path, "tests")


def run(arguments: list[str], directory: Path, what: str) -> None:
    done = subprocess.run(
        arguments,
        cwd=directory,
        env={name: text for name, text in os.environ.items() if not name.startswith(("BARNABAS_", "PYTEST_"))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{what}:\n{done.stdout}\n{done.stderr}"
