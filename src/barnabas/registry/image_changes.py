"""Applies the changes of a write to an image, for a registry whose store does not know the conditions of changes."""

from collections.abc import Sequence

from barnabas.metadata.delta import MetadataChange, MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage, TopicImage
from barnabas.registry.registry import (
    AddPartitions,
    Change,
    CreateTopic,
    DeleteTopic,
    RemoveBroker,
    SetBrokerConfig,
    SetFenced,
    SetPartition,
    SetTopicConfig,
)

__all__ = ["apply_changes"]


class _Refused(Exception):
    """The condition of a change does not hold."""


def apply_changes(image: MetadataImage, changes: Sequence[Change]) -> MetadataChange | None:
    """Returns the image of the next version; None if a change is refused by the condition in its description."""
    delta = MetadataDelta(image)
    try:
        for change in changes:
            _apply(delta, change)
    except _Refused:
        return None
    return delta.apply(image.version + 1)


def _apply(delta: MetadataDelta, change: Change) -> None:
    match change:
        case CreateTopic():
            if delta.topic(change.name) is not None:
                raise _Refused
            delta.put_topic(TopicImage(change.name, change.topic_id, change.partitions))
            delta.set_topic_config(change.name, change.config)
        case DeleteTopic():
            _topic(delta, change)
            delta.remove_topic(change.name)
        case AddPartitions():
            if len(_topic(delta, change).partitions) != change.first:
                raise _Refused
            delta.put_partitions(change.name, enumerate(change.partitions, change.first))
        case SetPartition():
            partitions, index = _topic(delta, change).partitions, change.partition_index
            if not 0 <= index < len(partitions):
                raise _Refused
            if partitions[index].partition_epoch != change.expected_partition_epoch:
                raise _Refused
            delta.put_partitions(change.name, ((index, change.partition),))
        case SetTopicConfig():
            if delta.topic(change.name) is None:
                raise _Refused
            delta.set_topic_config(change.name, change.config)
        case SetBrokerConfig():
            delta.set_broker_config(change.name, change.config)
        case SetFenced():
            broker = _broker(delta, change)
            returned = broker.returned if change.fenced else ""
            delta.put_broker(broker._replace(fenced=change.fenced, returned=returned))
        case RemoveBroker():
            if not _broker(delta, change).fenced:
                raise _Refused
            delta.remove_broker(change.node_id)


def _topic(delta: MetadataDelta, change: DeleteTopic | AddPartitions | SetPartition) -> TopicImage:
    topic = delta.topic(change.name)
    if topic is None or topic.topic_id != change.topic_id:
        raise _Refused
    return topic


def _broker(delta: MetadataDelta, change: SetFenced | RemoveBroker) -> BrokerImage:
    broker = delta.broker(change.node_id)
    if broker is None or broker.epoch != change.epoch:
        raise _Refused
    return broker
