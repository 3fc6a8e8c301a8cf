"""Whatever other programs and clients ask for in whatever order, and whoever is the controller: in the end nothing is
pending, and what stands in ZooKeeper is what the brokers have."""

import json
import random
import time
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from barnabas.config.broker import BrokerConfig
from barnabas.controller.controller import Controller, TopicRequest
from barnabas.metadata.image import NO_LEADER
from barnabas.registry.registry import BrokerRegistration
from zookeeper_server import ZooKeeperServer

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from barnabas.registry.zookeeper.session import ZooKeeperAccess
from barnabas.registry.zookeeper.zookeeper_registry import ZooKeeperRegistry
from registry.zookeeper.harness import expire

DEADLINE_S = 30
names = st.sampled_from(["a", "b", "c"])
replicas = st.sampled_from([[1], [2], [1, 2], [2, 1], [1, 9], [1, 1], []])
configs = st.sampled_from([{}, {"retention.ms": "5"}, {"retention.ms": "soon"}, {"x": "1"}])
entities = st.sampled_from(["topics/a", "topics/b", "brokers/1", "brokers/<default>", "brokers/7"])
garbage = st.sampled_from([b"", b"{", b"[]", b'{"version":1,"partitions":[7]}', b'{"partitions":{"0":[1],"2":[1]}}'])
nodes = st.sampled_from(
    ["/brokers/topics/a", "/brokers/topics/d", "/admin/reassign_partitions", "/admin/preferred_replica_election"]
)


