"""DeleteTopics v1-v6: by name, from v6 on by name or id. The topic is gone when the response is sent; its files are
removed after `file.delete.delay.ms`.

A topic that is named twice, or by name and by id at once, is refused and stays.
"""

from collections import Counter
from uuid import UUID

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.broker.services import BrokerServices
from barnabas.controller.requests import check_count
from barnabas.errors import (
    InvalidRequest,
    KafkaError,
    PolicyViolation,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.delete_topics import (
    ZERO_UUID,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

FIRST_VERSION_WITH_IDS = 6
FIRST_VERSION_THAT_KNOWS_DISABLED = 3


async def handle(broker: BrokerServices, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    if context.api_version >= FIRST_VERSION_WITH_IDS:
        wanted: list[DeleteTopicState] = list(request.topics)
    else:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    try:
        check_count(len(wanted))
    except PolicyViolation as error:
        refusal = error
        return DeleteTopicsResponse(responses=LazySequence(wanted, lambda t: _result(t.name, t.topic_id, refusal)))
    if not broker.config.delete_topic_enable:
        return DeleteTopicsResponse(responses=[_result(t.name, t.topic_id, _disabled(context)) for t in wanted])
    refused, found = _sort_out(broker, wanted)
    try:
        outcomes = await broker.controller.call(lambda controller: controller.delete_topics(list(found)))
    except KafkaError as error:
        outcomes = dict.fromkeys(found, error)
    by_name = {topic.name for topic in wanted}

    def deleted(topic_id: UUID, name: str) -> DeletableTopicResult:
        outcome = outcomes[topic_id]
        if isinstance(outcome, UnknownTopicId) and name in by_name:
            outcome = _missing()  # another request was faster
        return _result(name, topic_id, outcome)

    return DeleteTopicsResponse(responses=refused + [deleted(*topic) for topic in found.items()])


def _disabled(context: RequestContext) -> KafkaError:
    if context.api_version < FIRST_VERSION_THAT_KNOWS_DISABLED:
        return InvalidRequest("Topic deletion is disabled.")
    return TopicDeletionDisabled("Topic deletion is disabled.")


def _sort_out(
    broker: BrokerServices, wanted: list[DeleteTopicState]
) -> tuple[list[DeletableTopicResult], dict[UUID, str]]:
    """Returns the results of refused topics, and the topics to delete with their names."""
    refused: list[DeletableTopicResult] = []
    names: Counter[str] = Counter()
    ids: Counter[UUID] = Counter()
    for topic in wanted:
        if topic.name is None and topic.topic_id == ZERO_UUID:
            refused.append(_result(None, ZERO_UUID, InvalidRequest("Neither topic name nor id were specified.")))
        elif topic.name is None:
            ids[topic.topic_id] += 1
        elif topic.topic_id == ZERO_UUID:
            names[topic.name] += 1
        else:
            error = InvalidRequest("You may not specify both topic name and topic id.")
            refused.append(_result(topic.name, topic.topic_id, error))
    found: dict[UUID, str] = {}
    for topic_id, count in ids.items():
        image = broker.image.topic_by_id(topic_id)
        if count > 1:
            refused.append(_result(None, topic_id, InvalidRequest("Duplicate topic id.")))
        elif image is None:
            refused.append(_result(None, topic_id, UnknownTopicId("This server does not host this topic ID.")))
        else:
            found[topic_id] = image.name
    for name, count in names.items():
        image = broker.image.topics.get(name)
        if count > 1:
            refused.append(_result(name, ZERO_UUID, InvalidRequest("Duplicate topic name.")))
        elif image is None:
            refused.append(_result(name, ZERO_UUID, _missing()))
        elif image.topic_id in ids:
            found.pop(image.topic_id, None)
            twice = InvalidRequest("The provided topic name maps to an ID that was already supplied.")
            refused.append(_result(name, image.topic_id, twice))
        else:
            found[image.topic_id] = name
    return refused, found


def _missing() -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition("This server does not host this topic-partition.")


def _result(name: str | None, topic_id: UUID, error: KafkaError | None) -> DeletableTopicResult:
    if error is None:
        return DeletableTopicResult(name=name, topic_id=topic_id)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
