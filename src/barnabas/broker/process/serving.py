"""Runs `barnabas serve` with its event loop, signals, ready line and ready file, up to the exit code."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn
from uuid import UUID

from barnabas.broker.process.resource_limits import keep_freed_memory, raise_open_files_limit, settle_collector
from barnabas.broker.server import Broker, StartInterrupted
from barnabas.broker.startup.start_attempts import StartAttempts
from barnabas.broker.startup.zookeeper_start import with_node_id
from barnabas.config.broker import BrokerConfig
from barnabas.errors import KafkaStorageError, UsageError
from barnabas.out_of_memory import WAY_OUT, end_if_out_of_memory, end_with, is_lack_of_memory
from barnabas.records.compiled.installation import HOW_TO_COMPILE, describe_installation, is_compiled
from barnabas.registry.registry import RegistryUnreachable
from barnabas.version import __version__

__all__ = ["remove_ready_file", "run", "tell_service_manager", "write_ready_file"]

_LIBRARIES: Final = ("asyncio", "concurrent.futures", "kazoo.handlers.threading", "barnabas.registry.kazoo")
"""The loggers of libraries that log whatever ends a callback of theirs, or the loop's handler of exceptions, and go
on."""


def run(
    config: BrokerConfig,
    *,
    ready_file: Path | None = None,
    ready_as_json: bool = False,
    lost_directories: Collection[UUID] = (),
    accepted_directories: Collection[UUID] = (),
) -> int:
    """Serves until SIGTERM or SIGINT. Broker explains `lost_directories` and `accepted_directories`. Raises UsageError
    before the broker is ready."""
    began = time.perf_counter()
    keep_freed_memory()
    raise_open_files_limit()
    attempts = StartAttempts()
    # The runner comes first: a loop that has ended in the middle of a turn refuses to be closed.
    with asyncio.Runner() as runner, _end_without_memory(logging.getLogger("barnabas.broker")):
        while True:
            outcome: int | RegistryUnreachable
            try:
                config = with_node_id(config)  # which stays for the next attempt
            except RegistryUnreachable as error:
                outcome = error
            else:
                broker = Broker(
                    config,
                    runner.get_loop(),
                    lost_directories=lost_directories,
                    accepted_directories=accepted_directories,
                )
                outcome = runner.run(_serve(broker, ready_file, began, ready_as_json))
            if isinstance(outcome, int):
                return outcome
            attempts.pause(outcome, config.zookeeper_connection_max_s)


async def _serve(
    broker: Broker, ready_file: Path | None, began: float, ready_as_json: bool
) -> int | RegistryUnreachable:
    """Returns the exit code, or why another start may succeed."""
    loop = broker.loop
    loop.set_exception_handler(_tell_exception)
    stop = asyncio.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        broker.interrupted = True
        loop.call_soon_threadsafe(stop.set)

    with _signals_to(on_signal):
        try:
            broker.start()
        except StartInterrupted as error:
            broker.log.info("%s", error)
            return 0
        except RegistryUnreachable as error:
            return 0 if broker.interrupted else error
        try:
            settle_collector()
            ending = asyncio.ensure_future(stop.wait()), broker.ended
            if broker.cluster is not None:
                await asyncio.wait((*ending, broker.cluster.joined()), return_when=asyncio.FIRST_COMPLETED)
            if not broker.interrupted and not broker.ended.done():
                _tell_ready(broker, ready_file, began, ready_as_json)
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            tell_service_manager("STOPPING=1")
            if not broker.ended.done():
                await broker.leave_cluster()
        finally:
            if ready_file is not None:
                remove_ready_file(ready_file, broker.log)
            closed = _stopped(broker)
    return 0 if closed and not broker.ended.done() else 1


@contextlib.contextmanager
def _end_without_memory(log: logging.Logger) -> Iterator[None]:
    """Has this process end as in a crash when memory runs out in the middle of something (`out_of_memory`): also where
    that ends a thread, where nobody can catch it, and where libraries log it and go on."""

    def end(error: BaseException) -> NoReturn:
        try:
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            place = "" if where is None else f" in {where.tb_frame.f_code.co_qualname}"
            log.error("memory has run out%s: this broker ends, and has to be started again; %s", place, WAY_OUT)
        finally:
            os._exit(1)

    def end_of_thread(failure: threading.ExceptHookArgs) -> None:
        end_if_out_of_memory(failure.exc_value)
        in_thread(failure)

    def unraisable(failure: "sys.UnraisableHookArgs") -> None:
        end_if_out_of_memory(failure.exc_value)
        elsewhere(failure)

    def logged(record: logging.LogRecord) -> bool:
        if record.exc_info:
            end_if_out_of_memory(record.exc_info[1])
        return True

    in_thread, elsewhere = threading.excepthook, sys.unraisablehook
    libraries = [logging.getLogger(name) for name in _LIBRARIES]
    end_with(end)
    threading.excepthook, sys.unraisablehook = end_of_thread, unraisable
    for library in libraries:
        library.addFilter(logged)
    try:
        yield
    except (MemoryError, RecursionError) as error:
        if not is_lack_of_memory(error):
            raise
        end(error)
    finally:
        end_with(None)
        threading.excepthook, sys.unraisablehook = in_thread, elsewhere
        for library in libraries:
            library.removeFilter(logged)


def _tell_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs an exception that nothing but the event loop has caught."""
    end_if_out_of_memory(context.get("exception"))
    loop.default_exception_handler(context)


