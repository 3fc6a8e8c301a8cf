"""Faults hit whoever has the role, end after their time, and take no directory while a replica is behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cluster.executor
from cluster.bad_machine import Calls
from cluster.directories import Registry
from cluster.executor import Executor
from cluster.plan import Deed, Fault, Role

LEDGER = "ledger"


class Processes:
    """Three processes that are none; `deeds` is what was done to them."""

    def __init__(self, deeds: list[str], name: str = "") -> None:
        self.ids = [1, 2, 3]
        self.up = {1, 2, 3}
        self.deeds = deeds
        self._name = name

    @property
    def reachable(self) -> list[int]:
        return sorted(self.up)

    def running(self, broker: int) -> bool:
        return broker in self.up

    def kill(self, broker: int) -> None:
        self.up.discard(broker)
        self.deeds.append(f"kill {self._name}{broker}")

    def start(self, broker: int) -> None:
        assert broker not in self.up
        self.up.add(broker)
        self.deeds.append(f"start {self._name}{broker}")

    def freeze(self, broker: int) -> None:
        self.deeds.append(f"freeze {self._name}{broker}")

    def thaw(self, broker: int) -> None:
        self.deeds.append(f"thaw {self._name}{broker}")


class Machine:
    """A machine that can get bad disks and another time."""

    def __init__(self, deeds: list[str], broker: int) -> None:
        self._deeds, self._broker = deeds, broker

    def fail(self, path: str, calls: Calls, one_in: int) -> None:
        self._deeds.append(f"fail {Path(path).name} of {self._broker}")

    def hang(self, path: str, calls: Calls) -> None:
        self._deeds.append(f"hang {Path(path).name} of {self._broker}")

    def heal(self) -> None:
        self._deeds.append(f"heal {self._broker}")

    def set_clock(self, ahead_s: float) -> None:
        self._deeds.append(f"set clock of {self._broker} {'right' if ahead_s == 0 else 'wrong'}")


class Brokers(Processes):
    """Three brokers, and three ZooKeepers of which the first leads."""

    def __init__(self) -> None:
        super().__init__([])
        self.zookeepers = Processes(self.deeds, "ZooKeeper ")
        self.behind: list[str] = []
        self.looks = 0
        self.root = Path()
        self.may_wait = False
        self.doubtful: set[int] = set()
        self.failing: list[int] = []
        self.denied: list[int] = []
        self.ends: Counter[int] = Counter()
        self.deaf = False
        """Whether no broker hears that it has memory again."""
        self.unregistered = 0
        """So many times they say that nobody is registered."""
        self.registry = Path("registry.db")
        self.machines = {broker: Machine(self.deeds, broker) for broker in self.ids}
        self.refused: dict[int, int] = {}

    def data_dirs(self, broker: int) -> list[Path]:
        return [self.root / f"broker-{broker}"]

    def start_refused(self) -> None:
        pass

    def starve(self, broker: int, descriptors: int) -> Callable[[], None]:
        self.deeds.append(f"starve {broker}")
        return lambda: self.deeds.append(f"feed {broker}")

    def leave_without_memory(self, broker: int, megabytes: int) -> Callable[[], None]:
        self.deeds.append(f"leave {broker} without memory")
        return lambda: self.deeds.append(f"give {broker} memory")

    def deny_allocations(self, broker: int, after: int, count: int) -> None:
        assert broker in self.denied
        self.ends[broker] += 1
        self.deeds.append(f"deny {broker} allocations")

    def allow_allocations(self, broker: int) -> Callable[[], bool]:
        self.deeds.append(f"allow {broker} allocations")
        answers = iter([False, True])
        return lambda: not self.deaf and next(answers)

    def wipe(self, broker: int) -> None:
        assert broker not in self.up
        self.deeds.append(f"wipe {broker}")

    def ask_to_end(self, broker: int) -> Callable[[], bool]:
        self.up.discard(broker)
        self.deeds.append(f"end {broker}")
        return lambda: True

    def cut(self, broker: int, other: int, *, both_ways: bool) -> Callable[[], None]:
        between = f"{broker} {'and' if both_ways else 'to'} {other}"
        self.deeds.append(f"cut {between}")
        return lambda: self.deeds.append(f"heal {between}")

    def worsen(self, broker: int, other: int, fault: Fault) -> Callable[[], None]:
        self.deeds.append(f"worsen {broker} and {other}")
        return lambda: self.deeds.append(f"mend {broker} and {other}")

    def out_of_sync(self, *_: int) -> list[str]:
        self.looks += 1
        found = list(self.behind)
        if self.looks >= 3:
            self.behind.clear()
        return found

    def describe(self) -> Any:
        self.unregistered -= self.unregistered > 0
        return SimpleNamespace(controller_id=3, brokers=[] if self.unregistered else self.ids)

    def topics(self) -> dict[str, Any]:
        partitions = [SimpleNamespace(partition=0, leader=2, replicas=(2, 1, 3))]
        return {LEDGER: SimpleNamespace(name=LEDGER, in_order=lambda: partitions)}


class BrokersWithDirectories(Brokers):
    """What they find when they start is in `found`; they leave it changed."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.found: list[tuple[int, str]] = []
        for broker in self.ids:
            self.data_dirs(broker)[0].mkdir()
            (self.data_dirs(broker)[0] / "log").write_text("0")

    def start(self, broker: int) -> None:
        super().start(broker)
        log = self.data_dirs(broker)[0] / "log"
        text = log.read_text() if log.exists() else ""
        self.found.append((broker, text))
        log.write_text(f"{len(self.found)}")


