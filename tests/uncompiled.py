"""The package as it is where nothing was compiled, for tests in a process of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from barnabas.records.compiled.record_walk import is_compiled

HERE = Path(__file__).parent
needs_compiled = pytest.mark.skipif(not is_compiled(), reason="all tests run on plain Python here")


def copy_uncompiled(place: Path) -> None:
    """Copies the package into a folder without what is compiled: on plain Python for whoever has that first in
    PYTHONPATH."""
    shutil.copytree(
        Path(barnabas.__file__).parent, place / "barnabas", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )


def run_uncompiled(tmp_path: Path, *arguments: str, timeout: float = 300) -> None:
    """Runs tests on plain Python. `arguments` are pytest's; paths are relative to the folder of all tests."""
    copy_uncompiled(tmp_path)
    asked = "import barnabas.client.producer.record_appender as module; print(module.__file__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(HERE)))}
    where = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert where.stdout.strip() == str(tmp_path / "barnabas/client/producer/record_appender.py")
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=--strict-markers"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        env=environment,
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
