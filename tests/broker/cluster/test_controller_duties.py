"""The controller and the other brokers: heartbeats, fencing, and what a broker must know before it is live again."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster import controller_duties
from barnabas.broker.cluster.controller_duties import ControllerDuties
from barnabas.broker.requests.late_responses import run_handler
from barnabas.errors import StaleBrokerEpoch
from barnabas.metadata.delta import MetadataChange, MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.types import BrokerId

ME, OTHER = BrokerId(1), BrokerId(2)
SESSION_S = 9.0


class Rig:
    """A controller, and one other broker in epoch 7. Each change of the metadata is one version."""

    def __init__(self, *, fenced: bool = True) -> None:
        self.loop = asyncio.new_event_loop()
        self.now = 100.0
        self.fences: list[str] = []
        others = BrokerImage(OTHER, 7, (), fenced=fenced)
        self.image = MetadataImage("c", version=10, brokers={ME: BrokerImage(ME, 5, ()), OTHER: others})
        self.node_id = ME
        self.config = SimpleNamespace(broker_session_timeout_ms=int(SESSION_S * 1000))
        self.clock = SimpleNamespace(monotonic=lambda: self.now)
        self.controller = self
        self.duties = ControllerDuties(
            self,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            SimpleNamespace(watch=lambda process, exited: lambda: None),  # type: ignore[arg-type]
        )

    async def call(self, action: Callable[[Any], None], *, until_known: bool) -> None:
        action(self)

    def refresh(self) -> None: ...

    def fence(self, node_id: BrokerId, epoch: int, reason: str) -> None:
        self.fences.append(reason)
        self.change(fenced=True)

    def unfence(self, node_id: BrokerId, epoch: int) -> None:
        self.change(fenced=False)

    def change(self, *, fenced: bool, epoch: int = 7) -> None:
        """The other broker in the next version."""
        image = self.image
        brokers = {**image.brokers, OTHER: BrokerImage(OTHER, epoch, (), fenced=fenced)}
        self.image = MetadataImage("c", version=image.version + 1, brokers=brokers)
        self.duties.image_changed(MetadataChange(self.image, brokers=frozenset((OTHER,))))

    @property
    def is_fenced(self) -> bool:
        return self.image.brokers[OTHER].fenced

    def beat(self, version: int, *, epoch: int = 7, stops: bool = False) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=OTHER, broker_epoch=epoch, current_metadata_offset=version, want_shut_down=stops
        )
        response = run_handler(self.loop, self.duties.heartbeat(request))
        assert isinstance(response, BrokerHeartbeatResponse)
        return response

    def check_after(self, seconds: float) -> None:
        """The time passes with the checks that belong to it."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 0.5, end)
            self.duties.check_sessions()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.duties.close()
    rig.loop.close()


def test_a_broker_is_live_when_it_knows_of_its_fencing(rig: Rig) -> None:
    answer = rig.beat(9)
    assert (answer.is_fenced, answer.is_caught_up) == (True, False)
    assert rig.is_fenced
    answer = rig.beat(10)
    assert (answer.is_fenced, answer.is_caught_up) == (False, True)
    assert not rig.is_fenced


def test_later_changes_do_not_keep_a_broker_fenced(rig: Rig) -> None:
    for _ in range(3):
        rig.change(fenced=True)
    assert not rig.beat(10).is_fenced


def test_a_broker_that_is_fenced_again_must_know_of_that(rig: Rig) -> None:
    assert not rig.beat(10).is_fenced
    rig.change(fenced=True)
    assert rig.beat(11).is_fenced, "11 is the version in which it was live"
    assert not rig.beat(12).is_fenced


def test_a_broker_that_registers_again_must_know_of_that(rig: Rig) -> None:
    rig.change(fenced=True, epoch=8)
    with pytest.raises(StaleBrokerEpoch):
        rig.beat(11)
    assert rig.beat(10, epoch=8).is_fenced
    assert rig.beat(11, epoch=8).is_caught_up


