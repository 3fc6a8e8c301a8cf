"""What a query does that does not get on: what it says itself, and the stacks of its JVM and of the Python processes.

These end by that: they are asked by SIGABRT, on which `PYTHONFAULTHANDLER` writes them.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from .sink_processes import Host, role_of, send

LINES_MAX = 25
"""Of one thread."""
LOOKED_AT = ("stream execution thread", "Executor task launch", 'File "')
"""Of a JVM's hundred threads."""


def what_it_does(host: Host, log: Path) -> str:
    lines = [f"the query: {host.ask()}"]
    size = log.stat().st_size
    host.dump_threads()
    lines += _stacks(log, size)
    for pid in host.pythons():
        size = log.stat().st_size
        role = role_of(pid)
        send(pid, signal.SIGABRT)
        time.sleep(0.5)  # it writes that by itself
        lines += [f"python {role} {pid}:", *_stacks(log, size)]
    return "\n".join(lines)


def _stacks(log: Path, start: int) -> list[str]:
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode(errors="replace")
    threads = [each.splitlines() for each in text.split("\n\n") if any(word in each for word in LOOKED_AT)]
    return ["\n".join(lines[:LINES_MAX]) for lines in threads]
