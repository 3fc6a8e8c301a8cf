"""What other programs write into ZooKeeper for the controller: what of it is found, and what is left of it."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.registry.outside_requests import (
    OutsideRequest,
    RequestedConfig,
    RequestedDeletion,
    RequestedElection,
    RequestedReassignment,
    RequestedTopic,
    UnreadableRequest,
)
from barnabas.registry.registry import AddPartitions, CreateTopic, DeleteTopic, SetBrokerConfig, SetTopicConfig
from barnabas.types import BrokerId

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError
from kazoo.security import make_digest_acl

from barnabas.registry.zookeeper.session import Operation, ZooKeeperSession
from registry.zookeeper.harness import (
    PARTITION,
    TOPIC,
    TrackedRegistry,
    ZooKeeperHarness,
    client_of,
    controller,
    expire,
    path_in,
    registered,
)

CREATED = RequestedTopic("/brokers/topics/new", "new", {0: (1, 2), 1: (2, 1)}, {"retention.ms": "1"})


class Tree:
    """Another program, which writes below the path of a cluster."""

    def __init__(self, harness: ZooKeeperHarness) -> None:
        self._harness = harness
        self.client: KazooClient = client_of(harness.open())

    def path(self, path: str) -> str:
        return path_in(self._harness, path)

    def put(self, path: str, content: object = b"") -> None:
        """Writes a node. Content that is no bytes is written as JSON."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.client.ensure_path(self.path(path.rpartition("/")[0]))
        try:
            self.client.create(self.path(path), data)
        except NodeExistsError:
            self.client.set(self.path(path), data)

    def get(self, path: str) -> Any:
        return json.loads(self.client.get(self.path(path))[0])

    def exists(self, path: str) -> bool:
        return self.client.exists(self.path(path)) is not None

    def names(self, path: str) -> list[str]:
        return list(self.client.get_children(self.path(path)))

    def notifications(self) -> list[str]:
        """Returns the names of those that no controller of this cluster has written."""
        names = sorted(self.names("/config/changes"))
        return [
            name
            for name in names
            if b"controller_epoch" not in self.client.get(self.path(f"/config/changes/{name}"))[0]
        ]

    def notify(self, content: object) -> None:
        self.client.create(self.path("/config/changes/config_change_"), json.dumps(content).encode(), sequence=True)

    def ask_for_new(self) -> None:
        """Does what kafka-topics.sh --create does."""
        self.put("/config/topics/new", {"version": 1, "config": {"retention.ms": "1"}})
        partitions = {"0": [1, 2], "1": [2, 1]}
        lists: dict[str, object] = {"adding_replicas": {}, "removing_replicas": {}}
        self.put("/brokers/topics/new", {"version": 2, "partitions": partitions, **lists})


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def until(registry: TrackedRegistry, condition: Callable[[Sequence[OutsideRequest]], bool]) -> list[OutsideRequest]:
    """Returns the requests when they are as they should be."""
    wait_for(lambda: condition(registry.outside_requests()))
    return list(registry._requests.pending())


def asked(registry: TrackedRegistry, count: int = 1) -> list[OutsideRequest]:
    return until(registry, lambda found: len(found) == count)


def settle(registry: TrackedRegistry, epoch: int, *requests: OutsideRequest) -> None:
    assert registry.settle_requests(requests, controller_epoch=epoch)
    until(registry, lambda found: not found)


@pytest.fixture
def tree(harness: ZooKeeperHarness) -> Tree:
    return Tree(harness)


@pytest.fixture
def one(harness: ZooKeeperHarness) -> tuple[TrackedRegistry, int]:
    """The controller's registry, which has a topic, and its epoch."""
    registry, epoch = controller(harness)
    assert registry.write(
        [CreateTopic("t", TOPIC, (PARTITION,), {"a": "1"}), SetBrokerConfig("", {"b": "1"})], controller_epoch=epoch
    )
    assert registry.outside_requests() == []
    return registry, epoch


