"""Fixtures for pytest, there as soon as barnabas is installed. Nothing is imported before a test uses one.

`barnabas_broker` is one broker for the whole session; `kafka` is the same broker, empty, for one test. A conftest.py
that overrides `barnabas_settings` sets the broker's settings.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing import Broker


@pytest.fixture(scope="session")
def barnabas_settings() -> Mapping[str, object]:
    """The settings of the session's broker under Kafka's names; override the fixture for others: {"num.partitions":
    4}."""
    return {}


@pytest.fixture(scope="session")
def barnabas_broker(barnabas_settings: Mapping[str, object]) -> "Iterator[Broker]":
    """A broker that lives as long as the test session."""
    from barnabas.testing import Broker

    with Broker(settings=barnabas_settings) as broker:
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
