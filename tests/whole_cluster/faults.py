"""The faults of a simulated cluster, drawn by its random numbers."""

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.registry.zookeeper import znodes
from whole_cluster.brokers import Machine
from whole_cluster.cluster import NODE_IDS, Cluster
from whole_cluster.invariants import Invariants

__all__ = ["WEIGHTS", "Faults"]

AT_ONCE_S: Final = (0.0, 0.0002, 0.01)
DOWN_S: Final = 1.5
AWAY_S: Final = 4.0
PAUSED_S: Final = 3.0
CUT_S: Final = 3.0
SLOW_S: Final = 2.0
LOST_SHARE: Final = 0.001
WEIGHTS: Final[Mapping[str, int]] = {
    "kill": 3,
    "restart": 2,
    "stop": 2,
    "wipe": 2,
    "wipe at once": 1,
    "pause": 2,
    "cut one way": 2,
    "cut": 2,
    "isolate": 2,
    "power": 2,
    "blackout": 0,
    "slow link": 1,
    "slow broker": 1,
    "kill two": 1,
    "old copy": 0,
    "unmount": 0,
    "unmount all": 0,
    "kill all": 0,
}
WEIGHTS_WITH_ZOOKEEPER: Final[Mapping[str, int]] = {
    **WEIGHTS,
    "cut from ZooKeeper": 3,
    "isolate from all": 2,
    "quorum": 1,
    "session": 2,
    "controller node": 1,
}


