"""AlterConfigs: all settings of a resource are replaced."""

import pytest

from barnabas.broker.server import Broker
from barnabas.controller.controller import Controller
from barnabas.errors import InvalidRequest, NotController, UnknownTopicOrPartition
from barnabas.protocol.apis import ApiKey
from broker.admin_rig import versions
from broker.handlers.configs.configs_rig import LOGGER, TOPIC, change, replace
from broker.handlers.configs.configs_rig import broker as broker


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

    monkeypatch.setattr(Controller, "alter_configs", refuse)
    monkeypatch.setattr(Controller, "incremental_alter_configs", refuse)
    assert replace(broker, TOPIC, "a", segment_ms="5") == NotController.code
    assert (
        change(broker, (TOPIC, "a", []), (TOPIC, "b", [])) == [(NotController.code, "broker 2 is the controller")] * 2
    )
