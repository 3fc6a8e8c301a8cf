"""A cluster of the release before is upgraded to this one and taken back, broker by broker, while clients work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.cluster.roll import Roll
from barnabas.connection.cluster import Broker
from barnabas.errors import ItemsFailed, UnknownTopicOrPartition
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from broker.cluster.cluster_processes import ClusterProcesses
from broker.wire import Wire
from steady_clients import steady_clients
from upgrade.release_before import source_of_release_before
from zookeeper_server import ZooKeeperServer

TOPIC = 2
RESTART_TIMEOUT_S = 120
ROUNDS = int(os.environ.get("BARNABAS_UPGRADE_ROUNDS", "0"))
"""`make test-upgrade` sets it. `make test` upgrades one cluster."""


class Upgrade:
    """Brokers of two releases, and what is asked of them after each restart."""

    def __init__(self, root: Path, before: Path, zookeeper: str = "") -> None:
        self.brokers = ClusterProcesses(root, zookeeper=zookeeper, source=before)
        self._before = before
        self._releases = dict.fromkeys((1, 2, 3), "before")
        self._topics = 0
        self.forwarded: set[tuple[str, str]] = set()
        """The releases of brokers, and of the controllers to which they have forwarded requests."""

    def roll(self, release: str) -> None:
        """Restarts all brokers, the controller last, with another release."""

        def restart(broker: Broker, _timeout_s: float) -> None:
            self._releases[broker.node_id] = release
            self.brokers.restart(broker.node_id, self._before if release == "before" else None)

        left = {1, 2, 3}
        with self.brokers.admin() as admin:
            while left:
                others = left - {self.brokers.controller()}
                node_id = min(others or left)
                Roll(admin, restart, RESTART_TIMEOUT_S).run([node_id])
                left.remove(node_id)
                self.ask_each_broker()

    def ask_each_broker(self) -> None:
        """Creates a topic and changes its settings through each broker."""
        assert not self.brokers.out_of_sync()
        controller = self.brokers.controller()
        for node_id in (1, 2, 3):
            self._topics += 1
            self._change_by(node_id, f"topic-{self._topics}")
            if node_id != controller:
                self.forwarded.add((self._releases[node_id], self._releases[controller]))

    def _change_by(self, node_id: int, topic: str) -> None:
        with Wire(self.brokers.address(node_id)) as wire:
            created = CreatableTopic(name=topic, num_partitions=1, replication_factor=3)
            (answer,) = wire.ask(CreateTopicsRequest(topics=[created], timeout_ms=30_000), 7).topics
            assert (answer.error_code, answer.error_message) == (0, None)
            setting = AlterableConfig(name="retention.ms", config_operation=0, value="12345")
            resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[setting])
            (altered,) = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
            assert (altered.error_code, altered.error_message) == (0, None)
        for other in (1, 2, 3):
            # The controller waits for a broker that is slow to answer for a second only.
            self.brokers.wait_for(lambda other=other: self._retention(other, topic) == "12345", f"word at {other}")

    def _retention(self, node_id: int, topic: str) -> str | None:
        """Returns the setting of a topic as a broker knows it."""
        host, port = self.brokers.address(node_id)
        with barnabas.Admin(bootstrap_servers=f"{host}:{port}") as admin:
            try:
                (settings,) = admin.describe_configs([("topic", topic)]).values()
            except ItemsFailed as error:
                if not error.only(UnknownTopicOrPartition):
                    raise
                return None
        return settings["retention.ms"].value


@pytest.fixture
def release_before() -> Path:
    return source_of_release_before()


def test_the_release_before_is_what_runs(release_before: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", "import barnabas; print(barnabas.__file__)"],
        env={**os.environ, "PYTHONPATH": str(release_before)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(shown.stdout.strip()) == release_before / "barnabas" / "__init__.py"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(ROUNDS or 1))
def test_there_and_back_with_one_registry_file(tmp_path: Path, release_before: Path, number: int) -> None:
    there_and_back(Upgrade(tmp_path, release_before))


@pytest.mark.timeout(900)
@pytest.mark.skipif(not ROUNDS, reason="make test-upgrade runs it")
@pytest.mark.parametrize("number", range(ROUNDS))
def test_there_and_back_with_zookeeper(
    tmp_path: Path, release_before: Path, zookeeper: ZooKeeperServer, number: int
) -> None:
    there_and_back(Upgrade(tmp_path, release_before, zookeeper.new_path()))


def there_and_back(cluster: Upgrade) -> None:
    brokers = cluster.brokers
    try:
        brokers.create("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
        brokers.create("copies", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
        with steady_clients(brokers.bootstrap, "t", "copies"):
            cluster.roll("present")
            assert ("present", "before") in cluster.forwarded
            cluster.roll("before")
            assert ("before", "present") in cluster.forwarded
    finally:
        brokers.stop()
