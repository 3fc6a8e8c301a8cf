"""One client program in its own process: JSON commands in, JSON answers out."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.attached import attached

START_TIMEOUT_S = 120.0
CALL_TIMEOUT_S = 100.0
STOP_TIMEOUT_S = 15.0


class ClientError(Exception):
    """The client library reported an error; `name` is what the library calls it, `code` Kafka's code where it
    tells that."""

    def __init__(self, client: str, op: str, answer: dict[str, Any]) -> None:
        super().__init__(f"{client}: {op}: {answer['error']}: {answer.get('message')}")
        self.name: str = answer["error"]
        self.code: int | None = answer.get("code")


class ClientStuck(AssertionError):
    """The client program gave no answer in time, or died."""


class Driver:
    """Starts the program and speaks with it; not for use by several threads.

    `log` is a file for the program's standard error, whose last lines end up in failures.
    """

    def __init__(
        self, name: str, command: list[str], bootstrap: str, log: Path, env: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self._log = log
        self._buffer = b""
        self._opened = 0
        #: Whether a command is unanswered; a driver that stays so is of no more use.
        self.is_busy = False
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                attached([*command, json.dumps({"bootstrap": bootstrap})]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)
        self.version: str | None = None

    def call(self, op: str, timeout_s: float = CALL_TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
        """The answer of the command; raises ClientError, or ClientStuck after `timeout_s`."""
        self.send(op, **arguments)
        return self.answer(op, timeout_s)

    def send(self, op: str, **arguments: Any) -> None:
        """Send a command whose answer is fetched with `answer`, so that several programs can work at once."""
        if self.version is None:
            self.version = self._answer_of("start", START_TIMEOUT_S)["version"]
        self.is_busy = True
        self._input.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
        self._input.flush()

    def answer(self, op: str, timeout_s: float = CALL_TIMEOUT_S) -> dict[str, Any]:
        return self._answer_of(op, timeout_s)

    def new_id(self) -> str:
        """A name for a consumer to `open`."""
        self._opened += 1
        return f"c{self._opened}"

    def begin_stop(self) -> None:
        """Tell the program that no more commands come, upon which it ends."""
        with contextlib.suppress(BrokenPipeError):
            self._input.close()

    def stop(self) -> None:
        self.begin_stop()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._selector.close()
        self._output.close()

    def kill(self) -> None:
        """End the program and what it started at once, as a crash would: its consumers do not leave their groups."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.stop()

    def _answer_of(self, op: str, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                raise ClientStuck(f"{self.name}: no answer to {op} within {timeout_s:g} s{self._last_words()}")
            chunk = os.read(self._output.fileno(), 1 << 20)
            if not chunk:
                raise ClientStuck(f"{self.name}: ended during {op}, exit {self._process.wait()}{self._last_words()}")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        self.is_busy = False
        if "error" in answer:
            raise ClientError(self.name, op, answer)
        result: dict[str, Any] = answer["ok"]
        return result

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-8:]
        return "".join(f"\n    {line}" for line in lines)
