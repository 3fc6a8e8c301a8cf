"""The controller's pushes over connections that the test plays: one part in flight, lost answers, dead brokers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.broker.cluster import metadata_pushes
from barnabas.broker.cluster.metadata_messages import update_of
from barnabas.broker.cluster.metadata_pushes import MetadataPushes
from barnabas.broker.peers.peer_connections import Role
from barnabas.config.endpoints import Endpoint
from barnabas.errors import ConnectionLost, StaleControllerEpoch
from barnabas.metadata import update as update_module
from barnabas.metadata.delta import MetadataChange, MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.metadata.update import UpdateReceiver
from barnabas.protocol.peer_messages.push_metadata import PushMetadataRequest, PushMetadataResponse
from barnabas.types import BrokerId
from metadata.images import topic

INTERNAL = Endpoint("INTERNAL", "SASL_PLAINTEXT", "127.0.0.1", 9094)


def registered(node_id: int, epoch: int, **changes: Any) -> BrokerImage:
    return BrokerImage(BrokerId(node_id), epoch, (), peer_endpoint=INTERNAL, process=f"{node_id}")._replace(**changes)


class Peers:
    """Connections to brokers that take over what they receive, once the test lets them."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, PushMetadataRequest, asyncio.Future[PushMetadataResponse]]] = []
        self.receivers: dict[int, UpdateReceiver] = {}

    def send(self, node_id: int, request: Any, *, role: Role, timeout_s: float) -> "asyncio.Future[Any]":
        assert role is Role.CONTROL
        assert timeout_s > 0
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((node_id, request, future))
        return future

    def take(self) -> tuple[int, PushMetadataRequest, "asyncio.Future[PushMetadataResponse]"]:
        return self.sent.pop(0)

    async def deliver(self, *, answers: bool = True) -> int:
        """The broker of the oldest push takes it. Returns its node id."""
        node_id, request, future = self.take()
        receiver = self.receivers.setdefault(node_id, UpdateReceiver(MetadataImage("cluster")))
        receiver.receive(update_of(request))
        if answers:
            future.set_result(PushMetadataResponse(version=receiver.image.version))
        else:
            future.set_exception(ConnectionLost("reset"))
        await turns()
        return node_id

    async def deliver_all(self) -> None:
        while self.sent:
            await self.deliver()


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


class Controller:
    """The pushes of broker 1, and what they look at."""

    def __init__(self, *brokers: BrokerImage) -> None:
        self.peers = Peers()
        self.dead: set[int] = set()
        self.image = MetadataImage(
            "cluster",
            version=10,
            controller_id=BrokerId(1),
            controller_epoch=3,
            brokers={broker.node_id: broker for broker in (registered(1, 1), *brokers)},
        )
        self.pushes = MetadataPushes(
            self.image,
            BrokerId(1),
            self.peers,  # type: ignore[arg-type]
            asyncio.get_running_loop(),
            self.dead.__contains__,
        )

    def change(self, act: Callable[[MetadataDelta], None]) -> None:
        delta = MetadataDelta(self.image)
        act(delta)
        change: MetadataChange = delta.apply(self.image.version + 1)
        self.image = change.image
        self.pushes.image_changed(change)

    def create(self, name: str) -> None:
        self.change(lambda delta: delta.put_topic(topic(name, len(name))))

    def register(self, broker: BrokerImage) -> None:
        self.change(lambda delta: delta.put_broker(broker))

    def names_on(self, node_id: int) -> set[str]:
        return set(self.peers.receivers[node_id].image.topics)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_pushes, "BACKOFF_S", 0.001)
    monkeypatch.setattr(metadata_pushes, "BACKOFF_MAX_S", 0.002)


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110  # on plain values
        await asyncio.sleep(0.001)


def test_each_broker_gets_the_whole_image_then_what_changes() -> None:
    async def main() -> None:
        controller = Controller(registered(2, 2), registered(3, 3, fenced=True))
        peers = controller.peers
        assert [(node_id, push.from_version, push.version) for node_id, push, _ in peers.sent] == [
            (2, 0, 10),
            (3, 0, 10),
        ]
        await peers.deliver_all()
        assert set(peers.receivers[2].image.brokers) == {1, 2, 3}
        controller.create("a")
        node_id, push, _ = peers.sent[0]
        assert (node_id, push.from_version, push.version, [each.name for each in push.topics]) == (2, 10, 11, ["a"])
        await peers.deliver_all()
        assert controller.names_on(2) == controller.names_on(3) == {"a"}
        assert (peers.receivers[2].image.controller_id, peers.receivers[2].image.controller_epoch) == (1, 3)

    run(main)


def test_a_slow_broker_gets_what_has_changed_meanwhile_at_once() -> None:
    async def main() -> None:
        controller = Controller(registered(2, 2), registered(3, 3))
        peers = controller.peers
        await peers.deliver_all()
        controller.create("a")
        slow = next(index for index, (node_id, _, _) in enumerate(peers.sent) if node_id == 2)
        held = peers.sent.pop(slow)
        for name in ("bb", "ccc", "dddd"):
            await peers.deliver_all()
            controller.create(name)
        assert {node_id for node_id, _, _ in peers.sent} == {3}, "one push in flight"
        peers.sent.append(held)
        await peers.deliver_all()
        assert controller.names_on(2) == controller.names_on(3) == {"a", "bb", "ccc", "dddd"}

    run(main)


