"""Clusters of three brokers that the tests of this folder share, in threads, as processes, and as processes with
ZooKeeper; each test begins with a whole and empty one."""

from collections.abc import Iterator

import pytest

from barnabas.testing import Cluster


@pytest.fixture(scope="package", params=["threads", "processes", "zookeeper"])
def shared_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    settings = {}
    if request.param == "zookeeper":
        settings["zookeeper.connect"] = request.getfixturevalue("zookeeper").new_path()
    with Cluster(processes=request.param != "threads", settings=settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    shared_cluster.reset()
    yield shared_cluster
    shared_cluster.heal()
