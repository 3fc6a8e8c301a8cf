"""Requests of a broker to the controller, which is another broker or the same one."""

import asyncio
import errno
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.peers.controller_channel import ControllerChannel
from barnabas.broker.peers.peer_connections import Role
from barnabas.controller import isr_control
from barnabas.errors import KafkaStorageError, StaleBrokerEpoch
from barnabas.protocol.peer_messages.give_up_replicas import (
    GivenUpReplica,
    GiveUpReplicasRequest,
    GiveUpReplicasResponse,
)
from barnabas.types import LeaderEpoch

REQUEST = GiveUpReplicasRequest(
    broker_id=1, broker_epoch=11, replicas=[GivenUpReplica(topic_id=UUID(int=7), partition=3, leader_epoch=4)]
)


class World:
    """Broker 1, its peers and its controller."""

    def __init__(self, controller_id: int) -> None:
        self.error_code = 0
        self.sent: list[tuple[Any, ...]] = []
        self.decided: list[tuple[Any, ...]] = []
        self.broker = SimpleNamespace(
            node_id=1, image=SimpleNamespace(controller_id=controller_id), controller=SimpleNamespace(call=self.call)
        )

    async def send(self, node_id: int, request: Any, *, role: Role, timeout_s: float | None) -> Any:
        self.sent.append((node_id, request, role, timeout_s))
        return GiveUpReplicasResponse(error_code=self.error_code)

    async def call(self, action: Any, *, until_known: bool) -> None:
        action(self)

    def give_up_replicas(self, node_id: int, epoch: int, replicas: list[Any]) -> None:
        if self.error_code:
            raise StaleBrokerEpoch
        self.decided.append((node_id, epoch, *replicas))

    def ask(self, **options: Any) -> Any:
        channel = ControllerChannel(self.broker, SimpleNamespace(send=self.send))  # type: ignore[arg-type]
        return asyncio.run(channel.send(REQUEST, **options))


def test_another_broker_is_asked_over_the_network() -> None:
    world = World(controller_id=2)
    assert world.ask() == world.ask(role=Role.FORWARD, timeout_s=5.0) == GiveUpReplicasResponse()
    assert world.sent == [(2, REQUEST, Role.CONTROL, None), (2, REQUEST, Role.FORWARD, 5.0)]
    assert not world.decided


def test_this_broker_answers_itself_what_it_would_answer_others() -> None:
    world = World(controller_id=1)
    assert world.ask() == GiveUpReplicasResponse()
    assert world.decided == [(1, 11, isr_control.GivenUpReplica(UUID(int=7), 3, LeaderEpoch(4)))]
    assert not world.sent


@pytest.mark.parametrize("controller_id", [1, 2])
def test_the_error_of_the_response_is_raised(controller_id: int) -> None:
    world = World(controller_id)
    world.error_code = StaleBrokerEpoch.code
    with pytest.raises(StaleBrokerEpoch, match=f"broker {controller_id} as the controller refuses GIVE_UP_REPLICAS"):
        world.ask()


def test_a_handler_that_cannot_be_loaded_now_is_an_error_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(errno.ENOMEM, "failed to map segment from shared object", f"{name}.so")

    world = World(controller_id=1)
    with monkeypatch.context() as patch:
        patch.setattr("barnabas.broker.peers.controller_channel.import_late", refuse)
        with pytest.raises(KafkaStorageError, match="failed to map segment"):
            world.ask()
    assert world.ask() == GiveUpReplicasResponse()
