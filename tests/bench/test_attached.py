"""Processes that end with who started them."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.attached import attached

PARENT = """
import subprocess, sys
from bench.attached import attached
child = subprocess.Popen(attached([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]),
    stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not shutil.which("setpriv"), reason="util-linux is not installed")
def test_a_child_goes_with_a_parent_that_was_killed() -> None:
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = Path(f"/proc/{int(parent.stdout.readline())}")
        assert child.exists()
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 60
    while _runs(child):
        assert time.monotonic() < deadline, "it was left behind"
        time.sleep(0.01)


def _runs(process: Path) -> bool:
    try:
        return "\nState:\tZ" not in (process / "status").read_text()
    except OSError:  # it may go while it is looked at
        return False


def test_the_command_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attached(["a", "b"])[-2:] == ["a", "b"]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert attached(["a", "b"]) == ["a", "b"]
