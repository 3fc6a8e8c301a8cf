"""A lost registry is made anew: by the newest copy of the metadata, and by what the logs have."""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.broker.cluster.metadata_copy import write_copy
from barnabas.broker.startup.recovery import Recovered, recover_registry
from barnabas.clock import SYSTEM_CLOCK
from barnabas.config.broker import BrokerConfig
from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import META_PROPERTIES, METADATA_COPY, format_topic_id, read_properties
from barnabas.log.log_damage import mark_damaged
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import own_batch
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import LastRegistration
from barnabas.types import TopicPartition

TOPIC_ID = UUID(int=1)
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
CONFIG = BrokerConfig.of({}).log_config({})


def image(isr: tuple[int, ...], version: int = 5, cluster_id: str = CLUSTER, partitions: int = 1) -> MetadataImage:
    partition = PartitionImage(isr[0], 4, (1, 2, 3), isr, 9)
    return MetadataImage(
        cluster_id,
        version=version,
        controller_epoch=2,
        brokers={node_id: BrokerImage(node_id, node_id, ()) for node_id in (1, 2, 3)},
        topics={"t": TopicImage("t", TOPIC_ID, (partition,) * partitions)},
        topic_configs={"t": {"retention.ms": "-1"}},
        broker_configs={"": {"message.max.bytes": "2000"}},
    )


