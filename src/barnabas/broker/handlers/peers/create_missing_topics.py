"""CreateMissingTopics v0, an API of our own. A broker has the controller create topics that its clients use."""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.controller.requests import check_count
from barnabas.errors import KafkaError
from barnabas.protocol.peer_messages.create_missing_topics import (
    CreatedTopic,
    CreateMissingTopicsRequest,
    CreateMissingTopicsResponse,
)


async def handle(
    broker: BrokerServices, request: CreateMissingTopicsRequest, context: RequestContext | None
) -> CreateMissingTopicsResponse:
    try:
        check_count(len(request.names))
        results = await broker.controller.call(lambda controller: controller.auto_create_topics(request.names))
    except KafkaError as error:
        return CreateMissingTopicsResponse(error_code=error.code)
    return CreateMissingTopicsResponse(
        topics=[
            CreatedTopic(name=name, error_code=result.code, error_message=result.message)
            if isinstance(result, KafkaError)
            else CreatedTopic(name=name)
            for name, result in results.items()
        ]
    )
