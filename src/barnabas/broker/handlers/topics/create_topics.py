"""CreateTopics v2-v7. The topics exist and have leaders when the response is sent, so the client's timeout is never
used.

From v5 on the response has the topic's partitions, replicas and settings, from v7 on its id. After 250,000 settings in
one response further topics get INVALID_REQUEST in place of their settings.
"""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence, sized
from barnabas.broker.services import BrokerServices
from barnabas.config.definitions import ConfigEntry
from barnabas.controller.requests import TopicRequest, check_count
from barnabas.errors import InvalidRequest, KafkaError
from barnabas.metadata.image import TopicImage
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

FIRST_VERSION_WITH_CONFIGS = 5


async def handle(broker: BrokerServices, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    topic_requests: dict[str, TopicRequest] = {}
    results: dict[str, TopicImage | KafkaError]
    try:
        check_count(len(request.topics))
        asked = [_topic_request(topic) for topic in request.topics]
        topic_requests.update((topic_request.name, topic_request) for topic_request in asked)
        results = await broker.controller.call(
            lambda controller: controller.create_topics(asked, validate_only=request.validate_only)
        )
    except KafkaError as error:
        results = dict.fromkeys((topic.name for topic in request.topics), error)
    with_configs = context.api_version >= FIRST_VERSION_WITH_CONFIGS

    def described(name: str) -> CreatableTopicResult:
        result = results[name]
        if isinstance(result, KafkaError):
            return CreatableTopicResult(name=name, error_code=result.code, error_message=result.message)
        return _created(broker, topic_requests[name], result, with_configs)

    def without_configs(name: str) -> CreatableTopicResult:
        result = results[name]
        if isinstance(result, KafkaError):
            return described(name)
        topic = _created(broker, topic_requests[name], result, False)
        topic.topic_config_error_code = InvalidRequest.code if with_configs else 0
        return topic

    one = sized(described, lambda topic: len(topic.configs or ()), without_configs)
    return CreateTopicsResponse(topics=LazySequence(list(results), one))


def _topic_request(topic: CreatableTopic) -> TopicRequest:
    return TopicRequest(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _created(
    broker: BrokerServices, topic_request: TopicRequest, topic: TopicImage, with_configs: bool
) -> CreatableTopicResult:
    entries: list[ConfigEntry] = []
    if with_configs:
        overrides = {name: value for name, value in topic_request.configs.items() if value is not None}
        entries = sorted(broker.config.describe_topic(overrides), key=lambda entry: entry.name)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in entries
        ],
    )
