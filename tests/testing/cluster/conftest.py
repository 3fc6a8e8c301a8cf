"""A cluster of three brokers that the tests of this folder share; each begins with a whole and empty one."""

from collections.abc import Iterator

import pytest

from barnabas.testing import Cluster


@pytest.fixture(scope="package")
def shared_cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    shared_cluster.reset()
    yield shared_cluster
    shared_cluster.heal()
