"""Decides about changes of settings: pure functions from an image and operations to registry changes.

Where we differ from Kafka: a dynamic broker setting with a name that no broker knows is refused (Kafka keeps it for
plugins); settings of groups and client metrics are refused, because nothing here would use them. Log levels belong to
one process and never reach the controller.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from barnabas.config.broker import BrokerConfig
from barnabas.config.broker_settings import BROKER_CONFIGS
from barnabas.config.definitions import ConfigType, Setting
from barnabas.config.topic import TOPIC_CONFIGS, validate_topic_overrides
from barnabas.controller.requests import ConfigOp, ConfigOperation, ConfigResource, ResourceType, check_count
from barnabas.errors import InvalidConfig, InvalidRequest, KafkaError, UnknownTopicOrPartition
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topic_names import validate_topic_name
from barnabas.registry.registry import Change, SetBrokerConfig, SetTopicConfig
from barnabas.types import BrokerId

__all__ = ["ConfigChanges", "alter_configs", "check_operations", "incremental_alter_configs", "parse_node_id"]

T = TypeVar("T")


class ConfigChanges(NamedTuple):
    """The changes to write, and None or an error for each resource of the request, in its order."""

    changes: list[Change]
    results: list[tuple[ConfigResource, KafkaError | None]]


def incremental_alter_configs(
    image: MetadataImage,
    requests: Sequence[tuple[ConfigResource, Sequence[ConfigOperation]]],
    config: BrokerConfig,
) -> ConfigChanges:
    """Sets, deletes, appends to and subtracts from single settings. A resource changes wholly or not at all."""

    def decide(resource: ConfigResource, operations: Sequence[ConfigOperation]) -> Change:
        check_operations(operations)
        _check_resource(resource, image, config.node_id)
        changed = dict(_present(image, resource))
        for operation in operations:
            _operate(changed, operation, _setting(resource, operation.name))
        return _validated(image, resource, changed, config)

    return _decide_each(requests, decide)


def alter_configs(
    image: MetadataImage,
    requests: Sequence[tuple[ConfigResource, Sequence[tuple[str, str | None]]]],
    config: BrokerConfig,
) -> ConfigChanges:
    """Handles the older operation: the given settings replace all settings of the resource."""

    def decide(resource: ConfigResource, settings: Sequence[tuple[str, str | None]]) -> Change:
        check_operations([ConfigOperation(name, ConfigOp.SET, value) for name, value in settings])
        _check_resource(resource, image, config.node_id)
        changed = {name: value for name, value in settings if value is not None}
        return _validated(image, resource, changed, config)

    return _decide_each(requests, decide)


def _decide_each(
    requests: Sequence[tuple[ConfigResource, T]], decide: Callable[[ConfigResource, T], Change]
) -> ConfigChanges:
    check_count(len(requests))
    named = Counter(resource for resource, _ in requests)
    changes: list[Change] = []
    results: list[tuple[ConfigResource, KafkaError | None]] = []
    for resource, request in requests:
        try:
            if named[resource] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            changes.append(decide(resource, request))
        except KafkaError as error:
            results.append((resource, error))
        else:
            results.append((resource, None))
    return ConfigChanges(changes, results)


def check_operations(operations: Sequence[ConfigOperation]) -> None:
    """Raises InvalidRequest if a setting is named twice or has no value."""
    names = [operation.name for operation in operations]
    if len(set(names)) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    unset = [o.name for o in operations if o.operation != ConfigOp.DELETE and o.value is None]
    if unset:
        raise InvalidRequest(f"Null value not supported for : {', '.join(unset)}")


def _check_resource(resource: ConfigResource, image: MetadataImage, node_id: BrokerId) -> None:
    match resource.type:
        case ResourceType.TOPIC:
            if not resource.name:
                raise InvalidRequest("Default topic resources are not allowed.")
            validate_topic_name(resource.name)
        case ResourceType.BROKER:
            # Any broker of the cluster: the one that it was sent to has forwarded it to the controller.
            if resource.name and parse_node_id(resource.name, "Node id") not in (node_id, *image.brokers):
                raise InvalidRequest(f"Unexpected broker id, expected {node_id}, but received {resource.name}")
        case _:
            raise InvalidRequest(f"Unknown resource type {resource.type}")


def parse_node_id(name: str, what: str) -> int:
    """Returns the broker id in the name of a resource. Raises InvalidRequest."""
    digits = name[1:] if name[:1] == "-" else name
    # Eleven characters hold every 32-bit number; Python refuses to read one of thousands of digits.
    if len(name) > 11 or not (digits.isascii() and digits.isdigit()):
        raise InvalidRequest(f"{what} must be an integer, but it is: {name}")
    return int(name)


def _present(image: MetadataImage, resource: ConfigResource) -> Mapping[str, str]:
    if resource.type == ResourceType.TOPIC:
        return image.topic_config(resource.name)
    return image.broker_config(resource.name)


def _setting(resource: ConfigResource, name: str) -> Setting | None:
    return TOPIC_CONFIGS.get(name) if resource.type == ResourceType.TOPIC else BROKER_CONFIGS.get(name)


def _operate(settings: dict[str, str], operation: ConfigOperation, setting: Setting | None) -> None:
    name, value = operation.name, operation.value or ""
    match operation.operation:
        case ConfigOp.SET:
            settings[name] = value
        case ConfigOp.DELETE:
            settings.pop(name, None)
        case ConfigOp.APPEND | ConfigOp.SUBTRACT:
            if setting is None or setting.type is not ConfigType.LIST:
                verb = ConfigOp(operation.operation).name
                raise InvalidConfig(f"Can't {verb} to key {name} because its type is not LIST.")
            items = _items(settings.get(name, setting.format(setting.default) or ""))
            given = _items(value)
            if operation.operation == ConfigOp.APPEND:
                items += [item for item in given if item not in items]
            else:
                items = [item for item in items if item not in given]
            settings[name] = ",".join(items)
        case unknown:
            raise InvalidRequest(f"Unknown operations type {unknown}")


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _validated(
    image: MetadataImage, resource: ConfigResource, settings: dict[str, str], config: BrokerConfig
) -> Change:
    if resource.type == ResourceType.TOPIC:
        # One that a newer release has accepted may stay, or nothing of the topic could be changed.
        present = _present(image, resource)
        checked = {name: text for name, text in settings.items() if name in TOPIC_CONFIGS or present.get(name) != text}
        validate_topic_overrides(checked, config.topic_defaults)
        if resource.name not in image.topics:
            raise UnknownTopicOrPartition(f"The topic '{resource.name}' does not exist.")
        return SetTopicConfig(resource.name, settings)
    config.validate_dynamic(settings, per_broker=bool(resource.name))
    if resource.name == str(config.node_id):  # the directories and listeners of others are not known here
        config.check_own(settings)
    return SetBrokerConfig(resource.name, settings)
