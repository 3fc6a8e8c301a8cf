"""A broker as a process: signals, the ready line and the ready file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.sent_requests import append
from broker.wire import Wire


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGINT), (signal.SIGHUP,)])
def test_signals_end_the_process_cleanly(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(tmp_path / "data")]
    command += ["--listen", "127.0.0.1:0", "--ready-file", str(ready)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "is ready" in process.stdout.readline()
        host, _, port = ready.read_text().strip().rpartition(":")
        with Wire((host, int(port))) as wire:
            wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True), 8)
            assert append(wire, "t") == 0
            for number in numbers:
                os.kill(process.pid, number)
            assert wire.is_closed()
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, "Traceback" in errors) == (0, False), errors
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert not ready.exists()
