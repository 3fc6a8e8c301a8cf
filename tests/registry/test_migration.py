"""A registry moves between a file and ZooKeeper: nothing is lost on the way, and there is never more than one."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.config.endpoints import Endpoint
from barnabas.errors import UsageError
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.registry.content import Move, RegistryContent
from barnabas.registry.migration import StoredRegistry, differences, move_registry
from barnabas.registry.registry import (
    BrokerRegistration,
    CreateTopic,
    LastRegistration,
    LeaderChange,
    Registry,
    RegistryUnavailable,
    RemoveBroker,
    SetBrokerConfig,
    SetFenced,
)
from barnabas.registry.sqlite_file import SqliteFile
from barnabas.types import BrokerId
from registry import conformance
from registry.stores import FilePlace, Place, ZooKeeperPlace, move, put, read
from registry.test_registry_model import configs, partitions
from zookeeper_server import ZooKeeperServer, another_program

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from barnabas.registry.zookeeper.session import ZooKeeperAccess, ZooKeeperSession

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
ENDPOINT = Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092)
PARTITION = PartitionImage(1, 3, (1, 2, 3), (1,), 7, (3,), (2,), (2,), (3,))
ROW = LeaderChange(5, "t", 0, ONE, TWO, 3, "broker 1: it stops", 12)
CONTENT = RegistryContent(
    MetadataImage(
        CLUSTER,
        version=40,
        controller_epoch=9,
        brokers={
            ONE: BrokerImage(ONE, 38, (ENDPOINT,), "a rack", True, ENDPOINT, "", "unclean"),
            TWO: BrokerImage(TWO, 0, (), fenced=True),
        },
        topics={"t": TopicImage("t", UUID(int=7), (PARTITION, PARTITION._replace(leader=-1)))},
        topic_configs={"t": {"retention.ms": "5", "ü": ""}},
        broker_configs={"": {"a": "1"}, "2": {"b": "2"}},
    ),
    3000,
    bytes(range(32)),
    {ONE: {UUID(int=1): "/data/one", UUID(int=2): "/data/two"}, THREE: {UUID(int=3): "/gone"}},
    4,
    (ROW, ROW._replace(leader_epoch=4)),
    {ONE: LastRegistration("of one", 38), THREE: LastRegistration("of three", 12)},
)

Places = tuple[Place, Place]


@pytest.fixture
def processes() -> conformance.Processes:
    return conformance.Processes()


@pytest.fixture(params=["to ZooKeeper", "from ZooKeeper", "to another file", "to another path"])
def new_places(
    request: pytest.FixtureRequest, tmp_path: Path, zookeeper: ZooKeeperServer, processes: conformance.Processes
) -> Callable[[], Places]:
    """Makes a source and a target where nothing is."""
    running, numbers = processes.is_running, count()

    def file() -> Place:
        return FilePlace(tmp_path / f"{next(numbers)}.db", running)

    def path() -> Place:
        return ZooKeeperPlace(zookeeper, running)

    source = path if request.param in {"from ZooKeeper", "to another path"} else file
    target = path if request.param in {"to ZooKeeper", "to another path"} else file
    return lambda: (source(), target())


@pytest.fixture
def places(new_places: Callable[[], Places]) -> Places:
    return new_places()


def require_equal(place: Place, content: RegistryContent) -> None:
    found = read(place)
    assert found is not None
    assert list(differences(content, found.content)) == []
    assert (found.move, list(found.live), list(found.requests)) == (None, [], [])


# -- nothing is lost --------------------------------------------------------------------------------------------------


def test_everything_is_there_and_back(places: Places) -> None:
    source, target = places
    put(source, CONTENT)
    assert move(source, target).differences == ()
    require_equal(target, CONTENT)
    assert move(target, source).differences == ()
    require_equal(source, CONTENT)
    assert move(source, target).differences == ()
    require_equal(target, CONTENT)


names = st.sampled_from(["a", "b", "Ein_längerer.Name"])
brokers = st.builds(
    BrokerImage,
    *(st.sampled_from([ONE, TWO, THREE]), st.integers(0, 9), st.lists(st.just(ENDPOINT), max_size=2).map(tuple)),
    *(st.none() | st.text("äb c", max_size=3), st.just(True), st.none() | st.just(ENDPOINT), st.just("")),
    st.sampled_from(["", "unclean", "lost"]),
)
contents = st.builds(
    RegistryContent,
    st.builds(
        lambda version, epoch, brokers, topics, configs, dynamic: MetadataImage(
            CLUSTER,
            version=version,
            controller_epoch=epoch,
            brokers={broker.node_id: broker for broker in brokers},
            topics={
                name: TopicImage(name, UUID(int=number), each) for number, (name, each) in enumerate(topics.items())
            },
            topic_configs={name: config for name, config in configs.items() if config and name in topics},
            broker_configs={name: config for name, config in dynamic.items() if config},
        ),
        *(st.integers(10, 2**40), st.integers(0, 2**30), st.lists(brokers, max_size=3)),
        st.dictionaries(names, st.lists(partitions, min_size=1, max_size=3).map(tuple), max_size=3),
        *(st.dictionaries(names, configs, max_size=3), st.dictionaries(st.sampled_from(["", "1"]), configs)),
    ),
    *(st.integers(0, 2**50), st.binary(min_size=32, max_size=32)),
    st.dictionaries(
        st.sampled_from([ONE, TWO, THREE]), st.dictionaries(st.uuids(), st.text("/ä b"), min_size=1, max_size=2)
    ),
    st.integers(0, 3),
    st.lists(st.builds(ROW._replace, reason=st.text(max_size=9), took_ms=st.integers(0, 9)), max_size=3).map(tuple),
    st.just({}),
).map(
    lambda content: content._replace(
        registrations={node_id: LastRegistration(f"of {node_id}", 2**40) for node_id in content.directories}
    )
)


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(contents)
def test_any_content_is_there_and_back(zookeeper: ZooKeeperServer, tmp_path: Path, content: RegistryContent) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    file, path = FilePlace(tmp_path / "registry.db"), ZooKeeperPlace(zookeeper)
    put(file, content)
    assert move(file, path).differences == ()
    require_equal(path, content)
    assert move(path, file).differences == ()
    require_equal(file, content)


def registered(place: Place, node_id: int) -> tuple[Registry, int]:
    registry = place.registry()
    registration = BrokerRegistration(node_id, {UUID(int=node_id): f"/{node_id}"}, (ENDPOINT,), process=f"p{node_id}")
    epoch = registry.register_broker(registration)
    assert epoch is not None
    return registry, epoch


def test_brokers_go_on_in_the_other_store(places: Places, processes: conformance.Processes) -> None:
    source, target = places
    with closing(source.registry()) as founder:
        secret = founder.cluster_secret()
    one, _ = registered(source, 1)
    controller_epoch = one.elect_controller()
    assert controller_epoch is not None
    two, two_epoch = registered(source, 2)
    topic = CreateTopic("t", UUID(int=7), (PARTITION,), {"retention.ms": "5"})
    changes = [topic, SetBrokerConfig("", {"a": "1"}), SetFenced(TWO, two_epoch, False)]
    assert one.write(changes, controller_epoch=controller_epoch, leader_changes=[ROW])
    three, three_epoch = registered(source, 3)
    three.close()
    assert one.write([RemoveBroker(THREE, three_epoch)], controller_epoch=controller_epoch)
    block = one.allocate_producer_ids()
    before = one.load().image
    one.close()
    processes.kill("p2")
    two.abandon()
    assert move(source, target).differences == ()

    again, epoch = registered(target, 1)
    image = again.load().image
    assert image.cluster_id == before.cluster_id
    assert again.cluster_secret() == secret
    assert (image.topics, image.topic_configs, image.broker_configs) == (
        *(before.topics, before.topic_configs),
        before.broker_configs,
    )
    assert image.brokers[TWO] == before.brokers[TWO]._replace(fenced=True, process="")
    assert image.version > before.version
    assert epoch > max(two_epoch, three_epoch)
    assert again.directories(3) == {UUID(int=3): "/3"}, "of a broker that is not registered any more"
    assert again.elect_controller() == controller_epoch + 1
    assert again.allocate_producer_ids().first == block.first + block.size
    assert again.leader_changes(10) == [ROW]
    again.close()


def test_the_history_of_leaders_is_cut_to_what_the_target_keeps(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    file, path = FilePlace(tmp_path / "registry.db"), ZooKeeperPlace(zookeeper)
    rows = tuple(ROW._replace(leader_epoch=number) for number in range(1500))
    put(file, CONTENT._replace(leader_changes=rows))
    assert move(file, path).differences == ()
    require_equal(path, CONTENT._replace(leader_changes=rows[500:]))
    with closing(path.registry()) as registry:
        assert registry.register_broker(BrokerRegistration(1, {UUID(int=1): "/data/one"}, ())) is not None
        epoch = registry.elect_controller()
        assert epoch is not None
        assert registry.write([SetBrokerConfig("", {})], controller_epoch=epoch, leader_changes=[ROW])
        assert registry.leader_changes(2) == [rows[-1], ROW]


def test_numbers_of_brokers_are_generated_on(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    from barnabas.registry.zookeeper.zookeeper_registry import ZooKeeperRegistry

    one, file, two = ZooKeeperPlace(zookeeper), FilePlace(tmp_path / "registry.db"), ZooKeeperPlace(zookeeper)
    with closing(ZooKeeperRegistry(ZooKeeperAccess(one.connect))) as registry:
        assert [registry.next_node_id() for _ in range(3)] == [1, 2, 3]
    assert move(one, file).differences == ()
    assert move(file, two).differences == ()
    with closing(ZooKeeperRegistry(ZooKeeperAccess(two.connect))) as registry:
        assert registry.next_node_id() == 4


# -- one registry at a time -------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The end of the process."""


