"""Fixtures for pytest, there as soon as barnabas is installed. Nothing is imported before a test asks for one.

`barnabas_broker` is one broker for the whole session; `kafka` is the same broker, empty, for one test.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing import Broker


@pytest.fixture(scope="session")
def barnabas_broker() -> "Iterator[Broker]":
    """A broker that lives as long as the test session."""
    from barnabas.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka(barnabas_broker: "Broker") -> "Iterator[Broker]":
    """The session's broker without topics, groups or faults of other tests. A test may stop it."""
    if not barnabas_broker.is_running:
        barnabas_broker.start()
    barnabas_broker.reset()
    yield barnabas_broker
    if barnabas_broker.is_running:
        barnabas_broker.faults.clear()
