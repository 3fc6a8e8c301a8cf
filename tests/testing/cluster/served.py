"""Brokers that are started by `barnabas serve`, beside or without a cluster of the test kit."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

__all__ = ["Served", "serve", "until"]

T = TypeVar("T")
_LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
}


class Served:
    """The process of one broker, and where its ready file and its log are."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path) -> None:
        self.process = process
        self._ready = directory / "ready"
        self._log = directory / "log"

    @property
    def log(self) -> str:
        return self._log.read_text()

    def address(self) -> str:
        """Returns the address for clients as soon as there is one."""
        until(lambda: self._ready.exists() or self.process.poll() is not None)
        assert self._ready.exists(), self.log
        return self._ready.read_text().split()[0]


@contextmanager
def serve(
    directory: Path, node_id: int, data_dir: Path, *where: str, within: Sequence[str] = (), **settings: object
) -> Iterator[Served]:
    """Starts a broker, and kills it in the end. `directory` is for its ready file and its log, `where` are the options
    that name the registry, `within` is what its command begins with."""
    directory.mkdir(exist_ok=True)
    options = ["--node-id", str(node_id), "--data-dir", str(data_dir), "--ready-file", str(directory / "ready"), *where]
    named = {name.replace("_", "."): text for name, text in settings.items()}
    for name, text in (_LISTENERS | named).items():
        options += ["--set", f"{name}={text}"]
    command = [*within, sys.executable, "-m", "barnabas", "serve", *options]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("BARNABAS_")}
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            yield Served(process, directory)
        finally:
            process.kill()


def until(condition: Callable[[], T], timeout_s: float = 60) -> T:
    """Returns the first value of a condition that is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found