class BrokersWithRegistry(BrokersWithDirectories):
    """Each start changes the registry. Where this does not know the last one, all but the `careless` are refused."""

    def __init__(self, root: Path, careless: int = 0) -> None:
        super().__init__(root)
        self.registry = root / "registry.db"
        self.registry.write_text("0")
        self._careless, self._last, self._told = careless, "0", {1: "", 2: "", 3: ""}

    def registry_files(self) -> list[Path]:
        return [self.registry] if self.registry.exists() else []

    def output(self, broker: int) -> str:
        return self._told[broker]

    def start(self, broker: int) -> None:
        if self.registry.read_text() == self._last:
            super().start(broker)
            self._last = f"{len(self.found)}"
            self.registry.write_text(self._last)
        elif broker == self._careless:
            super().start(broker)
        else:
            self._told[broker] += "use `barnabas cluster recover`"
            self.deeds.append(f"refuse {broker}")


def test_no_registry_is_saved_before_all_are_registered(tmp_path: Path) -> None:
    brokers = BrokersWithRegistry(tmp_path)
    brokers.unregistered = 2
    executor = Executor(brokers, LEDGER, "group", "copier")  # type: ignore[arg-type]
    executor._begin(Fault(0.0, Deed.OLD_REGISTRY, Role.ALL, 0, 0.05))
    assert not brokers.deeds
    executor._due.pop()[2]()
    assert brokers.deeds


def run(brokers: Brokers, *faults: Fault) -> Executor:
    executor = Executor(brokers, LEDGER, "group", "copier")  # type: ignore[arg-type]
    executor.run(list(faults), 0.0)
    return executor


def test_each_role_is_looked_up_and_each_fault_ends() -> None:
    brokers = Brokers()
    executor = run(
        brokers,
        Fault(0.0, Deed.KILL, Role.LEADER, 0, 0.05),
        Fault(0.2, Deed.FREEZE, Role.CONTROLLER, 0, 0.05),
        Fault(0.4, Deed.TERMINATE, Role.FOLLOWER, 0, 0.0),
    )
    assert brokers.deeds == ["kill 2", "start 2", "freeze 3", "thaw 3", "end 1", "start 1"]
    assert [failover.what for failover in executor.failovers] == [
        "broker killed",
        "controller stopped",
        "broker terminated",
    ]
    assert [len(failover.led) for failover in executor.failovers] == [1, 0, 0]


def test_all_brokers_may_die_at_once() -> None:
    brokers = Brokers()
    run(brokers, Fault(0.0, Deed.KILL, Role.ALL, 0, 0.0))
    assert brokers.deeds == [f"kill {each}" for each in (1, 2, 3)] + [f"start {each}" for each in (1, 2, 3)]


def test_a_directory_is_lost_once_all_replicas_are_in_sync() -> None:
    brokers = Brokers()
    brokers.behind = ["ledger-0"]
    run(brokers, Fault(0.0, Deed.WIPE, Role.LEADER, 0, 0.0))
    assert brokers.deeds == ["kill 2", "wipe 2", "start 2"]
    assert brokers.looks > 3


