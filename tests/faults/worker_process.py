"""Starts `worker.py`, hears what it tells, and ends it in every way that a process can end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.attached import attached

PROGRAM = Path(__file__).with_name("worker.py")
ROOT = PROGRAM.parents[2]  # where `bench` lies


class WorkerProcess:
    """One worker; its standard error goes to ``log``."""

    def __init__(self, name: str, log: Path, *arguments: str, program: Path = PROGRAM) -> None:
        self.name = name
        self._log = log
        self._heard = b""
        self.words: list[str] = []
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                attached([sys.executable, str(program), "--name", name, *arguments]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def has_told(self, word: str) -> bool:
        """Whether it ever told it, without waiting."""
        self._hear(0.0)
        return word in self.words

    def wait_for(self, word: str, timeout_s: float) -> None:
        """Returns once ``word`` is the last that it told; raises ``TimeoutError`` with its last words."""
        deadline = time.monotonic() + timeout_s
        while not (self.words and self.words[-1] == word):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._hear(left_s):
                raise TimeoutError(f"{self.name} told {self.words}, not {word}; exit {self.exit_code}: {self.why()}")

    def go_on(self, word: str = "") -> None:
        """Lets it go on from the point where it waits."""
        self.words.clear()
        self._input.write(f"{word}\n".encode())
        self._input.flush()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Its exit code; raises ``TimeoutError`` when it lives on."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} did not end within {timeout_s:g} s: {self.why()}") from None
        self._input.close()
        self._output.close()
        return code

    def kill(self) -> None:
        """SIGKILL, also to one that is stopped or has ended."""
        self._process.kill()
        self.wait(60)

    def why(self) -> str:
        """The end of what it wrote to standard error."""
        return self._log.read_text(errors="replace")[-500:].strip()

    def _hear(self, timeout_s: float) -> bool:
        """False when nothing came, or its end."""
        ready, _, _ = select.select([self._output], [], [], timeout_s)
        chunk = os.read(self._output.fileno(), 1 << 16) if ready else b""
        self._heard += chunk
        *lines, self._heard = self._heard.split(b"\n")
        self.words += [line.decode() for line in lines]
        return bool(chunk)
