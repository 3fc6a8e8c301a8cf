"""DescribeCluster, DescribeLogDirs, DescribeProducers."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.broker.handlers.topics.metadata import CLUSTER_OPERATIONS, NOT_ASKED
from barnabas.broker.server import Broker
from barnabas.errors import (
    InvalidTopic,
    KafkaStorageError,
    MismatchedEndpointType,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    UnsupportedEndpointType,
)
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import validate_produce
from broker.admin_rig import ask, create, running_broker, versions


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path) as broker:
        yield broker


def produce(broker: Broker, topic: str, partition: int, *, producer_id: int = -1, base_sequence: int = -1) -> int:
    """Two records; returns the size of their batch."""
    records = [Record(offset, 1_000 + offset, None, b"value", ()) for offset in (0, 1)]
    epoch = 3 if producer_id >= 0 else -1
    batch = build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence)
    found = broker.replica_manager.leader_of(topic, partition)
    found.append_as_leader(validate_produce(batch, found.append_policy, broker.clock.wall_ms()), 1)
    return len(batch)


# -- DescribeCluster ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_this_broker_at_the_address_where_the_client_arrived(broker: Broker, version: int) -> None:
    answer = ask(broker, DescribeClusterRequest(), version)
    assert (answer.error_code, answer.error_message, answer.cluster_id) == (0, None, broker.cluster_id)
    assert answer.controller_id == 1
    assert [(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers] == [(1, "10.0.0.9", 9092, None)]
    assert answer.cluster_authorized_operations == NOT_ASKED
    asked = ask(broker, DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


def test_endpoints_of_controllers(broker: Broker) -> None:
    for version in (1, 2):
        assert ask(broker, DescribeClusterRequest(endpoint_type=2), version).error_code == MismatchedEndpointType.code
        assert ask(broker, DescribeClusterRequest(endpoint_type=9), version).error_code == UnsupportedEndpointType.code


def test_fenced_brokers_are_shown_to_those_who_ask() -> None:
    image = MetadataImage(
        "c", controller_id=2, brokers={1: BrokerImage(1, 1, ()), 2: BrokerImage(2, 1, (), fenced=True)}
    )
    broker = SimpleNamespace(
        cluster_id="c",
        image=image,
        advertised_brokers=lambda _: [(1, "one", 9092, "r1"), (2, "two", 9092, None)],
    )
    hidden = ask(broker, DescribeClusterRequest(), 2)
    assert [(b.broker_id, b.rack, b.is_fenced) for b in hidden.brokers] == [(1, "r1", False)]
    assert hidden.controller_id == -1
    shown = ask(broker, DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(b.broker_id, b.is_fenced) for b in shown.brokers] == [(1, False), (2, True)]
    assert shown.controller_id == 2


# -- DescribeLogDirs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
def test_sizes_of_partitions(broker: Broker, tmp_path: Path, version: int) -> None:
    create(broker, "a", 2)
    create(broker, "b")
    size = produce(broker, "a", 1)
    answer = ask(broker, DescribeLogDirsRequest(topics=None), version)
    (directory,) = answer.results
    assert (answer.error_code, directory.error_code, directory.log_dir) == (0, 0, str(tmp_path))
    sizes = {(t.name, p.partition_index): p.partition_size for t in directory.topics for p in t.partitions}
    assert sizes == {("a", 0): 0, ("a", 1): size, ("b", 0): 0}
    assert all((p.offset_lag, p.is_future_key) == (0, False) for t in directory.topics for p in t.partitions)
    space = shutil.disk_usage(tmp_path)
    assert directory.total_bytes == (space.total if version >= 4 else -1)
    assert (0 < directory.usable_bytes <= space.total) == (version >= 4)


def test_only_partitions_that_are_asked_for_and_here(broker: Broker) -> None:
    create(broker, "a", 2)
    wanted = [
        DescribableLogDirTopic(topic="a", partitions=[1, 7]),
        DescribableLogDirTopic(topic="nosuch", partitions=[0]),
    ]
    (directory,) = ask(broker, DescribeLogDirsRequest(topics=wanted)).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in directory.topics] == [("a", [1])]
    (nothing,) = ask(broker, DescribeLogDirsRequest(topics=[])).results
    assert (nothing.error_code, list(nothing.topics)) == (0, [])


def test_each_directory_shows_its_own(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with running_broker(tmp_path, log_dirs=f"{one},{two}") as broker:
        create(broker, "a", 2)
        results = {r.log_dir: r.topics for r in ask(broker, DescribeLogDirsRequest(topics=None)).results}
        assert set(results) == {str(one), str(two)}
        found = [[p.partition_index for t in topics for p in t.partitions] for topics in results.values()]
        assert sorted(found) == [[0], [1]]


def test_directory_that_is_gone(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("os.statvfs", gone)
    (directory,) = ask(broker, DescribeLogDirsRequest(topics=None)).results
    assert directory.error_code == KafkaStorageError.code


# -- DescribeProducers -------------------------------------------------------------------------------------------------


def test_producers_that_the_log_knows(broker: Broker) -> None:
    create(broker, "a", 2)
    produce(broker, "a", 0, producer_id=77, base_sequence=0)
    produce(broker, "a", 0, producer_id=77, base_sequence=2)
    wanted = [TopicRequest(name="a", partition_indexes=[0, 1])]
    (topic,) = ask(broker, DescribeProducersRequest(topics=wanted)).topics
    with_producer, without = topic.partitions
    (producer,) = with_producer.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 3, 3)
    assert producer.last_timestamp == 1_001
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert (without.error_code, without.error_message, list(without.active_producers)) == (0, None, [])


def test_producers_of_what_is_not_here(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    create(broker, "a")
    wanted = [TopicRequest(name=name, partition_indexes=[5]) for name in ("a", "nosuch", "b b")]
    topics = ask(broker, DescribeProducersRequest(topics=wanted)).topics
    assert [t.partitions[0].error_code for t in topics] == [
        UnknownTopicOrPartition.code,
        UnknownTopicOrPartition.code,
        InvalidTopic.code,
    ]
    monkeypatch.setattr(broker.replica_manager, "_partitions", {})
    (topic,) = ask(broker, DescribeProducersRequest(topics=[TopicRequest(name="a", partition_indexes=[0])])).topics
    assert topic.partitions[0].error_code == NotLeaderOrFollower.code
