"""Settings of topics, brokers and groups: requests and what is answered."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from barnabas.client.admin.topics import topic_error
from barnabas.errors import KafkaError, UnknownTopicOrPartition, error_for

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest
    from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
    from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest

__all__ = [
    "OPERATIONS",
    "RESOURCE_TYPES",
    "Change",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "alter_request",
    "changes_of",
    "config_entry",
    "describe_request",
    "list_request",
    "resource_error",
    "resource_kind",
    "resource_type",
]

RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32}
CONFIG_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
CONFIG_TYPES: Final = (
    "UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD",
)  # fmt: skip
OPERATIONS: Final = ("set", "delete", "append", "subtract")
_KINDS: Final = {number: kind for kind, number in RESOURCE_TYPES.items()}


class ConfigResource(NamedTuple):
    """What has settings: kind `topic`, `broker` (name: its node id, empty for those of the whole cluster), `group`,
    `broker-logger` or `client-metrics`. A plain tuple `("topic", "orders")` does as well."""

    kind: str
    name: str


class ConfigEntry(NamedTuple):
    """One setting of a topic or broker as DescribeConfigs shows it."""

    name: str
    value: str | None
    source: str
    type: str
    read_only: bool
    sensitive: bool
    documentation: str | None
    synonyms: tuple[tuple[str, str | None, str], ...]
    """(name, value, source), the first one is in force."""


class ConfigChange(NamedTuple):
    """One change of one setting. `append` and `subtract` are for lists; `delete` goes back to the default."""

    name: str
    value: str | None = None
    operation: Literal["set", "delete", "append", "subtract"] = "set"


Change = Mapping[str, str | None] | Iterable[ConfigChange]
"""Values by name (None: back to the default), or changes one by one."""


def resource_type(kind: str) -> int:
    """`resource_type("topic")` is 2."""
    return RESOURCE_TYPES[kind]


def resource_kind(number: int) -> str:
    """`resource_kind(2)` is "topic"; the number itself for what is not known here."""
    return _KINDS.get(number, str(number))


def resource_error(code: int, message: str | None, kind: str, name: str) -> KafkaError:
    if code == UnknownTopicOrPartition.code:
        return topic_error(code, message, name)
    return error_for(code, message or f"{kind} {name!r}: {error_for(code)}")


def changes_of(change: Change) -> list[ConfigChange]:
    """One form for both."""
    if isinstance(change, Mapping):
        return [ConfigChange(name, value, "delete" if value is None else "set") for name, value in change.items()]
    return list(change)


def describe_request(
    resources: Iterable[ConfigResource], keys: Sequence[str] | None, *, documentation: bool
) -> "DescribeConfigsRequest":
    """The settings `keys`, or (None) all."""
    from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    asked = []
    for kind, name in resources:
        resource = DescribeConfigsResource(resource_type=resource_type(kind), resource_name=name)
        resource.configuration_keys = keys
        asked.append(resource)
    return DescribeConfigsRequest(resources=asked, include_synonyms=True, include_documentation=documentation)


def config_entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        CONFIG_SOURCES.get(config.config_source, str(config.config_source)),
        CONFIG_TYPES[config.config_type] if 0 <= config.config_type < len(CONFIG_TYPES) else "UNKNOWN",
        config.read_only,
        config.is_sensitive,
        config.documentation,
        tuple((s.name, s.value, CONFIG_SOURCES.get(s.source, str(s.source))) for s in config.synonyms),
    )


def alter_request(
    changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool
) -> "IncrementalAlterConfigsRequest":
    """Only the named settings change."""
    from barnabas.protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    resources = []
    for (kind, name), wanted in changes.items():
        configs = []
        for one in wanted:
            config = AlterableConfig(name=one.name, config_operation=OPERATIONS.index(one.operation))
            config.value = one.value
            configs.append(config)
        resources.append(AlterConfigsResource(resource_type=resource_type(kind), resource_name=name, configs=configs))
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)


def list_request(kinds: Iterable[str]) -> "ListConfigResourcesRequest":
    """Everything of these kinds that has settings; none: of all kinds."""
    from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest

    return ListConfigResourcesRequest(resource_types=[resource_type(kind) for kind in kinds])
