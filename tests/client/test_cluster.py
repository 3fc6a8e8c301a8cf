import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.core.addresses import parse_bootstrap
from barnabas.client.errors import BrokerUnreachable, ConnectionLost, OperationTimedOut
from barnabas.errors import (
    InvalidTopic,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    UsageError,
)
from barnabas.testing import Broker


def test_bootstrap_lists() -> None:
    assert parse_bootstrap("a:1, b") == [("a", 1), ("b", 9092)]
    for wrong in ("", " , ", "a:x"):
        with pytest.raises(UsageError):
            parse_bootstrap(wrong)


def test_every_attempt_is_told() -> None:
    with pytest.raises(BrokerUnreachable) as raised:
        Cluster("127.0.0.1:1,no-such-host.invalid:2").refresh()
    assert [attempt.stage for attempt in raised.value.attempts] == ["tcp", "dns"]
    assert "\n" not in str(raised.value)


def test_the_second_address_serves_where_the_first_does_not(broker: Broker) -> None:
    with Cluster(f"127.0.0.1:1,{broker.bootstrap_servers}") as cluster:
        assert len(cluster.refresh().brokers) == 1


def test_unknown_topics_and_partitions(cluster: Cluster, name: str) -> None:
    with pytest.raises(UnknownTopicOrPartition, match=f"topic '{name}' does not exist"):
        cluster.topic(name)
    with pytest.raises(InvalidTopic):
        cluster.topic("not/a/name", create=True)
    Admin(cluster).create_topics([NewTopic(name, 2)])
    assert cluster.leader(name, 1) in cluster.view.brokers
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1, there is no partition 2"):
        cluster.leader(name, 2)


def test_retriable_errors_are_tried_again_after_the_repair(cluster: Cluster) -> None:
    failures = [NotLeaderOrFollower("moved"), ConnectionLost("broken")]
    repaired = []

    def operation(_: object) -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    assert cluster.retrying(operation, before_retry=repaired.append) == "done"
    assert [type(error) for error in repaired] == [NotLeaderOrFollower, ConnectionLost]


def test_what_a_retry_cannot_mend_is_raised_at_once(cluster: Cluster) -> None:
    calls = []

    def operation(_: object) -> None:
        calls.append(1)
        raise InvalidTopic("no")

    with pytest.raises(InvalidTopic):
        cluster.retrying(operation)
    assert len(calls) == 1


def test_the_deadline_ends_the_tries_and_tells_them(cluster: Cluster) -> None:
    def operation(_: object) -> None:
        raise ConnectionLost("broken")

    with pytest.raises(OperationTimedOut, match=r"gave up after 0.1 s: broken"):
        cluster.retrying(operation, timeout_s=0.1)


def test_a_restarted_broker_is_found_again(name: str) -> None:
    with Broker() as own, Cluster(own.bootstrap_servers, timeout_s=10) as cluster:
        admin = Admin(cluster)
        admin.create_topics([NewTopic(name, 1)])
        own.restart()
        assert [topic.name for topic in admin.list_topics()] == [name]


def test_lost_answers_of_reads_are_asked_again(broker: Broker, cluster: Cluster) -> None:
    rule = broker.faults.disconnect("Metadata", times=2)
    assert Admin(cluster).describe_cluster().brokers
    assert rule.hits == 2