def test_a_large_update_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_module, "PART_WEIGHT_MAX", 1)

    async def main() -> None:
        controller = Controller(registered(2, 2))
        await controller.peers.deliver()
        assert set(controller.peers.receivers[2].image.brokers) == set(), "there are more parts"
        await controller.peers.deliver_all()
        assert set(controller.peers.receivers[2].image.brokers) == {1, 2}

    run(main)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("received", [True, False])
def test_after_a_lost_answer_the_broker_gets_the_whole_image(received: bool) -> None:
    async def main() -> None:
        controller = Controller(registered(2, 2))
        peers = controller.peers
        await peers.deliver_all()
        controller.create("a")
        if received:
            await peers.deliver(answers=False)
        else:
            peers.take()[2].set_exception(ConnectionLost("reset"))
        controller.create("bb")
        await until(lambda: peers.sent)
        assert peers.sent[0][1].from_version == 0
        await peers.deliver_all()
        assert controller.names_on(2) == {"a", "bb"}
        controller.create("ccc")
        assert peers.sent[0][1].from_version == 12, "and changes again afterwards"

    run(main)


@pytest.mark.usefixtures("quick")
def test_a_refusal_is_tried_again() -> None:
    async def main() -> None:
        controller = Controller(registered(2, 2))
        peers = controller.peers
        for _ in range(3):
            await until(lambda: peers.sent)
            peers.take()[2].set_result(PushMetadataResponse(error_code=StaleControllerEpoch.code, version=99))
            await turns()
        await until(lambda: peers.sent)
        await peers.deliver_all()
        assert peers.receivers[2].image.version == 10

    run(main)


def test_who_cannot_be_reached_gets_nothing() -> None:
    async def main() -> None:
        controller = Controller(registered(2, 2, peer_endpoint=None))
        controller.dead.add(3)
        controller.register(registered(3, 3))
        assert controller.peers.sent == []
        controller.register(registered(2, 2))
        assert [node_id for node_id, _, _ in controller.peers.sent] == [2]
        controller.dead.clear()
        controller.register(registered(3, 4))
        assert {node_id for node_id, _, _ in controller.peers.sent} == {2, 3}

    run(main)


def test_a_broker_that_registered_again_gets_the_whole_image() -> None:
    async def main() -> None:
        controller = Controller(registered(2, 2))
        peers = controller.peers
        await peers.deliver_all()
        del peers.receivers[2]
        controller.create("a")
        before = peers.take()
        controller.register(registered(2, 5))
        assert [(node_id, push.from_version) for node_id, push, _ in peers.sent] == [(2, 0)]
        await peers.deliver_all()
        before[2].set_exception(ConnectionLost("reset"))
        await turns()
        assert controller.names_on(2) == {"a"}

    run(main)


# --- until the others know -------------------------------------------------------------------------------------------


def test_a_change_is_known_when_all_live_brokers_have_it() -> None:
    async def main() -> None:
        controller = Controller(registered(2, 2), registered(3, 3), registered(4, 4, fenced=True))
        peers = controller.peers
        await peers.deliver_all()
        await controller.pushes.known()
        controller.create("a")
        peers.sent = [sent for sent in peers.sent if sent[0] != 4]  # nobody waits for a fenced one
        known = asyncio.ensure_future(controller.pushes.known())
        await peers.deliver()
        assert not known.done()
        controller.create("bb")
        await peers.deliver()
        assert known.done(), "later changes are no part of it"

    run(main)


def test_the_version_of_a_former_registration_does_not_count() -> None:
    async def main() -> None:
        controller = Controller(registered(2, 2))
        await controller.peers.deliver_all()
        controller.register(registered(2, 5))
        known = asyncio.ensure_future(controller.pushes.known())
        await turns()
        assert not known.done()
        await controller.peers.deliver_all()
        await known

    run(main)


def test_a_broker_that_is_fenced_meanwhile_is_not_waited_for() -> None:
    async def main() -> None:
        controller = Controller(registered(2, 2))
        controller.create("a")
        known = asyncio.ensure_future(controller.pushes.known())
        await turns()
        assert not known.done()
        controller.register(registered(2, 2, fenced=True))
        await turns()
        assert known.done()

    run(main)


@pytest.mark.parametrize("end", ["time", "close"])
def test_nobody_waits_for_ever(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_pushes, "WAIT_MAX_S", 0.01 if end == "time" else 1000.0)

    async def main() -> None:
        controller = Controller(registered(2, 2))
        known = asyncio.ensure_future(controller.pushes.known())
        await turns()
        if end == "close":
            controller.pushes.close()
        await known
        assert controller.pushes._waiting == []

    run(main)


@pytest.mark.usefixtures("quick")
def test_after_its_end_nothing_is_pushed() -> None:
    async def main() -> None:
        controller = Controller(registered(2, 2), registered(3, 3))
        peers = controller.peers
        (_, _, first), (_, _, second) = peers.sent
        peers.sent.clear()
        first.set_exception(ConnectionLost("reset"))
        await turns()
        controller.pushes.close()
        second.set_result(PushMetadataResponse(version=3))
        await asyncio.sleep(0.01)  # longer than the backoff
        controller.create("a")
        assert peers.sent == []
        await controller.pushes.known()

    run(main)
