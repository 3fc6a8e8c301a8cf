"""Converts metadata updates to the messages that brokers send to each other, and back."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from barnabas.config.endpoints import Endpoint
from barnabas.metadata.image import BrokerImage, PartitionImage, TopicImage
from barnabas.metadata.update import BrokerConfigEntry, BrokerEntry, Entry, MetadataUpdate, TopicConfigEntry, TopicEntry
from barnabas.protocol.peer_messages.push_metadata import (
    BrokerEntryData,
    ConfigEntryData,
    PartitionData,
    PushMetadataRequest,
    SettingData,
    TopicEntryData,
)
from barnabas.types import BrokerId, LeaderEpoch

__all__ = ["message_of", "update_of"]

_NO_TOPIC_ID = UUID(int=0)


def message_of(update: MetadataUpdate) -> PushMetadataRequest:
    """Returns the request that carries the update."""
    message = PushMetadataRequest(
        cluster_id=update.cluster_id,
        controller_id=update.controller_id,
        controller_epoch=update.controller_epoch,
        from_version=update.from_version,
        version=update.version,
        part=update.part,
        is_last=update.is_last,
    )
    brokers, topics, broker_configs, topic_configs = [], [], [], []
    for entry in update.entries:
        match entry:
            case BrokerEntry():
                brokers.append(_broker_message(entry))
            case TopicEntry():
                topics.append(_topic_message(entry))
            case BrokerConfigEntry():
                broker_configs.append(_config_message(entry.name, entry.config))
            case TopicConfigEntry():
                topic_configs.append(_config_message(entry.name, entry.config))
    message.brokers, message.topics = brokers, topics
    message.broker_configs, message.topic_configs = broker_configs, topic_configs
    return message


def update_of(message: PushMetadataRequest) -> MetadataUpdate:
    """Returns the update in a request. Raises ValueError for an endpoint that is none."""
    return MetadataUpdate(
        message.cluster_id,
        BrokerId(message.controller_id),
        message.controller_epoch,
        message.from_version,
        message.version,
        message.part,
        message.is_last,
        tuple(_entries(message)),
    )


def _entries(message: PushMetadataRequest) -> Iterator[Entry]:
    for broker in message.brokers:
        yield BrokerEntry(BrokerId(broker.node_id), _broker_image(broker) if broker.epoch >= 0 else None)
    for config in message.broker_configs:
        yield BrokerConfigEntry(config.name, _settings(config))
    for topic in message.topics:
        yield TopicEntry(topic.name, _topic_image(topic) if topic.topic_id != _NO_TOPIC_ID else None)
    for config in message.topic_configs:
        yield TopicConfigEntry(config.name, _settings(config))


def _broker_message(entry: BrokerEntry) -> BrokerEntryData:
    broker = entry.broker
    if broker is None:
        return BrokerEntryData(node_id=entry.node_id)
    return BrokerEntryData(
        node_id=broker.node_id,
        epoch=broker.epoch,
        rack=broker.rack,
        endpoints=[endpoint.text for endpoint in broker.endpoints],
        peer_endpoint=None if broker.peer_endpoint is None else broker.peer_endpoint.text,
        fenced=broker.fenced,
        process=broker.process,
        returned=broker.returned,
    )


def _broker_image(data: BrokerEntryData) -> BrokerImage:
    return BrokerImage(
        BrokerId(data.node_id),
        data.epoch,
        tuple(map(Endpoint.of_text, data.endpoints)),
        data.rack,
        data.fenced,
        None if data.peer_endpoint is None else Endpoint.of_text(data.peer_endpoint),
        data.process,
        data.returned,
    )


def _topic_message(entry: TopicEntry) -> TopicEntryData:
    topic = entry.topic
    if topic is None:
        return TopicEntryData(name=entry.name)
    partitions = [
        PartitionData(
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            adding_replicas=partition.adding_replicas,
            removing_replicas=partition.removing_replicas,
            elr=partition.elr,
            last_known_elr=partition.last_known_elr,
        )
        for partition in topic.partitions
    ]
    return TopicEntryData(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _topic_image(data: TopicEntryData) -> TopicImage:
    partitions = tuple(
        PartitionImage(
            BrokerId(partition.leader),
            LeaderEpoch(partition.leader_epoch),
            _ids(partition.replicas),
            _ids(partition.isr),
            partition.partition_epoch,
            _ids(partition.adding_replicas),
            _ids(partition.removing_replicas),
            _ids(partition.elr),
            _ids(partition.last_known_elr),
        )
        for partition in data.partitions
    )
    return TopicImage(data.name, data.topic_id, partitions)


def _ids(numbers: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def _config_message(name: str, config: Mapping[str, str]) -> ConfigEntryData:
    return ConfigEntryData(name=name, settings=[SettingData(name=key, value=text) for key, text in config.items()])


def _settings(data: ConfigEntryData) -> dict[str, str]:
    return {setting.name: setting.value for setting in data.settings}
