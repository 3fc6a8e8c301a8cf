"""`cordoned.log.dirs`: a directory that it names gets no new replicas, and a broker none if all of its directories are
cordoned (KIP-1066)."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.client.admin.topics import NewTopic
from barnabas.errors import BarnabasError, UsageError
from barnabas.testing import Broker, Cluster

NAME = "cordoned.log.dirs"


def logs_in(directory: Path) -> int:
    return len(list(directory.glob("t*-[0-9]*")))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(log_dirs=2) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[barnabas.Admin]:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


def cordon(admin: barnabas.Admin, value: object, node_id: int = 1) -> None:
    admin.alter_configs({("broker", str(node_id)): {NAME: value and str(value)}})


def test_a_cordoned_directory_gets_no_new_replicas(broker: Broker, admin: barnabas.Admin) -> None:
    first, second = broker.log_dirs
    cordon(admin, first)
    broker.create_topic("t", partitions=6)
    assert (logs_in(first), logs_in(second)) == (0, 6)
    with pytest.raises(BarnabasError, match="INVALID_REPLICA_ASSIGNMENT"):
        admin.alter_replica_log_dirs({("t", 0, 1): str(first)})
    cordon(admin, second)
    broker.create_topic("t2", partitions=2)
    assert (logs_in(first), logs_in(second)) == (2, 6)
    described = {Path(each.path): each.is_cordoned for each in admin.describe_log_dirs()[1]}
    assert described == {first: False, second: True}


def test_a_broker_with_nothing_but_cordoned_directories_gets_no_new_replicas(
    broker: Broker, admin: barnabas.Admin
) -> None:
    broker.create_topic("t")
    cordon(admin, "*")
    with pytest.raises(BarnabasError, match="cordoned"):
        admin.create_topics(NewTopic("u"))
    with pytest.raises(BarnabasError, match="cordoned"):
        admin.create_partitions({"t": 2})
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"served as before").result(30)
    cordon(admin, None)
    admin.create_partitions({"t": 2})


def test_it_is_read_at_the_start(tmp_path: Path) -> None:
    with Broker(log_dirs=2, data_dir=tmp_path, settings={NAME: str(tmp_path / "log-1")}) as broker:
        broker.create_topic("t", partitions=4)
        assert (logs_in(tmp_path / "log-1"), logs_in(tmp_path / "log-2")) == (0, 4)


@pytest.mark.parametrize("value", ["/elsewhere", "*,/elsewhere"])
def test_names_of_no_data_directory_are_refused(broker: Broker, admin: barnabas.Admin, value: str) -> None:
    with pytest.raises(BarnabasError, match=NAME):
        cordon(admin, value)
    with pytest.raises(UsageError, match=NAME), Broker(settings={NAME: value}):
        pass


def test_a_directory_that_is_no_longer_the_brokers_does_not_stop_its_start(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with Broker(data_dir=f"{one},{two}") as broker, barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        cordon(admin, two)
    shorter = Broker(data_dir=one).start(lost_dirs=[two])
    with contextlib.closing(shorter) as broker:
        broker.create_topic("t")


def test_it_is_set_for_one_broker_at_a_time(broker: Broker, admin: barnabas.Admin) -> None:
    with pytest.raises(BarnabasError, match="default cluster level"):
        admin.alter_configs({("broker", ""): {NAME: "*"}})


def test_a_broker_that_is_not_the_controller_refuses_directories_that_it_does_not_have() -> None:
    with Cluster(brokers=2) as cluster, barnabas.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        follower = next(node_id for node_id in cluster.node_ids if node_id != cluster.controller)
        with pytest.raises(BarnabasError, match=f"/elsewhere is not in log.dirs of broker {follower}"):
            cordon(admin, "/elsewhere", follower)
        cordon(admin, "*", follower)


def test_the_controller_places_replicas_on_other_brokers() -> None:
    with Cluster(brokers=3, log_dirs=2) as cluster:
        follower = next(node_id for node_id in cluster.node_ids if node_id != cluster.controller)
        with barnabas.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            cordon(admin, "*", follower)

            def is_refused() -> bool:
                try:
                    admin.create_topics(NewTopic("wide", replication_factor=3), validate_only=True)
                except BarnabasError as error:
                    return "cordoned" in str(error)
                return False

            cluster.wait_for(is_refused, what="the controller knows")
            cluster.create_topic("t", partitions=4, replication_factor=2)
            partitions = admin.describe_topics("t")["t"].partitions.values()
            assert follower not in {replica for partition in partitions for replica in partition.replicas}
            with pytest.raises(BarnabasError, match=r"manual partition assignment includes broker .* cordoned"):
                admin.alter_partition_reassignments({("t", 0): [follower]})
            with pytest.raises(BarnabasError, match=r"manual partition assignment includes broker .* cordoned"):
                admin.create_topics(NewTopic("by_hand", assignments={0: [follower]}))
            cordon(admin, None, follower)
            cluster.wait_for(lambda: not is_refused(), what="the controller knows")
