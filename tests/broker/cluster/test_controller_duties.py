"""The controller and the other brokers: heartbeats, fencing, and what a broker must know before it is live again."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster import controller_duties
from barnabas.broker.cluster.controller_duties import ControllerDuties
from barnabas.broker.process.failure_log import FailureLog
from barnabas.broker.requests.late_responses import run_handler
from barnabas.clock import SYSTEM_CLOCK
from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import Endpoint
from barnabas.errors import RequestTimedOut, StaleBrokerEpoch
from barnabas.metadata.delta import MetadataChange, MetadataDelta
from barnabas.metadata.image import CONSUMER_OFFSETS, BrokerImage, MetadataImage
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.types import BrokerId

ME, OTHER = BrokerId(1), BrokerId(2)
SESSION_S = 9.0


class Rig:
    """A controller, and one other broker in epoch 7. Each change of the metadata is one version."""

    def __init__(self, *, fenced: bool = True, endpoint: Endpoint | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.endpoint = endpoint
        self.connects = 0
        self.is_registry_there = True
        self.failures = FailureLog(logging.getLogger(__name__), SYSTEM_CLOCK)
        self.now = 100.0
        self.fences: list[str] = []
        self.silent_s = 0.0
        others = BrokerImage(OTHER, 7, (), fenced=fenced, peer_endpoint=endpoint)
        self.image = MetadataImage("c", version=10, brokers={ME: BrokerImage(ME, 5, ()), OTHER: others})
        self.node_id = ME
        self.config = SimpleNamespace(broker_session_timeout_ms=int(SESSION_S * 1000))
        self.clock = SimpleNamespace(monotonic=lambda: self.now)
        self.controller = self
        self.duties = ControllerDuties(
            self,  # type: ignore[arg-type]
            SimpleNamespace(connect=self.connect, send=lambda *_, **__: self.loop.create_future()),  # type: ignore[arg-type]
            SimpleNamespace(watch=lambda process, exited: lambda: None),  # type: ignore[arg-type]
        )

    async def call(self, action: Callable[[Any], None], *, until_known: bool) -> None:
        action(self)

    def connect(self, node_id: int) -> None:
        assert node_id == OTHER
        self.connects += 1

    def refresh(self) -> None: ...

    def fence(self, node_id: BrokerId, epoch: int, reason: str, silent_s: float = 0.0) -> None:
        self.fences.append(reason)
        self.silent_s = silent_s
        if not self.is_registry_there:
            raise RequestTimedOut("the registry does not respond")
        self.change(fenced=True)

    def unfence(self, node_id: BrokerId, epoch: int) -> None:
        self.change(fenced=False)

    def change(self, *, fenced: bool, epoch: int = 7) -> None:
        """The other broker in the next version."""
        image = self.image
        other = BrokerImage(OTHER, epoch, (), fenced=fenced, peer_endpoint=self.endpoint)
        brokers = {**image.brokers, OTHER: other}
        self.image = MetadataImage("c", version=image.version + 1, brokers=brokers)
        self.duties.image_changed(MetadataChange(self.image, brokers=frozenset((OTHER,))))

    def lose(self) -> None:
        """A connection with the other broker ends."""
        self.duties.connection_lost(self.image.brokers[OTHER])

    def fail(self, *, refused: bool, epoch: int = 7) -> None:
        """A connection to the other broker cannot be made."""
        self.duties.unreached(BrokerImage(OTHER, epoch, ()), refused=refused)

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
    assert rig.silent_s == 9.5


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


# --- the controller of a minority ------------------------------------------------------------------------------------


class Minority:
    """A controller among live brokers, in a session of 9 seconds."""

    def __init__(
        self,
        *others: int,
        may_resign: bool = True,
        fenced: Collection[int] = (),
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.now = 0.0
        self.done: list[str] = []
        self.answer: asyncio.Future[None] | None = None
        """What the registry waits for before it answers."""
        self.failures = FailureLog(logging.getLogger(__name__), SYSTEM_CLOCK)
        brokers = [BrokerImage(BrokerId(node_id), 1, (), fenced=node_id in fenced) for node_id in (ME, *others)]
        self.image = MetadataImage(
            "c", version=10, brokers={each.node_id: each for each in brokers}, topic_configs=topic_configs or {}
        )
        self.loop = asyncio.new_event_loop()
        broker = SimpleNamespace(
            node_id=ME,
            image=self.image,
            loop=self.loop,
            log=logging.getLogger(__name__),
            config=BrokerConfig.of(
                {"broker.session.timeout.ms": str(int(SESSION_S * 1000)), "min.insync.replicas": "3"}
            ),
            clock=SimpleNamespace(monotonic=lambda: self.now),
            controller=self,
            failures=self.failures,
        )
        liveness = SimpleNamespace(watch=lambda process, exited: lambda: None)
        self.duties = ControllerDuties(broker, None, liveness, may_resign=may_resign)  # type: ignore[arg-type]

    async def call(self, action: Callable[[Any], None], *, until_known: bool) -> None:
        action(self)
        if self.answer is not None:
            await self.answer

    def fence(self, node_id: BrokerId, epoch: int, reason: str, silent_s: float = 0.0) -> None:
        self.done.append(f"fence {node_id}")

    def resign(self, hold_s: float) -> None:
        assert hold_s == SESSION_S
        self.done.append("resign")

    def pass_interval(self) -> None:
        self.now += 0.5
        self.duties.check_sessions()

    def pass_session(self, *heard: int) -> list[str]:
        """Returns what the controller does when the sessions of the others have just timed out."""
        end = self.now + SESSION_S + 0.5
        while self.now < end:
            for node_id in heard:
                request = BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=1, current_metadata_offset=10)
                run_handler(self.loop, self.duties.heartbeat(request))
            self.pass_interval()
        return self.done

    def answer_with(self, result: RequestTimedOut | None) -> None:
        """The registry answers, or the call ends without an answer."""
        assert self.answer is not None
        waiting, self.answer = self.answer, self.loop.create_future()
        if result is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(result)
        self.loop.run_until_complete(asyncio.sleep(0))

    def close(self) -> None:
        self.loop.close()


@pytest.mark.parametrize(
    ("others", "heard", "expected"),
    [
        ((2,), (), ["fence 2"]),
        ((2, 3), (), ["resign"]),
        ((2, 3), (2,), ["fence 3"]),
        ((2, 3, 4), (2,), ["fence 3", "fence 4"]),
        ((2, 3, 4), (), ["resign"]),
        ((2, 3, 4, 5), (2,), ["resign"]),
        ((2, 3, 4, 5), (2, 3), ["fence 4", "fence 5"]),
    ],
)
def test_a_controller_that_hears_of_less_than_half_resigns(
    others: tuple[int, ...], heard: tuple[int, ...], expected: list[str]
) -> None:
    minority = Minority(*others)
    assert minority.pass_session(*heard)[: len(expected)] == expected
    assert minority.duties.has_resigned == (expected == ["resign"])
    minority.close()


@pytest.mark.parametrize(
    ("others", "fenced", "heard", "least_in_sync", "expected"),
    [
        ((), (), (), "1", True),
        ((2,), (), (), "1", False),
        ((2,), (), (2,), "1", True),
        ((2, 3), (), (2,), "1", False),
        ((2, 3), (), (2,), "2", True),
        ((2, 3), (2, 3), (), "2", False),
        ((2, 3, 4, 5), (), (2, 3), "2", False),
        ((2, 3, 4, 5), (), (2, 3, 4), "2", True),
    ],
)
def test_enough_brokers_are_heard_of_if_the_others_cannot_commit(
    others: tuple[int, ...], fenced: tuple[int, ...], heard: tuple[int, ...], least_in_sync: str, expected: bool
) -> None:
    minority = Minority(
        *others,
        may_resign=False,
        fenced=fenced,
        topic_configs={CONSUMER_OFFSETS: {"min.insync.replicas": least_in_sync}},
    )
    minority.pass_session(*heard)
    assert minority.duties.hears_of_enough(1.0) == expected
    assert minority.duties.hears_of_enough(0.1) == (not others)
    minority.close()


def test_a_controller_that_nobody_followed_fences_the_others() -> None:
    minority = Minority(2, 3, may_resign=False)
    assert sorted(minority.pass_session()) == ["fence 2", "fence 3"]
    assert not minority.duties.has_resigned
    minority.close()


def test_a_resignation_without_an_answer_is_tried_again_and_fences_nobody() -> None:
    minority = Minority(2, 3)
    minority.answer = minority.loop.create_future()
    assert minority.pass_session() == ["resign"]
    for tries in range(1, 4):
        assert minority.pass_session() == ["resign"] * tries, "the call before has no answer yet"
        minority.answer_with(RequestTimedOut("the registry does not respond"))
        minority.pass_interval()
        assert minority.done == ["resign"] * (tries + 1)
    minority.answer_with(None)
    assert minority.duties.has_resigned
    minority.close()


def test_a_controller_that_hears_of_the_others_again_has_not_resigned() -> None:
    minority = Minority(2, 3)
    minority.answer = minority.loop.create_future()
    minority.pass_session()
    minority.answer_with(RequestTimedOut("the registry does not respond"))
    assert minority.pass_session(2, 3) == ["resign"]
    assert not minority.duties.has_resigned, "it may resign in its next term"
    assert minority.pass_session() == ["resign", "resign"]
    minority.close()


# --- connections -----------------------------------------------------------------------------------------------------


@pytest.fixture
def live() -> Iterator[Rig]:
    """The other broker is live, and was heard of since this broker is the controller."""
    live = Rig(fenced=False, endpoint=Endpoint("BROKERS", "SASL_PLAINTEXT", "host", 1))
    live.beat(10)
    live.connects = 0
    yield live
    live.duties.close()
    live.loop.close()


def test_a_broker_whose_host_refuses_connections_after_one_has_ended_is_fenced(live: Rig) -> None:
    live.lose()
    assert live.connects == 1
    live.fail(refused=False)
    assert (live.connects, live.fences) == (2, []), "the kernel may not have closed its listener yet"
    live.fail(refused=True)
    assert live.fences == ["its connections have ended, and its host refuses others"]
    assert live.is_fenced
    live.fail(refused=True)
    assert (live.connects, len(live.fences)) == (2, 1)


def test_connections_that_are_refused_alone_fence_nobody(live: Rig) -> None:
    live.fail(refused=True)
    assert (live.connects, live.fences) == (0, [])


def test_a_broker_that_is_heard_of_after_its_connection_has_ended_is_live(live: Rig) -> None:
    live.lose()
    live.beat(10)
    live.fail(refused=True)
    live.fail(refused=False)
    assert (live.connects, live.fences) == (1, [])


def test_what_is_seen_of_a_former_registration_fences_nobody(live: Rig) -> None:
    live.lose()
    live.change(fenced=False, epoch=8)
    live.fail(refused=True, epoch=7)
    live.fail(refused=True, epoch=8)
    assert live.fences == []


def test_a_host_that_does_not_answer_has_a_session(live: Rig) -> None:
    live.lose()
    for _ in range(10):
        live.fail(refused=False)
    live.check_after(SESSION_S)
    assert live.fences == []
    live.check_after(0.5)
    assert live.fences == ["nothing was heard of it for 9000 ms"]
    live.fail(refused=False)
    assert live.connects == 11, "nobody looks for a broker that is fenced"


def test_fencing_that_the_registry_does_not_take_is_tried_again(live: Rig) -> None:
    live.lose()
    live.is_registry_there = False
    live.fail(refused=True)
    live.fail(refused=True)
    assert (live.connects, len(live.fences), live.is_fenced) == (3, 2, False)
    live.is_registry_there = True
    live.fail(refused=True)
    assert live.is_fenced


def test_a_registry_that_takes_its_time_is_asked_once(live: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[asyncio.Future[None]] = []

    async def call(action: Callable[[Any], None], *, until_known: bool) -> None:
        answers.append(live.loop.create_future())
        await answers[-1]
        action(live)

    monkeypatch.setattr(live, "call", call)
    live.check_after(SESSION_S + 5)
    assert len(answers) == 1
    answers[0].set_exception(RequestTimedOut("the registry does not respond"))
    live.loop.run_until_complete(asyncio.sleep(0))
    live.check_after(5)
    assert len(answers) == 2
    answers[1].set_result(None)
    live.loop.run_until_complete(asyncio.sleep(0))
    assert live.is_fenced


def test_a_new_controller_looks_for_all_brokers_that_it_has_not_heard_of() -> None:
    rig = Rig(fenced=False, endpoint=Endpoint("BROKERS", "SASL_PLAINTEXT", "host", 1))
    assert rig.connects == 1
    rig.fail(refused=True)
    assert rig.is_fenced, "it has died together with the former controller"
    rig.duties.close()
    rig.loop.close()


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
