"""IncrementalAlterConfigs: single settings change, and refused ones do not hinder others."""

import logging
from typing import Any

import pytest

from barnabas.broker.server import Broker
from barnabas.controller.requests import ResourceType
from barnabas.errors import (
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    NotController,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from barnabas.protocol.apis import ApiKey
from broker.admin_rig import create, versions
from broker.handlers.configs.configs_rig import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    Operations,
    change,
    value_of,
)
from broker.handlers.configs.configs_rig import broker as broker

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


@pytest.mark.parametrize(
    ("failure", "code"), [(NotController("this broker is the controller itself"), 0), (RequestTimedOut("slow"), 7)]
)
def test_a_controller_out_of_reach_does_not_hinder_log_levels(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, failure: KafkaError, code: int
) -> None:
    class Membership:
        is_controller = False

        async def forward(self, frame: memoryview, context: Any) -> Any:
            raise failure

    logger = logging.getLogger("barnabas.test.levels")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    monkeypatch.setattr(Broker, "cluster", Membership())
    results = change(broker, (TOPIC, "a", [("retention.ms", SET, "5")]), (LOGGER, "1", [(logger.name, SET, "DEBUG")]))
    assert [found for found, _ in results] == [code, 0]
    assert logger.level == logging.DEBUG
    assert value_of(broker, TOPIC, "a", "retention.ms") == ("7" if code else "5")
