"""IncrementalAlterConfigs v0-v1: sets, deletes, appends to and subtracts from single settings of topics and brokers.

Log levels belong to this process: they are changed without the controller, and last until the process ends. A broker
that is not the controller forwards the rest of a request.
"""

from collections import Counter
from collections.abc import Iterator

from barnabas.broker.handlers.configs.config_results import ConfigResult, all_or_each, result_responses
from barnabas.broker.peers.forwarding import forward_part
from barnabas.broker.process import loggers
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.controller.configuration_control import (
    check_operations,
    incremental_alter_configs,
    parse_node_id,
)
from barnabas.controller.requests import ConfigOperation, ConfigResource, ResourceType
from barnabas.errors import InvalidRequest, KafkaError, NotController, error_for
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
        stored = iter(await all_or_each(_alter_stored(broker, request, kept, context), kept))
    levels = iter(_levels(broker, [change for change in changes if _is_logger(change)], request.validate_only))
    results = [next(levels) if _is_logger(change) else next(stored) for change in changes]
    return IncrementalAlterConfigsResponse(responses=result_responses(AlterConfigsResourceResponse, results))


async def _alter_stored(
    broker: BrokerServices,
    request: IncrementalAlterConfigsRequest,
    changes: list[ResourceChange],
    context: RequestContext,
) -> list[ConfigResult]:
    """Has the controller make the changes that the registry keeps, wherever it is."""
    cluster = broker.cluster
    if cluster is not None and not cluster.is_controller and not context.is_broker:
        refused = _refused(broker, changes)
        resources = [
            resource
            for resource in request.resources
            if resource.resource_type != ResourceType.BROKER_LOGGER
            and (resource.resource_type, resource.resource_name) not in refused
        ]
        if not resources:
            return list(refused.items())
        part = IncrementalAlterConfigsRequest(resources=resources, validate_only=request.validate_only)
        try:
            response: IncrementalAlterConfigsResponse = await forward_part(cluster.forward, part, context)
        except NotController:
            pass  # this broker has become the controller
        else:
            answers = map(_result_of, response.responses)
            return [(resource, refused[resource]) if resource in refused else next(answers) for resource, _ in changes]
    return await broker.controller.call(
        lambda controller: controller.incremental_alter_configs(changes, validate_only=request.validate_only)
    )


def _refused(broker: BrokerServices, changes: list[ResourceChange]) -> dict[ConfigResource, KafkaError]:
    """Returns what is wrong with changes of this broker's own settings: the controller does not know the settings and
    data directories with which this broker was started."""
    own = ConfigResource(ResourceType.BROKER, str(broker.node_id))
    decided = incremental_alter_configs(broker.image, [change for change in changes if change[0] == own], broker.config)
    return {resource: error for resource, error in decided.results if error is not None}


def _result_of(response: AlterConfigsResourceResponse) -> ConfigResult:
    code = response.error_code
    failure = error_for(code, response.error_message or "") if code else None
    return ConfigResource(response.resource_type, response.resource_name), failure


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
