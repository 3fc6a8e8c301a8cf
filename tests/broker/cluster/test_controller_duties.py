"""The controller and the other brokers: heartbeats, fencing, and what a broker must know before it is live again."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster.controller_duties import ControllerDuties
from barnabas.broker.requests.late_responses import run_handler
from barnabas.errors import StaleBrokerEpoch
from barnabas.metadata.delta import MetadataChange
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
