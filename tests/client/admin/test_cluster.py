"""The cluster and its brokers, by both administrators."""

from typing import Any

from barnabas.testing import Broker
from barnabas.types import TopicPartition


def test_brokers(admin: Any, broker: Broker, name: str) -> None:
    admin.create_topics(name)
    cluster = admin.describe_cluster()
    assert cluster.controller_id in cluster.brokers
    [log_dir] = admin.describe_log_dirs(partitions=[(name, 0)])[1]
    assert [(replica.topic, replica.partition) for replica in log_dir.replicas] == [(name, 0)]
    assert "transaction.version" in admin.describe_features().finalized
    assert admin.elect_leaders([(name, 0)]) == {TopicPartition(name, 0): False}