@contextmanager
def crash_before(write: int) -> Iterator[None]:
    """Ends the process instead of the write of this number, counted from 0, to whatever store."""
    left = write

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if not left:
                raise Crash
            left -= 1
            return real(*arguments, **options)

        return counted

    with (
        patch.object(ZooKeeperSession, "commit", counting(ZooKeeperSession.commit)),
        patch.object(SqliteFile, "transaction", counting(SqliteFile.transaction)),
    ):
        yield


def usable(place: Place) -> bool:
    """Returns whether brokers take what is there for their registry."""
    try:
        place.registry().close()
    except UsageError as error:
        return "`barnabas cluster migrate-registry --from " not in str(error)
    return True


def test_a_crash_between_any_two_writes_leaves_one_registry_and_a_move_to_complete(
    new_places: Callable[[], Places],
) -> None:
    states: list[tuple[bool, bool]] = []
    for write in count():
        source, target = new_places()
        put(source, CONTENT)
        with suppress(Crash), crash_before(write):
            assert move(source, target).differences == ()
            break
        states.append((usable(source), read(target) is not None and usable(target)))
        assert move(source, target).differences == ()
        assert (usable(source), usable(target)) == (False, True)
        require_equal(target, CONTENT)
    assert states == [(True, False)] * (len(states) - 1) + [(False, False)], "before and between the marks"


