"""PushMetadata: a broker takes over what the controller says, and nothing else."""

import contextlib
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.errors import InconsistentClusterId, InvalidRequest, StaleControllerEpoch
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.peer_messages.push_metadata import (
    BrokerEntryData,
    ConfigEntryData,
    PartitionData,
    PushMetadataRequest,
    SettingData,
    TopicEntryData,
)
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import RegistryUnreachable
from barnabas.types import BrokerId
from broker.handlers.peers.conftest import image_of
from broker.peers.conftest import Peer, member_of
from broker.peers.test_inter_broker_listener import authenticate, hello
from broker.wire import Wire, on_loop, server_of

TOPIC = TopicEntryData(
    name="pushed",
    topic_id=UUID(int=7),
    partitions=[PartitionData(leader=2, leader_epoch=3, partition_epoch=4, replicas=[2], isr=[2])],
)


def push(peer: Peer, **fields: Any) -> PushMetadataRequest:
    """Returns the next change, by broker 2 as the next controller."""
    image = image_of(peer)
    values = {
        "cluster_id": peer.cluster_id,
        "controller_id": 2,
        "controller_epoch": image.controller_epoch + 1,
        "from_version": image.version,
        "version": image.version + 1,
        "topics": [TOPIC],
    }
    return PushMetadataRequest(**{**values, **fields})


def test_the_image_of_a_newer_controller_is_taken_over(controller: Peer, from_two: Wire) -> None:
    request = push(
        controller,
        topic_configs=[ConfigEntryData(name="pushed", settings=[SettingData(name="retention.ms", value="5")])],
    )
    answer = from_two.ask(request, 0)
    assert (answer.error_code, answer.version) == (0, request.version)
    image = image_of(controller)
    assert (image.version, image.controller_id, image.controller_epoch) == (
        request.version,
        2,
        request.controller_epoch,
    )
    assert image.topics["pushed"].topic_id == UUID(int=7)
    assert image.topic_config("pushed") == {"retention.ms": "5"}
    assert on_loop(controller.broker, lambda: member_of(controller.broker).duties) is None, "its role has ended"


