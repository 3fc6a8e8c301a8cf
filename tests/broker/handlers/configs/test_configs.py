"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.server import Broker
from barnabas.config.definitions import ConfigSource, ConfigType
from barnabas.controller.requests import ConfigOp, ResourceType
from barnabas.errors import (
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    NotController,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import alter_configs as legacy
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from broker.admin_rig import ask, create, running_broker, versions

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
GROUP, METRICS = ResourceType.GROUP, ResourceType.CLIENT_METRICS
Operations = list[tuple[str, int, str | None]]

SET, DELETE, APPEND, SUBTRACT = ConfigOp.SET, ConfigOp.DELETE, ConfigOp.APPEND, ConfigOp.SUBTRACT


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, message_max_bytes=2_000_000) as broker:
        create(broker, "a", retention_ms="7")
        yield broker


def describe(broker: Broker, *resources: tuple[int, str], keys: Any = None, version: int = 4, **wanted: bool) -> Any:
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name in resources
    ]
    return ask(broker, DescribeConfigsRequest(resources=asked, **wanted), version).results


def change(
    broker: Broker, *resources: tuple[int, str, Operations], version: int = 1, **kw: bool
) -> list[tuple[int, str | None]]:
    asked = [
        incremental.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[incremental.AlterableConfig(name=n, config_operation=op, value=value) for n, op, value in configs],
        )
        for kind, name, configs in resources
    ]
    responses = ask(broker, incremental.IncrementalAlterConfigsRequest(resources=asked, **kw), version).responses
    assert [(r.resource_type, r.resource_name) for r in responses] == [(kind, name) for kind, name, _ in resources]
    return [(r.error_code, r.error_message) for r in responses]


def replace(broker: Broker, kind: int, name: str, version: int = 2, **configs: str | None) -> int:
    settings = [legacy.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=settings)
    (response,) = ask(broker, legacy.AlterConfigsRequest(resources=[resource]), version).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return int(response.error_code)


def value_of(broker: Broker, kind: int, name: str, key: str) -> str | None:
    (result,) = describe(broker, (kind, name), keys=[key])
    return result.configs[0].value if result.configs else None


# -- DescribeConfigs ---------------------------------------------------------------------------------------------------


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


# -- IncrementalAlterConfigs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_single_settings_change(broker: Broker, version: int) -> None:
    log = broker.replica_manager.leader_of("a", 0).log
    operations: Operations = [("segment.ms", SET, "9"), ("cleanup.policy", APPEND, "compact")]
    assert change(broker, (TOPIC, "a", operations), version=version) == [(0, None)]
    assert (log.config.retention_ms, log.config.segment_ms) == (7, 9)
    assert log.config.cleanup_policy == {"delete", "compact"}
    operations = [("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete")]
    assert change(broker, (TOPIC, "a", operations), version=version) == [(0, None)]
    assert log.config.retention_ms == broker.config.default_log_config.retention_ms
    assert log.config.cleanup_policy == {"compact"}


def test_refused_changes_do_not_hinder_others(broker: Broker) -> None:
    create(broker, "b")
    create(broker, "c")
    results = change(
        broker,
        (TOPIC, "nosuch", [("retention.ms", SET, "5")]),
        (TOPIC, "a", [("retention.ms", SET, "5")]),
        (TOPIC, "b", [("retention.ms", SET, "soon")]),
        (TOPIC, "c", [("retention.ms", SET, None)]),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "5")]),
        (99, "x", []),
    )
    assert [code for code, _ in results] == [
        UnknownTopicOrPartition.code,
        0,
        InvalidConfig.code,
        InvalidRequest.code,
        InvalidRequest.code,
        InvalidRequest.code,
    ]
    assert all((message is None) == (code == 0) for code, message in results)
    assert value_of(broker, TOPIC, "a", "retention.ms") == "5"


@pytest.mark.parametrize("kind", [TOPIC, LOGGER])
def test_resource_named_twice(broker: Broker, kind: ResourceType) -> None:
    name, key = ("a", "retention.ms") if kind is TOPIC else ("1", "root")
    results = change(broker, (kind, name, [(key, SET, "INFO")]), (kind, name, [(key, SET, "INFO")]))
    assert results == [(InvalidRequest.code, "Each resource must appear at most once.")] * 2


def test_validation_alone_changes_nothing(broker: Broker) -> None:
    assert change(broker, (TOPIC, "a", [("retention.ms", SET, "5")]), validate_only=True) == [(0, None)]
    assert value_of(broker, TOPIC, "a", "retention.ms") == "7"


