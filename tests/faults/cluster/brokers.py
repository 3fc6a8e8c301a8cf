"""The brokers of a cluster as processes, each started alone on one registry, so that each can be hit alone."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import barnabas
from barnabas.client.admin.cluster import ClusterDescription
from barnabas.connection.cluster import TopicView
from barnabas.errors import BarnabasError
from barnabas.testing.ports import ReservedPort
from barnabas.types import BrokerId
from bench.attached import attached
from cluster.bad_allocator import PROGRAM, BadAllocator
from cluster.bad_machine import BadMachine, build
from cluster.links import Links
from cluster.plan import Fault

__all__ = ["BrokersFailed", "ClusterProcesses", "Processes"]

HOST = "127.0.0.1"
PEERS = "PEERS"
"""The listener for brokers, where it has to be named."""
PLANTED = Path(__file__).with_name("planted.py")
UNCOMPILED = "uncompiled"
"""The folder with the package that brokers with a planted bug import."""
READY_TIMEOUT_S = 60.0
TERMINATED_TIMEOUT_S = 60.0
FAILED, REFUSED, NOT_YET = 1, 2, 75
"""The exit codes of `serve`; two refuse a start: until the operator does something, and until something passes."""
ABORTED = -signal.SIGABRT
"""So ends a process whose compiled code finds no memory for what cannot fail."""
CRASHED = -signal.SIGSEGV
"""So ends, seldom, a process whose compiled code goes on without having found memory (docs/decisions/0013)."""
RESTARTED_AFTER_S = 1.0
"""A service manager starts a broker again after it, whose start was refused for a reason that passes."""
ASKED_TIMEOUT_S = 3.0


class BrokersFailed(Exception):
    """The brokers did not do what the harness asked for: the round proves nothing."""


class Processes(Protocol):
    """Processes by number, each of which can be hit alone."""

    @property
    def ids(self) -> list[int]: ...

    @property
    def reachable(self) -> list[int]: ...

    def running(self, number: int, /) -> bool: ...

    def start(self, number: int, /) -> None: ...

    def kill(self, number: int, /) -> None: ...

    def freeze(self, number: int, /) -> None: ...

    def thaw(self, number: int, /) -> None: ...


class ClusterProcesses:
    """Broker processes 1 to N: ``root/registry.db``, ``root/broker-1``, ``root/broker-1.log`` and so on.

    The output of a broker is beside its data directory, which may be wiped. ``ended`` names the brokers that ended
    although nobody had asked them to. ``refused`` has the brokers whose start was refused by a code that is promised:
    once starts `may_wait` any may be told to wait, and those in `doubtful` that something has to be done. Those
    that are `failing` lack what every program needs, and may end. Those that are `denied` allocations may end as in a
    crash, after which a service manager starts them again. Both are named once for each fault; `ends` counts those of
    either.
    """

    def __init__(
        self,
        root: Path,
        brokers: int,
        settings: Mapping[str, str],
        *,
        first_port: int = 0,
        linked: bool = False,
        directories: int = 1,
        bad_machines: bool = False,
        bad_allocators: bool = False,
        planted: str = "",
    ) -> None:
        """The ports are ``first_port`` and the following ones (0: ports that nobody else gets until ``stop_all``). Each
        broker has so many data ``directories``. ``linked``: connections between brokers pass through `Links`, which
        needs three times as many. ``bad_machines`` and ``bad_allocators``: each broker has a `BadMachine`, or a
        `BadAllocator`. ``planted``: the name of a bug that all have."""
        self.root = root
        self.ids = list(range(1, brokers + 1))
        self.ended: list[str] = []
        self.frozen: set[int] = set()
        self.refused: dict[int, int] = {}
        self.doubtful: set[int] = set()
        self.failing: list[int] = []
        self.denied: list[int] = []
        self._began_at: dict[int, int] = {}
        """The length of each broker's output before its last start."""
        self._starved_starts: set[int] = set()
        """The processes that got too few descriptors before they were ready: such a start fails."""
        self._limited: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}
        """The limits before the faults that go on, and how many these are, by process and kind of limit."""
        self.ends: Counter[int] = Counter()
        self.may_wait = False
        self._directories = directories
        self._due_s: dict[int, float] = {}
        count = (3 if linked else 1) * brokers
        self._reserved = [] if first_port else [ReservedPort() for _ in range(count)]
        self._ports = range(first_port, first_port + count) if first_port else [port.number for port in self._reserved]
        self._settings = settings
        self.links = Links({id_: self._peer_ports(id_) for id_ in self.ids}) if linked else None
        self._planted = planted
        self._has_bad_machines = bad_machines
        self.machines: dict[int, BadMachine] = {}
        self._has_bad_allocators = bad_allocators
        self._allocators: dict[int, BadAllocator] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._asked: set[int] = set()

    # --- addresses --------------------------------------------------------------------------------------------------

    def port(self, broker: int) -> int:
        return self._ports[broker - 1]

    def host(self, broker: int) -> str:
        return HOST

    def address(self, broker: int) -> str:
        return f"{self.host(broker)}:{self.port(broker)}"

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, self.ids))

    def data_dirs(self, broker: int, root: Path | None = None) -> list[Path]:
        numbers = range(2, self._directories + 1)
        return [(root or self.root) / name for name in (f"broker-{broker}", *(f"broker-{broker}-{n}" for n in numbers))]

    @property
    def registry(self) -> Path:
        return self.root / "registry.db"

    def registry_files(self) -> list[Path]:
        """Returns the registry with what belongs to its contents."""
        found = (self.registry.with_name(self.registry.name + suffix) for suffix in ("", "-wal", "-shm"))
        return [path for path in found if path.exists()]

    def output(self, broker: int, begin: int = 0) -> str:
        """Returns what a broker has written, from a position on."""
        path = self.root / f"broker-{broker}.log"
        return path.read_bytes()[begin:].decode(errors="replace") if path.exists() else ""

    def _peer_ports(self, broker: int) -> tuple[int, int]:
        """Returns the ports that a broker advertises to the others, and that it listens at."""
        _, advertised, listening = self._ports[broker - 1 :: len(self.ids)]
        return advertised, listening

    # --- life -------------------------------------------------------------------------------------------------------

    def running(self, broker: int) -> bool:
        process = self._processes.get(broker)
        if process is None:
            return False
        if process.poll() is not None and broker not in self._asked:
            self._asked.add(broker)
            code = process.returncode
            if code in self._promised(broker):
                if code == CRASHED:
                    print(f"broker {broker} has crashed: {self.output(broker)[-4000:]}", file=sys.stderr, flush=True)
                self.ends[broker] += 1
                self.refused[broker] = code
                self._due_s[broker] = time.monotonic() + RESTARTED_AFTER_S
                return False
            last = [line for line in self.output(broker).splitlines() if line.strip()][-3:]
            self.ended.append(f"broker {broker} ended with {process.returncode}: {' / '.join(last)[-600:]}")
        return process.poll() is None

    def _promised(self, broker: int) -> set[int]:
        """Returns the exit codes with which a broker may end now although nobody has asked it to."""
        codes: set[int] = set()
        if self.may_wait:
            codes |= {NOT_YET, REFUSED} if broker in self.doubtful else {NOT_YET}
        if broker in self.failing:
            codes |= {FAILED, REFUSED, NOT_YET, ABORTED}
        if self._processes[broker].pid in self._starved_starts:
            codes |= {FAILED, REFUSED, NOT_YET}
        if broker in self.denied:
            codes |= {FAILED, NOT_YET, ABORTED, CRASHED}
        return codes

    @property
    def zookeepers(self) -> Processes | None:
        """The members of ZooKeeper's ensemble, the leader first among those that are reachable, if the registry is in
        one."""
        return None

    @property
    def reachable(self) -> list[int]:
        """The brokers that run and are not stopped."""
        return [broker for broker in self.ids if self.running(broker) and broker not in self.frozen]

    def start(self, broker: int) -> None:
        assert not self.running(broker), f"broker {broker} runs already"
        self._asked.discard(broker)
        self.refused.pop(broker, None)
        self.root.mkdir(parents=True, exist_ok=True)
        command = [*self._prefix(broker), *self.command(broker, self.root, self.registry, self._listeners(broker))]
        with (self.root / f"broker-{broker}.log").open("ab") as out:
            self._began_at[broker] = out.tell()
            self._processes[broker] = subprocess.Popen(
                attached(command),
                cwd=self.root,
                env=self.environment() | self._machine(broker),
                start_new_session=True,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        if self.links is not None:
            self.links.started(broker, self._processes[broker].pid)

    def start_refused(self) -> None:
        """Starts those again that have ended for a reason that passes, as a service manager does."""
        for broker in self.ids:
            if self.running(broker) or broker not in self.refused or self._due_s[broker] > time.monotonic():
                continue
            was_starved = self._processes[broker].pid in self._starved_starts
            if was_starved or self.refused[broker] in (FAILED, NOT_YET, ABORTED, CRASHED):
                self.start(broker)

    def environment(self) -> dict[str, str]:
        """Returns the environment of brokers, those of a copy included."""
        found = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        found["PYTHONFAULTHANDLER"] = "1"
        if self._planted:
            own = (self.root / UNCOMPILED, *PLANTED.parents[1:3])
            found["PYTHONPATH"] = os.pathsep.join([*map(str, own), *map(os.path.abspath, sys.path)])
        return found

    def command(self, broker: int, root: Path, registry: Path, listeners: Mapping[str, str]) -> list[str]:
        """Returns the command that serves as a broker with the directories and the registry that are there."""
        command = [sys.executable, *self._program(), "serve"]
        for directory in self.data_dirs(broker, root):
            command += ["--data-dir", str(directory)]
        if len(self.ids) > 1:
            command += ["--node-id", str(broker), *self._registry(registry)]
        for name, value in {**self._settings, **listeners}.items():
            command += ["--set", f"{name}={value}"]
        return command

    def _program(self) -> list[str]:
        if self._planted:
            return [str(PLANTED), self._planted]
        return [str(PROGRAM)] if self._has_bad_allocators else ["-m", "barnabas"]

    def _machine(self, broker: int) -> dict[str, str]:
        """Returns what a broker's environment has of its own."""
        found: dict[str, str] = {}
        for each in (self.machines, self._allocators):
            if broker in each:
                found |= each[broker].environment
        return found

    def _prefix(self, broker: int) -> list[str]:
        """Returns what the command begins with that starts a broker."""
        return []

    def _registry(self, file: Path) -> list[str]:
        """Returns the arguments that name the registry of several brokers."""
        return ["--registry", str(file)]

    def _listeners(self, broker: int) -> dict[str, str]:
        clients = f"PLAINTEXT://{self.address(broker)}"
        if self.links is None:
            return {"listeners": clients}
        advertised, listening = self._peer_ports(broker)
        return {
            "listeners": f"{clients},{PEERS}://{HOST}:{listening}",
            "advertised.listeners": f"{clients},{PEERS}://{HOST}:{advertised}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{PEERS}:SASL_PLAINTEXT",
            "inter.broker.listener.name": PEERS,
        }

    def kill(self, broker: int) -> None:
        self._signal(broker, signal.SIGKILL)
        self._wait(broker, TERMINATED_TIMEOUT_S)

    def ask_to_end(self, broker: int) -> Callable[[], bool]:
        """Sends SIGTERM. Returns a function that tells whether this process has ended; another may run by then."""
        process = self._processes[broker]
        self._signal(broker, signal.SIGTERM)
        return lambda: process.poll() is not None

    def wait_until_ended(self, broker: int) -> bool:
        """Returns whether the broker ended in time; otherwise it is killed."""
        try:
            self._wait(broker, TERMINATED_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill(broker)
            return False
        return True

    def freeze(self, broker: int) -> None:
        """Stops a process, unless it has ended since it was chosen: one that was asked to end may take its time."""
        if self.running(broker):
            os.killpg(self._processes[broker].pid, signal.SIGSTOP)
            self.frozen.add(broker)

    def thaw(self, broker: int) -> None:
        if broker in self.frozen:
            self.frozen.discard(broker)
            if self.running(broker):
                os.killpg(self._processes[broker].pid, signal.SIGCONT)

    def cut(self, broker: int, other: int, *, both_ways: bool) -> Callable[[], None]:
        """Cuts what a broker sends to another, and what that one sends to it if ``both_ways``. Returns what ends it."""
        assert self.links is not None, "linked=True"
        return self.links.cut(broker, other, both_ways=both_ways)

    def worsen(self, broker: int, other: int, fault: Fault) -> Callable[[], None]:
        """Delays and loses what passes between two brokers, where they have a network. Returns what ends it."""
        raise NotImplementedError("brokers of one machine have no packets")

    def starve(self, broker: int, descriptors: int) -> Callable[[], None]:
        """Leaves a broker so many descriptors beside those that it has. Returns what ends it."""
        if self.running(broker) and " is ready on " not in self.output(broker, self._began_at[broker]):
            self._starved_starts.add(self._processes[broker].pid)
        return self._limit(broker, resource.RLIMIT_NOFILE, lambda proc: len(os.listdir(proc / "fd")) + descriptors)

    def leave_without_memory(self, broker: int, megabytes: int) -> Callable[[], None]:
        """Leaves a broker so much memory beside that it has. Returns what ends it."""

        def size(proc: Path) -> int:
            pages = int((proc / "statm").read_text().split()[0])
            return pages * resource.getpagesize() + (megabytes << 20)

        return self._limit(broker, resource.RLIMIT_AS, size)

    def deny_allocations(self, broker: int, after: int, count: int) -> None:
        """Has so many allocations of a broker fail after a number of others, if it runs on its event loop."""
        self._allocators[broker].deny(self._processes[broker], after, count)

    def allow_allocations(self, broker: int) -> Callable[[], bool]:
        """Has no more of them fail. Returns a function that tells whether the broker has heard of it."""
        allocator, process = self._allocators[broker], self._processes[broker]
        allocator.allow(process)
        return lambda: allocator.heard(process)

    def _limit(self, broker: int, kind: int, limit: Callable[[Path], int]) -> Callable[[], None]:
        """Sets a limit by what /proc tells of a broker. Returns what takes it back, if no other such fault goes on."""
        if not self.running(broker):
            return lambda: None
        process = self._processes[broker]
        present = resource.prlimit(process.pid, kind)
        before, others = self._limited.get((process.pid, kind), (present, 0))
        self._limited[process.pid, kind] = before, others + 1
        resource.prlimit(process.pid, kind, (limit(Path(f"/proc/{process.pid}")), before[1]))

        def end() -> None:
            before, faults = self._limited.pop((process.pid, kind))
            if faults > 1:
                self._limited[process.pid, kind] = before, faults - 1
            elif process.poll() is None:
                resource.prlimit(process.pid, kind, before)

        return end

    def wipe(self, broker: int) -> None:
        assert not self.running(broker)
        for directory in self.data_dirs(broker):
            shutil.rmtree(directory, ignore_errors=True)

    def stop_all(self) -> None:
        for broker in self.ids:
            if self.running(broker):
                self.kill(broker)
        if self.links is not None:
            self.links.close()
        for each in (*self.machines.values(), *self._allocators.values()):
            each.close()
        for port in self._reserved:
            port.release()

    def _signal(self, broker: int, number: int) -> None:
        if self.running(broker):
            self._asked.add(broker)
            self._send(self._processes[broker].pid, number)
            self.thaw(broker)

    def _send(self, pid: int, number: int) -> None:
        """Sends a signal to a broker with its children."""
        os.killpg(pid, number)

    def _wait(self, broker: int, timeout_s: float) -> None:
        self._processes[broker].wait(timeout_s)

    def start_all(self) -> None:
        """Starts all. Returns once every broker names all of them."""
        self.root.mkdir(parents=True, exist_ok=True)
        if self._has_bad_allocators:
            self._allocators = {broker: BadAllocator(self.root / f"allocator-{broker}") for broker in self.ids}
        if self._has_bad_machines:
            library = self.root / "bad_machine.so"
            build(library)
            self.machines = {broker: BadMachine(library, self.root / f"machine-{broker}") for broker in self.ids}
        if self._planted:
            from uncompiled import copy_uncompiled  # which needs pytest

            copy_uncompiled(self.root / UNCOMPILED)
        for broker in self.ids:
            self.start(broker)
        self.wait_until_ready()

    # --- questions --------------------------------------------------------------------------------------------------

    def wait_until_ready(self) -> None:
        """Returns once every broker names all of them."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        left = list(self.ids)
        while left:
            for broker in left:
                if not self.running(broker):
                    raise BrokersFailed("; ".join(self.ended) or f"broker {broker} does not run")
            if time.monotonic() > deadline:
                raise BrokersFailed(f"brokers {left} do not know all others after {READY_TIMEOUT_S:.0f} s")
            left = [broker for broker in left if len(self._described(broker).brokers) < len(self.ids)]
            time.sleep(0.02)

    def describe(self) -> ClusterDescription:
        return self._described(*self.reachable)

    def topics(self, *brokers: int) -> dict[str, TopicView]:
        """Returns all topics with leaders and ISRs, internal ones included, as one of these brokers knows them (or of
        all that can answer)."""
        with self.admin(*brokers or self.reachable) as admin:
            return {topic.name: topic for topic in admin.list_topics(internal=True)}

    def out_of_sync(self, *brokers: int) -> list[str]:
        """Returns the partitions whose replicas are not all in sync, as one of these brokers knows them."""
        return [
            f"{topic.name}-{partition.partition} (leader {partition.leader}, in sync {partition.in_sync_replicas})"
            for topic in self.topics(*brokers).values()
            for partition in topic.in_order()
            if partition.leader < 0 or set(partition.in_sync_replicas) != set(partition.replicas)
        ]

    def admin(self, *brokers: int) -> barnabas.Admin:
        return barnabas.Admin(
            bootstrap_servers=[*map(self.address, brokers or self.ids)],
            default_api_timeout_ms=int(ASKED_TIMEOUT_S * 1000),
            request_timeout_ms=1000,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
            retry_backoff_ms=10,
        )

    def _described(self, *brokers: int) -> ClusterDescription:
        try:
            with self.admin(*brokers) as admin:
                return admin.describe_cluster()
        except BarnabasError:
            return ClusterDescription(None, BrokerId(-1), {})
