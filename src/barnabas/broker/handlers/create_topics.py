"""CreateTopics v2-v7. The topics are there, and led, when the answer leaves: the client's timeout is never needed.

From v5 on the answer tells what the topic became: partitions, replicas and every setting by name; v7 adds its id.
"""

from typing import TYPE_CHECKING

from barnabas.broker.context import RequestContext
from barnabas.config.definitions import ConfigEntry
from barnabas.controller.wishes import TopicWish
from barnabas.errors import KafkaError
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.server import Broker
    from barnabas.metadata.image import TopicImage

FIRST_VERSION_WITH_CONFIGS = 5


def handle(broker: "Broker", request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    wishes = {topic.name: _wish(topic) for topic in request.topics}
    results: dict[str, TopicImage | KafkaError]
    try:
        results = broker.controller.create_topics(
            [_wish(topic) for topic in request.topics], validate_only=request.validate_only
        )
    except KafkaError as error:
        results = dict.fromkeys(wishes, error)
    with_configs = context.api_version >= FIRST_VERSION_WITH_CONFIGS
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=result.code, error_message=result.message)
            if isinstance(result, KafkaError)
            else _created(broker, wishes[name], result, with_configs)
            for name, result in results.items()
        ]
    )


def _wish(topic: CreatableTopic) -> TopicWish:
    return TopicWish(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _created(broker: "Broker", wish: TopicWish, topic: "TopicImage", with_configs: bool) -> CreatableTopicResult:
    entries: list[ConfigEntry] = []
    if with_configs:
        overrides = {name: value for name, value in wish.configs.items() if value is not None}
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
