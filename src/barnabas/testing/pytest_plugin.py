"""Fixtures for pytest, there as soon as barnabas is installed. Nothing is imported before a test uses one.

`barnabas_broker` is one broker for the whole session; `kafka` is the same broker, empty, for one test. Likewise
`barnabas_cluster` is a cluster of three, and `kafka_cluster` the same cluster for one test, empty and whole. A
conftest.py that overrides `barnabas_settings` sets the settings of all of them.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing import Broker, Cluster


@pytest.fixture(scope="session")
def barnabas_settings() -> Mapping[str, object]:
    """The settings of the session's brokers under Kafka's names; override the fixture for others: {"num.partitions":
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


@pytest.fixture(scope="session")
def barnabas_cluster(barnabas_settings: Mapping[str, object]) -> "Iterator[Cluster]":
    """A cluster of three brokers that lives as long as the test session."""
    from barnabas.testing import Cluster

    with Cluster(settings=barnabas_settings) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(barnabas_cluster: "Cluster") -> "Cluster":
    """The session's cluster of three brokers without topics, groups or faults of other tests. A test may do to it all
    that the cluster can, also close it."""
    if not barnabas_cluster.is_running:
        barnabas_cluster.start()
    barnabas_cluster.reset()
    return barnabas_cluster