def test_a_broker_that_stops_is_fenced_whatever_it_knows(rig: Rig) -> None:
    assert rig.beat(0, stops=True).should_shut_down
    rig.beat(10)
    answer = rig.beat(0, stops=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert rig.fences == ["it stops"]


def test_a_broker_that_is_not_heard_of_is_fenced(rig: Rig) -> None:
    rig.beat(10)
    rig.check_after(SESSION_S)
    assert rig.fences == []
    rig.check_after(0.5)
    assert rig.fences == ["nothing was heard of it for 9000 ms"]


def test_heartbeats_keep_a_broker_live(rig: Rig) -> None:
    for _ in range(10):
        rig.beat(10)
        rig.check_after(SESSION_S - 1)
    assert rig.fences == []


def test_a_controller_that_stood_still_suspects_nobody_at_once(rig: Rig) -> None:
    rig.beat(10)
    rig.now += 60
    rig.duties.check_sessions()
    assert rig.fences == []
    rig.check_after(SESSION_S)
    assert rig.fences == []
    rig.check_after(0.5)
    assert len(rig.fences) == 1


# --- processes -------------------------------------------------------------------------------------------------------


def registered(node_id: int, epoch: int, **changes: Any) -> BrokerImage:
    return BrokerImage(BrokerId(node_id), epoch, (), process=f"process of {node_id} in {epoch}")._replace(**changes)


class Watched:
    """A controller with brokers whose processes it watches. `processes` has what is watched now."""

    def __init__(self, *brokers: BrokerImage) -> None:
        self.processes: dict[str, Callable[[], None]] = {}
        self.checks = 0
        self.image = MetadataImage("c", version=1, brokers={broker.node_id: broker for broker in brokers})
        broker = SimpleNamespace(
            node_id=ME,
            loop=None,
            config=SimpleNamespace(broker_session_timeout_ms=9000),
            clock=SimpleNamespace(monotonic=lambda: 0.0),
            controller=self,
        )
        self.broker = broker
        broker.image = self.image
        self.duties = ControllerDuties(broker, None, self)  # type: ignore[arg-type]

    def watch(self, process: str, exited: Callable[[], None]) -> Callable[[], None]:
        assert process not in self.processes
        self.processes[process] = exited
        return lambda: self.processes.pop(process, None) and None

    def check(self) -> None:
        self.checks += 1

    def register(self, *brokers: BrokerImage) -> None:
        delta = MetadataDelta(self.image)
        for each in brokers:
            delta.put_broker(each)
        change = delta.apply(self.image.version + 1)
        self.image = self.broker.image = change.image
        self.duties.image_changed(change)

    def is_dead(self, node_id: int) -> bool:
        return self.duties._is_dead(BrokerId(node_id))


def test_the_processes_of_the_others_are_watched() -> None:
    controller = Watched(registered(1, 1), registered(2, 2), registered(3, 3, process=""))
    assert set(controller.processes) == {"process of 2 in 2"}
    controller.register(registered(3, 4), registered(2, 2, fenced=True))
    assert set(controller.processes) == {"process of 2 in 2", "process of 3 in 4"}
    controller.register(registered(2, 5))
    assert set(controller.processes) == {"process of 2 in 5", "process of 3 in 4"}
    controller.duties.close()
    assert controller.processes == {}


def test_a_dead_broker_gets_nothing_until_it_registers_again() -> None:
    controller = Watched(registered(1, 1), registered(2, 2), registered(3, 3, process=""))
    assert [controller.is_dead(node_id) for node_id in (1, 2, 3, 4)] == [False, False, True, True]
    controller.processes["process of 2 in 2"]()
    assert controller.checks == 1, "the controller fences those that are dead"
    assert controller.is_dead(2)
    controller.register(registered(2, 2, fenced=True))
    assert controller.is_dead(2)
    controller.register(registered(2, 5))
    assert not controller.is_dead(2)


def test_former_registrations_are_forgotten() -> None:
    controller = Watched(registered(1, 1), registered(2, 2))
    for epoch in range(2, 50):
        controller.processes[f"process of 2 in {epoch}"]()
        controller.register(registered(2, epoch + 1))
    assert len(controller.duties._dead) <= 1


def test_a_registration_that_the_image_does_not_have_yet_is_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rig, "refresh", lambda self: self.change(fenced=True, epoch=8), raising=True)
    monkeypatch.setattr(Rig, "call", _call)
    assert rig.beat(0, epoch=8).is_fenced, "it does not know of its fencing yet"
    assert not rig.beat(11, epoch=8).is_fenced


async def _call(self: Rig, action: Callable[[Any], None], *, until_known: bool) -> None:
    if action is controller_duties.Controller.refresh:  # not of this class
        self.refresh()
    else:
        action(self)
