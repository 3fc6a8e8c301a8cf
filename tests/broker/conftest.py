"""One broker for the tests of a module, empty for each test; a connection to it."""

from collections.abc import Iterator

import pytest

from barnabas.testing import Broker
from broker.wire import Wire


@pytest.fixture(scope="module")
def module_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(module_broker: Broker) -> Iterator[Broker]:
    module_broker.reset()
    yield module_broker
    module_broker.faults.clear()


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker) as wire:
        yield wire
