"""The registry in ZooKeeper: the conformance suite against a real server, and what is particular to ZooKeeper."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from barnabas.errors import NotYet, UsageError
from barnabas.registry.processes import begin_process, end_process
from barnabas.registry.registry import (
    AddPartitions,
    BrokerRegistration,
    CreateTopic,
    DeleteTopic,
    Evidence,
    LeaderChange,
    RegistryOutdated,
    RegistryUnavailable,
    SetBrokerConfig,
    SetFenced,
    SetTopicConfig,
)
from barnabas.types import BrokerId
from registry import conformance
from stopwatch import Stopwatch
from zookeeper_server import ZooKeeperServer, running_server

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from barnabas.registry.zookeeper.session import Operation, ZooKeeperAccess, ZooKeeperSession
from barnabas.registry.zookeeper.zookeeper_registry import ZooKeeperRegistry
from registry.zookeeper.harness import (
    PARTITION,
    TOPIC,
    ExpiringHarness,
    ZooKeeperHarness,
    client_of,
    controller,
    expire,
    json_of,
    path_in,
    registered,
)

T = TypeVar("T")


@pytest.fixture(params=[ZooKeeperHarness, ExpiringHarness], ids=["process", "session"])
def any_harness(request: pytest.FixtureRequest, zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperHarness]:
    harness = request.param(zookeeper.new_path())
    yield harness
    harness.close()


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server that a test may kill. Sessions are longer than its start on a machine that is busy."""
    yield from running_server(tmp_path, session_max_ms=60_000)


@pytest.fixture
def lonely_harness(lonely: ZooKeeperServer) -> Iterator[ZooKeeperHarness]:
    harness = ExpiringHarness(lonely.new_path(), session_timeout_s=20)
    yield harness
    harness.close()


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conforms(check: Callable[[conformance.Harness], None], any_harness: ZooKeeperHarness) -> None:
    check(any_harness)


# -- Kafka's tree -----------------------------------------------------------------------------------------------------


def test_kafkas_tools_find_what_they_read(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    topic = CreateTopic("t", TOPIC, (PARTITION, PARTITION._replace(leader_epoch=7, adding_replicas=(2,))), {"a": "1"})
    assert one.write([topic, SetBrokerConfig("", {"b": "2"})], controller_epoch=epoch)
    broker = json_of(harness, "/brokers/ids/1")
    assert int(broker.pop("timestamp")) > 0
    assert broker.pop("epoch") == one.load().image.brokers[BrokerId(1)].epoch
    assert broker == {
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "V6": "PLAINTEXT", "BROKERS": "SASL_PLAINTEXT"},
        "endpoints": ["PLAINTEXT://host:9092", "V6://[::1]:9093", "BROKERS://host:9094"],
        "jmx_port": -1,
        "host": "host",
        "port": 9092,
        "rack": "r",
        "version": 4,
    }
    found = json_of(harness, "/controller")
    assert (found["version"], found["brokerid"]) == (1, 1)
    assert json_of(harness, "/controller_epoch") == epoch
    assert json_of(harness, "/cluster/id") == {"version": "1", "id": one.load().image.cluster_id}
    assert json_of(harness, "/brokers/topics/t") == {
        "version": 3,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "partitions": {"0": [1, 2], "1": [1, 2]},
        "adding_replicas": {"1": [2]},
        "removing_replicas": {},
    }
    state = json_of(harness, "/brokers/topics/t/partitions/1/state")
    kafkas = {"controller_epoch": epoch, "leader": 1, "version": 1, "leader_epoch": 7, "isr": [1]}
    assert kafkas.items() <= state.items()
    assert json_of(harness, "/config/topics/t") == {"version": 1, "config": {"a": "1"}}
    assert json_of(harness, "/config/brokers/<default>") == {"version": 1, "config": {"b": "2"}}
    one.allocate_producer_ids(10)
    ids = {"version": 1, "broker": 1, "block_start": "0", "block_end": "9"}
    assert json_of(harness, "/latest_producer_id_block") == ids
    assert json_of(harness, "/feature") == {"version": 1, "status": 1, "features": {}}