def test_a_source_that_goes_on_after_a_crash_is_moved_as_it_is_then(places: Places) -> None:
    source, target = places
    put(source, CONTENT)
    with (
        closing(source.store()) as one,
        closing(target.store()) as other,
        patch.object(one, "set_move", side_effect=Crash),
        suppress(Crash),
    ):
        move_registry(one, other)
    assert not usable(target)
    one, _ = registered(source, 1)
    epoch = one.elect_controller()
    assert epoch is not None
    assert one.write([CreateTopic("later", UUID(int=9), (PARTITION,), {})], controller_epoch=epoch)
    one.close()
    assert move(source, target).differences == ()
    with closing(target.registry()) as registry:
        assert sorted(registry.load().image.topics) == ["later", "t"]


def test_a_move_that_both_stores_do_not_know_of_is_not_completed(places: Places, tmp_path: Path) -> None:
    source, target = places
    put(source, CONTENT)
    elsewhere = FilePlace(tmp_path / "elsewhere.db")
    for write in range(1000):  # up to the marks
        with suppress(Crash), crash_before(write):
            move(source, elsewhere)
        if (found := read(elsewhere)) is not None and found.move is not None:
            break
    assert usable(source)
    assert move(source, target).differences == ()
    with pytest.raises(UsageError, match="it was moved to"):
        move(source, elsewhere)
    assert not usable(elsewhere)
    assert usable(target)


def test_what_is_written_otherwise_is_named_and_the_source_stays_the_registry(places: Places) -> None:
    source, target = places
    put(source, CONTENT)
    with closing(source.store()) as one, closing(target.store()) as other:
        write = other.write
        wrong = PARTITION._replace(leader_epoch=99, isr=(1, 2))
        topics = {
            "t": TopicImage("t", UUID(int=7), (PARTITION, wrong)),
            "more": TopicImage("more", UUID(int=8), (wrong,)),
        }

        def write_wrong(content: RegistryContent, mark: Move) -> None:
            image = content.image
            image.topics, image.topic_configs, kept = topics, {}, (image.topics, image.topic_configs)
            write(content._replace(secret=bytes(32), leader_changes=()), mark)
            image.topics, image.topic_configs = kept

        with patch.object(other, "write", write_wrong):
            done = move_registry(one, other)
    assert list(done.differences) == [
        "image topic_configs t is missing",
        "image topics more is too much",
        "image topics t partitions 1 isr is (1, 2) instead of (1,)",
        "image topics t partitions 1 leader is 1 instead of -1",
        "image topics t partitions 1 leader_epoch is 99 instead of 3",
        "leader_changes 0 is missing",
        "leader_changes 1 is missing",
        "secret differs",
    ]
    assert (usable(source), usable(target)) == (True, False)
    assert move(source, target).differences == ()


