"""The system gives a test's process no further thread."""

import threading

import pytest


def refuse_threads(monkeypatch: pytest.MonkeyPatch, name: str = "") -> None:
    """Has each start of a thread fail as the interpreter has it fail, or those of the threads with this name."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if name in ("", thread.name):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