# -- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_is_asked_for_until_it_is_created(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    tree.ask_for_new()
    assert asked(registry) == [CREATED]
    assert registry.write([CreateTopic("new", UUID(int=9), (PARTITION,), {})], controller_epoch=epoch)
    settle(registry, epoch, CREATED)
    assert registry.load().image.topics["new"].partitions == (PARTITION,)
    assert tree.get("/brokers/topics/new")["partitions"] == {"0": [1, 2]}
    assert tree.get("/config/topics/new")["config"] == {}


def test_a_refused_topic_leaves_nothing(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    tree.ask_for_new()
    tree.put("/brokers/topics/new/partitions/0/deep")
    settle(registry, epoch, *asked(registry))
    assert (tree.names("/brokers/topics"), tree.names("/config/topics")) == (["t"], ["t"])


def test_a_topic_that_was_written_again_is_not_refused(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    tree.ask_for_new()
    (former,) = asked(registry)
    tree.put("/brokers/topics/new", {"version": 2, "partitions": {"0": [1]}})
    assert registry.settle_requests([former], controller_epoch=epoch)
    assert until(registry, lambda found: list(found) not in ([], [former])) == [
        RequestedTopic("/brokers/topics/new", "new", {0: (1,)}, {"retention.ms": "1"})
    ]


def test_a_topic_that_is_written_while_it_is_refused_stays(
    one: tuple[TrackedRegistry, int], tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, epoch = one
    tree.ask_for_new()
    found = asked(registry)

    def commit(operations: Sequence[Operation]) -> None:
        tree.put("/brokers/topics/new", {"version": 2, "partitions": {"0": [1]}})
        ZooKeeperSession.commit(registry._session, operations)

    with monkeypatch.context() as patched:
        patched.setattr(registry._session, "commit", commit)
        assert registry.settle_requests(found, controller_epoch=epoch)
    assert asked(registry) == [RequestedTopic("/brokers/topics/new", "new", {0: (1,)}, {"retention.ms": "1"})]


def test_a_topic_that_goes_and_comes_between_two_looks_is_found(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, _ = one
    nodes = registry._requests
    tree.ask_for_new()
    asked(registry)
    tree.client.delete(tree.path("/brokers/topics/new"))
    wait_for(lambda: {"/brokers/topics", "/brokers/topics/new"} <= nodes._changed)
    nodes._changed = {"/brokers/topics/new"}  # the list of topics is read only when the topic is there again
    assert registry.outside_requests() == []
    tree.ask_for_new()
    nodes.changed("/brokers/topics")
    assert asked(registry) == [CREATED]


def test_a_topic_that_this_cluster_did_not_finish_is_no_request(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    tree.put("/brokers/topics/new", {"version": 3, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": {"0": [1]}})
    tree.put("/brokers/topics/new/partitions/0/state", {})
    found = asked(registry)
    assert isinstance(found[0], UnreadableRequest)
    settle(registry, epoch, *found)
    assert tree.names("/brokers/topics") == ["t"]


def test_an_interrupted_creation_goes_on_being_asked_for(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    tree.ask_for_new()
    asked(registry)
    commit = registry._session.commit

    def fail(operations: Sequence[Any]) -> None:
        if any(each.path == "/brokers/topics/new/partitions" for each in operations):
            registry._session.commit = commit  # type: ignore[method-assign]
            commit(operations)
            raise AssertionError("the end of the process")
        commit(operations)

    registry._session.commit = fail  # type: ignore[method-assign]
    many = tuple(PARTITION._replace(leader_epoch=number) for number in range(4000))
    with pytest.raises(AssertionError, match="the end of the process"):
        registry.write([CreateTopic("new", UUID(int=9), many, {})], controller_epoch=epoch)
    registry._requests.changed("")
    assert asked(registry) == [CREATED]
    assert registry.write([CreateTopic("new", UUID(int=9), many, {})], controller_epoch=epoch)
    assert registry.load().image.topics["new"].partitions == many


def more_partitions(tree: Tree) -> RequestedTopic:
    """Does what kafka-topics.sh --alter --partitions does."""
    tree.put("/brokers/topics/t", {"version": 2, "partitions": {"0": [1, 2], "1": [2, 1]}})
    return RequestedTopic("/brokers/topics/t", "t", {0: (1, 2), 1: (2, 1)}, {})


def test_partitions_are_asked_for_until_they_are_added(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    wanted = more_partitions(tree)
    assert asked(registry) == [wanted]
    added = PARTITION._replace(replicas=(BrokerId(2), BrokerId(1)))
    assert registry.write([AddPartitions("t", TOPIC, 1, (added,))], controller_epoch=epoch)
    settle(registry, epoch, wanted)
    assert tree.get("/brokers/topics/t")["partitions"] == {"0": [1, 2], "1": [2, 1]}
    assert "topic_id" in tree.get("/brokers/topics/t")


@pytest.mark.parametrize("content", ["more partitions", b"", b"{", {"version": 2, "partitions": {"0": [7]}}])
def test_a_refused_topic_that_is_there_gets_its_content_back(
    one: tuple[TrackedRegistry, int], tree: Tree, content: object
) -> None:
    registry, epoch = one
    before = tree.get("/brokers/topics/t")
    if content == "more partitions":
        more_partitions(tree)
    else:
        tree.put("/brokers/topics/t", content)
    found = asked(registry)
    assert all(each.comes_back for each in found if isinstance(each, UnreadableRequest))
    settle(registry, epoch, *found)
    assert tree.get("/brokers/topics/t") == before
    assert registry.load().image.topics["t"].partitions == (PARTITION,)


def test_a_topic_in_other_words_asks_for_nothing(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, _ = one
    tree.put("/brokers/topics/t", {"partitions": {"0": [1, 2]}, "version": 1})
    tree.ask_for_new()
    assert asked(registry) == [CREATED]


def test_reports_of_kafkas_brokers_are_removed(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    tree.put("/isr_change_notification/isr_change_0000000000", {"version": 1, "partitions": []})
    tree.put("/log_dir_event_notification/log_dir_event_0000000000", {"version": 1, "broker": 1, "event": 1})
    settle(registry, epoch, *asked(registry, 2))
    assert tree.names("/isr_change_notification") == tree.names("/log_dir_event_notification") == []


def test_own_writes_ask_for_nothing(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    moved = PARTITION._replace(replicas=(BrokerId(1), BrokerId(3)))
    assert registry.write([AddPartitions("t", TOPIC, 1, (moved,))], controller_epoch=epoch)
    assert registry.write([CreateTopic("u", UUID(int=5), (PARTITION,), {})], controller_epoch=epoch)
    assert registry.write([SetTopicConfig("t", {"a": "2"})], controller_epoch=epoch)
    tree.ask_for_new()
    assert asked(registry) == [CREATED]


def test_many_topics_are_looked_at_one_part_after_the_other(harness: ZooKeeperHarness, tree: Tree) -> None:
    registry, epoch = controller(harness)
    for number in range(250):
        tree.put(f"/brokers/topics/{number}", b"{}")
    hints: list[None] = []
    registry.watch(lambda: hints.append(None))
    counts = [len(registry.outside_requests()) for _ in range(3)]
    assert counts == [100, 200, 250]
    assert len(hints) == 2, "more is left to be read"
    settle(registry, epoch, *registry.outside_requests())
    assert tree.names("/brokers/topics") == []


# -- deletions --------------------------------------------------------------------------------------------------------


def test_the_deletion_of_a_topic_removes_the_request(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    tree.put("/admin/delete_topics/t/hostile/deep")
    wanted = RequestedDeletion("/admin/delete_topics/t", "t")
    assert asked(registry) == [wanted]
    assert registry.write([DeleteTopic("t", TOPIC)], controller_epoch=epoch)
    assert tree.names("/admin/delete_topics") == []
    settle(registry, epoch, wanted)


def test_the_deletion_of_no_topic_is_removed(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    tree.put("/admin/delete_topics/no body")
    tree.put("/admin/delete_topics/x/y/z")
    settle(registry, epoch, *asked(registry, 2))
    assert tree.names("/admin/delete_topics") == []


def test_the_deletion_of_a_topic_that_is_only_asked_for_removes_both(
    one: tuple[TrackedRegistry, int], tree: Tree
) -> None:
    registry, epoch = one
    tree.ask_for_new()
    tree.put("/admin/delete_topics/new")
    asked(registry, 2)
    settle(registry, epoch, RequestedDeletion("/admin/delete_topics/new", "new"))
    assert (tree.names("/brokers/topics"), tree.names("/admin/delete_topics")) == (["t"], [])


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("notification", "node", "resource"),
    [
        ({"version": 2, "entity_path": "topics/t"}, "/config/topics/t", (2, "t")),
        ({"version": 1, "entity_type": "topics", "entity_name": "t"}, "/config/topics/t", (2, "t")),
        ({"version": 2, "entity_path": "brokers/1"}, "/config/brokers/1", (4, "1")),
        ({"version": 2, "entity_path": "brokers/<default>"}, "/config/brokers/<default>", (4, "")),
    ],
)
def test_settings_are_asked_for_by_notifications(
    one: tuple[TrackedRegistry, int], tree: Tree, notification: object, node: str, resource: tuple[int, str]
) -> None:
    registry, epoch = one
    before = tree.get(node) if tree.exists(node) else None
    tree.put(node, {"version": 1, "config": {"c": "3"}})
    tree.notify(notification)
    tree.notify(notification)
    names = [f"/config/changes/{name}" for name in tree.notifications()]
    wanted = RequestedConfig(node, *resource, {"c": "3"}, tuple(names))
    found = until(registry, lambda found: list(found) == [wanted])
    settle(registry, epoch, *found)  # refused: nobody has written it
    assert tree.notifications() == []
    assert (tree.get(node) if tree.exists(node) else None) == before


def test_settings_that_are_taken_over_stay(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    tree.put("/config/topics/t", {"version": 1, "config": {"c": "3"}})
    tree.notify({"version": 2, "entity_path": "topics/t"})
    found = asked(registry)
    assert registry.write([SetTopicConfig("t", {"c": "3"})], controller_epoch=epoch)
    settle(registry, epoch, *found)
    assert tree.get("/config/topics/t")["config"] == {"c": "3"} == registry.load().image.topic_config("t")


def test_what_changes_while_it_is_settled_is_read_again(
    one: tuple[TrackedRegistry, int], tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, epoch = one
    tree.put("/config/topics/t", {"version": 1, "config": {"c": "3"}})
    tree.notify({"version": 2, "entity_path": "topics/t"})
    (request,) = asked(registry)

    def commit(operations: Sequence[Operation]) -> None:
        tree.put("/config/topics/t", {"version": 1, "config": {"c": "4"}})
        ZooKeeperSession.commit(registry._session, operations)

    with monkeypatch.context() as patched:
        patched.setattr(registry._session, "commit", commit)
        assert registry.settle_requests([request], controller_epoch=epoch)
    assert isinstance(request, RequestedConfig)
    assert asked(registry) == [request._replace(config={"c": "4"})]


@pytest.mark.parametrize(
    "content",
    [b"", *({"version": 1, "config": config} for config in ({"c": 3}, {"c": "\ud800"}, {"\ud800": "1"}, [], None))],
)
def test_settings_that_cannot_be_read_are_as_before(
    one: tuple[TrackedRegistry, int], tree: Tree, content: object
) -> None:
    registry, epoch = one
    tree.put("/config/topics/t", content)
    tree.notify({"version": 2, "entity_path": "topics/t"})
    found = asked(registry)
    assert isinstance(found[0], UnreadableRequest)
    assert found[0].comes_back
    settle(registry, epoch, *found)
    assert tree.get("/config/topics/t")["config"] == {"a": "1"}
    assert tree.notifications() == []


@pytest.mark.parametrize(
    "entity",
    [
        *("clients/c", "users/u/clients/c", "topics/", "topics/a/b", "", "topics", 7, None),
        *("topics/..", "topics/.", "brokers/..", "topics/\0", "topics/\x01", "topics/\x9f", "topics/\ue000"),
        *("topics/\U0001f600", "topics/\uffff", "topics/a\n", "topics/" + "x" * 1_000_000),
    ],
    ids=lambda entity: ascii(entity)[:30],
)
def test_other_settings_are_refused(one: tuple[TrackedRegistry, int], tree: Tree, entity: object) -> None:
    registry, epoch = one
    tree.notify({"version": 2, "entity_path": entity})
    found = asked(registry)
    assert isinstance(found[0], UnreadableRequest)
    settle(registry, epoch, *found)
    assert tree.notifications() == []


def test_a_topic_that_waits_gets_the_settings_that_it_is_given_meanwhile(
    one: tuple[TrackedRegistry, int], tree: Tree
) -> None:
    registry, epoch = one
    tree.ask_for_new()
    asked(registry)
    tree.put("/config/topics/new", {"version": 1, "config": {"retention.ms": "2"}})
    tree.notify({"version": 2, "entity_path": "topics/new"})
    refused = [each for each in asked(registry, 2) if isinstance(each, RequestedConfig)]
    assert registry.settle_requests(refused, controller_epoch=epoch)
    assert tree.get("/config/topics/new")["config"] == {"retention.ms": "2"}
    assert until(registry, lambda found: list(found) == [CREATED._replace(config={"retention.ms": "2"})])


def test_nothing_is_kept_of_notifications_that_are_withdrawn(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, _ = one
    tree.notify({"version": 2, "entity_path": "topics/t"})
    asked(registry)
    tree.client.delete(tree.path(f"/config/changes/{tree.notifications()[0]}"))
    asked(registry, 0)
    assert registry._requests._versions == {}


def test_many_notifications_follow_each_other(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    for _ in range(250):
        tree.notify({})
    asked(registry, 100)
    while found := registry.outside_requests():
        assert registry.settle_requests(found, controller_epoch=epoch)
        until(registry, lambda found: bool(found) or not tree.notifications())
    assert tree.notifications() == []


def test_notifications_of_the_controller_are_for_others(
    harness: ZooKeeperHarness, one: tuple[TrackedRegistry, int], tree: Tree
) -> None:
    registry, epoch = one
    for number in range(150):
        assert registry.write([SetTopicConfig("t", {"a": f"{number}"})], controller_epoch=epoch)
    tree.put("/config/brokers/1", {"version": 1, "config": {"c": "3"}})
    tree.notify({"version": 2, "entity_path": "brokers/1"})
    (wanted,) = asked(registry)
    assert wanted.node == "/config/brokers/1"
    two, _ = registered(harness, 2)
    registry.end_session()
    later = two.elect_controller()
    assert later is not None
    assert asked(two) == [wanted]
    settle(two, later, wanted)
    assert tree.notifications() == []
    assert len(tree.names("/config/changes")) == 151
    tree.put("/config/topics/t", {"version": 1, "config": {"c": "3"}})  # as in Kafka, nobody hears of it
    assert two.write([DeleteTopic("t", TOPIC)], controller_epoch=later)
    two._requests.changed("")
    asked(two, 0)


# -- replicas and leaders ---------------------------------------------------------------------------------------------


def test_reassignments_leave_the_list_one_by_one(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    node = "/admin/reassign_partitions"
    moves = [{"topic": "t", "partition": number, "replicas": [2, 3]} for number in range(3)]
    tree.put(node, {"version": 1, "partitions": moves})
    found = asked(registry, 3)
    assert found[1] == RequestedReassignment(node, "t", 1, (2, 3))
    assert registry.settle_requests(found[:2], controller_epoch=epoch)
    assert tree.get(node) == {"version": 1, "partitions": moves[2:]}
    assert asked(registry) == found[2:]
    settle(registry, epoch, found[2])
    assert not tree.exists(node)
    tree.put(node, {"version": 1, "partitions": moves[:1]})
    assert asked(registry) == found[:1], "the node is still watched"


def test_a_list_of_long_names_is_shortened(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    node = "/admin/preferred_replica_election"
    partitions = [{"topic": "t", "partition": 0}, {"topic": "€" * 300_000, "partition": 0}]
    tree.put(node, json.dumps({"version": 1, "partitions": partitions}, ensure_ascii=False).encode())
    asked(registry, 2)
    assert registry.settle_requests([RequestedElection(node, "t", 0)], controller_epoch=epoch)
    assert tree.get(node)["partitions"] == partitions[1:]
    assert until(registry, lambda found: len(found) == 1)


def test_elections_are_asked_for(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    node = "/admin/preferred_replica_election"
    tree.put(node, {"version": 1, "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]})
    found = asked(registry, 2)
    assert found == [RequestedElection(node, "t", 0), RequestedElection(node, "t", 1)]
    settle(registry, epoch, *found)
    assert not tree.exists(node)


def test_a_list_that_was_written_again_is_not_removed(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    node = "/admin/preferred_replica_election"
    tree.put(node, {"version": 1, "partitions": [{"topic": "t", "partition": 0}]})
    found = asked(registry)
    tree.put(node, {"version": 1, "partitions": [{"topic": "t", "partition": 5}]})
    registry.settle_requests(found, controller_epoch=epoch)
    assert until(registry, lambda found: list(found) == [RequestedElection(node, "t", 5)])


# -- hostile content --------------------------------------------------------------------------------------------------

NODES = (
    *("/brokers/topics/t", "/brokers/topics/new", "/config/changes/config_change_9999999999"),
    *("/admin/reassign_partitions", "/admin/preferred_replica_election"),
)
GARBAGE = (
    *(b"", b"\xff" * 1000, b"{", b"[]", b"7", b'"x"', b"{}", b"null", b"[" * 100_000, b'{"a":' * 10_000),
    *(b'{"version":1,"partitions":[]}', b'{"version":1,"partitions":{}}', b'{"version":1,"partitions":[1]}'),
    *(b'{"partitions":{"-1":[1]}}', b'{"partitions":{"0":[true]}}', b'{"partitions":{"0":1}}', b'{"partitions":7}'),
    b'{"partitions":{"' + b"9" * 5000 + b'":[1]}}',
    b'{"partitions":[{"topic":"t","partition":0,"replicas":[' + b"9" * 5000 + b"]}]}",
    *(b'{"partitions":[{"topic":7,"partition":0}]}', b'{"partitions":[{"topic":"t","partition":1e3,"replicas":[1]}]}'),
    *(b'{"partitions":[{"topic":"t","partition":4294967296,"replicas":[1]}]}', b"x" * 1_000_000),
)


@pytest.mark.parametrize("node", NODES)
def test_garbage_is_refused_in_a_short_message(one: tuple[TrackedRegistry, int], tree: Tree, node: str) -> None:
    registry, epoch = one
    for data in GARBAGE:
        tree.put(node, data)
        found = until(registry, lambda found: bool(found))
        for request in found:
            assert isinstance(request, UnreadableRequest), (data[:100], request)
            assert request.node == node
            assert len(request.reason) < 1000
        settle(registry, epoch, *found)
        assert tree.exists(node) == (node == "/brokers/topics/t")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["version", "partitions", "topic", "partition", "replicas", "entity_path", "0", "1", "config"]
            ),
            children,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(node=st.sampled_from(NODES), content=json_values | st.binary(max_size=50))
def test_anything_may_be_written(one: tuple[TrackedRegistry, int], tree: Tree, node: str, content: object) -> None:
    registry, epoch = one
    tree.put(node, content)
    settle(registry, epoch, *until(registry, lambda found: bool(found)))
    assert registry.load().image.topics["t"].partitions == (PARTITION,)


def test_what_may_not_be_read_is_passed_over(
    one: tuple[TrackedRegistry, int], tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    registry, epoch = one
    hidden = [make_digest_acl("somebody", "else", all=True)]
    for path in (*NODES[1:], "/config/brokers/1", "/admin/delete_topics/x"):
        tree.client.create(tree.path(path), b"{", acl=hidden)
    tree.notify({"version": 2, "entity_path": "brokers/1"})
    tree.put("/admin/delete_topics/t")
    deletion = RequestedDeletion("/admin/delete_topics/t", "t")
    found = until(registry, lambda found: deletion in found and len(found) > 2)
    assert not any(isinstance(each, RequestedConfig) for each in found)
    assert registry.settle_requests(found, controller_epoch=epoch)
    registry.outside_requests()

    def told() -> list[str]:
        return [line.split()[0] for line in caplog.messages if "is passed over: this broker may not read it" in line]

    registry._requests.changed("")  # ZooKeeper tells nobody of a change in what he may not read
    until(registry, lambda _: set(told()) >= {*NODES[1:], "/config/brokers/1"})
    assert len(told()) == len(set(told()))
    left = ["config_change_0000000000", "config_change_9999999999"]
    assert sorted(tree.names("/config/changes")) == left, "the tool's one was of no use"


# -- who looks, and when ----------------------------------------------------------------------------------------------


def test_who_is_no_longer_the_controller_settles_nothing(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, epoch = one
    tree.ask_for_new()
    found = asked(registry)
    assert not registry.settle_requests(found, controller_epoch=epoch - 1)
    tree.client.set(tree.path("/controller_epoch"), b"%d" % (epoch + 5))
    assert not registry.settle_requests(found, controller_epoch=epoch)
    assert tree.exists("/brokers/topics/new")


def test_the_controller_is_hinted(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, _ = one
    for path in ("/brokers/topics/x", "/admin/delete_topics/x", "/config/changes/x", *NODES[3:], "/brokers/topics/t"):
        hinted = threading.Event()
        registry.watch(hinted.set)
        tree.put(path, b"x")
        assert hinted.wait(30), path
        registry.outside_requests()


def test_a_new_session_looks_at_everything_anew(one: tuple[TrackedRegistry, int], tree: Tree) -> None:
    registry, _ = one
    tree.ask_for_new()
    asked(registry)
    tree.client.delete(tree.path("/brokers/topics/new"))
    more_partitions(tree)
    expire(registry)
    tree.put("/admin/delete_topics/t")
    found = until(registry, lambda found: len(found) == 2)
    assert {request.node for request in found} == {"/brokers/topics/t", "/admin/delete_topics/t"}


def test_another_controller_finds_what_the_first_one_has_not_done(
    harness: ZooKeeperHarness, one: tuple[TrackedRegistry, int], tree: Tree
) -> None:
    registry, _ = one
    two, _ = registered(harness, 2)
    tree.ask_for_new()
    asked(registry)
    registry.end_session()
    epoch = two.elect_controller()
    assert epoch is not None
    assert asked(two) == [CREATED]
    settle(two, epoch, CREATED)
    registered_again, _ = registered(harness)
    two.end_session()
    assert registered_again.elect_controller() == epoch + 1
    assert registered_again.outside_requests() == []