def test_settings_of_a_newer_release_are_kept_and_have_no_effect(
    controller: Peer, from_two: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    mine = server_of(controller.broker).node_id
    partition_data = PartitionData(leader=2, leader_epoch=3, partition_epoch=4, replicas=[2, mine], isr=[2])
    topic = TopicEntryData(name="pushed", topic_id=UUID(int=7), partitions=[partition_data])
    name, codec = f"new.{uuid4()}", f"new-{uuid4()}"  # each is told once for a process
    configs = {name: "5", "compression.type": codec, "retention.ms": "5"}
    settings = [SettingData(name=name, value=value) for name, value in configs.items()]
    entry = ConfigEntryData(name="pushed", settings=settings)
    request = push(controller, topics=[topic], topic_configs=[entry])
    answer = from_two.ask(request, 0)
    assert (answer.error_code, answer.version) == (0, request.version)
    assert image_of(controller).topic_config("pushed") == configs
    manager = server_of(controller.broker).replica_manager
    partition = on_loop(controller.broker, lambda: manager.get("pushed", 0))
    assert partition is not None, "the whole push has been applied"
    assert (partition.log.config.retention_ms, partition.log.config.compression_type) == (5, "producer")
    changed = ConfigEntryData(name="pushed", settings=[*settings[:2], SettingData(name="retention.ms", value="6")])
    from_two.ask(push(controller, topics=[], topic_configs=[changed]), 0)
    assert on_loop(controller.broker, lambda: partition.log.config.retention_ms) == 6
    told = [record.getMessage() for record in caplog.records if "does not know" in record.getMessage()]
    assert len(told) == 2
    assert name in told[0]
    assert f"compression.type={codec}" in told[1]


def test_an_earlier_controller_is_refused(controller: Peer, from_two: Wire) -> None:
    before = image_of(controller)
    answer = from_two.ask(push(controller, controller_epoch=before.controller_epoch - 1), 0)
    assert (answer.error_code, answer.version) == (StaleControllerEpoch.code, before.version)
    assert image_of(controller) is before


def test_the_controller_of_a_copied_registry_is_refused_and_remembered(
    controller: Peer, from_two: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedRegistry, "confirms_controllers", True)
    before = image_of(controller)
    answer = from_two.ask(push(controller), 0)
    assert (answer.error_code, answer.version) == (InconsistentClusterId.code, before.version)
    assert image_of(controller) is before
    (refused,) = on_loop(controller.broker, member_of(controller.broker).refused_brokers)
    assert f"broker 2 is the controller in epoch {before.controller_epoch + 1} of another registry" in refused.problem


@pytest.mark.parametrize(("later", "code"), [(0, 0), (1, StaleControllerEpoch.code)])
def test_the_controller_that_the_registry_names_is_confirmed_by_its_registration(
    controller: Peer, from_two: Wire, monkeypatch: pytest.MonkeyPatch, later: int, code: int
) -> None:
    monkeypatch.setattr(EmbeddedRegistry, "confirms_controllers", True)
    before = image_of(controller)
    registered = before.brokers[before.controller_id].epoch + later
    fields = {"controller_id": before.controller_id, "controller_epoch": before.controller_epoch}
    other = {"from_version": before.version + 5, "version": before.version + 6}
    answer = from_two.ask(push(controller, **fields, **other, controller_broker_epoch=registered), 0)
    assert (answer.error_code, answer.version) == (code, before.version)
    assert not on_loop(controller.broker, member_of(controller.broker).refused_brokers)


def test_a_broker_that_cannot_read_its_registry_believes_the_others(
    controller: Peer, from_two: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(_: object) -> None:
        raise RegistryUnreachable("there is no connection")

    monkeypatch.setattr(EmbeddedRegistry, "confirms_controllers", True)
    monkeypatch.setattr(EmbeddedRegistry, "check", unreachable)
    request = push(controller)
    answer = from_two.ask(request, 0)
    assert (answer.error_code, answer.version) == (0, request.version)


def test_another_cluster_is_refused(controller: Peer, from_two: Wire) -> None:
    before = image_of(controller)
    assert from_two.ask(push(controller, cluster_id="another"), 0).error_code == StaleControllerEpoch.code
    assert image_of(controller) is before


def test_a_change_of_another_image_is_answered_with_the_version_that_is_there(controller: Peer, from_two: Wire) -> None:
    before = image_of(controller)
    answer = from_two.ask(push(controller, from_version=before.version + 5, version=before.version + 6), 0)
    assert (answer.error_code, answer.version) == (0, before.version)
    assert image_of(controller) is before
    own = BrokerEntryData(node_id=1, epoch=before.brokers[BrokerId(1)].epoch, rack="another")
    whole = push(controller, from_version=0, version=before.version + 6, brokers=[own])
    assert from_two.ask(whole, 0).version == whole.version
    assert {node_id: broker.rack for node_id, broker in image_of(controller).brokers.items()} == {1: "another"}


def test_an_update_in_parts_changes_the_image_with_the_last(controller: Peer, from_two: Wire) -> None:
    before = image_of(controller)
    second = TopicEntryData(name="second", topic_id=UUID(int=8), partitions=TOPIC.partitions)
    first = push(controller, is_last=False)
    assert from_two.ask(first, 0).version == before.version
    assert image_of(controller) is before
    last = push(controller, part=1, topics=[second])
    assert from_two.ask(last, 0).version == last.version
    assert set(image_of(controller).topics) == {"pushed", "second"}


def test_what_is_no_endpoint_is_refused(controller: Peer, from_two: Wire) -> None:
    before = image_of(controller)
    bad = BrokerEntryData(node_id=3, epoch=9, endpoints=["nowhere"])
    answer = from_two.ask(push(controller, brokers=[bad]), 0)
    assert (answer.error_code, answer.version) == (InvalidRequest.code, before.version)
    assert image_of(controller) is before


def test_a_broker_alone_takes_nothing(controller: Peer, from_two: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    request = push(controller)
    monkeypatch.setattr(server_of(controller.broker), "_cluster", None)
    assert from_two.ask(request, 0).error_code == StaleControllerEpoch.code


@given(st.binary(max_size=80))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hostile_bytes_change_nothing(peer: Peer, body: bytes) -> None:
    before = image_of(peer)
    with Wire(peer.address) as wire:
        authenticate(wire, peer.secret)
        wire.ask(hello(peer), 0)
        frame = b"\x4e\x21\0\0" + b"\0\0\0\7" + b"\xff\xff\0" + body
        wire.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        with contextlib.suppress(EOFError):
            wire.receive_frame()
    with Wire(peer.broker) as client:
        assert client.ask(ListGroupsRequest(), 4).error_code == 0
    assert image_of(peer).topics == before.topics
