"""Each of these bugs, planted on purpose, is found by a test: otherwise that it passes would mean nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.planting import FOUND_AT_ONCE, FOUND_LATER, Found
from code_blocks import ROOT
from uncompiled import copy_uncompiled


@pytest.mark.parametrize(
    "finders",
    [
        pytest.param(FOUND_AT_ONCE, id="at once"),
        pytest.param(FOUND_LATER, marks=(pytest.mark.slow, pytest.mark.timeout(1200)), id="later"),
    ],
)
def test_the_test_of_what_is_promised_fails_with_the_bug(finders: list[Found], tmp_path: Path) -> None:
    copy_uncompiled(tmp_path)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "broker.planting", "-p", "no:cacheprovider", "-o", "addopts="),
            *(f"tests/{file}::{test}" for _, file, test in finders),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{len(finders)} xfailed in " in done.stdout, done.stdout[-3000:]
