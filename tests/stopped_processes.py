"""Processes that are held still by SIGSTOP."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["stop_process"]

PATIENCE_S: Final = 60.0


def stop_process(pid: int) -> None:
    """Sends SIGSTOP, and returns when all threads of the process stand still: each runs on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    threads = [*Path(f"/proc/{pid}/task").glob("*/stat")]
    deadline = time.monotonic() + PATIENCE_S
    while not all(_is_stopped(stat) for stat in threads):
        assert time.monotonic() < deadline, f"process {pid} did not stop"
        time.sleep(0.005)


def _is_stopped(stat: Path) -> bool:
    """Returns whether a thread stands still, or has ended."""
    with suppress(OSError):
        return stat.read_text().rpartition(")")[2].split()[0] in "TZX"
    return True
