"""A short run of the crash test on every change; `make test-faults` has 200 rounds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="the crash test's producers are confluent-kafka's")

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_acknowledged_is_lost_or_doubled_over_five_kills() -> None:
    command = [sys.executable, str(Path(__file__).parent), "--rounds", "5", "--seed", "20"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
