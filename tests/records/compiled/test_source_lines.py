"""Tracebacks show the source of compiled modules wherever the program runs.

That is said of the module traceback, which logging and pytest use, and of the interpreter itself from Python 3.13 on.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from barnabas.records.compiled import source_lines
from barnabas.records.compiled.record_walk import is_compiled

PACKAGE = Path(barnabas.__file__).parent
PROGRAM = """
import traceback
import barnabas
try:
    barnabas.Producer(bootstrap_servers="127.0.0.1:1").send(7, b"x")
except barnabas.errors.UsageError:
    traceback.print_exc()
"""


def test_a_traceback_shows_the_source_outside_of_the_checkout(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    frames = [number for number, line in enumerate(lines) if "barnabas/" in line and line.startswith("  File")]
    assert len(frames) > 2
    for number in frames:
        assert lines[number + 1].startswith("    "), f"no source behind {lines[number]}"


@pytest.mark.skipif(not is_compiled(), reason="nothing is compiled here")
def test_all_folders_with_compiled_modules_are_known() -> None:
    found = {door.parent.relative_to(PACKAGE).as_posix() for door in PACKAGE.rglob("*.so") if (PACKAGE in door.parents)}
    assert found == set(source_lines._COMPILED_IN)
