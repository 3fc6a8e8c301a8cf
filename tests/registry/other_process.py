"""Another process with a broker of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["Child", "child", "other_process"]

_BEGIN = """
import sys
from barnabas.registry.processes import begin_process
print(begin_process(), flush=True)
sys.stdin.read()
"""
Child = tuple["subprocess.Popen[str]", str]
"""The process, and the text of its broker."""


@contextmanager
def other_process(first: str = "") -> Iterator[Child]:
    """The process runs the line `first` before it begins."""
    with subprocess.Popen(
        [sys.executable, "-c", first + _BEGIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


@pytest.fixture
def child() -> Iterator[Child]:
    with other_process() as begun:
        yield begun
