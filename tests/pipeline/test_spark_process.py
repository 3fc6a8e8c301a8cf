"""A Spark session for one block: what is left when it is interrupted. No JVM."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark")

from barnabas.pipeline.spark_process import spark_process  # noqa: E402
from barnabas.spark import sessions  # noqa: E402


class FakeJava:
    """As a process that ends when it is told to."""

    is_ended = False

    def terminate(self) -> None:
        self.is_ended = True

    def wait(self, timeout: float | None = None) -> int:
        return 0


def test_an_interrupt_while_spark_starts_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = FakeJava()
    before = signal.getsignal(signal.SIGINT)

    def interrupted(*_: Any, **__: Any) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        monkeypatch.setattr(pyspark.SparkContext, "_gateway", SimpleNamespace(proc=java))
        return object()

    monkeypatch.setattr(sessions, "session", interrupted)
    with pytest.raises(KeyboardInterrupt), spark_process("test", tmp_path / "log", {}, None):
        pytest.fail("the block was entered")
    assert java.is_ended
    assert signal.getsignal(signal.SIGINT) is before
