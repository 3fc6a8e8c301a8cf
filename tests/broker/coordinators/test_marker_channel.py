"""End markers find the leaders of their partitions, and only the coordinator's own metadata let one go missing."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.coordinators.marker_channel import BrokerMarkerChannel
from barnabas.broker.coordinators.transaction_markers import Outcomes
from barnabas.broker.server import Broker
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.errors import BrokerNotAvailable, NotLeaderOrFollower, UnknownTopicOrPartition
from barnabas.metadata.image import NO_LEADER
from barnabas.types import ProducerId, TopicPartition
from broker.admin_rig import create, running_broker
from broker.cluster.moved_partitions import OTHER, add, connect, disconnect, move, remove, turn
from broker.cluster.test_remote_markers import response
from broker.marker_rig import begin, log_of

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


class Rig:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.channel = BrokerMarkerChannel(broker)
        self.outcomes: Outcomes = {}

    def send(self, *partitions: TopicPartition) -> dict[TopicPartition, type | None]:
        self.outcomes = {}
        self.channel(EndMarkers(ProducerId(7), 1, True, 5, 2, partitions), self._on_outcomes)
        turn(self.broker)
        return self.kinds

    def _on_outcomes(self, outcomes: Outcomes) -> None:
        assert not self.outcomes.keys() & outcomes.keys(), "a partition has one outcome"
        self.outcomes.update(outcomes)

    @property
    def kinds(self) -> dict[TopicPartition, type | None]:
        return {place: error and type(error) for place, error in self.outcomes.items()}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running_broker(tmp_path) as broker:
        create(broker, "t", 3)
        yield Rig(broker)
        disconnect(broker)


def test_each_leader_gets_the_markers_of_its_partitions(rig: Rig) -> None:
    peers = connect(rig.broker)
    begin(rig.broker, 7)
    move(rig.broker, "t", 1)
    move(rig.broker, "t", 2)
    assert rig.send(T0, T1, T2) == {T0: None}, "it does not wait for the other broker"
    assert log_of(rig.broker).last_stable_offset == 2
    sent = peers.take()
    (marker,) = sent.request.markers
    assert (sent.node_id, list(marker.topics[0].partition_indexes), marker.coordinator_epoch) == (OTHER, [1, 2], 5)
    sent.answer(response({7: {T1: 0, T2: 0}}))
    assert rig.kinds == {T0: None, T1: None, T2: None}


class TestAPartitionThatIsNotFound:
    def test_one_that_is_gone_from_the_metadata_is_deleted(self, rig: Rig) -> None:
        connect(rig.broker)
        remove(rig.broker, "t")
        assert rig.send(T0) == {T0: UnknownTopicOrPartition}

    def test_one_that_its_leader_does_not_know_is_not(self, rig: Rig) -> None:
        """The leader has older metadata: if its word counted, the transaction would be completed without the marker."""
        peers = connect(rig.broker)
        move(rig.broker, "t", 1)
        rig.send(T1)
        peers.take().answer(response({7: {T1: UnknownTopicOrPartition.code}}))
        assert rig.kinds == {T1: NotLeaderOrFollower}

    def test_one_that_this_broker_has_no_replica_of_yet_is_not(self, rig: Rig) -> None:
        """The metadata show a new topic that this broker leads, whose logs are not open."""
        topic = rig.broker.image.topics["t"]
        add(rig.broker, topic._replace(name="new"))
        new = TopicPartition("new", 0)
        assert rig.send(new) == {new: NotLeaderOrFollower}

    def test_one_beyond_the_last_one_is_deleted_with_its_topic(self, rig: Rig) -> None:
        place = TopicPartition("t", 3)
        assert rig.send(place) == {place: UnknownTopicOrPartition}


@pytest.mark.parametrize("leader", [NO_LEADER, 5])
def test_a_partition_without_a_live_leader_gets_its_marker_later(rig: Rig, leader: int) -> None:
    peers = connect(rig.broker)
    move(rig.broker, "t", 1, leader)
    assert rig.send(T1) == {T1: NotLeaderOrFollower}
    assert not peers.sent


def test_a_fenced_broker_is_not_asked(rig: Rig) -> None:
    peers = connect(rig.broker, fenced=True)
    move(rig.broker, "t", 1)
    assert rig.send(T1) == {T1: NotLeaderOrFollower}
    assert not peers.sent


def test_a_broker_that_is_fenced_meanwhile_is_not_waited_for(rig: Rig) -> None:
    connect(rig.broker)
    move(rig.broker, "t", 1)
    assert rig.send(T1) == {}
    connect(rig.broker, fenced=True)
    rig.channel.brokers_changed()
    assert rig.kinds == {T1: NotLeaderOrFollower}


def test_a_broker_alone_sends_nothing(rig: Rig) -> None:
    connect(rig.broker)
    disconnect(rig.broker)
    move(rig.broker, "t", 1)
    assert rig.send(T0, T1) == {T0: None, T1: NotLeaderOrFollower}
    assert rig.channel._remote is None
    rig.channel.brokers_changed()


def test_markers_for_a_broker_whose_code_finds_no_room_are_sent_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = connect(rig.broker)
    begin(rig.broker, 7)
    move(rig.broker, "t", 1)

    def refuse(name: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.broker.coordinators.marker_channel.import_late", refuse)
        assert rig.send(T0, T1) == {T0: None, T1: BrokerNotAvailable}
    assert rig.send(T1) == {}
    assert peers.take()
