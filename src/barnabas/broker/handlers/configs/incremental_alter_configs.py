"""IncrementalAlterConfigs v0-v1: sets, deletes, appends to and subtracts from single settings of topics and brokers.

Log levels belong to this process: they are changed without the controller, and last until the process ends.
"""

from collections import Counter
from collections.abc import Iterator

from barnabas.broker.handlers.configs.config_results import ConfigResult, all_or_each, result_responses
from barnabas.broker.process import loggers
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.controller.configuration_control import check_operations, parse_node_id
from barnabas.controller.requests import ConfigOperation, ConfigResource, ResourceType
from barnabas.errors import InvalidRequest, KafkaError
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ResourceChange = tuple[ConfigResource, list[ConfigOperation]]


async def handle(
    broker: BrokerServices, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    changes: list[ResourceChange] = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [ConfigOperation(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    kept = [change for change in changes if not _is_logger(change)]
    stored: Iterator[ConfigResult] = iter(())
    if kept:
        altered = broker.controller.call(
            lambda controller: controller.incremental_alter_configs(kept, validate_only=request.validate_only)
        )
        stored = iter(await all_or_each(altered, kept))
    levels = iter(_levels(broker, [change for change in changes if _is_logger(change)], request.validate_only))
    results = [next(levels) if _is_logger(change) else next(stored) for change in changes]
    return IncrementalAlterConfigsResponse(responses=result_responses(AlterConfigsResourceResponse, results))


def _is_logger(change: ResourceChange) -> bool:
    return change[0].type == ResourceType.BROKER_LOGGER


def _levels(broker: BrokerServices, changes: list[ResourceChange], validate_only: bool) -> list[ConfigResult]:
    times = Counter(resource for resource, _ in changes)
    results: list[ConfigResult] = []
    for resource, operations in changes:
        try:
            if times[resource] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            check_operations(operations)
            if parse_node_id(resource.name, "Node id") != broker.node_id:
                raise InvalidRequest(f"Unexpected node id. Expected {broker.node_id}, but received {resource.name}")
            loggers.alter(operations, validate_only=validate_only)
        except KafkaError as error:
            results.append((resource, error))
        else:
            results.append((resource, None))
    return results
