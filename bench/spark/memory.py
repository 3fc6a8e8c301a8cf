"""Measures the peak memory of a driver's JVM and of Spark's Python workers while a load runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.brokers import process_tree

LOOK_EVERY_S = 0.25


class Memory:
    """Returns the private memory (RssAnon) of the descendants of a process: `jvm_MB`, and `workers_MB` of all workers
    together."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @contextmanager
    def watched(self) -> Iterator[dict[str, float]]:
        peaks: dict[str, float] = {}
        over = threading.Event()

        def look() -> None:
            while True:
                for name, megabytes in self.now().items():
                    peaks[name] = max(peaks.get(name, 0.0), megabytes)
                if over.wait(LOOK_EVERY_S):
                    return

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield peaks
        finally:
            over.set()
            watcher.join()

    def now(self) -> dict[str, float]:
        found = {"jvm_MB": 0.0, "workers_MB": 0.0}
        for pid in process_tree(self._pid)[1:]:
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            fields = dict(line.split(":", 1) for line in status.splitlines())
            name = "jvm_MB" if fields["Name"].strip() == "java" else "workers_MB"
            found[name] += int(fields.get("RssAnon", "0 kB").split()[0]) / 1024
        return found
