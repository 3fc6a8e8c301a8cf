"""The cluster and its brokers, by both administrators."""

from typing import Any

import pytest

from barnabas.client.admin.cluster import FeatureUpdate
from barnabas.client.admin.topics import EligibleLeaders, NewTopic
from barnabas.errors import InvalidUpdateVersion
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from barnabas.version import __version__


def test_brokers(admin: Any, broker: Broker, name: str) -> None:
    admin.create_topics(name)
    cluster = admin.describe_cluster()
    assert cluster.controller_id in cluster.brokers
    assert cluster.epochs.keys() == cluster.brokers.keys()
    assert admin.broker_releases() == {cluster.controller_id: __version__}
    [log_dir] = admin.describe_log_dirs(partitions=[(name, 0)])[1]
    assert [(replica.topic, replica.partition) for replica in log_dir.replicas] == [(name, 0)]
    assert "transaction.version" in admin.describe_features().finalized
    admin.update_features(
        {"transaction.version": 2, "group.version": FeatureUpdate(0, downgrade=True)}, validate_only=True
    )
    with pytest.raises(
        InvalidUpdateVersion, match=r"version 1 for feature transaction\.version\. Broker 1 only supports"
    ):
        admin.update_features({"transaction.version": FeatureUpdate(1, downgrade=True)})
    assert admin.elect_leaders([(name, 0)]) == {TopicPartition(name, 0): False}


def test_fenced_brokers_and_eligible_leaders(admin: Any, broker: Broker, name: str) -> None:
    admin.create_topics([NewTopic(name, partitions=2), f"{name}-b"])
    assert admin.describe_cluster(include_fenced=True) == admin.describe_cluster()
    assert admin.describe_cluster().fenced == frozenset()
    none = EligibleLeaders()
    assert admin.eligible_leaders(name) == {TopicPartition(name, 0): none, TopicPartition(name, 1): none}
    assert admin.eligible_leaders([f"{name}-b", f"{name}-no"]) == {TopicPartition(f"{name}-b", 0): none}
    admin.create_topics(NewTopic(f"{name}-large", partitions=2001))
    assert len(admin.eligible_leaders([f"{name}-large", name])) == 2003, "more than one page"
    admin.delete_topics(f"{name}-large")  # each partition is an open file of the session's broker