class OutsideModel(RuleBasedStateMachine):
    """Two brokers, one of which is the controller."""

    connect = ""

    def __init__(self) -> None:
        super().__init__()
        self.tree = KazooClient(self.connect)
        self.registries: dict[int, ZooKeeperRegistry] = {}
        self.controllers: dict[int, Controller] = {}
        for node_id in (1, 2):
            self.start_broker(node_id)
        self.tree.start()
        self.settle()

    def start_broker(self, node_id: int) -> None:
        registry = ZooKeeperRegistry(
            ZooKeeperAccess(self.connect, session_timeout_s=10), is_running=lambda process: process != ""
        )
        config = BrokerConfig.of({"node.id": node_id, "log.dirs": f"/{node_id}"})
        controller = Controller(registry, config, randomness=random.Random(1))
        controller.start(BrokerRegistration(node_id, {UUID(int=node_id): f"/{node_id}"}, (), process=f"{node_id}"))
        self.registries[node_id], self.controllers[node_id] = registry, controller

    @property
    def active(self) -> Controller:
        return next(each for each in self.controllers.values() if each.is_active)

    # -- other programs ---------------------------------------------------------------------------------------------

    def put(self, path: str, content: object) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        try:
            self.tree.create(path, data, makepath=True)
        except NodeExistsError:
            self.tree.set(path, data)

    @rule(name=names, partitions=st.lists(replicas, min_size=1, max_size=3), config=configs)
    def ask_for_a_topic(self, name: str, partitions: list[list[int]], config: dict[str, str]) -> None:
        if self.tree.exists(f"/brokers/topics/{name}") is None:
            self.put(f"/config/topics/{name}", {"version": 1, "config": config})
            self.put(f"/brokers/topics/{name}", {"version": 2, "partitions": dict(enumerate(partitions))})

    @rule(name=names, added=replicas)
    def ask_for_a_partition(self, name: str, added: list[int]) -> None:
        try:
            found = json.loads(self.tree.get(f"/brokers/topics/{name}")[0])["partitions"]
            self.put(f"/brokers/topics/{name}", {"version": 2, "partitions": {**found, f"{len(found)}": added}})
        except (NoNodeError, ValueError, TypeError, KeyError):
            pass

    @rule(name=names)
    def ask_for_a_deletion(self, name: str) -> None:
        self.put(f"/admin/delete_topics/{name}", b"")

    @rule(entity=entities, some=st.booleans())
    def ask_for_settings(self, entity: str, some: bool) -> None:
        """Asks for settings that are valid: others are read by a controller that is elected before they are refused."""
        config = {"retention.ms" if entity.startswith("topics") else "log.retention.ms": "5"} if some else {}
        if self.tree.exists(f"/brokers/{entity}") or entity.startswith("brokers"):
            self.put(f"/config/{entity}", {"version": 1, "config": config})
            notification = json.dumps({"version": 2, "entity_path": entity}).encode()
            self.tree.create("/config/changes/config_change_", notification, sequence=True)

    @rule(name=names, partition=st.integers(0, 1), wanted=replicas)
    def ask_for_a_reassignment(self, name: str, partition: int, wanted: list[int]) -> None:
        moves = [(name, partition, wanted), ("a", 0, [2])]
        listed = [{"topic": topic, "partition": number, "replicas": ids} for topic, number, ids in moves]
        self.put("/admin/reassign_partitions", {"version": 1, "partitions": listed})

    @rule(name=names)
    def ask_for_an_election(self, name: str) -> None:
        self.put("/admin/preferred_replica_election", {"partitions": [{"topic": name, "partition": 0}]})

    @rule(node=nodes, data=garbage)
    def write_garbage(self, node: str, data: bytes) -> None:
        self.put(node, data)

    # -- clients and brokers ----------------------------------------------------------------------------------------

    @rule(name=names)
    def create(self, name: str) -> None:
        self.settle_role()
        self.active.create_topics([TopicRequest(name, 2, 1)])

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.settle_role()
        self.active.delete_topics([name])

    @rule()
    def look(self) -> None:
        for controller in self.controllers.values():
            controller.check()

    @rule()
    def another_controller(self) -> None:
        self.settle_role()
        node_id = next(number for number, each in self.controllers.items() if each.is_active)
        self.controllers[node_id].stop()
        self.registries[node_id].close()
        self.start_broker(node_id)

    @rule()
    def another_session(self) -> None:
        self.settle_role()
        expire(next(self.registries[number] for number, each in self.controllers.items() if each.is_active))

    # -- what holds in the end --------------------------------------------------------------------------------------

    def settle_role(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self.look()
            if sum(each.is_active for each in self.controllers.values()) == 1:
                return
            assert time.monotonic() < deadline, "no controller"

    @rule()
    def settle(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self.settle_role()
            for broker in self.active.image.brokers.values():
                if broker.fenced:
                    self.active.unfence(broker.node_id, broker.epoch)
            wrong = self.wrong()
            if not wrong:
                return
            assert time.monotonic() < deadline, wrong
            time.sleep(0.005)

    def json_of(self, path: str) -> dict[str, object]:
        try:
            found: dict[str, object] = json.loads(self.tree.get(path)[0])
            return found
        except (NoNodeError, ValueError):
            return {}

    def notifications(self) -> list[str]:
        """Returns those that no controller of this cluster has written."""
        paths = [f"/config/changes/{name}" for name in self.tree.get_children("/config/changes")]
        return [path for path in paths if "controller_epoch" not in self.json_of(path)]

    def wrong(self) -> str:
        """Returns what is not as it has to be in the end."""
        image = self.active.image
        left = [*self.tree.get_children("/admin/delete_topics"), *self.notifications()]
        if left or self.tree.exists("/admin/preferred_replica_election") is not None:
            return f"pending: {left}, or an election"
        if set(self.tree.get_children("/brokers/topics")) != set(image.topics):
            return f"topics: {self.tree.get_children('/brokers/topics')} and {list(image.topics)}"
        for name, topic in image.topics.items():
            found = self.json_of(f"/brokers/topics/{name}").get("partitions")
            expected = {str(number): list(each.replicas) for number, each in enumerate(topic.partitions)}
            if found != expected:
                return f"{name}: {found} and {expected}"
            settings = self.json_of(f"/config/topics/{name}").get("config")
            if settings != image.topic_config(name):
                return f"settings of {name}: {settings} and {image.topic_config(name)}"
        for name in ("", "1", "7"):
            settings = self.json_of(f"/config/brokers/{name or '<default>'}").get("config", {})
            if settings != image.broker_config(name):
                return f"settings of broker {name}: {settings} and {image.broker_config(name)}"
        for move in self.json_of("/admin/reassign_partitions").get("partitions", ()):  # type: ignore[attr-defined]
            partition = image.partition(move["topic"], move["partition"])
            if partition is None or not partition.is_reassigning:
                return f"{move} is not in progress: {partition}"
        return ""

    def teardown(self) -> None:
        try:
            self.settle()
            fresh = ZooKeeperRegistry(ZooKeeperAccess(self.connect))
            assert fresh.load().image.topics == self.active.image.topics
            assert all(
                each.leader != NO_LEADER for topic in self.active.image.topics.values() for each in topic.partitions
            )
            fresh.close()
        finally:
            for registry in self.registries.values():
                registry.abandon()
            self.tree.stop()
            self.tree.close()


@pytest.mark.timeout(900)
def test_all_that_is_asked_for_is_settled(zookeeper: ZooKeeperServer) -> None:
    class Model(OutsideModel):
        def __init__(self) -> None:
            self.connect = zookeeper.new_path()
            super().__init__()

    run_state_machine_as_test(
        Model,
        settings=settings(
            max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
