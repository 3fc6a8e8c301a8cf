"""A broker in a child process, for as long as a `with` block lasts."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from barnabas import Admin
from barnabas.cli.framework.output import CommandFailed
from barnabas.client.errors import ClientError
from barnabas.connection.broker.addresses import split_address
from barnabas.errors import KafkaError, UsageError
from barnabas.pipeline.spark_process import end_with_parent

__all__ = ["ChildBroker", "broker_address"]

READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 15.0
POLL_S: Final = 0.005


@contextlib.contextmanager
def broker_address(
    bootstrap: str | None, listen: str, data_dir: Path, settings: Mapping[str, str], *, quiet: bool
) -> Iterator[str]:
    """Yields the address of a running broker: the given one, or that of a child process, which ends with the block."""
    if bootstrap is not None:
        yield bootstrap
        return
    with ChildBroker(data_dir, listen, settings) as child:
        if not quiet:
            print(f"broker ready at {child.address} after {child.ready_s:.2f} s, data in {data_dir}", flush=True)
        yield child.address


class ChildBroker:
    """`python -m barnabas serve`, with its output in a file, whose last line has the reason of a failed start."""

    def __init__(self, data_dir: Path, listen: str, settings: Mapping[str, str] | None = None) -> None:
        try:
            # port 0 stands for any free port: it can be listened on, but not connected to
            free = listen.endswith(":0")
            self._host, port = split_address(listen.removesuffix(":0") if free else listen)
            self._port = 0 if free else port
        except ValueError as error:
            raise UsageError(f"--listen: {error}") from None
        self.address = f"{self._host}:{self._port}"
        self.ready_s = 0.0
        self._data_dir = data_dir
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._sigterm: Any = None

    def __enter__(self) -> "ChildBroker":
        """Raises UsageError for a busy port, CommandFailed with the broker's last line if it does not start."""
        self._check_port()
        self._end_on_sigterm()
        began = time.perf_counter()
        try:
            self._start(began)
        except BaseException:
            self.__exit__()
            raise
        self.ready_s = time.perf_counter() - began
        return self

    def _end_on_sigterm(self) -> None:
        """Has SIGTERM raise an exception, so that the end of the block stops the broker. Commands have such a handler
        already."""
        default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if default and threading.current_thread() is threading.main_thread():
            self._sigterm = signal.signal(signal.SIGTERM, _exit_on_signal)

    def _check_port(self) -> None:
        with socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self._host, self._port))
            except OSError as error:
                raise UsageError(self._port_problem(error)) from None

    def _port_problem(self, error: OSError) -> str:
        way_out = f"stop that, or choose another port with --listen {self._host}:{self._port + 1}"
        try:
            with Admin(bootstrap_servers=self.address, bootstrap_timeout_ms=0) as admin:
                admin.describe_cluster(timeout=1.0)
        except (ClientError, KafkaError):
            return f"cannot listen on {self.address}: {(error.strerror or str(error)).lower()}; {way_out}"
        return (
            f"cannot listen on {self.address}: a Kafka broker is there already; use it with --bootstrap "
            f"{self.address}, or choose another port with --listen {self._host}:{self._port + 1}"
        )

    def _start(self, began: float) -> None:
        self._output = tempfile.TemporaryFile(prefix="barnabas-serve-")  # noqa: SIM115  closed in __exit__
        with tempfile.TemporaryDirectory(prefix="barnabas-") as directory:
            ready = Path(directory) / "ready"
            command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(self._data_dir)]
            command += ["--listen", f"{self._host}:{self._port}", "--ready-file", str(ready)]
            for name, value in self._settings.items():
                command += ["--set", f"{name}={value}"]
            # in a group of its own, so that Ctrl-C does not end the broker before the consumers have left
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
                env=os.environ | {"BARNABAS_LOG_LEVEL": os.environ.get("BARNABAS_LOG_LEVEL", "warning")},
            )
            while not ready.exists():
                if self._process.poll() is not None:
                    raise CommandFailed(self._last_line())
                if time.perf_counter() - began > READY_TIMEOUT_S:
                    raise CommandFailed(f"the broker is not ready after {READY_TIMEOUT_S:g} s: {self._last_line()}")
                time.sleep(POLL_S)
            self.address = ready.read_text().split()[0]

    def _last_line(self) -> str:
        assert self._output is not None
        self._output.seek(0)
        lines = [line for line in self._output.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].removeprefix("barnabas: ") if lines else "the broker ended without a word"

    def __exit__(self, *_: object) -> None:
        before, self._sigterm = self._sigterm, None
        if before is not None:
            signal.signal(signal.SIGTERM, before)
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._output is not None:
            with contextlib.suppress(OSError):
                self._output.close()


def _exit_on_signal(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
