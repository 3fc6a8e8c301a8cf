"""The processes that the harness kills: a broker, and JVMs with the Python processes beneath them (Linux: /proc)."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import barnabas
from jvm import QUICK_OPTIONS

HERE = Path(__file__).resolve().parent
LIMIT_S = 240.0
"""For everything that must come some time; a machine may be busy."""


def wait_for(holds: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {limit_s:.0f} s")
        time.sleep(0.02)


# --- processes by their ids -------------------------------------------------------------------------------------------


def state_of(pid: int) -> str:
    """As in /proc: R, S, T (stopped), Z (dead, unburied); empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")


def beneath(pid: int) -> list[int]:
    """All children and theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, look_at = [], [pid]
    while look_at:
        look_at = [child for parent in look_at for child in children.get(parent, ())]
        found += look_at
    return sorted(found)


def role_of(pid: int) -> str:
    """Which of Spark's Python workers it is."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    return next((word.rpartition(".")[2] for word in reversed(words) if word.startswith("pyspark.")), "python")


def send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


# --- the broker -------------------------------------------------------------------------------------------------------


class ServedBroker:
    """A broker process that is started again when somebody has killed it, at the same address."""

    def __init__(self, directory: Path, *, two_phase: bool = True, settings: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.address = "127.0.0.1:0"
        self._two_phase = two_phase
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(self.directory / "data")]
        command += ["--listen", self.address, "--ready-file", str(ready)]
        command += ["--set", f"transaction.two.phase.commit.enable={str(self._two_phase).lower()}"]
        command += ["--set", "offsets.topic.num.partitions=4", "--set", "transaction.state.log.num.partitions=4"]
        for setting in self._settings:
            command += ["--set", setting]
        with (self.directory / "broker.log").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

        def is_ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, (self.directory / "broker.log").read_text()
            return ready.exists() and ready.read_text().count("\n") > 0

        wait_for(is_ready, "the broker is ready")
        self.address = ready.read_text().splitlines()[0]

    def pause(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def revive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start()


# --- JVMs -------------------------------------------------------------------------------------------------------------


class Host:
    """A Spark session in a process of its own, which runs one query at a time."""

    def __init__(self, log: Path, master: str, settings: tuple[str, ...]) -> None:
        source = str(Path(barnabas.__file__).resolve().parents[1])
        path = os.pathsep.join([source, str(HERE)])
        env = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "PYTHONFAULTHANDLER": "1"}
        command = [sys.executable, str(HERE / "query.py"), master, f"spark.executorEnv.PYTHONPATH={path}", *settings]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, env=env, text=True
            )
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.jvm = 0
        self._number = 0
        self._left: set[int] = set()
        self.running = False
        self.error = ""
        """Of the query that ended last."""
        self.progress = ""
        """What the query said of itself when it was asked last."""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                self._events.put(json.loads(line))

    def poll(self) -> bool:
        """Whether the query still runs, after what was heard."""
        with contextlib.suppress(queue.Empty):
            while True:
                event = self._events.get_nowait()
                if "jvm" in event:
                    self.jvm = event["jvm"]
                elif "progress" in event:
                    self.progress = event["progress"]
                elif event["ended"] == self._number:
                    self.running, self.error = False, event["error"]
        if self.jvm and not is_alive(self.jvm):
            self.running, self.error = False, self.error or "the JVM is gone"
        return self.running

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and (not self.jvm or is_alive(self.jvm))

    def ask(self, limit_s: float = 10.0) -> str:
        """How far the query says it is."""
        self.progress = ""
        self._tell({"do": "report"})
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not self.poll() or self.progress, "an answer", limit_s)
        return self.progress or "it does not say"

    def dump_threads(self) -> None:
        """What the JVM is doing goes into its log."""
        send(self.jvm, signal.SIGQUIT)
        time.sleep(1)  # it writes that by itself

    def end(self) -> None:
        """In good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        wait_for(lambda: not is_alive(self.jvm), "a JVM ends")

    def wait_until_ready(self) -> None:
        def ready() -> int:
            self.poll()
            assert self._process.poll() is None, "a JVM does not start"
            return self.jvm

        wait_for(ready, "a JVM is ready")

    def start(self, order: dict[str, Any]) -> None:
        self._number += 1
        self.running, self.error = True, ""
        self._tell({**order, "do": "start"})

    def stop(self) -> None:
        """The query ends between two of its steps."""
        self._tell({"do": "stop"})
        wait_for(lambda: not self.poll(), "a query stops")

    def _tell(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({**order, "number": self._number}) + "\n")
            self._process.stdin.flush()

    def pythons(self) -> list[int]:
        return beneath(self.jvm)

    def freeze(self, *, jvm: bool = True) -> list[int]:
        """The JVM and all beneath it stand still; answers who."""
        frozen: list[int] = []
        if jvm:
            send(self.jvm, signal.SIGSTOP)
        while fresh := [pid for pid in self.pythons() if pid not in frozen]:
            for pid in fresh:
                send(pid, signal.SIGSTOP)
            frozen += fresh
        return frozen

    def thaw(self) -> None:
        for pid in [*self.pythons(), self.jvm]:
            send(pid, signal.SIGCONT)

    def kill(self) -> None:
        """The JVM; its Python workers notice. The process that gave it orders goes with it."""
        self._left.update(self.pythons())
        send(self.jvm, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self.running = False

    def bury(self) -> None:
        """Everything that may be left."""
        left = {*self._left, *(self.pythons() if self.jvm else ())}
        self.kill() if self.alive else None
        for pid in left:
            if role_of(pid) != "gone" and "pyspark" in Path(f"/proc/{pid}/cmdline").read_text():
                send(pid, signal.SIGKILL)


def archive_classes(directory: Path) -> str:
    """JVMs that load their classes from an archive take half the time to start; answers the settings for that."""
    path = directory / "classes.jsa"
    hosts = Hosts(directory, java=f"{QUICK_OPTIONS} -XX:ArchiveClassesAtExit={path}")
    hosts.take().end()
    return f"{QUICK_OPTIONS} -XX:SharedArchiveFile={path}" if path.exists() else QUICK_OPTIONS


class Hosts:
    """JVMs take long to start: one can be started ahead of need."""

    def __init__(
        self, directory: Path, *, master: str = "local[2,2]", settings: tuple[str, ...] = (), java: str = QUICK_OPTIONS
    ) -> None:
        self.log, self._master = directory / "jvm.log", master
        self._settings = (*settings, f"spark.driver.extraJavaOptions={java}")
        self._idle: list[Host] = []
        self._all: list[Host] = []
        self.started = 0

    def take(self) -> Host:
        self._idle = [host for host in self._idle if host.alive]
        if not self._idle:
            self._start()
        host = self._idle.pop(0)
        host.wait_until_ready()
        return host

    def prepare(self) -> None:
        """One more, ahead of need."""
        if not any(host.alive for host in self._idle):
            self._start()

    def give_back(self, host: Host) -> None:
        if host.alive:
            self._idle.append(host)

    def _start(self) -> None:
        self.started += 1
        host = Host(self.log, self._master, self._settings)
        self._idle.append(host)
        self._all.append(host)

    def close(self) -> None:
        for host in self._all:
            host.bury()


@contextlib.contextmanager
def served(directory: Path, *, two_phase: bool = True, settings: tuple[str, ...] = ()) -> Iterator[ServedBroker]:
    broker = ServedBroker(directory, two_phase=two_phase, settings=settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
