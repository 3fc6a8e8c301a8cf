"""ElectLeaders: of named partitions, and of all."""

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import (
    ElectionNotNeeded,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from broker.admin_rig import ask, create, versions
from broker.admin_rig import broker as broker


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
def test_elections_of_named_partitions(broker: Broker, version: int) -> None:
    create(broker, "a")
    wanted = [TopicPartitions(topic="a", partitions=[0, 5]), TopicPartitions(topic="nosuch", partitions=[0])]
    answer = ask(broker, ElectLeadersRequest(topic_partitions=wanted), version)
    assert answer.error_code == 0
    found = {
        (topic.topic, result.partition_id): result.error_code
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }
    assert found == {
        ("a", 0): ElectionNotNeeded.code,
        ("a", 5): UnknownTopicOrPartition.code,
        ("nosuch", 0): UnknownTopicOrPartition.code,
    }


def test_election_everywhere_is_silent_where_none_is_needed(broker: Broker) -> None:
    create(broker, "a", 2)
    answer = ask(broker, ElectLeadersRequest(topic_partitions=None))
    assert [(r.topic, list(r.partition_result)) for r in answer.replica_election_results] == [("a", [])]


def test_unknown_type_of_election(broker: Broker) -> None:
    create(broker, "a")
    wanted = [TopicPartitions(topic="a", partitions=[0])]
    answer = ask(broker, ElectLeadersRequest(election_type=9, topic_partitions=wanted))
    assert answer.error_code == InvalidRequest.code
    assert answer.replica_election_results[0].partition_result[0].error_code == InvalidRequest.code
