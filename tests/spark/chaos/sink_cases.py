"""One case: at a place of its choosing a query, its worker or its broker is killed, fails, or stands still until a
successor is done. Then it goes on until it is through. Readers must have each row once, and nothing may be open."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .sink_processes import Host, Hosts, ServedBroker, is_alive, send, state_of, wait_for
from .sink_scene import Scene, Verdict

ROWS = 120
BATCH_ROWS = 40
RUNS_MAX = 4

IN_TASKS = ("begun", "mid-write", "written")
IN_COMMIT = ("before-take-over", "taken-over", "before-decision", "deciding", "decided", "first-ended", "ended")
ONCE = ("before-take-over", "taken-over")
"""A driver takes over with its first batch only."""
KINDS = {
    "raise": "the Python code raises",
    "worker": "SIGKILL of the Python process that is there",
    "broker": "SIGKILL of the broker, leader and coordinator of everything; with other tasks also of the JVM",
    "jvm": "SIGKILL of the JVM",
    "zombie": "SIGKILL of the JVM; the Python process that is there goes on when a successor is done",
    "stop": "SIGSTOP of the JVM and its workers, which go on when a successor is done",
}
STALL = "stall"
"""The task stands still until the query is through: a cluster that speculates runs a copy of it."""


@dataclass(frozen=True)
class Case:
    point: str
    kind: str
    tasks_after: int = 3
    mode: str = "two-phase"
    tasks: int = 3

    @property
    def batch(self) -> int:
        return 0 if self.point in ONCE else 1

    @property
    def needs_successor(self) -> bool:
        return self.kind in ("jvm", "zombie", "stop") or (self.kind == "broker" and self.tasks_after != self.tasks)

    def __str__(self) -> str:
        tasks = f"{self.tasks} tasks" if self.tasks == self.tasks_after else f"{self.tasks} -> {self.tasks_after} tasks"
        return f"{self.point}, {self.kind}, {tasks}{', naive' if self.mode == 'none' else ''}"


def matrix() -> Iterator[Case]:
    """Each place, each kind, with the same and with other tasks when the batch is repeated."""
    for kind in KINDS:
        for point in (*IN_TASKS, *IN_COMMIT):
            for tasks_after in (3, 2):
                yield Case(point, kind, tasks_after)


def controls() -> Iterator[Case]:
    """The same kills of a sink without transactions."""
    for kind in ("jvm", "raise"):
        for point in ("written", *IN_COMMIT):
            yield Case(point, kind, mode="none")


@dataclass
class Report:
    case: Case
    fired: bool
    runs: int
    finished: bool
    verdict: Verdict
    zombie: str
    """How the query that stood still has ended."""
    told: str
    copies: int
    """How often the task at which the order was carried out has begun."""

    @property
    def is_exact(self) -> bool:
        """A query that was paused must not end as if nothing had been."""
        return self.fired and self.finished and self.verdict.is_exact and self.zombie != "finished"

    @property
    def is_as_it_must_be(self) -> bool:
        """Without transactions rows come twice. A control that did not get so far proves nothing."""
        return self.is_exact if self.case.mode != "none" else self.fired and self.verdict.doubled > 0

    def __str__(self) -> str:
        text = f"{self.verdict}, {self.runs} runs{'' if self.fired else ', the order was not carried out'}"
        return text + ("" if self.finished else ", not through") + (f", it {self.zombie}" if self.zombie else "")


class Stage:
    """A broker and JVMs for many cases."""

    def __init__(self, directory: Path, broker: ServedBroker, hosts: Hosts) -> None:
        self.directory, self.broker, self.hosts = directory, broker, hosts
        self._cases = 0

    def play(self, case: Case) -> Report:
        self._cases += 1
        scene = Scene(self.directory / f"case-{self._cases}", self.broker, str(self._cases))
        return _Play(self, case, scene).report()


class _Play:
    def __init__(self, stage: Stage, case: Case, scene: Scene) -> None:
        self.case, self.scene, self.broker, self.hosts = case, scene, stage.broker, stage.hosts
        self.runs = 0
        self.told = ""
        self.zombie = ""

    def report(self) -> Report:
        case, scene = self.case, self.scene
        scene.feed(ROWS)
        twice = case.point in IN_TASKS and case.tasks != case.tasks_after and case.kind in ("raise", "worker")
        scene.order(point=case.point, kind=case.kind, batch=case.batch, times=1 + twice)  # the second ends the query
        if case.needs_successor:
            self.hosts.prepare()
        host = self.hosts.take()
        self.run(host, case.tasks)
        wait_for(lambda: scene.fired() or not host.poll(), "the order is carried out")
        if not scene.fired():
            self.told += host.error
            return self.ended(host, finished=False)
        if case.kind in ("raise", "worker"):
            return self.ended(host, finished=self.through(host, started=True))
        pid = scene.fired()
        assert pid is not None
        if case.kind == STALL:
            return self.stalled(host, pid)
        wait_for(lambda: state_of(pid) in ("T", "", "Z"), "it stands still")
        if case.kind == "stop":
            return self.stopped(host)
        if case.kind == "zombie":
            return self.zombied(host, pid)
        if case.kind == "broker":
            self.broker.kill()
        if case.needs_successor:
            host.kill()
        send(pid, signal.SIGCONT)
        self.broker.revive()
        if not case.needs_successor:
            return self.ended(host, finished=self.through(host, started=True))
        successor = self.hosts.take()
        return self.ended(successor, finished=self.through(successor))

    def run(self, host: Host, tasks: int) -> None:
        self.runs += 1
        host.start(self.scene.query(tasks, self.case.mode, batch_rows=BATCH_ROWS, until_read=True))

    def through(self, host: Host, *, started: bool = False) -> bool:
        """Run by run until all is read."""
        while True:
            if not started:
                if self.runs >= RUNS_MAX:
                    return False
                self.run(host, self.case.tasks_after)
            wait_for(lambda: not host.poll(), "the query ends")
            started = False
            if not host.error:
                return True
            self.told += host.error

    def stopped(self, host: Host) -> Report:
        host.freeze()
        successor = self.hosts.take()
        finished = self.through(successor)
        host.thaw()
        wait_for(lambda: not host.poll(), "the query that stood still ends")
        self.zombie = f"failed with {_reason(host.error)}" if host.error else "finished"
        self.told += host.error
        self.hosts.give_back(host)
        return self.ended(successor, finished=finished and self.one_more(successor))

    def zombied(self, host: Host, pid: int) -> Report:
        host.freeze(jvm=False)  # their daemon, too, which would take them along
        host.kill()
        successor = self.hosts.take()
        finished = self.through(successor)
        send(pid, signal.SIGCONT)
        wait_for(lambda: not is_alive(pid), "a worker without a JVM ends")
        host.bury()
        return self.ended(successor, finished=finished and self.one_more(successor))

    def stalled(self, host: Host, pid: int) -> Report:
        finished = self.through(host, started=True)
        (self.scene.directory / "go-on").touch()
        wait_for(lambda: self.scene.times(f"woken {self.case.batch}") or not is_alive(pid), "a slow task goes on")
        return self.ended(host, finished=finished and self.one_more(host))

    def one_more(self, host: Host) -> bool:
        """What one that woke up late has begun is ended with the next batch."""
        self.scene.feed(BATCH_ROWS)
        self.run(host, self.case.tasks_after)
        wait_for(lambda: not host.poll(), "the query ends")
        self.told += host.error
        return not host.error

    def ended(self, host: Host, *, finished: bool) -> Report:
        self.hosts.give_back(host)
        fired = self.scene.fired() is not None
        copies = self.scene.times(f"begun {self.case.batch} 0")
        return Report(self.case, fired, self.runs, finished, self.scene.verdict(), self.zombie, self.told, copies)


def _reason(error: str) -> str:
    """What Spark was told, in few words."""
    for name in (
        "Expired",
        "Superseded",
        "RolledBack",
        "Lost",
        "CONCURRENT_STREAM_LOG_UPDATE",
        "Fenced",
        "InvalidProducerEpoch",
    ):
        if name in error:
            return name
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1][:80] if lines else "nothing"
