"""Clusters of three brokers that the tests of this folder share, in threads and as processes; each test begins with a
whole and empty one."""

from collections.abc import Iterator

import pytest

from barnabas.testing import Cluster


@pytest.fixture(scope="package", params=[False, True], ids=["threads", "processes"])
def shared_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(processes=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    shared_cluster.reset()
    yield shared_cluster
    shared_cluster.heal()