def test_dynamic_settings_of_the_broker_reach_its_topics(broker: Broker) -> None:
    create(broker, "b")
    assert change(broker, (BROKER, "1", [("log.retention.ms", SET, "5000")])) == [(0, None)]
    assert broker.replica_manager.leader_of("b", 0).log.config.retention_ms == 5000
    assert value_of(broker, TOPIC, "b", "retention.ms") == "5000"
    assert change(broker, (BROKER, "1", [("num.partitions", SET, "5")]))[0][0] == InvalidRequest.code
    assert change(broker, (BROKER, "2", [("log.retention.ms", SET, "5")]))[0][0] == InvalidRequest.code


def test_levels_of_loggers(broker: Broker) -> None:
    logger = logging.getLogger("barnabas.test.levels")
    key = logger.name
    try:
        assert change(broker, (LOGGER, "1", [(key, SET, "TRACE")]), (TOPIC, "a", [])) == [(0, None), (0, None)]
        assert logger.isEnabledFor(5)
        assert value_of(broker, LOGGER, "1", key) == "TRACE"
        assert change(broker, (LOGGER, "1", [(key, DELETE, None)]), validate_only=True) == [(0, None)]
        assert logger.level == 5
        assert change(broker, (LOGGER, "1", [(key, DELETE, None)])) == [(0, None)]
        assert logger.level == logging.NOTSET
        logger.setLevel(25)
        assert value_of(broker, LOGGER, "1", key) == "INFO"
        logger.setLevel(1)
        assert value_of(broker, LOGGER, "1", key) == "TRACE"
    finally:
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("resource", "operation", "code"),
    [
        ("1", ("nosuch.logger", SET, "INFO"), InvalidConfig.code),
        ("1", ("root", SET, "LOUD"), InvalidConfig.code),
        ("1", ("root", DELETE, None), InvalidRequest.code),
        ("1", ("root", APPEND, "INFO"), InvalidRequest.code),
        ("1", ("root", 9, "INFO"), InvalidRequest.code),
        ("2", ("root", SET, "INFO"), InvalidRequest.code),
        ("x", ("root", SET, "INFO"), InvalidRequest.code),
        ("1", ("root", SET, None), InvalidRequest.code),
    ],
)
def test_refused_levels(broker: Broker, resource: str, operation: tuple[str, int, str | None], code: int) -> None:
    before = logging.getLogger().level
    known = (logging.getLogger("barnabas.broker").name, SET, "DEBUG")
    operations: Operations = [known, operation]
    assert change(broker, (LOGGER, resource, operations))[0][0] == code
    assert logging.getLogger().level == before
    assert logging.getLogger("barnabas.broker").level != logging.DEBUG


# -- AlterConfigs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_all_settings_are_replaced(broker: Broker, version: int) -> None:
    assert replace(broker, TOPIC, "a", version, segment_ms="5") == 0
    assert broker.image.topic_config("a") == {"segment.ms": "5"}
    assert replace(broker, TOPIC, "a", version) == 0
    assert not broker.image.topic_config("a")


def test_refused_replacements(broker: Broker) -> None:
    assert replace(broker, TOPIC, "nosuch", segment_ms="5") == UnknownTopicOrPartition.code
    assert replace(broker, TOPIC, "a", segment_ms=None) == InvalidRequest.code
    assert replace(broker, LOGGER, "1", root="INFO") == InvalidRequest.code
    assert broker.image.topic_config("a") == {"retention.ms": "7"}


def test_every_resource_fails_where_another_broker_decides(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotController("broker 2 is the controller")

    monkeypatch.setattr(broker.controller, "alter_configs", refuse)
    monkeypatch.setattr(broker.controller, "incremental_alter_configs", refuse)
    assert replace(broker, TOPIC, "a", segment_ms="5") == NotController.code
    assert (
        change(broker, (TOPIC, "a", []), (TOPIC, "b", [])) == [(NotController.code, "broker 2 is the controller")] * 2
    )


# -- ListConfigResources -----------------------------------------------------------------------------------------------


def test_resources_by_type(broker: Broker) -> None:
    def listed(version: int, *kinds: int) -> set[tuple[int, str]]:
        answer = ask(broker, ListConfigResourcesRequest(resource_types=kinds), version)
        assert answer.error_code == 0
        return {(r.resource_type, r.resource_name) for r in answer.config_resources}

    assert listed(0) == set()
    assert listed(1) == {(TOPIC, "a"), (BROKER, "1"), (LOGGER, "1")}
    assert listed(1, BROKER, GROUP) == {(BROKER, "1")}
    answer = ask(broker, ListConfigResourcesRequest(resource_types=[TOPIC, 99]), 1)
    assert (answer.error_code, list(answer.config_resources)) == (UnsupportedVersion.code, [])
