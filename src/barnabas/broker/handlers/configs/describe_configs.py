"""DescribeConfigs v1-v4: the settings of topics, of this broker, and those set dynamically for all brokers (name "").

v3 adds types and documentation. An unknown type of resource fails the whole request, as in Kafka. Groups and client
metrics subscriptions have no settings here: their lists are empty.

Where we differ from Kafka: after 250,000 settings in one answer further resources get INVALID_REQUEST.
"""

from collections.abc import Iterable
from functools import partial

from barnabas.broker.process import loggers
from barnabas.broker.requests.duplicates import once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import RESPONSE_ELEMENTS_MAX, LazySequence, sized
from barnabas.broker.services import BrokerServices
from barnabas.config.definitions import ConfigEntry, ConfigSource
from barnabas.controller.configuration_control import parse_node_id
from barnabas.controller.requests import ResourceType
from barnabas.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from barnabas.metadata.topic_names import validate_topic_name
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_TOO_LONG = InvalidRequest(
    f"The answer has {RESPONSE_ELEMENTS_MAX} settings already; ask for fewer resources, or settings, at a time."
)
_KNOWN_TYPES = frozenset(ResourceType) - {ResourceType.UNKNOWN}


def handle(broker: BrokerServices, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    resources = once(request.resources, lambda resource: (resource.resource_type, resource.resource_name))
    for resource in resources:
        if resource.resource_type not in _KNOWN_TYPES:
            error = InvalidRequest(f"Unexpected resource type UNKNOWN for resource {resource.resource_name}")
            return DescribeConfigsResponse(results=LazySequence(resources, partial(_failed, error)))
    result = sized(
        lambda resource: _result(broker, resource, request),
        lambda result: len(result.configs),
        partial(_failed, _TOO_LONG),
    )
    return DescribeConfigsResponse(results=LazySequence(resources, result))


def _result(
    broker: BrokerServices, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    keys = resource.configuration_keys or None
    try:
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            configs = _levels(broker, resource.resource_name, keys)
        else:
            configs = [_config(entry, request) for entry in _entries(broker, resource, keys)]
    except KafkaError as error:
        return _failed(error, resource)
    return DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, configs=configs
    )


def _failed(error: KafkaError, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _entries(
    broker: BrokerServices, resource: DescribeConfigsResource, keys: Iterable[str] | None
) -> list[ConfigEntry]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            validate_topic_name(name)
            if name not in broker.image.topics:
                raise UnknownTopicOrPartition("This server does not host this topic-partition.")
            return broker.config.describe_topic(broker.image.topic_config(name), keys)
        case ResourceType.BROKER:
            if not name:
                return broker.config.describe_default(keys)
            if parse_node_id(name, "Broker id") != broker.node_id:
                raise InvalidRequest(
                    f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}"
                )
            return broker.config.describe(keys)
        case ResourceType.CLIENT_METRICS if not name:
            raise InvalidRequest("Client metrics subscription name must not be empty")
        case ResourceType.GROUP if not name:
            raise InvalidRequest("Group name must not be empty")
        case _:
            return []


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _levels(broker: BrokerServices, name: str, keys: Iterable[str] | None) -> list[DescribeConfigsResourceResult]:
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    if parse_node_id(name, "Broker id") != broker.node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {broker.node_id} but received {name}")
    wanted = None if keys is None else frozenset(keys)
    return [
        DescribeConfigsResourceResult(name=logger, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)
        for logger, level in loggers.levels().items()
        if wanted is None or logger in wanted
    ]