def test_brokers_that_run_are_named(places: Places, processes: conformance.Processes) -> None:
    source, target = places
    one, _ = registered(source, 1)
    two, _ = registered(source, 2)
    with pytest.raises(UsageError, match="brokers use it: 1, 2; stop them"):
        move(source, target)
    two.close()
    processes.kill("p1")
    assert move(source, target).differences == ()
    one.abandon()


def test_a_broker_that_opened_the_source_before_writes_nothing_there(places: Places) -> None:
    source, target = places
    put(source, CONTENT)
    early = source.registry()
    assert move(source, target).differences == ()
    for call in (
        lambda: early.register_broker(BrokerRegistration(1, {UUID(int=1): "/data/one"}, (), process="p")),
        early.allocate_producer_ids,
        lambda: early.announce_brokers([5]),
    ):
        with pytest.raises(RegistryUnavailable, match="it was moved to"):
            call()
    early.abandon()
    assert list(differences(CONTENT, content_of(source))) == []


def content_of(place: Place) -> RegistryContent:
    found = read(place)
    assert found is not None
    return found.content


@pytest.mark.parametrize("late", ["registers", "takes producer ids"])
def test_a_broker_that_writes_meanwhile_keeps_the_source(places: Places, late: str) -> None:
    source, target = places
    put(source, CONTENT)
    with closing(source.store()) as one, closing(target.store()) as other:
        write = other.write

        def write_late(content: RegistryContent, mark: Move) -> None:
            write(content, mark)
            if late == "registers":
                registered(source, 1)[0].abandon()
            else:
                with closing(source.registry()) as registry:
                    registry.allocate_producer_ids()

        with patch.object(other, "write", write_late), pytest.raises(UsageError, match="was written while it was"):
            move_registry(one, other)
    assert (usable(source), usable(target)) == (True, False)


@pytest.mark.parametrize("there", ["nothing", "what was moved"])
def test_what_becomes_of_the_target_meanwhile_is_not_overwritten(places: Places, there: str) -> None:
    """Two moves at the same moment: brokers use what the first one has moved."""
    source, target = places
    put(source, CONTENT)
    if there == "what was moved":
        move(source, target)
        source, target = target, source
    with closing(source.store()) as one, closing(target.store()) as other:
        read = other.read

        def read_early() -> StoredRegistry | None:
            found = read()
            move(source, target)
            with closing(target.registry()) as registry:
                registry.allocate_producer_ids()
            return found

        with patch.object(other, "read", read_early), pytest.raises((UsageError, RegistryUnavailable)):
            move_registry(one, other)
    assert (usable(source), usable(target)) == (False, True)


def test_another_registry_is_not_overwritten(places: Places, tmp_path: Path) -> None:
    source, target = places
    put(source, CONTENT)
    target.registry().close()
    cluster_id = content_of(target).image.cluster_id
    with pytest.raises(UsageError, match=f"is the registry of cluster {cluster_id}; name a place that has none"):
        move(source, target)
    third = FilePlace(tmp_path / "third.db")
    assert move(target, third).differences == ()
    with pytest.raises(UsageError, match=f"is the registry of cluster {cluster_id}"):
        move(source, target)
    with pytest.raises(UsageError, match="is the registry of cluster"):
        move(source, source)
    assert usable(source)


def test_an_older_copy_does_not_overwrite_what_has_been_moved(places: Places, tmp_path: Path) -> None:
    source, target = places
    put(source, CONTENT)
    assert move(source, target).differences == ()
    older = FilePlace(tmp_path / "older.db")
    image = CONTENT.image
    put(older, CONTENT._replace(image=MetadataImage(image.cluster_id, version=image.version - 1)))
    with pytest.raises(UsageError, match="has later writes of this cluster"):
        move(older, source)


def test_there_is_nothing_to_move(places: Places) -> None:
    source, target = places
    with pytest.raises(UsageError, match="there is no registry to move"):
        move(source, target)
    put(source, CONTENT)
    move(source, target)
    with pytest.raises(UsageError, match="it was moved to"):
        move(source, target)
    assert usable(target)


# -- what is particular to ZooKeeper ----------------------------------------------------------------------------------


