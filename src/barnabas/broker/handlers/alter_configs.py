"""AlterConfigs v0-v2, the older operation: what is given replaces all settings of the topic or broker."""

from typing import TYPE_CHECKING

from barnabas.broker.context import RequestContext
from barnabas.controller.wishes import ConfigResource
from barnabas.errors import KafkaError
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.server import Broker


def handle(broker: "Broker", request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    wishes = [
        (
            ConfigResource(resource.resource_type, resource.resource_name),
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    results: list[tuple[ConfigResource, KafkaError | None]]
    try:
        results = broker.controller.alter_configs(wishes, validate_only=request.validate_only)
    except KafkaError as error:
        results = [(resource, error) for resource, _ in wishes]
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=0 if failure is None else failure.code,
                error_message=None if failure is None else failure.message,
                resource_type=resource.type,
                resource_name=resource.name,
            )
            for resource, failure in results
        ]
    )
