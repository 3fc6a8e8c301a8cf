"""Makes the faults of a plan happen: finds out who has the role, hits the broker, and ends the fault."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from barnabas.errors import BarnabasError
from barnabas.metadata.partitioning import partition_for
from barnabas.types import TopicPartition
from cluster.bad_machine import Calls
from cluster.brokers import TERMINATED_TIMEOUT_S, ClusterProcesses, Processes
from cluster.directories import CopiedCluster, Registry, Stock, unmount
from cluster.history import CutOff
from cluster.plan import DIRECTORIES, LINKS, ZOOKEEPER, Deed, Fault, Role
from cluster.timeline import Failover

__all__ = ["Executor"]

GROUPS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
SYNC_TIMEOUT_S = 20.0
SETTLED_S = 1.5
"""The time for which all replicas are in sync, by every broker, before a directory is lost."""
TICK_S = 0.02
REFUSED_TIMEOUT_S = 30.0
OLD_FOR_S = 4.0
"""The time for which all brokers find old copies, before they get their newer directories back."""
ALONE_S = 4.0
"""The time for which brokers that get their directories back see nobody else."""
FLAP_S = (0.1, 1.5)
"""The time for which links that flap are cut, and for which they are whole."""

CALLS = (Calls.READS, Calls.WRITES, Calls.SYNCS, Calls.NAMES, Calls.ALL)
ONE_IN = (1, 2, 30)
REGISTRY_SHARE = 0.3
JUMPS_S = (-3600.0, -40.0, -1.0, 1.0, 40.0, 3600.0)
MEGABYTES = (0, 1, 8)
DENIED_EACH_S = (0.05, 0.6)
"""The time from one order to deny allocations to the next."""
GRANTED, DENIED = (200, 5_000, 100_000), (1, 1, 2, 5, 50)
"""So many allocations go well at most, and so many fail then."""
LATE_S = 2.0
"""The time in which a broker ends for want of an allocation that has failed."""

Target = tuple[Processes, int]


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
        self.cut_off: list[CutOff] = []
        self.bad_disks: list[CutOff] = []
        self.failures: list[str] = []
        self._apart = False
        """Whether brokers have other directories now than those that are to count."""
        self._places = count()
        self._copies: list[CopiedCluster] = []
        self._of_machines = {
            Deed.STARVE: self._starve,
            Deed.MEMORY: self._leave_without_memory,
            Deed.ALLOCATIONS: self._deny_allocations,
            Deed.CLOCK: self._set_clock,
            Deed.FAIL_DISK: self._fail_disk,
            Deed.HANG_DISK: self._hang_disk,
        }

    def run(self, faults: list[Fault], seconds: float) -> None:
        """Returns after so many seconds, when each fault has ended."""
        self._began_s = time.monotonic()
        for fault in faults:
            self._at(self._began_s + fault.at_s, partial(self._begin, fault))
        try:
            while self._due or time.monotonic() < self._began_s + seconds:
                while self._due and self._due[0][0] <= time.monotonic():
                    heapq.heappop(self._due)[2]()
                time.sleep(TICK_S)
                for broker in self._brokers.ids:
                    self._brokers.running(broker)  # notes the ones that have ended by themselves
                self._brokers.start_refused()
        finally:
            for copy in self._copies:
                copy.end()

    def _at(self, at_s: float, deed: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_s, next(self._numbers), deed))

    def _begin(self, fault: Fault) -> None:
        brokers, zookeepers = self._targets(fault)
        at = f"{time.monotonic() - self._began_s:.1f}"
        if not brokers and not zookeepers:
            self.done.append(f"{fault.role.value} not found at {at}")
            return
        if fault.deed is Deed.WIPE:
            self._once_in_sync(fault, brokers, partial(self._wipe, fault))
            return
        if fault.deed in DIRECTORIES:
            self._brokers.may_wait = True
            if fault.role is Role.ALL:
                brokers = self._brokers.ids
            {
                Deed.UNMOUNT: lambda: self._once_in_sync(fault, brokers, partial(self._unmount, fault)),
                Deed.OLD_COPY: lambda: self._once_in_sync(fault, brokers, partial(self._stock, fault)),
                Deed.COPY: lambda: self._copy(fault, brokers[0]),
                Deed.OLD_REGISTRY: lambda: self._once_live(fault, brokers, partial(self._save_registry, fault)),
            }[fault.deed]()
            return
        if fault.deed in LINKS:  # those of the machine
            brokers, zookeepers = sorted({*brokers, *zookeepers}), []
        names = ",".join([*map(str, brokers), *(f"ZooKeeper {number}" for number in zookeepers)])
        if fault.role not in (Role.CONTROLLER, Role.CONTROLLER_AND_ZOOKEEPER_LEADER) and self._controller() in brokers:
            names += " (controller)"
        for_s = f" for {fault.for_s:.1f} s" if fault.for_s else ""
        self.done.append(f"{fault.role.value} {names} {fault.what} at {at}{for_s}")
        self._note_failover(fault, brokers)
        if fault.deed is Deed.TERMINATE:
            self._terminate(fault, brokers)
        elif fault.deed in self._of_machines:
            rng = random.Random(f"{fault.at_s}")
            for broker in brokers:
                self._at(time.monotonic() + fault.for_s, self._of_machines[fault.deed](fault, broker, rng))
        elif fault.deed in LINKS:
            {Deed.CUT: self._cut, Deed.FLAP: self._flap, Deed.WORSEN: self._worsen, Deed.SWALLOW: self._worsen}[
                fault.deed
            ](fault, brokers)
        else:
            targets: list[Target] = [(self._brokers, broker) for broker in brokers]
            if self._brokers.zookeepers is not None:
                targets += [(self._brokers.zookeepers, number) for number in zookeepers]
            {Deed.KILL: self._kill, Deed.FREEZE: self._freeze}[fault.deed](fault, targets)

    # --- deeds ------------------------------------------------------------------------------------------------------

    def _kill(self, fault: Fault, targets: list[Target]) -> None:
        for processes, number in targets:
            processes.kill(number)
        for target in targets:
            self._start_at(time.monotonic() + fault.for_s, target)

    def _terminate(self, fault: Fault, targets: list[int]) -> None:
        asked_s = time.monotonic()
        for broker in targets:
            self._await_end(fault, broker, self._brokers.ask_to_end(broker), asked_s)

    def _await_end(self, fault: Fault, broker: int, has_ended: Callable[[], bool], asked_s: float) -> None:
        now = time.monotonic()
        if has_ended():
            self._start_at(now + fault.for_s, (self._brokers, broker))
        elif now > asked_s + TERMINATED_TIMEOUT_S:
            self.failures.append(f"broker {broker} did not end {TERMINATED_TIMEOUT_S:.0f} s after SIGTERM")
            self._brokers.kill(broker)
            self._start_at(now, (self._brokers, broker))
        else:
            self._at(now + TICK_S, partial(self._await_end, fault, broker, has_ended, asked_s))

    def _freeze(self, fault: Fault, targets: list[Target]) -> None:
        for processes, number in targets:
            processes.freeze(number)
            self._at(time.monotonic() + fault.for_s, partial(processes.thaw, number))

    def _cut(self, fault: Fault, brokers: list[int]) -> None:
        for broker in brokers:
            heal = self._cut_links(fault, broker)
            if not fault.one_peer:
                heal = partial(self._reunite, broker, time.monotonic(), heal)
            self._at(time.monotonic() + fault.for_s, heal)

    def _reunite(self, broker: int, from_s: float, heal: Callable[[], None]) -> None:
        self.cut_off.append(CutOff(broker, from_s, time.monotonic()))
        heal()

    def _flap(self, fault: Fault, brokers: list[int]) -> None:
        for broker in brokers:
            self._flap_once(fault, broker, time.monotonic() + fault.for_s, random.Random(f"{fault.at_s} {broker}"))

    def _flap_once(self, fault: Fault, broker: int, until_s: float, rng: random.Random) -> None:
        up_at_s = time.monotonic() + rng.uniform(*FLAP_S)
        self._at(up_at_s, self._cut_links(fault, broker))
        down_at_s = up_at_s + rng.uniform(*FLAP_S)
        if down_at_s < until_s:
            self._at(down_at_s, partial(self._flap_once, fault, broker, until_s, rng))

    def _worsen(self, fault: Fault, brokers: list[int]) -> None:
        for broker in brokers:
            for other in self._peers(fault, broker):
                self._at(time.monotonic() + fault.for_s, self._brokers.worsen(broker, other, fault))

    def _cut_links(self, fault: Fault, broker: int) -> Callable[[], None]:
        """Returns what ends it."""
        heals = [self._brokers.cut(broker, other, both_ways=fault.both_ways) for other in self._peers(fault, broker)]

        def heal() -> None:
            for each in heals:
                each()

        return heal

    def _peers(self, fault: Fault, broker: int) -> list[int]:
        """Returns those of the others to which the links of a broker are hit."""
        others = [other for other in self._brokers.ids if other != broker]
        return [others[fault.partition % len(others)]] if fault.one_peer else others

    # --- what the machine of a broker lacks; each returns what ends it ----------------------------------------------

    def _starve(self, fault: Fault, broker: int, _: random.Random) -> Callable[[], None]:
        return self._brokers.starve(broker, fault.partition)

    def _leave_without_memory(self, fault: Fault, broker: int, rng: random.Random) -> Callable[[], None]:
        return self._failing(fault, broker, self._brokers.leave_without_memory(broker, rng.choice(MEGABYTES)))

    def _deny_allocations(self, fault: Fault, broker: int, rng: random.Random) -> Callable[[], None]:
        """One that goes on is not started anew afterwards: nothing that it was to do may be left undone then."""
        until_s, ends = time.monotonic() + fault.for_s, self._brokers.ends[broker]
        self._brokers.denied.append(broker)
        self._deny_again(broker, until_s, random.Random(f"{rng.random()} {broker}"))
        return partial(self._allow_allocations, broker, until_s, ends)

    def _deny_again(self, broker: int, until_s: float, rng: random.Random) -> None:
        self._brokers.deny_allocations(broker, rng.randrange(rng.choice(GRANTED)), rng.choice(DENIED))
        next_s = time.monotonic() + rng.uniform(*DENIED_EACH_S)
        if next_s < until_s:
            self._at(next_s, partial(self._deny_again, broker, until_s, rng))

    def _allow_allocations(self, broker: int, since_s: float, ends: int) -> None:
        times = self._brokers.ends[broker] - ends
        self.done.append(f"broker {broker} ended {times} times while {Deed.ALLOCATIONS.value}")
        self._await_allowed(broker, since_s, self._brokers.allow_allocations(broker))

    def _await_allowed(self, broker: int, since_s: float, has_heard: Callable[[], bool]) -> None:
        """The broker may end until it has heard that it has memory again, and soon after."""
        now = time.monotonic()
        if has_heard():
            self._at(now + LATE_S, partial(self._brokers.denied.remove, broker))
        elif now > since_s + TERMINATED_TIMEOUT_S:
            self.failures.append(f"broker {broker} has stood still for {TERMINATED_TIMEOUT_S:.0f} s")
            self._brokers.kill(broker)
            self._start_at(now, (self._brokers, broker))
            self._brokers.denied.remove(broker)
        else:
            self._at(now + TICK_S, partial(self._await_allowed, broker, since_s, has_heard))

    def _set_clock(self, fault: Fault, broker: int, rng: random.Random) -> Callable[[], None]:
        machine = self._brokers.machines[broker]
        machine.set_clock(rng.choice(JUMPS_S))
        return partial(machine.set_clock, 0.0)

    def _fail_disk(self, fault: Fault, broker: int, rng: random.Random) -> Callable[[], None]:
        machine = self._brokers.machines[broker]
        machine.fail(self._disk(fault, broker, rng), rng.choice(CALLS), rng.choice(ONE_IN))
        return self._failing(fault, broker, partial(self._heal_disk, broker, time.monotonic()))

    def _hang_disk(self, fault: Fault, broker: int, rng: random.Random) -> Callable[[], None]:
        machine = self._brokers.machines[broker]
        machine.hang(self._disk(fault, broker, rng), rng.choice(CALLS))
        return partial(self._heal_disk, broker, time.monotonic())

    def _heal_disk(self, broker: int, from_s: float) -> None:
        self.bad_disks.append(CutOff(broker, from_s, time.monotonic()))
        self._brokers.machines[broker].heal()

    def _disk(self, fault: Fault, broker: int, rng: random.Random) -> str:
        """Returns what the paths on it begin with. All brokers share the registry's alone."""
        disks = [f"{each}/" for each in self._brokers.data_dirs(broker)]
        if self._brokers.zookeepers is None and (fault.role is Role.ALL or rng.random() < REGISTRY_SHARE):
            disks = [str(self._brokers.registry)]
        disk = rng.choice(disks)
        self.done[-1] += f" ({Path(disk).name})"
        return disk

    def _failing(self, fault: Fault, broker: int, end: Callable[[], None]) -> Callable[[], None]:
        """The broker may end meanwhile, and is started anew afterwards: it may have given a directory up."""
        self._brokers.failing.append(broker)

        def end_and_start() -> None:
            end()
            self._restart(fault, [broker], lambda: None, "started anew")
            self._brokers.failing.remove(broker)

        return end_and_start

    # --- directories ------------------------------------------------------------------------------------------------

    def _wipe(self, fault: Fault, brokers: list[int]) -> None:
        self._restart(fault, brokers, lambda: self._brokers.wipe(brokers[0]))

    def _unmount(self, fault: Fault, brokers: list[int]) -> None:
        """All directories are away, or one of each broker."""
        found = [self._brokers.data_dirs(broker) for broker in brokers]
        number = fault.partition % (len(found[0]) + 1)
        taken = [each for directories in found for each in (directories[number : number + 1] or directories)]
        end = self._take_apart(fault, brokers, lambda: unmount(taken))
        self._at(time.monotonic() + fault.for_s, end)

    def _stock(self, fault: Fault, brokers: list[int]) -> None:
        """Brokers end, and a copy is taken."""
        if fault.both_ways:
            for broker in brokers:
                self._brokers.ask_to_end(broker)
            for broker in brokers:
                self._brokers.wait_until_ended(broker)
        made: list[Stock] = []
        directories = [each for broker in brokers for each in self._brokers.data_dirs(broker)]
        self._restart(fault, brokers, lambda: made.append(Stock(directories, self._place("stock"))), "saved")
        again = partial(self._put_back, fault, made[0])
        self._at(time.monotonic() + fault.for_s, lambda: self._once_in_sync(fault, brokers, again))

    def _put_back(self, fault: Fault, stock: Stock, brokers: list[int]) -> None:
        if len(brokers) > 1:
            end = self._take_apart(fault, brokers, stock.put_back_for_a_while)
            self._at(time.monotonic() + OLD_FOR_S, end)
        else:
            self._restart(fault, brokers, lambda: stock.put_back(in_place=fault.partition % 2 == 0))

    def _copy(self, fault: Fault, broker: int) -> None:
        """A broker of the copy is started, or all."""
        started = [broker] if fault.both_ways else self._brokers.ids
        self._note(fault, started)
        copy = CopiedCluster(self._brokers, self._place("copy"), started)
        self._copies.append(copy)
        self._at(time.monotonic() + fault.for_s, copy.end)

    def _save_registry(self, fault: Fault, brokers: list[int]) -> None:
        made: list[Registry] = []
        self._restart(fault, brokers, lambda: made.append(Registry(self._brokers, self._place("registry"))), "saved")
        again = partial(self._put_registry_back, fault, made[0])
        self._at(time.monotonic() + fault.for_s, lambda: self._once_live(fault, brokers, again))

    def _put_registry_back(self, fault: Fault, registry: Registry, brokers: list[int]) -> None:
        told: dict[int, int] = {}

        def put_back() -> Callable[[], None]:
            told.update((broker, len(self._brokers.output(broker))) for broker in brokers)
            registry.put_back()
            return registry.recover

        end = self._take_apart(fault, brokers, put_back)
        self._recover_once_refused(told, end, time.monotonic() + REFUSED_TIMEOUT_S)

    def _recover_once_refused(self, told: dict[int, int], end: Callable[[], None], until_s: float) -> None:
        """Every start is refused, and names what the operator has to do."""
        silent = [
            broker
            for broker, before in told.items()
            if self._brokers.running(broker) or "cluster recover" not in self._brokers.output(broker)[before:]
        ]
        if silent and time.monotonic() < until_s:
            self._at(time.monotonic() + 0.1, partial(self._recover_once_refused, told, end, until_s))
            return
        self.failures += [f"broker {broker} did not refuse an old registry" for broker in silent]
        end()

    def _take_apart(
        self, fault: Fault, brokers: list[int], change: Callable[[], Callable[[], None]]
    ) -> Callable[[], None]:
        """Starts brokers with other directories than they had. Returns what gives them theirs back: in some rounds all
        brokers are killed for that, and those that get their own are alone for a while."""
        ends: list[Callable[[], None]] = []
        self._apart = True
        self._brokers.doubtful.update(brokers)
        self._restart(fault, brokers, lambda: ends.append(change()))

        def give_back() -> None:
            ends[0]()
            self._brokers.doubtful.difference_update(brokers)  # those that were refused are known to be by now
            self._apart = False

        others = [] if fault.both_ways else [broker for broker in self._brokers.ids if broker not in brokers]

        def end() -> None:
            for other in others:
                if self._brokers.running(other):
                    self._brokers.kill(other)
                self._start_at(time.monotonic() + ALONE_S, (self._brokers, other))
            self._restart(fault, brokers, give_back, f"given back{', alone' if others else ''}")

        return end

    def _restart(self, fault: Fault, brokers: list[int], change: Callable[[], object], what: str = "") -> None:
        """Kills brokers, changes something, and starts them."""
        self._note(fault, brokers, what)
        self._note_failover(fault, brokers)
        for broker in brokers:
            if self._brokers.running(broker):
                self._brokers.kill(broker)
        change()
        for broker in brokers:
            self._brokers.start(broker)

    def _note(self, fault: Fault, brokers: list[int], what: str = "") -> None:
        names = ",".join(map(str, brokers))
        refused = "".join(f", {broker} refused with {code}" for broker, code in self._brokers.refused.items())
        now = time.monotonic() - self._began_s
        self.done.append(f"{fault.role.value} {names} {what or fault.deed.value} at {now:.1f}{refused}")

    def _place(self, name: str) -> Path:
        return self._brokers.root / f"{name}-{next(self._places)}"

    def _once_live(self, fault: Fault, brokers: list[int], deed: Callable[[list[int]], None]) -> None:
        """A process that runs may not be registered yet: then the registry that was saved before is no old one."""
        self._once(fault, brokers, deed, self._all_live, 0.0)

    def _once_in_sync(self, fault: Fault, brokers: list[int], deed: Callable[[list[int]], None]) -> None:
        self._once(fault, brokers, deed, self._all_in_sync, SETTLED_S)

    def _once(
        self,
        fault: Fault,
        brokers: list[int],
        deed: Callable[[list[int]], None],
        is_so: Callable[[], bool],
        settled_s: float,
    ) -> None:
        """Does something to brokers when a condition has held for a while, and all have their own directories."""
        until_s = time.monotonic() + SYNC_TIMEOUT_S
        since_s: float | None = None

        def look() -> None:
            nonlocal since_s
            now = time.monotonic()
            if self._apart or not is_so():
                since_s = None
            elif since_s is None:
                since_s = now
            if since_s is not None and now >= since_s + settled_s:
                deed(brokers)
            elif now < until_s:
                self._at(now + 0.2, look)
            else:
                self.done.append(
                    f"broker {','.join(map(str, brokers))} not {fault.deed.value}, as not all were in sync"
                )

        look()

    def _start_at(self, at_s: float, target: Target) -> None:
        processes, number = target

        def start() -> None:
            if not processes.running(number):
                processes.start(number)

        self._at(at_s, start)

    # --- who has which role -----------------------------------------------------------------------------------------

    def _all_live(self) -> bool:
        ids = self._brokers.ids
        return self._brokers.reachable == ids and len(self._brokers.describe().brokers) == len(ids)

    def _all_in_sync(self) -> bool:
        if self._brokers.reachable != self._brokers.ids:
            return False
        try:
            return not any(self._brokers.out_of_sync(broker) for broker in self._brokers.ids)
        except BarnabasError:
            return False

    def _targets(self, fault: Fault) -> tuple[list[int], list[int]]:
        """Returns the brokers and the ZooKeepers that a fault hits."""
        zookeepers = self._brokers.zookeepers
        if zookeepers is None or fault.role not in ZOOKEEPER:
            return self._brokers_with_role(fault), []
        found = zookeepers.reachable
        if fault.role is Role.QUORUM:
            most = len(zookeepers.ids) // 2 + 1
            return [], found[:most] if fault.partition % 2 else found[-most:]
        if fault.role is Role.ZOOKEEPER_LEADER:
            return [], found[:1]
        controller = self._controller()
        return [controller] if controller in self._brokers.reachable else [], found[:1]

    def _brokers_with_role(self, fault: Fault) -> list[int]:
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
        if not self._brokers.reachable:
            return
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