@pytest.mark.parametrize("node", ["/brokers/topics/wanted", "/admin/delete_topics/t", "/admin/reassign_partitions"])
def test_requests_of_other_programs_keep_the_registry_where_it_is(
    zookeeper: ZooKeeperServer, tmp_path: Path, node: str
) -> None:
    path, file = ZooKeeperPlace(zookeeper), FilePlace(tmp_path / "registry.db")
    put(path, CONTENT)
    with another_program(path.connect) as program:
        data = b'{"version":1,"partitions":{"0":[1]}}'
        program.create(node, b'{"version":1,"partitions":[]}x' if "reassign" in node else data)
        with pytest.raises(UsageError, match=f"other programs wait for the controller in {node}; start the brokers"):
            move(path, file)
        program.delete(node)
        assert move(path, file).differences == ()
        program.create(node, data)
        assert move(file, path).differences == (), "what was asked for in a registry that was moved has no effect"
    require_equal(path, CONTENT)


def test_what_a_controller_tells_others_is_no_request(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    path, other, file = ZooKeeperPlace(zookeeper), ZooKeeperPlace(zookeeper), FilePlace(tmp_path / "registry.db")
    put(file, CONTENT)
    move(file, path)
    with closing(path.registry()) as one:
        assert one.register_broker(BrokerRegistration(1, {UUID(int=1): "/data/one"}, ())) is not None
        epoch = one.elect_controller()
        assert epoch is not None
        assert one.write([SetBrokerConfig("", {"a": "3"})], controller_epoch=epoch)
    with another_program(path.connect) as program:
        assert len(program.get_children("/config/changes")) == 1
    assert move(path, other).differences == ()
    with another_program(other.connect) as program:
        assert program.get_children("/config/changes") == []
        assert program.get("/feature")[0] == b'{"version":1,"status":1,"features":{}}'


def test_a_registry_without_the_epoch_of_its_controller_is_moved(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    path, file = ZooKeeperPlace(zookeeper), FilePlace(tmp_path / "registry.db")
    put(path, CONTENT)
    with another_program(path.connect) as program:
        program.delete("/controller_epoch")
        assert move(path, file).differences == ()
        require_equal(file, CONTENT)
        assert move(file, path).differences == ()
        assert program.get("/controller_epoch")[0] == b"9"
    require_equal(path, CONTENT)


def test_a_look_for_a_registry_makes_no_path(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    path, file = ZooKeeperPlace(zookeeper), FilePlace(tmp_path / "registry.db")
    for source, target in ((path, file), (file, path)):
        with pytest.raises(UsageError, match="there is no registry to move"):
            move(source, target)
    with another_program(zookeeper.address) as program:
        assert program.exists(f"/{path.connect.partition('/')[2]}") is None
    assert not file.path.exists()


def test_settings_that_cannot_be_read_are_not_moved(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    path, file = ZooKeeperPlace(zookeeper), FilePlace(tmp_path / "registry.db")
    put(path, CONTENT)
    with another_program(path.connect) as program:
        program.set("/config/topics/t", b"{")
    with pytest.raises(RegistryUnavailable, match="/config/topics/t cannot be read"):
        move(path, file)
    assert usable(path)


def test_the_tree_of_kafka_is_left_alone(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    path, file = ZooKeeperPlace(zookeeper), FilePlace(tmp_path / "registry.db")
    put(file, CONTENT)
    with another_program(zookeeper.address) as program:
        program.create(f"/{path.connect.partition('/')[2]}/brokers/topics/theirs", b"{}", makepath=True)
    with pytest.raises(UsageError, match="of a cluster of Apache Kafka; choose another path"):
        move(file, path)


def test_the_secret_stays_one(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    from barnabas.registry.zookeeper.zookeeper_store import ZooKeeperStore

    file, connect = FilePlace(tmp_path / "registry.db"), zookeeper.new_path()
    put(file, CONTENT)
    with (
        closing(file.store()) as one,
        closing(ZooKeeperStore(ZooKeeperAccess(connect, digest="a:b", protects_all=True))) as other,
    ):
        assert move_registry(one, other).differences == ()
    with another_program(connect) as program:
        from kazoo.exceptions import NoAuthError

        with pytest.raises(NoAuthError):
            program.get("/barnabas/secret")
        with pytest.raises(NoAuthError):
            program.set("/brokers/topics/t", b"")


def test_other_releases_refuse_a_marked_registry() -> None:
    mark = Move("id", "/registry.db", is_target=True)
    assert Move.parse(mark.encoded()) == mark
    assert Move.parse(1) is None
    for text in ("", "2 parts", "[]", '["a", "b", true, "more"]', "null", None):
        with pytest.raises(ValueError):  # of whatever kind
            Move.parse(text)
