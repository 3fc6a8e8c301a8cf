"""DescribeConfigs: of topics, of brokers, of what has no settings."""

import pytest

from barnabas.broker.server import Broker
from barnabas.config.definitions import ConfigSource, ConfigType
from barnabas.errors import InvalidRequest, InvalidTopic, UnknownTopicOrPartition
from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.configs.configs_rig import BROKER, GROUP, LOGGER, METRICS, SET, TOPIC, change, describe
from broker.handlers.configs.configs_rig import broker as broker


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_settings_of_a_topic(broker: Broker, version: int) -> None:
    (result,) = describe(broker, (TOPIC, "a"), version=version, include_synonyms=True)
    assert result.error_code == 0
    configs = {config.name: config for config in result.configs}
    own = configs["retention.ms"]
    assert (own.value, own.config_source, own.read_only) == ("7", ConfigSource.TOPIC_CONFIG, False)
    assert [(s.name, s.value, s.source) for s in configs["max.message.bytes"].synonyms] == [
        ("message.max.bytes", "2000000", ConfigSource.STATIC_BROKER_CONFIG),
        ("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG),
    ]
    assert configs["max.message.bytes"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    if version >= 3:
        assert own.config_type == ConfigType.LONG
        assert own.documentation is None


def test_only_what_is_asked_for(broker: Broker) -> None:
    (result,) = describe(broker, (TOPIC, "a"), keys=["retention.ms", "nosuch"], include_documentation=True)
    (config,) = result.configs
    assert config.name == "retention.ms"
    assert config.documentation
    assert config.synonyms == []
    (everything,) = describe(broker, (TOPIC, "a"), keys=[])
    assert len(everything.configs) > 20


def test_settings_of_brokers(broker: Broker) -> None:
    change(broker, (BROKER, "", [("log.retention.ms", SET, "5000")]))
    this, default, other, nonsense = describe(
        broker, (BROKER, "1"), (BROKER, ""), (BROKER, "7"), (BROKER, "x"), include_synonyms=True
    )
    configs = {config.name: config for config in this.configs}
    assert configs["message.max.bytes"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert configs["num.partitions"].read_only
    assert configs["log.retention.ms"].config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert [(config.name, config.value) for config in default.configs] == [("log.retention.ms", "5000")]
    assert (other.error_code, nonsense.error_code) == (InvalidRequest.code, InvalidRequest.code)
    assert other.error_message == "Unexpected broker id, expected 1 or empty string, but received 7"


def test_what_cannot_be_described(broker: Broker) -> None:
    resources = [(TOPIC, "nosuch"), (TOPIC, "b b"), (METRICS, ""), (GROUP, ""), (LOGGER, ""), (LOGGER, "2")]
    results = describe(broker, *resources)
    assert [(r.resource_type, r.resource_name) for r in results] == resources
    assert [r.error_code for r in results] == [UnknownTopicOrPartition.code, InvalidTopic.code] + [
        InvalidRequest.code
    ] * 4
    assert all(list(r.configs) == [] for r in results)


def test_groups_and_subscriptions_have_no_settings(broker: Broker) -> None:
    results = describe(broker, (GROUP, "g"), (METRICS, "m"))
    assert [(r.error_code, list(r.configs)) for r in results] == [(0, []), (0, [])]


def test_unknown_type_fails_the_whole_request(broker: Broker) -> None:
    results = describe(broker, (TOPIC, "a"), (99, "x"))
    assert [(r.error_code, list(r.configs)) for r in results] == [(InvalidRequest.code, [])] * 2
