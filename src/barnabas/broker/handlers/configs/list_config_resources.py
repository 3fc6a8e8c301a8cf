"""ListConfigResources v0-v1: the names of resources that can have settings.

v0 knows client metrics subscriptions only, of which there are none here; v1 takes the types; an empty list means all.
Groups have no settings here, so none are listed.
"""

from collections.abc import Iterable
from typing import Final

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.controller.requests import ResourceType
from barnabas.errors import UnsupportedVersion
from barnabas.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_TYPES: Final = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


def handle(
    broker: BrokerServices, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    known = _TYPES if context.api_version >= 1 else (ResourceType.CLIENT_METRICS,)
    wanted = request.resource_types or known
    if not set(wanted) <= set(known):
        return ListConfigResourcesResponse(error_code=UnsupportedVersion.code)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in known
            if kind in wanted
            for name in _names(broker, kind)
        ]
    )


def _names(broker: BrokerServices, kind: ResourceType) -> Iterable[str]:
    if kind is ResourceType.TOPIC:
        return broker.image.topics
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return map(str, broker.image.brokers)
    return ()