class Cluster:
    """The data directories of brokers that are stopped."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def data_dir(self, node_id: int) -> str:
        return str(self.directory / f"broker-{node_id}")

    @property
    def registry(self) -> Path:
        return self.directory / "registry.db"

    def broker(self, node_id: int, copy: MetadataImage | None, *batches: tuple[int, int]) -> None:
        """Makes a data directory whose log of t-0 has batches of (leader epoch, number of records)."""
        logs = LogManager([self.data_dir(node_id)], SYSTEM_CLOCK)
        Path(self.data_dir(node_id)).mkdir()
        logs.startup(lambda _: CONFIG, node_id=node_id, cluster_id=CLUSTER)
        if batches:
            log = logs.create(TopicPartition("t", 0), TOPIC_ID, CONFIG)
            for epoch, count in batches:
                records = [Record(offset, 1, None, b"x") for offset in range(count)]
                log.append_as_leader(own_batch(build_batch(records)), epoch)
        logs.shutdown()
        if copy is not None:
            write_copy(f"{self.data_dir(node_id)}/{METADATA_COPY}", copy)

    def recover(self, *node_ids: int, given_up: Sequence[int] = (1, 2, 3)) -> Recovered:
        return recover_registry(self.registry, [self.data_dir(node_id) for node_id in node_ids], given_up)

    def recovered_image(self) -> MetadataImage:
        registry = EmbeddedRegistry(self.registry)
        try:
            return registry.load().image
        finally:
            registry.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_all_that_the_newest_copy_knows_is_there_again(cluster: Cluster) -> None:
    cluster.broker(1, image((1, 2, 3), 4), (4, 1))
    cluster.broker(2, image((2, 3), 6), (4, 1))
    done = cluster.recover(1, 2)
    assert (done.partitions, done.without_log, done.out_of_isr) == (1, [], [])
    found = cluster.recovered_image()
    assert found.cluster_id == CLUSTER
    assert found.version > 6
    assert found.topic_config("t") == {"retention.ms": "-1"}
    assert found.broker_config("") == {"message.max.bytes": "2000"}
    assert {node_id: broker.fenced for node_id, broker in found.brokers.items()} == {1: True, 2: True, 3: True}
    partition = found.topics["t"].partitions[0]
    assert found.topics["t"].topic_id == TOPIC_ID
    assert (partition.leader, partition.replicas) == (-1, (1, 2, 3))
    assert partition.leader_epoch > 4


@pytest.mark.parametrize(
    ("logs", "leads"),
    [
        ({1: [(4, 5)], 2: [(4, 9)], 3: [(4, 7)]}, 2),
        ({1: [(4, 50)], 2: [(4, 5), (6, 1)], 3: [(4, 9)]}, 2),
        ({1: [(4, 5)], 3: [(4, 5), (5, 1)]}, 3),
    ],
    ids=["longest log", "latest epoch", "one is missing"],
)
def test_the_replica_with_all_records_leads(
    cluster: Cluster, logs: dict[int, list[tuple[int, int]]], leads: int
) -> None:
    for node_id, batches in logs.items():
        cluster.broker(node_id, image((1, 2, 3)), *batches)
    cluster.recover(*logs)
    partition = cluster.recovered_image().topics["t"].partitions[0]
    assert partition.isr == (leads,)
    assert partition.leader_epoch > max(epoch for batches in logs.values() for epoch, _ in batches)


@pytest.mark.parametrize("damaged", [1, 2])
@pytest.mark.parametrize("is_longer", [False, True])
def test_of_logs_that_end_alike_one_that_is_not_damaged_leads(cluster: Cluster, damaged: int, is_longer: bool) -> None:
    for node_id in (1, 2):
        cluster.broker(node_id, image((1, 2, 3)), (4, 5), (4, 6 if is_longer and node_id == damaged else 5))
    directory = f"{cluster.data_dir(damaged)}/t-0"
    with open(f"{directory}/{0:020d}.log", "r+b") as file:
        file.seek(70)
        file.write(b"\xff")
    mark_damaged(directory, "found by a reader")
    cluster.recover(1, 2)
    assert cluster.recovered_image().topics["t"].partitions[0].isr == (damaged if is_longer else 3 - damaged,)


def test_records_that_may_be_missing_are_told(cluster: Cluster) -> None:
    cluster.broker(1, image((2, 3), partitions=2), (4, 1))
    done = cluster.recover(1)
    assert done.out_of_isr == [TopicPartition("t", 0)]
    assert done.without_log == [TopicPartition("t", 1)]


def test_a_directory_that_is_named_twice_is_not_two(cluster: Cluster, tmp_path: Path) -> None:
    cluster.broker(1, image((1, 2, 3)), (4, 1))
    (tmp_path / "link").symlink_to(cluster.data_dir(1))
    for again in (cluster.data_dir(1), f"{cluster.data_dir(1)}/", str(tmp_path / "link")):
        with pytest.raises(UsageError, match=f"--data-dir {again}: is named twice"):
            recover_registry(cluster.registry, [cluster.data_dir(1), again])
    assert not cluster.registry.exists()


@pytest.mark.parametrize("named", [(3,), (1, 3), (1, 2)])
def test_without_the_directories_of_all_brokers_nothing_is_made(cluster: Cluster, named: Sequence[int]) -> None:
    """The copy of a broker that was down for long says that its replica is in sync."""
    cluster.broker(1, image((1, 2), 9), (4, 1), (5, 6))
    cluster.broker(2, image((1, 2), 9), (4, 1), (5, 6))
    cluster.broker(3, image((1, 2, 3), 5), (4, 1))
    missing = sorted({1, 2, 3} - set(named))
    done = cluster.recover(*named, given_up=())
    assert not done.is_made
    assert done.missing == {node_id: [TopicPartition("t", 0)] for node_id in missing}
    assert not cluster.recover(*named, given_up=missing[1:]).is_made
    assert not cluster.registry.exists()
    assert cluster.recover(*named, given_up=missing).is_made
    assert cluster.registry.exists()


def test_a_broker_without_replicas_may_have_a_newer_copy(cluster: Cluster) -> None:
    known = image((1, 2, 3))
    brokers = {**known.brokers, 4: BrokerImage(4, 9, ()), 5: BrokerImage(5, 0, ())}
    for node_id in (1, 2, 3):
        cluster.broker(node_id, MetadataImage(CLUSTER, version=5, brokers=brokers, topics=known.topics), (4, 1))
    done = cluster.recover(1, 2, 3, given_up=())
    assert (done.is_made, done.missing) == (False, {4: []}), "5 has never been there"


def test_the_log_of_another_registry_is_not_taken_over(cluster: Cluster) -> None:
    cluster.broker(1, image((1,)), (4, 1))
    Path(f"{cluster.registry}-wal").touch()
    with pytest.raises(UsageError, match=r"registry\.db-wal: is there already"):
        cluster.recover(1)


def test_nothing_is_given_out_twice(cluster: Cluster) -> None:
    """Neither by what the newest copy knows, nor by what another one does, whose controller was an earlier one."""
    former, latest = image((1, 2), version=70_000), image((1, 2), version=6)
    latest.controller_epoch = 5
    partition = former.topics["t"].partitions[0]._replace(leader_epoch=50, partition_epoch=60)
    former = MetadataImage(
        CLUSTER,
        version=70_000,
        controller_epoch=4,
        brokers={1: BrokerImage(1, 80_000, ())},
        topics={"t": TopicImage("t", TOPIC_ID, (partition,))},
    )
    cluster.broker(1, former, (4, 1))
    cluster.broker(2, latest, (70, 1))
    cluster.recover(1, 2)
    found = cluster.recovered_image()
    assert (found.version > 80_000, found.controller_epoch > 5) == (True, True)
    found_partition = found.topics["t"].partitions[0]
    assert (found_partition.leader_epoch > 70, found_partition.partition_epoch > 60) == (True, True)
    registry = EmbeddedRegistry(cluster.registry)
    assert registry.allocate_producer_ids().first >= 70_000 * 1000, "a version may have been a block of 1,000"
    registry.close()


def test_what_cannot_be_recovered_is_said(cluster: Cluster) -> None:
    cluster.broker(1, None, (4, 1))
    with pytest.raises(UsageError, match="none has a cluster-metadata-copy"):
        cluster.recover(1)
    cluster.broker(2, image((2,)), (4, 1))
    cluster.broker(3, image((2,), cluster_id="another"), (4, 1))
    with pytest.raises(UsageError, match="of several clusters"):
        cluster.recover(2, 3)
    properties = Path(cluster.data_dir(2), "meta.properties")
    whole = properties.read_text()
    for text in (whole.replace("node.id=2", "node.id=two"), whole.replace("node.id=2\n", "")):
        properties.write_text(text)
        with pytest.raises(UsageError, match=r"is no data directory of a broker: its meta\.properties names none"):
            cluster.recover(2)
    properties.write_text(whole)
    Path(cluster.data_dir(3), METADATA_COPY).write_bytes(b"rubbish")
    with pytest.raises(UsageError, match="is damaged"):
        cluster.recover(2, 3)
    cluster.recover(2)
    with pytest.raises(UsageError, match="is there already"):
        cluster.recover(2)


def test_a_start_misses_each_directory_that_was_named(cluster: Cluster) -> None:
    cluster.broker(1, image((1, 2, 3)), (4, 1))
    cluster.broker(2, image((1, 2, 3)), (4, 2))
    cluster.recover(1, 2)
    registry = EmbeddedRegistry(cluster.registry)
    try:
        for node_id in (1, 2):
            ((directory_id, path),) = registry.directories(node_id).items()
            assert path == cluster.data_dir(node_id)
            assert format_topic_id(directory_id) == read_properties(f"{path}/{META_PROPERTIES}")["directory.id"]
        assert registry.last_registration(1) == LastRegistration()
        assert registry.directories(3) == {}
    finally:
        registry.close()
