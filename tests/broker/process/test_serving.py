"""A broker as a process: signals, the ready line and the ready file."""

import asyncio
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.process.serving import _end_without_memory, _tell_exception, run
from barnabas.config.broker import BrokerConfig
from barnabas.out_of_memory import WAY_OUT, end_if_out_of_memory
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.thread_pool import ThreadPool
from barnabas.version import __version__
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
        line = process.stdout.readline()
        assert ("is ready" in line, f", release {__version__}, " in line) == (True, True), line
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


@pytest.mark.parametrize("options", [[], ["--brokers=2"]])
def test_a_ready_file_that_cannot_be_removed_makes_no_crash_of_a_stop(
    serve: Serve, tmp_path: Path, options: list[str]
) -> None:
    ready = tmp_path / "ready"
    process = serve("--data-dir", str(tmp_path / "data"), "--ready-file", str(ready), *options)
    assert process.stdout is not None
    assert "is ready on" in process.stdout.readline()
    ready.unlink()
    ready.mkdir()
    process.terminate()
    assert process.wait(60) == 0
    assert len(list(tmp_path.glob("data/**/.kafka_cleanshutdown"))) == max(len(options) * 2, 1)


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


class Dropped:
    """An object whose end finds no memory."""

    def __del__(self) -> None:
        raise MemoryError


def fail(error: Exception) -> None:
    raise error


def in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(fail, MemoryError())


def in_a_callback_without_memory_for_the_errors() -> None:
    asyncio.get_running_loop().call_soon(give_up)


def give_up() -> None:
    try:
        raise MemoryError
    except MemoryError:
        raise RecursionError  # noqa: B904 - as Python does


def in_a_thread() -> None:
    threading.Thread(target=fail, args=[MemoryError()]).start()


def where_nobody_can_catch_it() -> None:
    Dropped()


def in_a_callback_of_a_call_in_a_thread() -> None:
    with ThreadPool(1, "test") as pool:
        pool.submit(int).add_done_callback(lambda _: fail(MemoryError()))


def in_what_runs_the_loop() -> None:
    raise MemoryError


def in_the_handler_of_exceptions() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: fail(MemoryError()))
    loop.call_soon(fail, ValueError("another"))


@pytest.mark.parametrize(
    ("run_out", "place"),
    [
        (in_a_callback, "fail"),
        (in_a_callback_without_memory_for_the_errors, "give_up"),
        (in_a_thread, "fail"),
        (where_nobody_can_catch_it, "Dropped.__del__"),
        (in_a_callback_of_a_call_in_a_thread, "fail"),
        (in_the_handler_of_exceptions, "fail"),
        (in_what_runs_the_loop, "in_what_runs_the_loop"),
    ],
)
def test_a_broker_whose_memory_runs_out_in_the_middle_of_something_ends_as_in_a_crash(
    run_out: Callable[[], None], place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []
    over = threading.Event()

    def leave(code: int) -> None:
        ended.append(code)
        over.set()

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_tell_exception)
        loop.call_soon(fail, ValueError("a bug"))
        await asyncio.sleep(0)
        run_out()
        await asyncio.to_thread(over.wait, 60)

    with _end_without_memory(logging.getLogger("barnabas.test")):
        asyncio.run(scenario())
    assert ended[:1] == [1]  # it goes on here
    told = [record for record in caplog.records if record.name == "barnabas.test"]
    assert [(record.getMessage(), record.exc_info) for record in told[:1]] == [
        (f"memory has run out in {place}: this broker ends, and has to be started again; {WAY_OUT}", None)
    ]
    assert "ValueError: a bug" in caplog.text
    ended.clear()
    end_if_out_of_memory(MemoryError())
    assert ended == [], "the process is no broker's any more"


def test_a_start_without_memory_ends_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr("barnabas.broker.process.serving.Broker.start", lambda _: fail(MemoryError()))
    config = BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    run(config)
    assert ended == [1]
    assert caplog.messages == [f"memory has run out in fail: this broker ends, and has to be started again; {WAY_OUT}"]


def test_a_loop_that_finds_no_memory_in_the_middle_of_a_turn_ends_it_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Left(BaseException):
        """The process is left at once."""

    ended: list[int] = []

    def leave(code: int) -> None:
        ended.append(code)
        raise Left

    close = asyncio.Runner.close

    def refuse(runner: asyncio.Runner) -> None:
        close(runner)
        raise RuntimeError("this event loop is already running")

    async def serve(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr("barnabas.broker.process.serving._serve", serve)
    monkeypatch.setattr(asyncio.Runner, "close", refuse)
    config = BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    with pytest.raises(RuntimeError) as caught:
        run(config)
    assert (ended, type(caught.value.__context__)) == ([1], Left)
