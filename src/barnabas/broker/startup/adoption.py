"""Takes over data directories with logs but without a registry: those of an Apache Kafka, or after registry.db was
lost.

The topics are read from the directories: name, partitions, topic id. Their settings, the dynamic ones of the broker and
the next producer id come from Kafka's `__cluster_metadata-0` if it exists. Otherwise retention is off for every topic
until it is set: Kafka's default of seven days would remove the records of a topic that was to keep them for ever.
Directories with only a part of a topic, or with two topics of one name, are refused.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID, uuid4

from barnabas.config.broker import BrokerConfig
from barnabas.config.topic import validate_topic_overrides
from barnabas.errors import CorruptMessage, InvalidConfig, KafkaError, UsageError
from barnabas.log.kraft_metadata import KraftMetadata, read_kraft_metadata
from barnabas.log.log_manager import LogManager
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.image import INTERNAL_TOPICS, MetadataImage, PartitionImage, TopicImage
from barnabas.metadata.topic_names import validate_topic_name
from barnabas.registry.content import RegistryContent
from barnabas.types import LeaderEpoch

__all__ = ["Adoption", "next_producer_id", "some"]

_log = logging.getLogger("barnabas.broker")

_KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_COMPACT: Final = {"cleanup.policy": "compact"}
_PRODUCER_IDS_BLOCK: Final = 1_000
_PRODUCER_IDS_GAP: Final = 1_000_000
"""A bound on the ids of producers that are in no log."""
_MADE_UP_FROM: Final = 1 << 62
"""A larger id was invented by a client: no cluster allocates that many, and no ids might be left above it."""
_NAMED_MAX: Final = 5


class Adoption:
    """Made before the logs are opened. Afterwards `founding` returns the content of the new registry."""

    def __init__(self, config: BrokerConfig) -> None:
        self._node_id = config.node_id
        self._data_dirs = config.data_dirs
        try:
            self._kraft = read_kraft_metadata(config.data_dirs)
        except (CorruptMessage, OSError) as error:
            _log.warning("Kafka's settings cannot be read: %s", error)
            self._kraft = None
        kraft = self._kraft or KraftMetadata()
        names = ("", str(config.node_id))
        self._broker_configs = {name: kraft.broker_configs[name] for name in names if kraft.broker_configs.get(name)}
        default, ours = (self._broker_configs.get(name, {}) for name in names)
        self._defaults = config.update_dynamic(default, ours).topic_defaults
        self._topic_configs = {name: self._valid(name, texts) for name, texts in kraft.topic_configs.items()}

    @property
    def settings(self) -> MetadataImage:
        """The known settings, with which the logs are opened; no topics."""
        return MetadataImage(topic_configs=self._topic_configs, broker_configs=self._broker_configs)

    def founding(self, logs: LogManager) -> RegistryContent:
        """Returns the cluster of these logs. Raises UsageError if they are not whole topics."""
        topics: dict[str, dict[int, UnifiedLog]] = {}
        for tp, log in logs.logs.items():
            topics.setdefault(tp.topic, {})[tp.partition] = log
        image = MetadataImage(
            logs.cluster_id,
            version=1,
            topics={name: self._topic(name, partitions) for name, partitions in sorted(topics.items())},
            topic_configs={name: config for name in topics if (config := self._config(name))},
            broker_configs=self._broker_configs,
        )
        if topics:
            self._tell(topics)
        return RegistryContent(image, self._next_producer_id(logs.logs.values()) if topics else 0)

    def _topic(self, name: str, partitions: Mapping[int, UnifiedLog]) -> TopicImage:
        topic_id = _one_id(name, partitions.values())
        count = max(partitions) + 1
        if self._kraft is not None and topic_id in self._kraft.partitions:
            count = max(count, len(self._kraft.partitions[topic_id]))
        missing = [index for index in range(count) if index not in partitions]
        if missing:
            have = next(iter(partitions.values())).directory
            raise UsageError(
                f"{have} is there but {name}-{missing[0]} is not: this is a part of the topic; name the data "
                f"directories that have the rest in log.dirs too, or move all directories of {name} away"
            )
        try:
            validate_topic_name(name)
        except KafkaError as error:
            raise UsageError(f"{partitions[0].directory} is no topic's: {error.message}; move it away") from None
        images = tuple(self._partition(partitions[index]) for index in range(count))
        return TopicImage(name, topic_id, images)

    def _partition(self, log: UnifiedLog) -> PartitionImage:
        """Returns a partition with this broker as the leader, in a new leader epoch."""
        replicas = (self._node_id,)
        return PartitionImage(self._node_id, LeaderEpoch(log.leader_epochs.latest + 1), replicas, replicas)

    def _config(self, name: str) -> Mapping[str, str]:
        if self._kraft is not None and name in self._kraft.topic_names.values():
            return self._topic_configs.get(name, {})
        return _COMPACT if name in INTERNAL_TOPICS else _KEEP_ALL

    def _valid(self, name: str, texts: Mapping[str, str]) -> dict[str, str]:
        """Returns the settings that exist here too, and logs the others."""
        kept: dict[str, str] = {}
        for setting, text in texts.items():
            try:
                validate_topic_overrides({**kept, setting: text}, self._defaults)
            except InvalidConfig as error:
                _log.warning("topic %s: %s=%s is not taken over: %s", name, setting, text, error.message)
            else:
                kept[setting] = text
        return kept

    def _next_producer_id(self, logs: Iterable[UnifiedLog]) -> int:
        if self._kraft is not None:
            return max(_after_producers(logs), self._kraft.next_producer_id)
        return next_producer_id(logs)

    def _tell(self, topics: Mapping[str, Mapping[int, UnifiedLog]]) -> None:
        known = set(self._kraft.topic_names.values()) if self._kraft is not None else set()
        bare = [name for name in sorted(topics) if name not in known and name not in INTERNAL_TOPICS]
        _log.warning(
            "%s had logs but no registry: took over %d topics with %d partitions%s",
            ", ".join(self._data_dirs),
            len(topics),
            sum(map(len, topics.values())),
            f"; settings not known, retention is off until retention.ms is set: {some(bare)}" if bare else "",
        )
        if self._kraft is not None:
            shared = [name for topic_id, name in self._kraft.topic_names.items() if self._had_others(topic_id)]
            if shared:
                _log.warning("other brokers had replicas, here is what this one had: %s", some(sorted(shared)))

    def _had_others(self, topic_id: UUID) -> bool:
        assert self._kraft is not None
        return any(replicas > 1 for replicas in self._kraft.partitions.get(topic_id, {}).values())


def _one_id(name: str, logs: Iterable[UnifiedLog]) -> UUID:
    """Returns the topic's id; a new one if the directories are older than topic ids."""
    by_id = {log.topic_id: log for log in logs if log.topic_id is not None}
    if len(by_id) > 1:
        one, other = (log.directory for log in list(by_id.values())[:2])
        raise UsageError(f"{one} and {other} belong to two topics of the name {name}; move the older ones away")
    return next(iter(by_id), None) or uuid4()


def next_producer_id(logs: Iterable[UnifiedLog]) -> int:
    """Returns an id above all that were ever given away: a second producer with the same id would be taken for the
    first."""
    return _after_producers(logs) + _PRODUCER_IDS_GAP


def _after_producers(logs: Iterable[UnifiedLog]) -> int:
    ids = (producer_id for log in logs for producer_id in log.producers.producers)
    seen = max((producer_id for producer_id in ids if producer_id < _MADE_UP_FROM), default=-1)
    return (seen // _PRODUCER_IDS_BLOCK + 1) * _PRODUCER_IDS_BLOCK


def some(names: list[str]) -> str:
    """Returns the first few names, and the number of the others."""
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
