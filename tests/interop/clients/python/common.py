"""What the Python client programs share: the command loop, the record form, and the consuming thread.

The command protocol is described in tests/interop/README.md.
"""

from __future__ import annotations

import base64
import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


def unpack(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def pack(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def unpack_headers(record: Json) -> list[tuple[str, bytes | None]]:
    return [(name, unpack(value)) for name, value in record.get("h", [])]


def record_json(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Any,
) -> Json:
    return {
        "topic": topic,
        "p": partition,
        "o": offset,
        "t": timestamp,
        "k": pack(key),
        "v": pack(value),
        "h": [[name, pack(content)] for name, content in headers or []],
    }


def failure(error: BaseException, code: int | None) -> Json:
    return {"error": type(error).__name__, "message": str(error), "code": code}


def say(answer: Json) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def serve(client: Any, error_code: Callable[[BaseException], int | None]) -> None:
    """Answer commands from standard input until it closes."""
    say({"ok": {"version": client.version}})
    for line in sys.stdin:
        command = json.loads(line)
        try:
            say({"ok": getattr(client, command.pop("op"))(**command)})
        except Exception as error:
            say(failure(error, error_code(error)))


class Pump(threading.Thread):
    """Polls one consumer, which only this thread touches, and keeps what came.

    `poll()` returns a list of record objects and should wait no longer than about 50 ms.
    """

    def __init__(self, poll: Callable[[], list[Json]], close: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._poll = poll
        self._close = close
        self._calls: queue.Queue[tuple[Callable[[], Any], queue.Queue[tuple[bool, Any]]]] = queue.Queue()
        self._arrived: list[Json] = []
        self._condition = threading.Condition()
        self._stopped = False
        self._failure: BaseException | None = None

    def run(self) -> None:
        while not self._stopped:
            self._run_calls()
            try:
                records = self._poll()
            except Exception as error:
                self._failure = error
                records = []
                time.sleep(0.02)
            if records:
                with self._condition:
                    self._arrived.extend(records)
                    self._condition.notify_all()
        self._run_calls()
        self._close()

    def _run_calls(self) -> None:
        while not self._calls.empty():
            function, answers = self._calls.get()
            try:
                answers.put((True, function()))
            except Exception as error:
                answers.put((False, error))

    def call(self, function: Callable[[], Any]) -> Any:
        """Run `function` on the polling thread and give its result."""
        answers: queue.Queue[tuple[bool, Any]] = queue.Queue()
        self._calls.put((function, answers))
        good, result = answers.get(timeout=80)
        if not good:
            raise result
        return result

    def take(self, count: int, timeout_ms: int) -> list[Json]:
        """Up to `count` records in the order of arrival; waits for that many, at most `timeout_ms`."""
        deadline = time.monotonic() + timeout_ms / 1000
        with self._condition:
            while len(self._arrived) < count and (left := deadline - time.monotonic()) > 0:
                self._condition.wait(left)
            taken, self._arrived = self._arrived[:count], self._arrived[count:]
        if not taken and self._failure is not None:
            error, self._failure = self._failure, None
            raise error
        return taken

    def stop(self) -> None:
        self._stopped = True
        self.join(timeout=30)
        if self.is_alive():
            raise TimeoutError("the consumer did not close within 30 s")
