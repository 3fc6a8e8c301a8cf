"""Faults hit whoever has the role, end after their time, and take no directory while a replica is behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.executor import Executor
from cluster.plan import Deed, Fault, Role

LEDGER = "ledger"


class Brokers:
    """Three brokers without processes; `deeds` is what was done to them."""

    def __init__(self) -> None:
        self.ids = [1, 2, 3]
        self.up = {1, 2, 3}
        self.links = None
        self.deeds: list[str] = []
        self.behind: list[str] = []
        self.looks = 0

    @property
    def reachable(self) -> list[int]:
        return sorted(self.up)

    def running(self, broker: int) -> bool:
        return broker in self.up

    def kill(self, broker: int) -> None:
        self.up.discard(broker)
        self.deeds.append(f"kill {broker}")

    def start(self, broker: int) -> None:
        assert broker not in self.up
        self.up.add(broker)
        self.deeds.append(f"start {broker}")

    def wipe(self, broker: int) -> None:
        assert broker not in self.up
        self.deeds.append(f"wipe {broker}")

    def ask_to_end(self, broker: int) -> None:
        self.up.discard(broker)
        self.deeds.append(f"end {broker}")

    def freeze(self, broker: int) -> None:
        self.deeds.append(f"freeze {broker}")

    def thaw(self, broker: int) -> None:
        self.deeds.append(f"thaw {broker}")

    def out_of_sync(self, *_: int) -> list[str]:
        self.looks += 1
        found = list(self.behind)
        if self.looks >= 3:
            self.behind.clear()
        return found

    def describe(self) -> Any:
        return SimpleNamespace(controller_id=3)

    def topics(self) -> dict[str, Any]:
        partitions = [SimpleNamespace(partition=0, leader=2, replicas=(2, 1, 3))]
        return {LEDGER: SimpleNamespace(name=LEDGER, in_order=lambda: partitions)}


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
