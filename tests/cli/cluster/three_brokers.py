"""A cluster of three brokers that the tests of a file share, and commands against it."""

from collections.abc import Iterator

import pytest

from barnabas.testing import Cluster


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    with Cluster(racks=["a", "b", "c"]) as cluster:
        yield cluster


@pytest.fixture
def kafka(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whole and empty."""
    shared_cluster.reset()
    yield shared_cluster
    shared_cluster.heal()


@pytest.fixture
def bootstrap(kafka: Cluster) -> str:
    return kafka.bootstrap_servers