def test_a_fault_that_finds_nobody_is_told() -> None:
    brokers = Brokers()
    brokers.up.clear()
    assert run(brokers, Fault(0.0, Deed.KILL, Role.LEADER, 0, 0.0)).done == ["leader not found at 0.0"]


def test_zookeeper_and_the_controller_are_hit_at_once() -> None:
    brokers = Brokers()
    run(brokers, Fault(0.0, Deed.KILL, Role.CONTROLLER_AND_ZOOKEEPER_LEADER, 0, 0.05))
    assert brokers.deeds == ["kill 3", "kill ZooKeeper 1", "start 3", "start ZooKeeper 1"]


def test_a_quorum_is_lost_with_its_leader_or_without() -> None:
    brokers = Brokers()
    run(brokers, Fault(0.0, Deed.FREEZE, Role.QUORUM, 0, 0.05), Fault(0.2, Deed.FREEZE, Role.QUORUM, 1, 0.05))
    frozen = [deed for deed in brokers.deeds if deed.startswith("freeze")]
    assert frozen == [f"freeze ZooKeeper {number}" for number in (2, 3, 1, 2)]


def test_the_time_of_a_broker_without_the_others_is_noted() -> None:
    brokers = Brokers()
    executor = run(
        brokers,
        Fault(0.0, Deed.CUT, Role.LEADER, 0, 0.05),
        Fault(0.2, Deed.CUT, Role.ZOOKEEPER_LEADER, 1, 0.05, both_ways=False, one_peer=True),
    )
    assert brokers.deeds == ["cut 2 and 1", "cut 2 and 3", "heal 2 and 1", "heal 2 and 3", "cut 1 to 3", "heal 1 to 3"]
    (cut,) = executor.cut_off
    assert cut.broker == 2
    assert cut.to_s - cut.from_s >= 0.05


def test_links_that_flap_are_whole_in_the_end() -> None:
    brokers = Brokers()
    run(brokers, Fault(0.0, Deed.FLAP, Role.LEADER, 0, 2.5, one_peer=True))
    assert brokers.deeds[:4] == ["cut 2 and 1", "heal 2 and 1"] * 2
    assert brokers.deeds[-1] == "heal 2 and 1"


def test_a_bad_connection_ends() -> None:
    brokers = Brokers()
    run(brokers, Fault(0.0, Deed.WORSEN, Role.ANY, 1, 0.05, one_peer=True))
    assert brokers.deeds == ["worsen 2 and 3", "mend 2 and 3"]


def test_a_mount_that_is_away_for_a_start_comes_back(tmp_path: Path) -> None:
    brokers = BrokersWithDirectories(tmp_path)
    run(brokers, Fault(0.0, Deed.UNMOUNT, Role.LEADER, 0, 0.05))
    assert brokers.found == [(2, ""), (2, "0")]
    assert brokers.may_wait
    assert not brokers.doubtful


def test_all_may_be_killed_for_a_mount_and_its_broker_starts_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.executor, "ALONE_S", 0.1)
    brokers = BrokersWithDirectories(tmp_path)
    run(brokers, Fault(0.0, Deed.UNMOUNT, Role.LEADER, 0, 0.05, both_ways=False))
    assert brokers.found == [(2, ""), (2, "0"), (1, "0"), (3, "0")]


def test_an_old_copy_stays_where_one_broker_gets_it(tmp_path: Path) -> None:
    brokers = BrokersWithDirectories(tmp_path)
    run(brokers, Fault(0.0, Deed.OLD_COPY, Role.LEADER, 0, 0.05, both_ways=False))
    assert brokers.found == [(2, "0"), (2, "0")]


def test_all_brokers_get_their_own_directories_back(tmp_path: Path) -> None:
    brokers = BrokersWithDirectories(tmp_path)
    run(brokers, Fault(0.0, Deed.OLD_COPY, Role.ALL, 0, 0.05, both_ways=False))
    assert brokers.found == [(1, "0"), (2, "0"), (3, "0")] * 2 + [(1, "1"), (2, "2"), (3, "3")]


