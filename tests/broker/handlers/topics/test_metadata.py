"""Metadata over the wire, at every version."""

import uuid
from functools import partial
from typing import Any

import pytest

from barnabas.broker.cluster.member import ClusterMember
from barnabas.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    InvalidTopic,
    LeaderNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.apis import SERVED, ApiKey
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing import Broker, Cluster
from broker.sent_requests import topic_id
from broker.wire import Wire, name_of, on_loop, server_of

VERSIONS = range(SERVED[ApiKey.METADATA].first, SERVED[ApiKey.METADATA].last + 1)
NOT_ASKED = -(2**31)


def named(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_and_topics(broker: Broker, wire: Wire, version: int) -> None:
    broker.create_topic("t", partitions=3)
    answer = wire.ask(named("t"), version)
    (node,) = answer.brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    if version >= 1:
        assert answer.controller_id == node.node_id
    if version >= 2:
        assert answer.cluster_id
    (topic,) = answer.topics
    assert (topic.name, topic.error_code, topic.is_internal) == ("t", 0, False)
    if version >= 10:
        assert topic.topic_id == topic_id(broker, "t")
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (0, node.node_id)
        assert list(partition.replica_nodes) == list(partition.isr_nodes) == [node.node_id]
        assert list(partition.offline_replicas) == []
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    if version >= 8:
        assert topic.topic_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_and_none(broker: Broker, wire: Wire, version: int) -> None:
    for name in ("a", "b"):
        broker.create_topic(name)
    everything = MetadataRequest(topics=[] if version == 0 else None)
    assert {topic.name for topic in wire.ask(everything, version).topics} == {"a", "b"}
    if version >= 1:
        assert list(wire.ask(MetadataRequest(topics=[]), version).topics) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_come_into_being_where_that_is_allowed(broker: Broker, wire: Wire, version: int) -> None:
    (topic,) = wire.ask(named("made", allow_auto_topic_creation=True), version).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 1)
    if version >= 4:
        (missing,) = wire.ask(named("not-made", allow_auto_topic_creation=False), version).topics
        assert (name_of(missing.error_code), missing.name) == ("UnknownTopicOrPartition", "not-made")
    (bad,) = wire.ask(named("no good", allow_auto_topic_creation=True), version).topics
    assert name_of(bad.error_code) == "InvalidTopic"
    assert broker.topics() == ["made"]


@pytest.mark.parametrize(("partitions", "created"), [(1, 100), (40, 2), (1000, 1)])
def test_one_request_creates_so_many_partitions_and_the_next_one_goes_on(partitions: int, created: int) -> None:
    names = ["bad name", *(f"t-{number:03}" for number in range(created + 1))]
    with Broker(settings={"num.partitions": partitions}) as broker, Wire(broker) as wire:
        codes = [name_of(topic.error_code) for topic in wire.ask(named(*names), 12).topics]
        assert codes == ["InvalidTopic", *[""] * created, "UnknownTopicOrPartition"]
        codes = [name_of(topic.error_code) for topic in wire.ask(named(*names), 12).topics]
        assert codes == ["InvalidTopic", *[""] * (created + 1)]
        assert broker.topics() == names[1:]


def test_a_topic_waits_for_as_many_brokers_as_it_is_to_have_replicas() -> None:
    settings = {"default.replication.factor": 3}
    with Broker(settings=settings) as broker, Wire(broker) as wire:
        (topic,) = wire.ask(named("t", allow_auto_topic_creation=True), 12).topics
        assert (topic.error_code, topic.partitions) == (LeaderNotAvailable.code, [])
        for kind, name in enumerate(("__consumer_offsets", "__transaction_state")):
            (found,) = wire.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]), 6).coordinators
            assert found.error_code == CoordinatorNotAvailable.code
            assert name in (found.error_message or "")
            assert "only 1 broker(s) are registered" in (found.error_message or "")


def test_a_broker_that_creates_nothing_by_itself() -> None:
    with Broker(settings={"auto.create.topics.enable": False}) as broker, Wire(broker) as wire:
        (topic,) = wire.ask(named("t", allow_auto_topic_creation=True), 12).topics
        assert name_of(topic.error_code) == "UnknownTopicOrPartition"
        assert broker.topics() == []


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(broker: Broker, wire: Wire, version: int) -> None:
    broker.create_topic("t")
    known, strange = topic_id(broker, "t"), uuid.uuid4()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=wanted) for wanted in (known, strange)])
    found, missing = wire.ask(request, version).topics
    assert (found.name, found.error_code) == ("t", 0)
    assert (name_of(missing.error_code), missing.topic_id, missing.name) == ("UnknownTopicId", strange, None)


