"""Brokers that start at the same moment where nothing is yet: they are always one cluster. BARNABAS_STARTS says how
often that is tried: `make test-faults-starts` sets it."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.broker.startup.zookeeper_start import with_node_id
from barnabas.config.broker import BrokerConfig
from barnabas.log.directories.checkpoints import META_PROPERTIES, read_properties
from barnabas.testing import Cluster
from zookeeper_server import ZooKeeperServer

STARTS = int(os.environ.get("BARNABAS_STARTS", "10"))


@pytest.mark.parametrize("registry", ["file", "zookeeper"])
@pytest.mark.timeout(60 + 10 * STARTS)
def test_three_brokers_are_one_cluster_with_one_controller(request: pytest.FixtureRequest, registry: str) -> None:
    for _ in range(STARTS):
        settings = {}
        if registry == "zookeeper":
            settings["zookeeper.connect"] = request.getfixturevalue("zookeeper").new_path()
        with Cluster(processes=True, settings=settings) as cluster:
            images = [cluster.broker(node_id).image for node_id in cluster.node_ids]
            recorded = [
                read_properties(str(cluster.data_dir / f"broker-{node_id}" / META_PROPERTIES))["cluster.id"]
                for node_id in cluster.node_ids
            ]
            assert len({image.cluster_id for image in images} | set(recorded)) == 1
            assert {(image.controller_id, image.controller_epoch) for image in images} == {(cluster.controller, 1)}
            assert all(image.brokers.keys() == set(cluster.node_ids) for image in images)


@pytest.mark.timeout(60 + 10 * STARTS)
def test_brokers_without_a_node_id_get_distinct_ones(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")
    for start in range(STARTS):
        settings = {"zookeeper.connect": zookeeper.new_path(), "reserved.broker.max.id": 50}
        configs = [
            BrokerConfig.of({**settings, "log.dirs": str(tmp_path / f"{start}-{number}")}) for number in range(5)
        ]
        with ThreadPoolExecutor(len(configs)) as threads:
            found = [config.node_id for config in threads.map(with_node_id, configs)]
        assert sorted(found) == [51, 52, 53, 54, 55]
