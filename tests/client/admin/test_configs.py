"""Settings of topics and brokers, by both administrators."""

from typing import Any

import pytest

from barnabas.client.admin.configs import ConfigChange, ConfigResource
from barnabas.errors import InvalidConfig, ItemsFailed, UsageError
from barnabas.testing import Cluster


def test_settings(admin: Any, name: str) -> None:
    admin.create_topics(name)
    topic = ConfigResource("topic", name)
    admin.alter_configs({topic: {"retention.ms": "5000"}, ("broker", "1"): {}})
    admin.alter_configs({topic: [ConfigChange("cleanup.policy", "compact", "append")]})
    found = admin.describe_configs([topic, ("broker", "1")])
    assert found[topic]["retention.ms"].value == "5000"
    assert found[topic]["cleanup.policy"].value == "delete,compact"
    assert found[ConfigResource("broker", "1")]["node.id"].value == "1"
    admin.alter_configs({topic: {"retention.ms": None}})
    entry = admin.describe_configs([topic], keys=["retention.ms"])[topic]["retention.ms"]
    assert entry.source == "STATIC_BROKER_CONFIG"
    assert topic in admin.list_config_resources("topic")
    with pytest.raises(ItemsFailed) as caught:
        admin.alter_configs({topic: {"retention.ms": "soon"}})
    assert caught.value.only(InvalidConfig)
    with pytest.raises(UsageError, match="broker 99 is not in the cluster"):
        admin.describe_configs([("broker", "99")])


def test_settings_of_every_broker_of_a_cluster_are_changed() -> None:
    with Cluster() as cluster:
        for node_id in cluster.node_ids:
            cluster.admin.alter_configs({("broker", node_id): {"log.retention.ms": str(1000 + node_id)}})
        for node_id in cluster.node_ids:
            [found] = cluster.admin.describe_configs([("broker", node_id)]).values()
            assert found["log.retention.ms"].value == str(1000 + node_id)
        with pytest.raises(UsageError, match="broker 7 is not in the cluster"):
            cluster.admin.alter_configs({("broker", 7): {"log.retention.ms": "1"}})