@pytest.mark.parametrize("version", [8, 9, 10, 11, 12])
def test_authorized_operations_where_they_are_asked_for(broker: Broker, wire: Wire, version: int) -> None:
    broker.create_topic("t")
    answer = wire.ask(named("t", include_topic_authorized_operations=True), version)
    # READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: bits 3 to 8, 10, 11
    assert answer.topics[0].topic_authorized_operations == sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
    assert wire.ask(named("t"), version).topics[0].topic_authorized_operations == NOT_ASKED


def test_what_changed_is_seen_at_once(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    (before,) = wire.ask(named("t"), 12).topics
    broker.delete_topic("t")
    broker.create_topic("t", partitions=2)
    (after,) = wire.ask(named("t"), 12).topics
    assert len(after.partitions) == 2
    assert after.topic_id != before.topic_id


def test_internal_topics_are_marked(broker: Broker, wire: Wire) -> None:
    from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest

    wire.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
    (topic,) = wire.ask(named("__consumer_offsets"), 12).topics
    assert topic.is_internal
    assert broker.topics() == []


def metadata(wire: Wire, *names: str | None, version: int = 12, create: bool = False, ids=()):  # type: ignore[no-untyped-def]
    topics = [MetadataRequestTopic(name=name) for name in names]
    topics += [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    answer = wire.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)
    return [(topic.name, topic.error_code, len(topic.partitions)) for topic in answer.topics]


def test_a_topic_is_answered_once_however_often_it_was_asked_for(broker: Broker, wire: Wire) -> None:
    broker.create_topic("wide", 50)
    topic_id = server_of(broker).image.topics["wide"].topic_id
    assert metadata(wire, *["wide"] * 1000) == [("wide", 0, 50)]
    assert metadata(wire, *["no"] * 1000) == [("no", UnknownTopicOrPartition.code, 0)]
    assert metadata(wire, ids=[topic_id] * 100) == [("wide", 0, 50)]


def test_a_topic_asked_for_twice_is_created_once(wire: Wire) -> None:
    assert metadata(wire, "new", "new", create=True) == [("new", 0, 1)]


def test_names_that_no_topic_can_have(wire: Wire) -> None:
    assert metadata(wire, "a b", "", "fine") == [
        ("a b", InvalidTopic.code, 0),
        ("", InvalidTopic.code, 0),
        ("fine", UnknownTopicOrPartition.code, 0),
    ]
    assert metadata(wire, "a b", create=True) == [("a b", InvalidTopic.code, 0)]


def test_ids_go_before_names(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    broker.create_topic("u")
    unknown = uuid.uuid4()
    ids = [server_of(broker).image.topics["t"].topic_id, unknown]
    assert metadata(wire, "u", ids=ids) == [("t", 0, 1), (None, UnknownTopicId.code, 0)]


@pytest.mark.parametrize("version", [10, 11])
def test_neither_null_nor_ids_before_v12(broker: Broker, wire: Wire, version: int) -> None:
    broker.create_topic("t")
    topic_id = server_of(broker).image.topics["t"].topic_id
    assert metadata(wire, None, version=version) == [("", InvalidRequest.code, 0)]
    assert metadata(wire, ids=[topic_id], version=version) == [("", InvalidRequest.code, 0)]


def test_replicas_on_brokers_that_are_gone_are_offline() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t", assignments={0: [1, 2, 3]})
        with Wire(cluster.broker(1)) as wire:
            assert offline(wire, 13) == offline(wire, 5) == []
            cluster.kill(3)
            cluster.wait_for(lambda: cluster.in_sync_replicas("t") == {1, 2}, what="the ISR without the dead broker")
            cluster.wait_for(lambda: offline(wire, 13) == offline(wire, 5) == [3], what="an offline replica")
            cluster.start(3)
            cluster.wait_for(lambda: offline(wire, 13) == offline(wire, 5) == [], what="no offline replica")


def test_a_broker_that_knows_no_live_one_names_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka never asks again once it is told of no broker."""
    monkeypatch.setattr(ClusterMember, "was_live", lambda self, node_id: False)
    with Cluster() as cluster, Wire(cluster.broker(1)) as wire:
        server = server_of(cluster.broker(1))
        live = server.image.brokers

        def fence(*node_ids: int) -> None:
            brokers = {node_id: broker._replace(fenced=node_id in node_ids) for node_id, broker in live.items()}
            image = server.image
            server._image = MetadataImage(
                image.cluster_id, version=image.version, controller_id=image.controller_id, brokers=brokers
            )

        on_loop(cluster.broker(1), partial(fence, 2))
        assert {node.node_id for node in wire.ask(named(), 12).brokers} == {1, 3}
        on_loop(cluster.broker(1), partial(fence, 1, 2, 3))
        assert {node.node_id for node in wire.ask(named(), 12).brokers} == {1, 2, 3}


def offline(wire: Wire, version: int) -> list[int]:
    return list(wire.ask(named("t"), version).topics[0].partitions[0].offline_replicas)
