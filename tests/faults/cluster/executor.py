"""Makes the faults of a plan happen: finds out who has the role, hits the broker, and ends the fault."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from barnabas.errors import BarnabasError
from barnabas.metadata.partitioning import partition_for
from barnabas.types import TopicPartition
from cluster.brokers import TERMINATED_TIMEOUT_S, ClusterProcesses
from cluster.plan import Deed, Fault, Role
from cluster.timeline import Failover

__all__ = ["Executor"]

GROUPS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
SYNC_TIMEOUT_S = 20.0
SETTLED_S = 1.5
"""The time for which all replicas are in sync, by every broker, before a directory is lost."""
TICK_S = 0.02


class Executor:
    """Runs the faults of one round. ``done`` describes each fault as it happened."""

    def __init__(self, brokers: ClusterProcesses, topic: str, group: str, transactional_id: str) -> None:
        self._brokers = brokers
        self._topic, self._group, self._transactional_id = topic, group, transactional_id
        self._began_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.done: list[str] = []
        self.failovers: list[Failover] = []
        self.failures: list[str] = []

    def run(self, faults: list[Fault], seconds: float) -> None:
        """Returns after so many seconds, when each fault has ended."""
        self._began_s = time.monotonic()
        for fault in faults:
            self._at(self._began_s + fault.at_s, partial(self._begin, fault))
        while self._due or time.monotonic() < self._began_s + seconds:
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
            time.sleep(TICK_S)
            for broker in self._brokers.ids:
                self._brokers.running(broker)  # notes the ones that have ended by themselves

    def _at(self, at_s: float, deed: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_s, next(self._numbers), deed))

    def _begin(self, fault: Fault) -> None:
        targets = self._targets(fault)
        at = f"{time.monotonic() - self._began_s:.1f}"
        if not targets:
            self.done.append(f"{fault.role.value} not found at {at}")
            return
        if fault.deed is Deed.WIPE:
            self._wipe_once_in_sync(fault, targets[0], time.monotonic() + SYNC_TIMEOUT_S, None)
            return
        names = ",".join(map(str, targets))
        if fault.role is not Role.CONTROLLER and self._controller() in targets:
            names += " (controller)"
        for_s = f" for {fault.for_s:.1f} s" if fault.for_s else ""
        one_way = "" if fault.both_ways or fault.deed is not Deed.CUT else " one way"
        self.done.append(f"{fault.role.value} {names} {fault.deed.value}{one_way} at {at}{for_s}")
        self._note_failover(fault, targets)
        {
            Deed.KILL: self._kill,
            Deed.TERMINATE: self._terminate,
            Deed.FREEZE: self._freeze,
            Deed.CUT: self._cut,
        }[fault.deed](fault, targets)

    # --- deeds ------------------------------------------------------------------------------------------------------

    def _kill(self, fault: Fault, targets: list[int]) -> None:
        for broker in targets:
            self._brokers.kill(broker)
        for broker in targets:
            self._start_at(time.monotonic() + fault.for_s, broker)

    def _terminate(self, fault: Fault, targets: list[int]) -> None:
        asked_s = time.monotonic()
        for broker in targets:
            self._brokers.ask_to_end(broker)
            self._await_end(fault, broker, asked_s)

    def _await_end(self, fault: Fault, broker: int, asked_s: float) -> None:
        now = time.monotonic()
        if not self._brokers.running(broker):
            self._start_at(now + fault.for_s, broker)
        elif now > asked_s + TERMINATED_TIMEOUT_S:
            self.failures.append(f"broker {broker} did not end {TERMINATED_TIMEOUT_S:.0f} s after SIGTERM")
            self._brokers.kill(broker)
            self._start_at(now, broker)
        else:
            self._at(now + TICK_S, partial(self._await_end, fault, broker, asked_s))

    def _freeze(self, fault: Fault, targets: list[int]) -> None:
        for broker in targets:
            self._brokers.freeze(broker)
            self._at(time.monotonic() + fault.for_s, partial(self._brokers.thaw, broker))

    def _cut(self, fault: Fault, targets: list[int]) -> None:
        links = self._brokers.links
        if links is not None:
            for broker in targets:
                links.cut(broker, both_ways=fault.both_ways)
                self._at(time.monotonic() + fault.for_s, partial(links.heal, broker))

    def _wipe_once_in_sync(self, fault: Fault, broker: int, until_s: float, in_sync_since_s: float | None) -> None:
        now = time.monotonic()
        if not self._all_in_sync():
            in_sync_since_s = None
        elif in_sync_since_s is None:
            in_sync_since_s = now
        elif now >= in_sync_since_s + SETTLED_S:
            self.done.append(f"{fault.role.value} {broker} wiped at {now - self._began_s:.1f}")
            self._note_failover(fault, [broker])
            self._brokers.kill(broker)
            self._brokers.wipe(broker)
            self._brokers.start(broker)
            return
        if now < until_s:
            self._at(now + 0.2, partial(self._wipe_once_in_sync, fault, broker, until_s, in_sync_since_s))
        else:
            self.done.append(f"broker {broker} not wiped, as not all were in sync")

    def _start_at(self, at_s: float, broker: int) -> None:
        def start() -> None:
            if not self._brokers.running(broker):
                self._brokers.start(broker)

        self._at(at_s, start)

    # --- who has which role -----------------------------------------------------------------------------------------

    def _all_in_sync(self) -> bool:
        if self._brokers.reachable != self._brokers.ids:
            return False
        try:
            return not any(self._brokers.out_of_sync(broker) for broker in self._brokers.ids)
        except BarnabasError:
            return False

    def _targets(self, fault: Fault) -> list[int]:
        reachable = self._brokers.reachable
        if fault.role is Role.ALL or not reachable:
            return reachable
        try:
            found = self._holder(fault)
        except BarnabasError:
            found = None
        return [found] if found in reachable else [reachable[fault.partition % len(reachable)]]

    def _holder(self, fault: Fault) -> int | None:
        if fault.role is Role.CONTROLLER:
            return self._controller()
        if fault.role is Role.ANY:
            return None
        topics = self._brokers.topics()
        name, number = {
            Role.GROUP_COORDINATOR: (GROUPS_TOPIC, self._group),
            Role.TRANSACTION_COORDINATOR: (TRANSACTIONS_TOPIC, self._transactional_id),
        }.get(fault.role, (self._topic, ""))
        if name not in topics:
            return None
        partitions = topics[name].in_order()
        partition = partitions[partition_for(number, len(partitions)) if number else fault.partition]
        if fault.role is Role.FOLLOWER:
            followers = [each for each in partition.replicas if each != partition.leader]
            return followers[fault.partition % len(followers)] if followers else None
        return int(partition.leader)

    def _controller(self) -> int:
        return int(self._brokers.describe().controller_id)

    def _note_failover(self, fault: Fault, targets: list[int]) -> None:
        try:
            led = {
                TopicPartition(topic.name, partition.partition)
                for topic in self._brokers.topics().values()
                for partition in topic.in_order()
                if partition.leader in targets
            }
        except BarnabasError:
            return
        if len(targets) == 1:
            is_controller = fault.role is Role.CONTROLLER or self._controller() == targets[0]
            what = f"{Role.CONTROLLER.value if is_controller else Role.ANY.value} {fault.deed.value}"
            self.failovers.append(Failover(what, targets[0], time.monotonic(), frozenset(led)))
