"""BrokerHeartbeat: the controller takes brokers in, and lets them go."""

from typing import Any

import pytest

from barnabas.broker.cluster import controller_duties
from barnabas.errors import NotController, RequestTimedOut, StaleBrokerEpoch
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.registry.registry import RegistryUnavailable
from broker.handlers.peers.conftest import Register, image_of
from broker.peers.conftest import Peer, member_of
from broker.wire import Wire, on_loop, server_of

NEWEST = 1_000_000


def beat(
    wire: Wire, epoch: int, *, version: int = 2, node_id: int = 2, leaves: bool = False, knows: int = NEWEST
) -> Any:
    """Sends a heartbeat of a broker whose metadata has the version `knows`."""
    request = BrokerHeartbeatRequest(
        broker_id=node_id, broker_epoch=epoch, current_metadata_offset=knows, want_shut_down=leaves
    )
    return wire.ask(request, version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_live_broker_is_no_longer_fenced(controller: Peer, from_two: Wire, register: Register, version: int) -> None:
    epoch = register()
    answer = beat(from_two, epoch, version=version)
    assert (answer.error_code, answer.is_caught_up) == (0, True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert not image_of(controller).brokers[2].fenced  # type: ignore[index]
    before = image_of(controller)
    assert not beat(from_two, epoch).is_fenced
    assert image_of(controller) is before


def test_a_broker_that_does_not_know_of_its_fencing_stays_fenced(
    controller: Peer, from_two: Wire, register: Register
) -> None:
    epoch = register()
    answer = beat(from_two, epoch, knows=0)
    assert (answer.error_code, answer.is_caught_up, answer.is_fenced) == (0, False, True)
    assert image_of(controller).brokers[2].fenced  # type: ignore[index]
    assert not beat(from_two, epoch, knows=image_of(controller).version).is_fenced


def test_a_broker_that_wants_to_stop_is_fenced_first(controller: Peer, from_two: Wire, register: Register) -> None:
    epoch = register()
    beat(from_two, epoch)
    answer = beat(from_two, epoch, leaves=True)
    assert (answer.error_code, answer.is_fenced, answer.should_shut_down) == (0, True, True)
    assert image_of(controller).brokers[2].fenced  # type: ignore[index]
    assert beat(from_two, epoch, leaves=True).should_shut_down
    assert not beat(from_two, epoch).is_fenced, "it goes on after all"


def test_a_broker_that_is_not_registered_in_this_epoch(controller: Peer, from_two: Wire, register: Register) -> None:
    assert beat(from_two, 1).error_code == StaleBrokerEpoch.code
    former = register()
    epoch = register()
    assert beat(from_two, former).error_code == StaleBrokerEpoch.code
    assert beat(from_two, epoch + 1).error_code == StaleBrokerEpoch.code
    assert beat(from_two, epoch, node_id=3).error_code == StaleBrokerEpoch.code
    assert image_of(controller).brokers[2].fenced  # type: ignore[index]
    assert beat(from_two, epoch).error_code == 0


def test_another_broker_is_the_controller(
    controller: Peer, from_two: Wire, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = register()
    cluster = member_of(controller.broker)
    monkeypatch.setattr(cluster, "duties", None)
    assert beat(from_two, epoch).error_code == NotController.code
    monkeypatch.setattr(server_of(controller.broker), "_cluster", None)
    assert beat(from_two, epoch).error_code == NotController.code


def test_a_registry_that_does_not_answer(
    controller: Peer, from_two: Wire, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = register()

    def fail(self: object) -> None:
        raise RegistryUnavailable("locked")

    with monkeypatch.context() as patch:
        patch.setattr(controller_duties.Controller, "refresh", fail)
        assert beat(from_two, epoch).error_code == RequestTimedOut.code
    assert beat(from_two, epoch).error_code == 0


def test_a_broker_that_cannot_be_taken_in_stays_fenced(
    controller: Peer,
    from_two: Wire,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    epoch = register()

    def fail(self: object, *arguments: object) -> None:
        raise RequestTimedOut("the registry is locked")

    with monkeypatch.context() as patch:
        patch.setattr(controller_duties.Controller, "unfence", fail)
        answer = beat(from_two, epoch)
        assert (answer.error_code, answer.is_fenced) == (0, True)
    assert "the registry is locked" in caplog.text
    assert not beat(from_two, epoch).is_fenced


def test_clients_do_not_reach_it(controller: Peer) -> None:
    with Wire(controller.broker) as client:
        client.send(BrokerHeartbeatRequest(broker_id=1, broker_epoch=1), 2)
        assert client.is_closed()
    assert on_loop(controller.broker, lambda: not server_of(controller.broker).stopped)