def test_descriptors_come_back() -> None:
    brokers = Brokers()
    run(brokers, Fault(0.0, Deed.STARVE, Role.LEADER, 0, 0.05))
    assert brokers.deeds == ["starve 2", "feed 2"]


@pytest.mark.parametrize(
    ("deed", "begins", "ends"),
    [
        (Deed.MEMORY, "leave 2 without memory", "give 2 memory"),
        (Deed.FAIL_DISK, "fail broker-2 of 2", "heal 2"),
    ],
)
def test_a_broker_that_may_have_given_up_is_started_anew(deed: Deed, begins: str, ends: str) -> None:
    brokers = Brokers()
    run(brokers, Fault(0.05, deed, Role.LEADER, 0, 0.05))
    assert brokers.deeds == [begins, ends, "kill 2", "start 2"]
    assert not brokers.failing


def test_a_broker_whose_disk_still_fails_may_end_when_its_memory_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, seen = Brokers(), []
    monkeypatch.setattr(brokers, "start", lambda broker: seen.append([*brokers.failing]))
    memory, disk = Fault(0.05, Deed.MEMORY, Role.LEADER, 0, 0.2), Fault(0.1, Deed.FAIL_DISK, Role.LEADER, 0, 0.6)
    run(brokers, memory, disk)
    assert seen == [[2, 2], [2]]


def test_a_broker_is_denied_allocations_and_goes_on_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.executor, "LATE_S", 0.05)
    brokers = Brokers()
    executor = run(
        brokers,
        Fault(0.0, Deed.ALLOCATIONS, Role.LEADER, 0, 1.3),
        Fault(0.1, Deed.ALLOCATIONS, Role.LEADER, 0, 0.01),
    )
    allowed = brokers.deeds.index("allow 2 allocations")
    assert {*brokers.deeds[:allowed]} == {*brokers.deeds[allowed + 1 : -1]} == {"deny 2 allocations"}
    assert brokers.deeds[-1] == "allow 2 allocations"
    assert brokers.denied == []
    assert executor.done[-1] == f"broker 2 ended {len(brokers.deeds) - 2} times while denied allocations"
    assert executor.failures == []


def test_a_broker_that_stands_still_after_denied_allocations_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.executor, "TERMINATED_TIMEOUT_S", 0.05)
    brokers = Brokers()
    brokers.deaf = True
    executor = run(brokers, Fault(0.0, Deed.ALLOCATIONS, Role.LEADER, 0, 0.01))
    assert executor.failures == ["broker 2 has stood still for 0 s"]
    assert brokers.deeds[-2:] == ["kill 2", "start 2"]
    assert brokers.denied == []


def test_a_disk_that_stood_still_and_a_clock_go_on() -> None:
    brokers = Brokers()
    run(brokers, Fault(0.05, Deed.HANG_DISK, Role.LEADER, 0, 0.05), Fault(0.3, Deed.CLOCK, Role.LEADER, 0, 0.05))
    assert brokers.deeds == ["hang broker-2 of 2", "heal 2", "set clock of 2 wrong", "set clock of 2 right"]


def test_all_brokers_have_one_disk_with_the_registry() -> None:
    brokers = Brokers()
    brokers.zookeepers = None  # type: ignore[assignment]
    run(brokers, Fault(0.0, Deed.HANG_DISK, Role.ALL, 0, 0.05))
    assert brokers.deeds[:3] == [f"hang registry.db of {broker}" for broker in (1, 2, 3)]


@pytest.mark.parametrize(("careless", "failures"), [(0, []), (2, ["broker 2 did not refuse an old registry"])])
def test_an_old_registry_is_refused_and_made_anew(
    careless: int, failures: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = BrokersWithRegistry(tmp_path, careless)
    monkeypatch.setattr(Registry, "recover", lambda _: brokers.registry.write_text(brokers._last))
    monkeypatch.setattr(cluster.executor, "REFUSED_TIMEOUT_S", 0.2)
    executor = run(brokers, Fault(0.0, Deed.OLD_REGISTRY, Role.ALL, 0, 0.05))
    assert executor.failures == failures
    assert brokers.up == {1, 2, 3}
    assert {f"refuse {broker}" for broker in (1, 2, 3) if broker != careless} <= set(brokers.deeds)
    assert not brokers.doubtful
