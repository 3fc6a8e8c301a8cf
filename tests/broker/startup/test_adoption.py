"""A broker on a data directory that Apache Kafka wrote, or whose registry was lost."""

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from barnabas import Admin, Consumer
from barnabas.controller.controller import Controller
from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import METADATA_COPY, write_partition_metadata
from barnabas.log.kraft_metadata import read_kraft_metadata
from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from broker.kafka_data import METADATA
from broker.kafka_data import data as data
from broker.wire import on_controller, on_loop, server_of

COMMITTED = {("flights", 0): 4, ("flights", 1): 7}


def values(broker: Broker, topic: str, partition: int) -> list[bytes | None]:
    return [record.value for record in broker.records(topic, partition)]


def flights(partition: int) -> list[bytes]:
    return [b"f%d" % number for number in range(partition, 30, 3)]


def check(broker: Broker) -> None:
    assert broker.topics() == ["flights", "plain", "ports"]
    assert values(broker, "flights", 0) == [*flights(0), b"last"]
    assert values(broker, "flights", 1) == flights(1)
    aborted = [b"t1-0", b"t1-1"]
    assert [value for value in values(broker, "flights", 2) if value not in aborted] == [
        *flights(2), b"t0-0", b"t0-1", b"t2-0", b"t2-1",
    ]  # fmt: skip
    assert values(broker, "plain", 0) == [b"today"]
    assert (broker.committed("ground-crew"), broker.committed("modern")) == (COMMITTED, COMMITTED)


