"""Operations on the settings of topics, brokers, groups and client metrics."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from barnabas.client.admin.operations import AdminApiDriver, AdminOperations, controller_moves
from barnabas.client.admin.topics import topic_error
from barnabas.connection.network_client import ANY, CONTROLLER, Node, Target
from barnabas.connection.retry import Answer
from barnabas.errors import KafkaError, UnknownTopicOrPartition, error_for
from barnabas.types import BrokerId

__all__ = [
    "OPERATIONS",
    "RESOURCE_TYPES",
    "Change",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperations",
    "ConfigResource",
]

RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32}
_CONFIG_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_CONFIG_TYPES: Final = (
    "UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD",
)  # fmt: skip
OPERATIONS: Final = ("set", "delete", "append", "subtract")
_KINDS: Final = {number: kind for kind, number in RESOURCE_TYPES.items()}


class ConfigResource(NamedTuple):
    """Something that has settings. `kind` is `topic`, `broker` (the name is its node id, or empty for all brokers),
    `group`, `broker-logger` or `client-metrics`. A plain tuple `("topic", "orders")` does as well."""

    kind: str
    name: str


class ConfigEntry(NamedTuple):
    """One setting of a resource."""

    name: str
    value: str | None
    source: str
    type: str
    read_only: bool
    sensitive: bool
    documentation: str | None
    synonyms: tuple[tuple[str, str | None, str], ...]
    """(name, value, source); the first one is in force."""


class ConfigChange(NamedTuple):
    """One change of one setting. `append` and `subtract` are for lists; `delete` goes back to the default."""

    name: str
    value: str | None = None
    operation: Literal["set", "delete", "append", "subtract"] = "set"


Change = Mapping[str, str | None] | Iterable[ConfigChange]
"""Values by name (None: back to the default), or changes one by one."""


class ConfigOperations(AdminOperations):
    async def describe_configs(
        self,
        resources: Iterable[tuple[str, str]],
        *,
        keys: Sequence[str] | None = None,
        documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Returns the settings `keys` (None: all) of `("topic", name)`, `("broker", "1")` and the like, by name.

        Raises ItemsFailed (UnknownTopicOrPartition, ...), UsageError.
        """
        from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

        driver = self._driver("describe_configs", timeout)
        wanted = [ConfigResource(*resource) for resource in resources]
        await self._check_brokers(driver, wanted)

        def request(asked: list[ConfigResource]) -> DescribeConfigsRequest:
            described = [
                DescribeConfigsResource(resource_type=RESOURCE_TYPES[kind], resource_name=name, configuration_keys=keys)
                for kind, name in asked
            ]
            return DescribeConfigsRequest(
                resources=described, include_synonyms=True, include_documentation=documentation
            )

        def answers(response: Any, _: object) -> Iterable[Answer[ConfigResource, dict[str, ConfigEntry]]]:
            for r in response.results:
                yield *_resource_and_error(r), {config.name: _config_entry(config) for config in r.configs}

        return await driver.run(
            wanted, lambda r: _only_broker(r) or ANY, request, answers, is_retriable=controller_moves
        )

    async def alter_configs(
        self,
        changes: Mapping[tuple[str, str], Change],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Changes the named settings and no others: `{("topic", "orders"): {"retention.ms": "60000"}}`.

        A value of None goes back to the default; `ConfigChange` also appends to lists and takes away from them.
        `validate_only` checks and changes nothing. Raises ItemsFailed (InvalidConfig, ...), UsageError.
        """
        from barnabas.protocol.messages import incremental_alter_configs as messages

        driver = self._driver("alter_configs", timeout, changes=not validate_only)
        wanted = {ConfigResource(*resource): _changes_of(change) for resource, change in changes.items()}
        await self._check_brokers(driver, wanted)

        def request(asked: list[ConfigResource]) -> messages.IncrementalAlterConfigsRequest:
            resources = [
                messages.AlterConfigsResource(
                    resource_type=RESOURCE_TYPES[resource.kind],
                    resource_name=resource.name,
                    configs=[
                        messages.AlterableConfig(name=name, config_operation=OPERATIONS.index(operation), value=value)
                        for name, value, operation in wanted[resource]
                    ],
                )
                for resource in asked
            ]
            return messages.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)

        def answers(response: Any, _: object) -> Iterable[Answer[ConfigResource, None]]:
            for r in response.responses:
                yield *_resource_and_error(r), None

        await driver.run(
            wanted, lambda r: _only_broker(r) or CONTROLLER, request, answers, is_retriable=controller_moves
        )

    async def list_config_resources(
        self, kinds: Iterable[str] = (), *, timeout: float | None = None
    ) -> list[ConfigResource]:
        """Returns all resources of these kinds (none: of all kinds) that have settings, sorted."""
        from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest

        request = ListConfigResourcesRequest(resource_types=[RESOURCE_TYPES[kind] for kind in kinds])
        driver = self._driver("list_config_resources", timeout)
        response = await driver.send(request, ANY, lambda r: r.error_code)
        return sorted(_resource_of(r) for r in response.config_resources)

    async def _check_brokers(self, driver: AdminApiDriver, resources: Collection[ConfigResource]) -> None:
        """Raises UsageError for the settings of a broker that is not in the cluster: no other broker knows them."""
        brokers = [node for node in map(_only_broker, resources) if isinstance(node, Node)]
        if brokers:
            await self._brokers(driver, [node.node_id for node in brokers])


def _only_broker(resource: ConfigResource) -> Target | None:
    """Returns the only broker that knows the settings of a resource, None if any broker does."""
    if resource.kind not in ("broker", "broker-logger") or not resource.name:
        return None
    return Node(BrokerId(int(resource.name)))


def _changes_of(change: Change) -> list[ConfigChange]:
    if isinstance(change, Mapping):
        return [ConfigChange(name, value, "delete" if value is None else "set") for name, value in change.items()]
    return list(change)


def _resource_of(result: Any) -> ConfigResource:
    number = result.resource_type
    return ConfigResource(_KINDS.get(number, str(number)), result.resource_name)


def _resource_and_error(result: Any) -> tuple[ConfigResource, KafkaError | int]:
    resource, code = _resource_of(result), result.error_code
    if not code:
        return resource, 0
    if code == UnknownTopicOrPartition.code:
        return resource, topic_error(code, result.error_message, resource.name)
    return resource, error_for(code, result.error_message or f"{resource.kind} {resource.name!r}: {error_for(code)}")


def _config_entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        _CONFIG_SOURCES.get(config.config_source, str(config.config_source)),
        _CONFIG_TYPES[config.config_type] if 0 <= config.config_type < len(_CONFIG_TYPES) else "UNKNOWN",
        config.read_only,
        config.is_sensitive,
        config.documentation,
        tuple((s.name, s.value, _CONFIG_SOURCES.get(s.source, str(s.source))) for s in config.synonyms),
    )
