"""The model of the registry against ZooKeeper."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from barnabas.registry.registry import Registry
from registry.test_registry_model import RegistryModel
from zookeeper_server import ZooKeeperServer

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from barnabas.registry.zookeeper.session import ZooKeeperAccess
from barnabas.registry.zookeeper.zookeeper_registry import ZooKeeperRegistry


@pytest.fixture
def model(zookeeper: ZooKeeperServer) -> type[RegistryModel]:
    class ZooKeeperModel(RegistryModel):
        def __init__(self) -> None:
            self.connect = zookeeper.new_path()
            super().__init__()

        def open(self) -> Registry:
            return ZooKeeperRegistry(ZooKeeperAccess(self.connect))

    return ZooKeeperModel


def test_any_writes(model: type[RegistryModel]) -> None:
    run_state_machine_as_test(
        model,
        settings=settings(
            max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