@pytest.mark.parametrize("clean", [True, False], ids=["ended", "killed"])
def test_a_directory_of_kafkas_is_taken_over(data: Path, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
        (data / "recovery-point-offset-checkpoint").unlink()
    before = {path.name: path.read_bytes() for path in (data / METADATA).iterdir()}
    with Broker(data_dir=data) as broker:
        check(broker)
        image = server_of(broker).image
        assert image.cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"
        assert image.topic_config("flights") == {"retention.ms": "-1"}
        assert image.topic_config("plain") == {"max.message.bytes": "2000000"}
        assert image.topic_config("__consumer_offsets")["cleanup.policy"] == "compact"
        assert image.broker_config("") == {"min.insync.replicas": "1"}
        assert {partition.leader_epoch for partition in image.topics["flights"].partitions} == {3}, "Kafka had led in 2"
        assert on_controller(broker, Controller.allocate_producer_ids)[0] == 2000, "1001 were asked for"
    assert {path.name: path.read_bytes() for path in (data / METADATA).iterdir()} == before
    (line,) = [message for message in caplog.messages if "no registry" in message]
    assert "took over 5 topics with 10 partitions" in line
    assert "retention" not in line


def test_what_was_taken_over_lives_on(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(data_dir=data) as broker:
        ids = {name: topic.topic_id for name, topic in server_of(broker).image.topics.items()}
        on_loop(broker, lambda: server_of(broker).log_manager.cleanup_logs(server_of(broker).clock.wall_ms()))
        broker.create_topic("new")
        broker.delete_topic("ports")
    caplog.clear()
    with Broker(data_dir=data) as broker:
        assert broker.topics() == ["flights", "new", "plain"]
        assert values(broker, "flights", 1) == flights(1), "of 2017, and kept for ever"
        assert server_of(broker).image.topics["flights"].topic_id == ids["flights"]
        assert broker.committed("modern") == COMMITTED
    assert not [message for message in caplog.messages if "took over" in message]


def test_a_read_committed_consumer_does_not_see_what_kafka_aborted(data: Path) -> None:
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    seen: list[bytes | None] = []
    with Broker(data_dir=data) as broker, Consumer(settings, bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("flights", 2)])
        while len(seen) < 14:
            seen += [record.value for record in consumer.poll(60)]
    assert seen == [*flights(2), b"t0-0", b"t0-1", b"t2-0", b"t2-1"]


def test_a_transactional_id_goes_on_where_kafka_left_it(data: Path) -> None:
    with Broker(data_dir=data, settings={"transaction.state.log.num.partitions": 50}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            before = admin.describe_transactions("tower")["tower"]
            assert (before.state, before.producer_id, before.producer_epoch) == ("CompleteCommit", 1000, 0)
        confluent = pytest.importorskip("confluent_kafka")
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tower"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("flights", b"here", partition=2)
        producer.commit_transaction(30)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            after = admin.describe_transactions("tower")["tower"]
            assert (after.state, after.producer_id) == ("CompleteCommit", 1000)
            assert after.producer_epoch > before.producer_epoch, "who still held the id is fenced"
        assert values(broker, "flights", 2)[-1] == b"here"


def test_without_settings_nothing_is_removed(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(data / METADATA)
    with Broker(data_dir=data) as broker:
        on_loop(broker, lambda: server_of(broker).log_manager.cleanup_logs(server_of(broker).clock.wall_ms()))
        check(broker)
        image = server_of(broker).image
        assert image.topic_config("flights") == {"retention.ms": "-1", "retention.bytes": "-1"}
        assert image.topic_config("__consumer_offsets") == {"cleanup.policy": "compact"}
        assert on_controller(broker, Controller.allocate_producer_ids)[0] >= 1_000_000
    (line,) = [message for message in caplog.messages if "no registry" in message]
    assert "retention is off until retention.ms is set: flights, plain, ports" in line


def lose_registry(directory: Path) -> None:
    """Leaves what a broker leaves that kept no copy of the metadata."""
    for path in (*directory.glob("registry.db*"), directory / METADATA_COPY):
        path.unlink()


def test_a_registry_that_was_lost_is_made_again(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 3)
        before = server_of(broker).image
    lose_registry(tmp_path)
    with Broker(data_dir=tmp_path) as broker:
        image = server_of(broker).image
        assert image.cluster_id == before.cluster_id
        assert image.topics["t"].topic_id == before.topics["t"].topic_id
        assert len(image.topics["t"].partitions) == 3


def test_producer_ids_that_a_client_made_up_leave_ids_for_others(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
        log = server_of(broker).log_manager.logs[TopicPartition("t", 0)]
        for producer_id in (4321, 2**63 - 1):
            data = build_batch([Record(0, 1, b"k", b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=0)
            header = read_header(data)
            batch = ValidatedBatch(header, data, header.max_timestamp, 0, 1)
            on_loop(broker, lambda batch=batch: log.append_as_leader(batch, 0))
    lose_registry(tmp_path)
    with Broker(data_dir=tmp_path) as broker:
        assert 4321 < on_controller(broker, Controller.allocate_producer_ids)[0] < 2**40


def test_a_start_that_died_before_the_registry_was_written_is_made_up_for(data: Path) -> None:
    (data / "registry.db").touch()
    with Broker(data_dir=data) as broker:
        check(broker)


# --- what cannot be taken over --------------------------------------------------------------------------------------


def refusal(data: Path) -> str:
    with pytest.raises(UsageError) as refused:
        Broker(data_dir=data).start()
    text = str(refused.value)
    assert "\n" not in text
    assert not any(path.name.startswith("registry.db") for path in data.iterdir())
    return text


@pytest.mark.parametrize(("gone", "with_metadata"), [(0, False), (1, False), (2, True)])
def test_a_part_of_a_topic_is_refused(data: Path, gone: int, with_metadata: bool) -> None:
    (data / f"flights-{gone}").rename(data.parent / "elsewhere")
    if not with_metadata:
        shutil.rmtree(data / METADATA)
    text = refusal(data)
    assert f"flights-{gone} is not" in text
    assert "log.dirs" in text
    (data.parent / "elsewhere").rename(data / f"flights-{gone}")
    with Broker(data_dir=data) as broker:
        check(broker)


def test_two_topics_of_one_name_are_refused(data: Path) -> None:
    write_partition_metadata(str(data / "flights-1"), UUID(int=7))
    text = refusal(data)
    assert "flights" in text
    assert "two topics" in text
    assert "move" in text


def test_a_directory_of_another_node_says_how_to_start(data: Path) -> None:
    properties = data / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=5"))
    assert "--node-id 5" in refusal(data)


# --- __cluster_metadata-0 -------------------------------------------------------------------------------------------


def test_a_torn_end_is_left_out_and_nothing_else_is_fatal(data: Path) -> None:
    log = data / METADATA / f"{0:020}.log"
    content = log.read_bytes()
    log.write_bytes(content[:-7])
    read = read_kraft_metadata([str(data)])
    assert read is not None
    assert read.topic_configs["flights"] == {"retention.ms": "-1"}
    log.write_bytes(content[:200] + bytes(len(content) - 200))
    with Broker(data_dir=data) as broker:
        check(broker)
        assert server_of(broker).image.topic_config("flights")["retention.ms"] == "-1"
