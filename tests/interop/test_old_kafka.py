"""Our clients against Apache Kafka 2.4.1, the oldest broker that they promise to work with, and its ZooKeeper."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

import barnabas
from barnabas import TopicPartition
from barnabas.client.errors import ItemsFailed
from barnabas.errors import KafkaError, TopicAlreadyExists, UnsupportedVersion

from .conftest import wait_for
from .harness.broker import OLD_KAFKA_LIBS, OldKafkaBroker
from .harness.data import CODECS, now_ms

pytestmark = pytest.mark.skipif(
    not any(OLD_KAFKA_LIBS.glob("kafka_*.jar")) or shutil.which("java") is None,
    reason="needs java and the jars of Kafka 2.4.1: make interop-clients",
)

VALUES = [b"", b"x", None, b"y" * 300_000]
HEADERS = (("a", b"1"), ("b", None), ("a", b"2"))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldKafkaBroker]:
    broker = OldKafkaBroker(tmp_path_factory.mktemp("old-kafka"))
    broker.start()
    with barnabas.Admin(bootstrap_servers=broker.bootstrap) as admin:  # it answers before its controller knows it
        wait_for("the broker in its own metadata", lambda: bool(admin.describe_cluster().brokers))
    yield broker
    broker.stop()


@pytest.fixture
def admin(old: OldKafkaBroker) -> Iterator[barnabas.Admin]:
    with barnabas.Admin(bootstrap_servers=old.bootstrap, default_api_timeout_ms=60_000) as admin:
        yield admin


@pytest.fixture
def place(admin: barnabas.Admin, unique: Callable[[str], str]) -> TopicPartition:
    name = unique("old")
    admin.create_topics(barnabas.NewTopic(name, 1, 1))
    return TopicPartition(name, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_records_there_and_back(old: OldKafkaBroker, place: TopicPartition, codec: str) -> None:
    began = now_ms()  # what is older than the topic's retention may go at any time
    with barnabas.Producer(bootstrap_servers=old.bootstrap, compression_type=codec) as producer:
        handles = [
            producer.send(place.topic, value, key=b"k" if value else None, headers=HEADERS, timestamp=began + at)
            for at, value in enumerate(VALUES)
        ]
        assert [handle.result(60).offset for handle in handles] == [0, 1, 2, 3]
    with barnabas.Consumer(bootstrap_servers=old.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        found = []
        while len(found) < len(VALUES):
            found += consumer.poll(60)
    assert [record.value for record in found] == VALUES
    assert [record.timestamp for record in found] == [began, began + 1, began + 2, began + 3]
    assert [record.key for record in found] == [b"k" if value else None for value in VALUES]
    assert {record.headers for record in found} == {HEADERS}


def test_a_group_lives_through_a_restart(old: OldKafkaBroker, place: TopicPartition) -> None:
    settings = {"bootstrap.servers": old.bootstrap, "group.id": place.topic, "auto.offset.reset": "earliest"}
    with (
        barnabas.Producer(bootstrap_servers=old.bootstrap) as producer,
        barnabas.Consumer(place.topic, settings) as consumer,
    ):
        for number in range(4):
            if number == 2:
                consumer.commit()
                old.restart()
            producer.send(place.topic, b"%d" % number).result(60)
            assert [record.value for record in consumer.poll(60)] == [b"%d" % number]
        consumer.close(60)  # the group's coordinator may still be unknown after the restart
    with barnabas.Consumer(place.topic, settings) as again:
        committed = again.committed([place])[place]
    assert committed is not None
    assert committed.offset == 4


def test_transactions(old: OldKafkaBroker, place: TopicPartition) -> None:
    with barnabas.Producer(bootstrap_servers=old.bootstrap, transactional_id=place.topic) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(place.topic, b"%d" % number).result(60)
            producer.send_offsets_to_transaction({place: number}, f"{place.topic}-group")
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    with barnabas.Consumer(settings, bootstrap_servers=old.bootstrap, group_id=f"{place.topic}-group") as consumer:
        assert [found.offset for found in consumer.committed([place]).values() if found is not None] == [2]
        consumer.assign([place])
        consumer.seek_to_beginning()
        seen: list[bytes] = []
        while len(seen) < 2:
            seen += [record.value for record in consumer.poll(60)]
        wait_for("the end", lambda: not consumer.poll(0.1) and consumer.position(place) == 8)
    assert seen == [b"0", b"2"]


def test_administration(admin: barnabas.Admin, place: TopicPartition) -> None:
    assert admin.describe_cluster().controller_id == 1
    assert place.topic in {topic.name for topic in admin.list_topics()}
    with pytest.raises(ItemsFailed) as caught:
        admin.create_topics(place.topic)
    assert caught.value.only(TopicAlreadyExists)
    resource = ("topic", place.topic)
    admin.alter_configs({resource: {"retention.ms": "5000"}})
    wait_for("the setting", lambda: _value(admin, resource, "retention.ms") == "5000")
    admin.create_partitions({place.topic: 2})
    wait_for("the partition", lambda: len(admin.describe_topics(place.topic)[place.topic].partitions) == 2)
    assert admin.list_offsets({place: "latest"})[place].offset == 0
    assert admin.delete_records({place: -1}) == {place: 0}
    assert admin.describe_log_dirs()[1]
    group = f"{place.topic}-group"
    admin.alter_group_offsets(group, {(place.topic, 0): 0})
    assert admin.list_group_offsets(group)[place].offset == 0
    assert group in {listing.group_id for listing in admin.list_groups()}
    assert admin.describe_groups(group)[group].members == ()
    admin.delete_group_offsets(group, [place])
    admin.alter_group_offsets(group, {(place.topic, 0): 0})  # a group that has nothing is gone by itself
    admin.delete_groups(group)
    admin.delete_topics(place.topic)


def _value(admin: barnabas.Admin, resource: tuple[str, str], key: str) -> str | None:
    [found] = admin.describe_configs([resource], keys=[key]).values()
    return found[key].value


def test_what_it_does_not_know_is_named(admin: barnabas.Admin, place: TopicPartition) -> None:
    """Nothing is asked for that would be answered as something else."""
    for ask in (
        lambda: admin.list_offsets({place: "max_timestamp"}),
        lambda: admin.describe_producers([place]),
        admin.list_transactions,
    ):
        with pytest.raises((ItemsFailed, KafkaError)) as caught:
            ask()
        error = caught.value
        assert isinstance(error, UnsupportedVersion) or error.only(UnsupportedVersion)  # type: ignore[attr-defined]
