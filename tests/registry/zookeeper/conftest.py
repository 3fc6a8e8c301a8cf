"""Fixtures of the registry in ZooKeeper."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from zookeeper_server import ZooKeeperServer

if TYPE_CHECKING:
    from registry.zookeeper.harness import ZooKeeperHarness


@pytest.fixture
def harness(zookeeper: ZooKeeperServer) -> "Iterator[ZooKeeperHarness]":
    from registry.zookeeper.harness import ExpiringHarness  # needs kazoo

    harness = ExpiringHarness(zookeeper.new_path())
    yield harness
    harness.close()