class Faults:
    """Injects faults for a while. At most one broker is down at a time, most of the time."""

    def __init__(
        self, cluster: Cluster, invariants: Invariants, mean_interval_s: float, weights: Mapping[str, int]
    ) -> None:
        """`weights` replaces the usual weights of some kinds of faults."""
        self._cluster = cluster
        self._invariants = invariants
        self._world = cluster.world
        self._interval_s = mean_interval_s
        self._is_over = False
        self._weights = {**(WEIGHTS if cluster.zookeeper is None else WEIGHTS_WITH_ZOOKEEPER), **weights}
        self._kinds: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "restart": self._restart_at_once,
            "stop": self._stop,
            "wipe": self._wipe,
            "wipe at once": self._wipe_and_restart_at_once,
            "pause": self._pause,
            "cut one way": self._cut_one_way,
            "cut": self._cut_both_ways,
            "isolate": self._isolate,
            "power": self._lose_power,
            "blackout": self._black_out,
            "slow link": self._slow_link,
            "slow broker": self._slow_broker,
            "kill two": self._kill_two,
            "old copy": self._put_copy_back,
            "unmount": self._unmount,
            "unmount all": self._unmount_all,
            "kill all": self._kill_all,
            "cut from ZooKeeper": lambda: self._cut_from_zookeeper(self._some().name),
            "isolate from all": self._isolate_from_all,
            "quorum": self._end_quorum,
            "session": self._end_session,
            "controller node": self._delete_controller,
        }

    def begin(self) -> None:
        if self._cluster.zookeeper is not None:
            self._cluster.zookeeper.lost_share = LOST_SHARE
        self._plan()

    def _plan(self) -> None:
        self._world.after(self._world.random.random() * 2 * self._interval_s, self._next)

    def _next(self) -> None:
        if self._is_over:
            return
        kind = self._world.random.choices(list(self._weights), list(self._weights.values()))[0]
        self._kinds[kind]()
        self._plan()

    def heal(self) -> None:
        """Ends all faults, and starts the brokers that are down."""
        self._is_over = True
        self._world.note("heal")
        self._cluster.network.mend()
        if self._cluster.zookeeper is not None:
            self._cluster.zookeeper.cut.clear()
            self._cluster.zookeeper.has_quorum = True
            self._cluster.zookeeper.lost_share = 0.0
        for machine in self._cluster.machines.values():
            self._go_on(machine)
            self._mount(machine)
            machine.start()

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _some(self) -> Machine:
        return self._cluster.machines[self._world.random.choice(NODE_IDS)]

    def _later(self, mean_s: float, event: Callable[[], None]) -> None:
        self._world.after(self._world.random.random() * 2 * mean_s, event)

    @staticmethod
    def _go_on(machine: Machine) -> None:
        if machine.host is not None:
            machine.host.slowness = 1.0
            machine.host.resume()

    def _is_safe_to_lose(self, machine: Machine) -> bool:
        """Whether each partition has another in-sync replica, by the registry.

        With ZooKeeper the death of a broker is noticed late, and another one that returns meanwhile leaves the ISR. So
        one loss has to be noticed before the next: ISRs of two may be all that is left."""
        others = {
            str(node_id)
            for node_id in NODE_IDS
            if node_id != machine.node_id and not self._invariants.has_unnoticed_loss(node_id)
        }
        if self._cluster.zookeeper is not None and len(others) < len(NODE_IDS) - 1:
            return False
        return all(others & isr for isr in self._cluster.registry.in_sync_replicas())

    # --- faults -----------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        machine = self._some()
        if machine.broker is not None:
            machine.kill()
            self._later(DOWN_S, machine.start)

    def _restart_at_once(self) -> None:
        machine = self._some()
        if machine.broker is not None:
            machine.kill()
            self._world.after(self._world.random.choice(AT_ONCE_S), machine.start)

    def _kill_two(self) -> None:
        self._kill()
        self._kill()

    def _stop(self) -> None:
        machine = self._some()
        if machine.broker is not None and machine.host is not None and not machine.host.paused:
            machine.stop()
            self._later(DOWN_S * 2, machine.start)

    def _wipe(self) -> None:
        machine = self._some()
        if self._kill_and_wipe(machine):
            self._later(DOWN_S, machine.start)

    def _wipe_and_restart_at_once(self) -> None:
        """What the broker has sent before may arrive after its next registration."""
        machine = self._some()
        if self._kill_and_wipe(machine):
            self._world.after(self._world.random.choice(AT_ONCE_S), machine.start)

    def _kill_and_wipe(self, machine: Machine) -> bool:
        """Wipes the disk of a broker unless it has the last copy of something. Returns False if it is down already."""
        if machine.broker is None:
            return False
        machine.kill()
        if self._is_safe_to_lose(machine):
            machine.wipe()
        return True

    def _put_copy_back(self) -> None:
        """An old copy takes the place of a broker's data, which are copied for the next time otherwise."""
        machine = self._some()
        if machine.broker is None or machine.is_away:
            return
        machine.kill()
        if machine.has_copy and self._is_safe_to_lose(machine):
            machine.put_copy_back()
        elif not machine.has_lost_records:
            machine.copy()
        self._world.after(self._world.random.choice((*AT_ONCE_S, DOWN_S)), machine.start)

    def _unmount(self, machine: Machine | None = None) -> None:
        """A broker starts without its disk, which comes back later."""
        machine = machine or self._some()
        if machine.broker is None or machine.is_away:
            return
        machine.kill()
        machine.unmount()
        self._later(DOWN_S, machine.start)
        self._later(AWAY_S, lambda: self._mount(machine))

    def _unmount_all(self) -> None:
        for machine in self._cluster.machines.values():
            self._unmount(machine)

    def _mount(self, machine: Machine) -> None:
        if not machine.is_away:
            return
        machine.kill()
        if machine.has_begun_anew and not self._is_safe_to_lose(machine):
            machine.leave_away()
        else:
            machine.mount()
        self._later(DOWN_S, machine.start)

    def _kill_all(self) -> None:
        """Whoever starts first sees nobody. Disks that are away come back."""
        for machine in self._cluster.machines.values():
            machine.kill()
        for machine in self._cluster.machines.values():
            self._mount(machine)
            self._later(DOWN_S, machine.start)

    def _lose_power(self) -> None:
        machine = self._some()
        if machine.broker is not None:
            machine.kill()
            if self._cluster.keeps_synced_records or self._is_safe_to_lose(machine):
                machine.lose_power()
            self._later(DOWN_S, machine.start)

    def _black_out(self) -> None:
        """All brokers lose their power at once. Only records that are synced survive that."""
        running = [machine for machine in self._cluster.machines.values() if machine.broker is not None]
        for machine in running:
            machine.kill()
        for machine in running:
            machine.lose_power()
            self._later(DOWN_S, machine.start)

    def _pause(self) -> None:
        machine = self._some()
        host = machine.host
        if machine.broker is not None and host is not None:
            self._world.note(f"pause {machine.name}")
            host.pause()
            self._later(PAUSED_S, lambda: self._resume(machine))

    def _resume(self, machine: Machine) -> None:
        self._world.note(f"resume {machine.name}")
        self._go_on(machine)

    def _cut(self, *pairs: tuple[str, str]) -> None:
        for source, target in pairs:
            self._world.note(f"cut {source}>{target}")
            self._cluster.network.cut(source, target)
            self._later(CUT_S, lambda source=source, target=target: self._cluster.network.mend_link(source, target))

    def _two(self) -> tuple[str, str]:
        one, other = self._world.random.sample(NODE_IDS, 2)
        return f"b{one}", f"b{other}"

    def _cut_one_way(self) -> None:
        self._cut(self._two())

    def _cut_both_ways(self) -> None:
        one, other = self._two()
        self._cut((one, other), (other, one))

    def _isolate(self) -> None:
        self._isolate_one(self._some().name)

    def _isolate_one(self, one: str) -> None:
        for other in (each.name for each in self._cluster.machines.values() if each.name != one):
            self._cut((one, other), (other, one))

    # --- faults of ZooKeeper ----------------------------------------------------------------------------------------

    def _cut_from_zookeeper(self, name: str) -> None:
        assert self._cluster.zookeeper is not None
        cut = self._cluster.zookeeper.cut
        self._world.note(f"cut {name} from ZooKeeper")
        cut.add(name)
        self._later(CUT_S, lambda: cut.discard(name))

    def _end_quorum(self) -> None:
        zookeeper = self._cluster.zookeeper
        assert zookeeper is not None
        self._world.note("ZooKeeper has no quorum")
        zookeeper.has_quorum = False
        self._later(CUT_S, lambda: setattr(zookeeper, "has_quorum", True))

    def _isolate_from_all(self) -> None:
        one = self._some().name
        self._cut_from_zookeeper(one)
        self._isolate_one(one)

    def _end_session(self) -> None:
        assert self._cluster.zookeeper is not None
        name = self._some().name
        self._world.note(f"end the session of {name}")
        self._cluster.zookeeper.end_session_of(name)

    def _delete_controller(self) -> None:
        assert self._cluster.zookeeper is not None
        path = self._world.random.choice((znodes.CONTROLLER, znodes.CONTROLLER_EPOCH))
        self._world.note(f"delete {path}")
        self._cluster.zookeeper.delete(path)

    # --- slowness ---------------------------------------------------------------------------------------------------

    def _slow_link(self) -> None:
        source, target = self._two()
        self._cluster.network.delays[source, target] = self._world.random.choice((0.01, 0.1, 0.6))
        self._later(SLOW_S, lambda: self._cluster.network.mend_link(source, target))

    def _slow_broker(self) -> None:
        machine = self._some()
        host = machine.host
        if host is not None:
            host.slowness = self._world.random.choice((10.0, 100.0, 1000.0))
            self._later(SLOW_S, lambda: self._go_on(machine))
