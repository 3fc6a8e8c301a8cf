"""Requests about settings, to a broker whose topic a keeps records for 7 ms."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.server import Broker
from barnabas.controller.requests import ConfigOp, ResourceType
from barnabas.protocol.messages import alter_configs as legacy
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from broker.admin_rig import ask, create, running_broker

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