def test_a_cluster_of_an_older_release_gets_the_nodes_of_kafka_that_it_lacks(harness: ZooKeeperHarness) -> None:
    client, path = client_of(harness.open()), path_in(harness, "/feature")
    client.delete(path)
    harness.open()
    assert json_of(harness, "/feature") == {"version": 1, "status": 1, "features": {}}
    client.set(path, b"another")
    harness.open()
    assert client.get(path)[0] == b"another"


def told(harness: ZooKeeperHarness) -> list[tuple[str, str]]:
    """Returns the names and the subjects of the notifications of changed settings."""
    names = sorted(client_of(harness.opened[0]).get_children(path_in(harness, "/config/changes")))
    found = [(name, json_of(harness, f"/config/changes/{name}")) for name in names]
    assert all(each["version"] == 2 for _, each in found)
    return [(name, each["entity_path"]) for name, each in found]


def test_other_programs_are_told_of_changed_settings(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    assert one.write([CreateTopic("t", TOPIC, (PARTITION,), {"a": "1"})], controller_epoch=epoch)
    assert told(harness) == [], "a new topic is told of by its own node"
    changes = [SetTopicConfig("t", {"a": "2"}), SetBrokerConfig("", {"b": "2"}), SetBrokerConfig("1", {"b": "2"})]
    assert one.write(changes, controller_epoch=epoch)
    assert told(harness) == [
        ("config_change_0000000000", "topics/t"),
        ("config_change_0000000001", "brokers/<default>"),
        ("config_change_0000000002", "brokers/1"),
    ]
    assert one.write([SetTopicConfig("t", {}), DeleteTopic("t", TOPIC)], controller_epoch=epoch)
    assert one.outside_requests() == []
    assert one.write([SetBrokerConfig("", {"b": "3"})], controller_epoch=epoch)
    assert told(harness)[3:] == [("config_change_0000000003", "brokers/<default>")]


def changes_read(registry: ZooKeeperRegistry, count: int) -> None:
    """Waits until the controller knows of this number of its notifications."""
    deadline = time.monotonic() + 30
    while len(registry._requests._own_changes) != count:
        assert registry.outside_requests() == []
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_notifications_are_removed_after_a_quarter_of_an_hour(
    harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, epoch = controller(harness)
    now_ms = time.time_ns() // 1_000_000
    for number in range(2):
        assert one.write([SetBrokerConfig("", {"b": f"{number}"})], controller_epoch=epoch)
    changes_read(one, 2)
    theirs = client_of(one).create(path_in(harness, "/config/changes/config_change_"), b"{", sequence=True)
    for minutes, left in ((14, 4), (16, 3)):
        monkeypatch.setattr(
            "barnabas.registry.zookeeper.zookeeper_registry._now_ms", lambda now=now_ms + minutes * 60_000: now
        )
        assert one.write([SetBrokerConfig("1", {"b": f"{minutes}"})], controller_epoch=epoch)
        names = client_of(one).get_children(path_in(harness, "/config/changes"))
        assert len(names) == left
    assert theirs.rpartition("/")[2] in names, "what nobody has looked at stays"


def test_notifications_are_bounded_in_number(harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.registry.zookeeper.request_nodes._CHANGES_KEPT", 3)
    one, epoch = controller(harness)
    for number in range(5):
        assert one.write([SetBrokerConfig("", {"b": f"{number}"})], controller_epoch=epoch)
    changes_read(one, 5)
    assert one.write(
        [SetFenced(BrokerId(1), one.load().image.brokers[BrokerId(1)].epoch, True)], controller_epoch=epoch
    )
    assert [name for name, _ in told(harness)] == [f"config_change_000000000{number}" for number in (2, 3, 4)]
    changes_read(one, 3)


def test_a_change_whose_answer_is_lost_is_told_of_once(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    session = one._session

    def lose(operations: Sequence[Operation]) -> None:
        del session.commit  # type: ignore[method-assign]
        session.commit(operations)
        raise RegistryUnavailable("the answer is lost")

    session.commit = lose  # type: ignore[method-assign]
    change = SetBrokerConfig("", {"b": "1"})
    with pytest.raises(RegistryUnavailable, match="the answer is lost"):
        one.write([change], controller_epoch=epoch)
    assert one.load().image.broker_config("") == {"b": "1"}
    assert len(told(harness)) == 1
    assert one.outside_requests() == []


def test_a_deleted_topic_leaves_no_nodes(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    assert one.write([CreateTopic("t", TOPIC, (PARTITION,), {"a": "1"})], controller_epoch=epoch)
    assert one.write([DeleteTopic("t", TOPIC)], controller_epoch=epoch)
    for parent in ("/brokers/topics", "/config/topics"):
        assert client_of(one).get_children(path_in(harness, parent)) == []


def test_a_topic_with_nodes_of_others_below_is_deleted_as_well(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    assert one.write([CreateTopic("t", TOPIC, (PARTITION,), {})], controller_epoch=epoch)
    client_of(one).create(path_in(harness, "/brokers/topics/t/partitions/0/mine/deep"), b"", makepath=True)
    assert one.write([DeleteTopic("t", TOPIC)], controller_epoch=epoch)
    assert client_of(one).get_children(path_in(harness, "/brokers/topics")) == []


def test_a_topic_that_kafkas_tools_have_begun_can_be_created(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    client = client_of(one)
    client.create(path_in(harness, "/config/topics/t"), b'{"version":1,"config":{"b":"2"}}')
    client.create(path_in(harness, "/brokers/topics/t"), b'{"version":2,"partitions":{"0":[1]}}')
    assert one.load().image.topics == {}
    assert one.write([CreateTopic("t", TOPIC, (PARTITION,), {"a": "1"})], controller_epoch=epoch)
    image = harness.open().load().image
    assert image.topics["t"].partitions == (PARTITION,)
    assert image.topic_config("t") == {"a": "1"}


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_more_partitions_than_one_transaction_holds(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    before = one.load().image
    many = tuple(PARTITION._replace(leader_epoch=number) for number in range(4000))
    assert one.write([CreateTopic("t", TOPIC, many, {})], controller_epoch=epoch)
    assert one.write([AddPartitions("t", TOPIC, 4000, many)], controller_epoch=epoch)
    for image in (one.load(before).image, harness.open().load().image):
        assert image.topics["t"].partitions == many + many
    assert one.write([DeleteTopic("t", TOPIC)], controller_epoch=epoch)
    assert client_of(one).get_children(path_in(harness, "/brokers/topics")) == []


@pytest.mark.parametrize("grows", [False, True])
def test_a_write_that_was_interrupted_is_not_seen_and_can_be_repeated(harness: ZooKeeperHarness, grows: bool) -> None:
    one, epoch = controller(harness)
    if grows:
        assert one.write([CreateTopic("t", TOPIC, (PARTITION,), {})], controller_epoch=epoch)
    many = tuple(PARTITION._replace(leader_epoch=number) for number in range(4000))
    change = AddPartitions("t", TOPIC, 1, many) if grows else CreateTopic("t", TOPIC, many, {})
    before = one.load().image
    session = one._session
    commits: list[object] = []

    def commit_once(operations: Sequence[Operation]) -> None:
        if commits:
            raise RegistryUnavailable("the connection is lost")
        commits.append(operations)
        type(session).commit(session, operations)

    session.commit = commit_once  # type: ignore[method-assign]
    with pytest.raises(RegistryUnavailable):
        one.write([change], controller_epoch=epoch)
    del session.commit  # type: ignore[method-assign]
    two, _ = registered(harness, 2)
    assert one.load(before).image.topics == before.topics == two.load().image.topics
    assert one.write([change], controller_epoch=epoch)
    assert two.load().image.topics["t"].partitions == ((PARTITION, *many) if grows else many)


def call_before(registry: ZooKeeperRegistry, method: str, number: int, call: Callable[[], None]) -> None:
    """Has something happen before a call of the session's method: that of this number from now on, from 0."""
    original, numbers = getattr(registry._session, method), count()

    def called(*arguments: object) -> None:
        if next(numbers) == number:
            call()
        original(*arguments)

    setattr(registry._session, method, called)


@pytest.mark.parametrize("has_more", [False, True], ids=["its nodes", "and others below"])
def test_a_former_controller_deletes_nothing_of_a_topic_that_is_made_again(
    harness: ZooKeeperHarness, has_more: bool
) -> None:
    one, epoch = controller(harness)
    two, _ = registered(harness, 2)
    assert one.write([CreateTopic("t", TOPIC, (PARTITION,), {})], controller_epoch=epoch)
    more = path_in(harness, "/brokers/topics/t/partitions/0/mine")

    def make_again() -> None:
        expire(one)
        later = two.elect_controller()
        assert later is not None
        assert two.write([CreateTopic("t", UUID(int=2), (PARTITION,), {})], controller_epoch=later)
        if has_more:
            client_of(two).create(more)

    call_before(one, "commit", 1, make_again)
    assert one.write([DeleteTopic("t", TOPIC)], controller_epoch=epoch)
    for image in (one.load().image, harness.open().load().image):
        assert image.topics["t"].topic_id == UUID(int=2)
        assert image.topics["t"].partitions == (PARTITION,)
    assert json_of(harness, "/brokers/topics/t")["partitions"] == {"0": [1, 2]}


def test_a_former_controller_removes_nothing_that_was_left_over(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    two, _ = registered(harness, 2)
    client_of(one).create(path_in(harness, "/brokers/topics/t/partitions/0"), makepath=True)

    def make() -> None:
        expire(one)
        later = two.elect_controller()
        assert later is not None
        assert two.write([CreateTopic("t", UUID(int=2), (PARTITION,), {})], controller_epoch=later)

    call_before(one, "delete_below", 0, make)
    assert not one.write([CreateTopic("t", TOPIC, (PARTITION,), {})], controller_epoch=epoch)
    assert harness.open().load().image.topics["t"].topic_id == UUID(int=2)


def test_what_was_touched_long_ago_is_read_whole(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    two = harness.open()
    before = two.load().image
    names = [f"{number:03}-{'x' * 200}" for number in range(100)]
    changes = [CreateTopic(name, UUID(int=number), (PARTITION,), {}) for number, name in enumerate(names)]
    assert one.write(changes, controller_epoch=epoch)
    assert one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch)
    change = two.load(before)
    assert change.image.topics.keys() == set(names) == change.topics
    assert change.image.broker_config("") == {"a": "1"}
    assert one.load(before) == change or one.load(before).image.topics == change.image.topics


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_that_zookeeper_has_ended_is_made_again(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    two, broker_epoch = registered(harness, 2)
    assert one.write([SetFenced(BrokerId(2), broker_epoch, False)], controller_epoch=epoch)
    expire(two)
    assert one.dead_brokers() == [(2, broker_epoch)]
    assert not one.has_session(BrokerId(2), broker_epoch)
    two.check()
    assert one.dead_brokers() == []
    assert one.has_session(BrokerId(2), broker_epoch)
    assert two.elect_controller() is None


def test_a_broker_that_has_a_new_life_elsewhere_gets_no_session_again(harness: ZooKeeperHarness) -> None:
    one, _ = registered(harness)
    expire(one)
    two, epoch = registered(harness)
    one.check()
    assert one.elect_controller() is None
    assert two.has_session(BrokerId(1), epoch)
    two.close()
    one.check()
    assert not harness.open().has_session(BrokerId(1), epoch)


def test_the_role_ends_with_the_session(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    two, _ = registered(harness, 2)
    assert two.elect_controller() is None
    hinted = threading.Event()
    two.watch(hinted.set)
    expire(one)
    assert hinted.wait(30), "the others hear of it"
    assert two.elect_controller() == epoch + 1
    one.check()
    assert one.load().image.controller_id == 2
    assert not one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch)


@pytest.mark.parametrize("elects", ["the same", "another"])
def test_who_deletes_the_controller_has_one_elected(harness: ZooKeeperHarness, elects: str) -> None:
    one, epoch = controller(harness)
    two, _ = registered(harness, 2)
    hinted = threading.Event()
    one.watch(hinted.set)
    client_of(one).delete(path_in(harness, "/controller"))
    assert hinted.wait(30)
    one.check()
    assert one.load().image.controller_id == -1
    assert (one if elects == "the same" else two).elect_controller() == epoch + 1


def test_another_epoch_ends_the_role(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    client_of(one).set(path_in(harness, "/controller_epoch"), b"%d" % (epoch + 5))
    assert not one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch)
    one.check()
    assert one.load().image.controller_id == -1
    assert one.elect_controller() == epoch + 6


@pytest.mark.parametrize("elects", ["the same", "another"])
def test_who_deletes_the_epoch_has_a_controller_elected(harness: ZooKeeperHarness, elects: str) -> None:
    one, epoch = controller(harness)
    two, _ = registered(harness, 2)
    client_of(one).delete(path_in(harness, "/controller_epoch"))
    assert not one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch)
    assert not one.settle_requests((), controller_epoch=epoch)
    one.check()
    assert one.load().image.controller_id == -1
    elected = one if elects == "the same" else two
    assert elected.elect_controller() == epoch + 1
    assert json_of(harness, "/controller_epoch") == epoch + 1
    assert not one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch)
    assert elected.write([SetBrokerConfig("", {"a": "2"})], controller_epoch=epoch + 1)
    assert harness.open().load().image.broker_config("") == {"a": "2"}


def test_a_former_controller_deletes_nothing_after_the_epoch_was_made_anew(harness: ZooKeeperHarness) -> None:
    """The version of the epoch's node is again the one that the former controller knows."""
    one, epoch = controller(harness)
    two, _ = registered(harness, 2)

    def another(registry: ZooKeeperRegistry) -> int:
        client_of(two).delete(path_in(harness, "/controller_epoch"))
        for each in (one, two):
            each.check()
        elected = registry.elect_controller()
        assert elected is not None
        return elected

    epoch = another(one)
    assert one.write([CreateTopic("t", TOPIC, (PARTITION,), {})], controller_epoch=epoch)

    def make_again() -> None:
        later = another(two)
        assert two.write([CreateTopic("t", UUID(int=2), (PARTITION,), {})], controller_epoch=later)

    call_before(one, "commit", 1, make_again)
    assert one.write([DeleteTopic("t", TOPIC)], controller_epoch=epoch)
    assert harness.open().load().image.topics["t"].topic_id == UUID(int=2)
    assert json_of(harness, "/brokers/topics/t")["partitions"] == {"0": [1, 2]}


# -- start ------------------------------------------------------------------------------------------------------------


def test_brokers_that_start_at_once_found_one_cluster(zookeeper: ZooKeeperServer) -> None:
    connect = zookeeper.new_path()
    with ThreadPoolExecutor(5) as threads:
        opened = list(threads.map(lambda _: ZooKeeperRegistry(ZooKeeperAccess(connect)), range(5)))
    assert len({registry.load().image.cluster_id for registry in opened}) == 1
    assert len({registry.cluster_secret() for registry in opened}) == 1
    assert sorted(registry.next_node_id() for registry in opened) == [1, 2, 3, 4, 5]
    for registry in opened:
        registry.close()


def test_a_cluster_whose_founder_registers_meanwhile_is_joined(
    zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = zookeeper.new_path()
    children, founded = ZooKeeperSession.children, ThreadPoolExecutor(1)

    def found() -> ZooKeeperRegistry:
        registry = ZooKeeperRegistry(ZooKeeperAccess(connect))
        registry.register_broker(BrokerRegistration(1, {}, ()))
        return registry

    def children_late(session: ZooKeeperSession, paths: Sequence[str]) -> list[list[str]]:
        monkeypatch.undo()
        with closing(founded.submit(found).result()):
            return children(session, paths)

    monkeypatch.setattr(ZooKeeperSession, "children", children_late)
    with closing(ZooKeeperRegistry(ZooKeeperAccess(connect))) as registry:
        assert list(registry.load().image.brokers) == [1]


def test_a_connection_may_be_lost_and_come_back_while_it_is_made(
    zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_root = ZooKeeperSession.make_root

    def make_root_late(session: ZooKeeperSession) -> None:
        session._state_changed(KazooState.SUSPENDED)
        session._state_changed(KazooState.CONNECTED)
        make_root(session)

    monkeypatch.setattr(ZooKeeperSession, "make_root", make_root_late)
    ZooKeeperRegistry(ZooKeeperAccess(zookeeper.new_path())).close()


def test_a_used_broker_founds_no_cluster(zookeeper: ZooKeeperServer) -> None:
    connect = zookeeper.new_path()
    with pytest.raises(UsageError, match="brokers have used /data: name the one of its cluster"):
        ZooKeeperRegistry(ZooKeeperAccess(connect), used_directory="/data")
    ZooKeeperRegistry(ZooKeeperAccess(connect)).close()
    ZooKeeperRegistry(ZooKeeperAccess(connect), used_directory="/data").close()


def test_the_tree_of_a_cluster_of_kafka_is_left_alone(harness: ZooKeeperHarness, zookeeper: ZooKeeperServer) -> None:
    connect = zookeeper.new_path()
    client = client_of(harness.open())
    client.create(f"/{connect.partition('/')[2]}/brokers/topics/theirs", b"{}", makepath=True)
    with pytest.raises(UsageError, match="of a cluster of Apache Kafka; choose another path"):
        ZooKeeperRegistry(ZooKeeperAccess(connect))


def test_only_brokers_that_authenticate_read_the_secret(zookeeper: ZooKeeperServer) -> None:
    connect = zookeeper.new_path()
    one = ZooKeeperRegistry(ZooKeeperAccess(connect, digest="brokers:pass word:x"))
    two = ZooKeeperRegistry(ZooKeeperAccess(connect, digest="brokers:pass word:x"))
    assert one.cluster_secret() == two.cluster_secret()
    for digest in (None, "brokers:another"):
        with pytest.raises(UsageError, match=r"zookeeper\.digest must be the one with which the cluster was founded"):
            ZooKeeperRegistry(ZooKeeperAccess(connect, digest=digest))
    one.close()
    two.close()


def test_all_may_read_and_only_brokers_may_write(zookeeper: ZooKeeperServer) -> None:
    connect = zookeeper.new_path()
    root = f"/{connect.partition('/')[2]}"
    digest = "brokers:secret"
    one = ZooKeeperRegistry(ZooKeeperAccess(connect, digest=digest, protects_all=True))
    registration = BrokerRegistration(1, {UUID(int=1): "/data"}, (), process="1")
    assert one.register_broker(registration) is not None
    epoch = one.elect_controller()
    assert epoch is not None
    changes = [CreateTopic("t", TOPIC, (PARTITION,), {"a": "1"}), SetBrokerConfig("", {"b": "1"})]
    row = LeaderChange(1, "t", 0, BrokerId(-1), BrokerId(1), 1, "made", 0)
    assert one.write(changes, controller_epoch=epoch, leader_changes=[row])
    other = KazooClient(zookeeper.address)
    other.start()
    found = [root]
    for path in found:
        if path.endswith("/secret"):
            with pytest.raises(NoAuthError):
                other.get(path)
        else:
            found += [f"{path}/{name}" for name in other.get_children(path)]
        for change in (
            lambda path=path: other.set(path, b""),
            lambda path=path: other.create(f"{path}/x"),
            lambda path=path: other.set_acls(path, OPEN_ACL_UNSAFE),
            *([lambda path=path: other.delete(path)] if path != root else []),
        ):
            with pytest.raises(NoAuthError):
                change()
    assert len(found) > 30
    assert f"{root}/brokers/topics/t/partitions/0/state" in found
    two = ZooKeeperRegistry(ZooKeeperAccess(connect, digest=digest, protects_all=True))
    assert two.load().image.topics["t"].partitions == (PARTITION,)
    two.close()
    one.close()
    other.stop()
    other.close()


def test_zookeeper_is_not_there() -> None:
    with pytest.raises(NotYet, match=r"127\.0\.0\.1:1 does not answer within 0\.2 s; start ZooKeeper"):
        ZooKeeperRegistry(ZooKeeperAccess("127.0.0.1:1/x", connect_max_s=0.2))


def test_names_that_the_dns_does_not_know_are_told() -> None:
    with pytest.raises(
        NotYet, match=r"zookeeper\.connect: the name (\S+)\.invalid cannot be resolved \(.+\), the name"
    ):
        ZooKeeperRegistry(ZooKeeperAccess("one.invalid:2181,two.invalid/x", connect_max_s=0.2))


@pytest.mark.parametrize("path", ["/barnabas/state", "/barnabas/brokers/1", "/brokers/topics/t/partitions/0/state"])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version": 1}', b'{"format": 2}'])
def test_what_somebody_else_has_spoiled_is_said(harness: ZooKeeperHarness, path: str, data: bytes) -> None:
    one, epoch = controller(harness)
    assert one.write([CreateTopic("t", TOPIC, (PARTITION,), {})], controller_epoch=epoch)
    client_of(one).set(path_in(harness, path), data)
    with pytest.raises(UsageError, match=re.escape(f"the registry's {path} cannot be read")):
        harness.open()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"[" * 100_000, b'{"version":1}', b'{"config":7}', b"\xff"])
def test_settings_that_cannot_be_read_stop_nobody(
    harness: ZooKeeperHarness, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    one, epoch = controller(harness)
    changes = [
        CreateTopic("t", TOPIC, (PARTITION,), {"a": "1"}),
        CreateTopic("u", UUID(int=2), (PARTITION,), {"a": "1"}),
    ]
    changes += [SetBrokerConfig("", {"b": "1"}), SetBrokerConfig("1", {"b": "1"})]
    assert one.write(changes, controller_epoch=epoch)
    paths = ("/config/topics/t", "/config/brokers/<default>")
    for path in paths:
        client_of(one).set(path_in(harness, path), data)
    expire(one)
    two, _ = registered(harness, 2)
    assert two.elect_controller() == epoch + 1
    image = two.load().image
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}  # nothing is deleted
    assert (image.topic_config("t"), image.broker_config("")) == (kept, {})
    assert (image.topic_config("u"), image.broker_config("1")) == ({"a": "1"}, {"b": "1"})
    for path in paths:
        lines = [line for line in caplog.messages if path in line]
        assert lines, caplog.messages
        assert all(len(line) < 500 for line in lines)


def test_settings_of_brokers_that_nobody_else_may_read_are_passed_over(harness: ZooKeeperHarness) -> None:
    """Kafka's tools make them so where they authenticate."""
    one, epoch = controller(harness)
    assert one.write([SetBrokerConfig("", {"b": "1"}), SetBrokerConfig("1", {"b": "1"})], controller_epoch=epoch)
    path = path_in(harness, "/config/brokers/<default>")
    client_of(one).set_acls(path, [make_digest_acl("somebody", "else", all=True)])
    expire(one)
    two, _ = registered(harness, 2)
    assert two.elect_controller() == epoch + 1
    image = two.load().image
    assert (image.broker_config(""), image.broker_config("1")) == ({}, {"b": "1"})


def test_settings_that_cannot_be_read_any_longer_are_as_before(harness: ZooKeeperHarness) -> None:
    one, epoch = controller(harness)
    two = harness.open()
    assert one.write([SetBrokerConfig("", {"b": "1"})], controller_epoch=epoch)
    assert two.load().image.broker_config("") == {"b": "1"}
    assert one.write([SetBrokerConfig("", {"b": "2"}), SetBrokerConfig("1", {"c": "3"})], controller_epoch=epoch)
    client_of(one).set(path_in(harness, "/config/brokers/<default>"), b"{")
    image = two.load().image
    assert (image.broker_config(""), image.broker_config("1")) == ({"b": "1"}, {"c": "3"})


# -- without ZooKeeper ------------------------------------------------------------------------------------------------


def answered(call: Callable[[], T]) -> T:
    """What ZooKeeper answers at last: on a slow machine the connection may have ended."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except RegistryUnavailable:
            assert time.monotonic() < deadline


def test_a_lost_answer_is_no_refusal(
    lonely: ZooKeeperServer, lonely_harness: ZooKeeperHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, epoch = controller(lonely_harness)
    before = one.load().image
    monkeypatch.setattr("barnabas.registry.zookeeper.session.ANSWER_MAX_S", 0.3)
    lonely.pause()
    with pytest.raises(RegistryUnavailable):
        one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch)
    with pytest.raises(RegistryUnavailable):
        one.elect_controller()
    lonely.resume()
    monkeypatch.undo()
    image = answered(lambda: one.load(before)).image
    assert image.broker_config("") in ({}, {"a": "1"}), "nobody knows"
    assert answered(lambda: one.write([SetBrokerConfig("", {"a": "2"})], controller_epoch=epoch))
    assert one.load().image.broker_config("") == {"a": "2"}


def test_zookeeper_is_killed_and_comes_back(lonely: ZooKeeperServer, lonely_harness: ZooKeeperHarness) -> None:
    one, epoch = controller(lonely_harness)
    back = threading.Event()
    one.watch(back.set)
    lonely.kill()
    for call in (one.load, one.check, one.elect_controller, one.dead_brokers, one.allocate_producer_ids):
        with pytest.raises(RegistryUnavailable):
            call()
    back.clear()
    lonely.start()
    assert back.wait(60), "the connection is back, and the registry may have changed"
    assert answered(one.elect_controller) == epoch, "the session has gone on"
    assert answered(lambda: one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch))
    assert one.load().image.broker_config("") == {"a": "1"}


def test_a_zookeeper_that_was_put_back_from_a_copy_is_not_used(
    lonely: ZooKeeperServer, lonely_harness: ZooKeeperHarness
) -> None:
    one, epoch = controller(lonely_harness)
    lonely.kill()
    put_back = lonely.back_up()
    lonely.start()
    assert answered(lambda: one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch))
    image = answered(lambda: one.load()).image
    lonely.kill()
    put_back()
    lonely.start()
    for call in (one.load, one.check, one.elect_controller, one.allocate_producer_ids):
        with pytest.raises(RegistryUnavailable):  # its session is refused by ZooKeeper itself
            call()
    later = lonely_harness.open()
    assert later.load().image.version < image.version
    later.note_version(image.version, image.controller_epoch)
    registration = BrokerRegistration(2, {}, ())
    for call in (later.load, later.check, lambda: later.register_broker(registration), later.allocate_producer_ids):
        with pytest.raises(RegistryOutdated, match="it was put back from a copy"):
            call()


def test_it_closes_without_zookeeper(lonely: ZooKeeperServer, stopwatch: Stopwatch) -> None:
    registry = ZooKeeperRegistry(ZooKeeperAccess(lonely.new_path()))
    lonely.kill()
    registry.close()
    assert stopwatch() < 10


# -- whose session is taken over --------------------------------------------------------------------------------------


def registration_in(directory: Path, process: str) -> BrokerRegistration:
    directory.mkdir(exist_ok=True)
    return BrokerRegistration(1, {UUID(int=1): str(directory)}, (), process=process)


def test_a_process_that_runs_keeps_its_registration_whatever_its_session(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    own, other = begin_process(several_machines=True), begin_process(several_machines=True)
    access = ZooKeeperAccess(zookeeper.new_path())
    with closing(ZooKeeperRegistry(access)) as one, closing(ZooKeeperRegistry(access)) as two:
        assert one.register_broker(registration_in(tmp_path, own)) is not None
        expire(one)
        assert two.session(1) is Evidence.RUNS
        assert two.register_broker(registration_in(tmp_path, other)) is None
        end_process(own)
        assert two.register_broker(registration_in(tmp_path, other)) is not None
    end_process(other)


def test_who_has_locked_the_directories_of_a_container_is_its_broker(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """Its former process, with process ids of its own, had the lock of the same directory below the same kernel."""
    boot = begin_process().partition("|")[0]
    former, again = (f"{boot}|pid:[{number}]|7|8|9|several" for number in (1, 2))
    data, copy = tmp_path / "data", tmp_path / "copy"
    access = ZooKeeperAccess(zookeeper.new_path())
    with closing(ZooKeeperRegistry(access)) as one, closing(ZooKeeperRegistry(access)) as two:
        assert one.register_broker(registration_in(data, former)) is not None
        assert two.register_broker(registration_in(copy, again)) is None
        assert two.session(1, [str(copy)]) is Evidence.UNSEEN
        assert two.session(1, [str(data)]) is Evidence.ENDED
        assert two.register_broker(registration_in(data, again)) is not None
        elsewhere = again.replace(boot, "another boot")
        assert one.register_broker(registration_in(data, elsewhere)) is not None
        assert two.register_broker(registration_in(data, again)) is None, "a directory there may have the same number"