@contextlib.contextmanager
def _signals_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles SIGTERM, SIGINT, and SIGHUP unless nohup ignores it. The handlers work without the event loop, which does
    not run while logs are recovered."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before if handler_before is not None else signal.SIG_DFL)


def _tell_ready(broker: Broker, ready_file: Path | None, began: float, as_json: bool) -> None:
    addresses = [endpoint.local_address for endpoint in broker.endpoints]
    if ready_file is not None:
        write_ready_file(ready_file, addresses)
    ready_ms = (time.perf_counter() - began) * 1000
    directories = broker.config.data_dirs
    text = (
        f"barnabas broker {broker.node_id} is ready on {', '.join(addresses)} "
        f"({ready_ms:.0f} ms, data in {', '.join(directories)}, release {__version__}, "
        f"{describe_installation()})"
    )
    if as_json:
        facts = {
            "event": "ready",
            "node_id": broker.node_id,
            "addresses": addresses,
            "ready_ms": round(ready_ms),
            "data_dirs": [str(directory) for directory in directories],
            "release": __version__,
            "compiled": is_compiled(),
        }
        text = json.dumps(facts)
    print(text, flush=True)  # noqa: T201  the ready line is the command's output
    tell_service_manager("READY=1")
    if not is_compiled():
        broker.log.warning("the compiled modules are not in use: %s", HOW_TO_COMPILE)


def _stopped(broker: Broker) -> bool:
    """Returns whether all logs could be closed."""
    try:
        broker.stop()
    except KafkaStorageError as error:
        broker.log.error("not all logs could be closed, the next start recovers them: %s", error)
        return False
    return True


def tell_service_manager(state: str) -> None:
    """Sends a state to systemd, if that has started this process and waits for it (Type=notify)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith(("/", "@")):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(state.encode(), "\0" + address[1:] if address[0] == "@" else address)


def write_ready_file(path: Path, addresses: Iterable[str]) -> None:
    """Writes the file in one step, with one `host:port` a line. Raises UsageError."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text("".join(f"{address}\n" for address in addresses))
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"--ready-file {path}: cannot be written ({error.strerror})") from None


def remove_ready_file(path: Path, log: logging.Logger) -> None:
    """Removes the file at the end. What the disk keeps is told: it must not keep anybody from stopping in order."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("--ready-file %s: cannot be removed (%s)", path, error.strerror)
