"""A broker as a process: signals, the ready line and the ready file."""

import asyncio
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from barnabas.broker.process.serving import _end_without_memory
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.sent_requests import append
from broker.wire import Wire
from cli.serve.processes import Serve
from cli.serve.processes import serve as serve


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


@pytest.mark.skipif(not hasattr(socket, "SO_PASSCRED"), reason="systemd is on Linux")
@pytest.mark.parametrize("abstract", [False, True])
@pytest.mark.parametrize("options", [[], ["--brokers=2"]])
def test_systemd_is_told_when_clients_can_produce(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], abstract: bool
) -> None:
    name = f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name if abstract else name)
        manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        process = serve("--data-dir", str(tmp_path / "data"), *options)

        def state() -> str:
            """Returns what the process itself says: from others systemd takes nothing."""
            while True:
                text, ((_, _, credentials), *_), *_ = manager.recvmsg(100, socket.CMSG_SPACE(12))
                if struct.unpack("3i", credentials)[0] == process.pid:
                    return text.decode()

        assert state() == "READY=1"
        assert process.stdout is not None
        assert "is ready on" in process.stdout.readline()
        process.terminate()
        if not options:
            assert state() == "STOPPING=1"
        assert process.wait(60) == 0


def test_a_service_manager_that_is_gone_holds_up_nobody(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    process = serve("--data-dir", str(tmp_path / "data"))
    assert process.stdout is not None
    assert "is ready on" in process.stdout.readline()
    process.terminate()
    assert process.wait(60) == 0


def test_a_broker_whose_memory_runs_out_in_the_middle_of_something_ends_as_in_a_crash(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []
    over = asyncio.Event()

    def leave(code: int) -> None:
        ended.append(code)
        over.set()

    monkeypatch.setattr(os, "_exit", leave)

    def fail(error: Exception) -> None:
        raise error

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(partial(_end_without_memory, logging.getLogger("barnabas.test")))
        for error in (ValueError("a bug"), MemoryError()):
            loop.call_soon(fail, error)
        await over.wait()

    asyncio.run(scenario())
    assert ended == [1]
    told = [record for record in caplog.records if record.name == "barnabas.test"]
    assert [(record.getMessage(), record.exc_info) for record in told] == [
        ("memory has run out: this broker ends, and has to be started again", None)
    ]
    assert "ValueError: a bug" in caplog.text
