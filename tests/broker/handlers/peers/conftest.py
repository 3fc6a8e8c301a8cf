"""A broker with a listener for brokers, and a connection to it that has introduced itself as broker 2."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.config.endpoints import Endpoint
from barnabas.metadata.image import MetadataImage
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.processes import begin_process, end_process
from barnabas.registry.registry import BrokerRegistration
from broker.peers.conftest import Peer, member, peer_of
from broker.peers.conftest import module_broker as module_broker
from broker.peers.conftest import peer as peer
from broker.peers.test_inter_broker_listener import authenticate, hello
from broker.wire import Wire, on_loop, server_of

Register = Callable[[], int]


@pytest.fixture
def wire(peer: Peer) -> Iterator[Wire]:
    with Wire(peer.address) as wire:
        authenticate(wire, peer.secret)
        wire.ask(hello(peer), 0)
        yield wire


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Peer]:
    """A broker of this test alone, which is the controller."""
    with member(tmp_path) as broker:
        yield peer_of(broker)


@pytest.fixture
def from_two(controller: Peer) -> Iterator[Wire]:
    """The connection of broker 2 to the controller."""
    with Wire(controller.address) as wire:
        authenticate(wire, controller.secret)
        wire.ask(hello(controller), 0)
        yield wire


@pytest.fixture
def register(controller: Peer, tmp_path: Path) -> Iterator[Register]:
    """Registers broker 2 as one that runs and cannot be reached. Returns its epoch."""
    registries: list[EmbeddedRegistry] = []
    process = begin_process()

    def register() -> int:
        if registries:
            registries[-1].abandon()
        registries.append(EmbeddedRegistry(tmp_path / "registry.db"))
        endpoints = (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9),)
        epoch = registries[-1].register_broker(BrokerRegistration(2, {}, endpoints, process=process))
        assert epoch is not None
        return epoch

    yield register
    for registry in registries:
        registry.close()
    end_process(process)


def image_of(peer: Peer) -> MetadataImage:
    """Returns the metadata of a broker."""
    return on_loop(peer.broker, lambda: server_of(peer.broker).image)
