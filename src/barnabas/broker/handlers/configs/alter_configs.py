"""AlterConfigs v0-v2, the older operation: the given settings replace all settings of the topic or broker."""

from barnabas.broker.handlers.configs.config_results import all_or_each, result_responses
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.controller.requests import ConfigResource
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(broker: BrokerServices, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    changes = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    altered = broker.controller.call(
        lambda controller: controller.alter_configs(changes, validate_only=request.validate_only)
    )
    results = await all_or_each(altered, changes)
    return AlterConfigsResponse(responses=result_responses(AlterConfigsResourceResponse, results))
