"""Makes a lost registry anew from the copies of the metadata beside the brokers' logs, and from the logs themselves.

Of each partition the replica leads whose log ends last, in the latest leader epoch: it has every record that the
in-sync replicas had, if one of them is among the data directories. The others copy from it.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas.broker.cluster.metadata_copy import read_copy
from barnabas.broker.startup.adoption import next_producer_id
from barnabas.clock import SYSTEM_CLOCK
from barnabas.config.broker import BrokerConfig
from barnabas.errors import CorruptMessage, UsageError
from barnabas.log.directories.checkpoints import META_PROPERTIES, METADATA_COPY, node_id_of, read_properties
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.registry.content import RegistryContent
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.embedded_tables import is_founded
from barnabas.types import BrokerId, LeaderEpoch, Offset, TopicPartition

__all__ = ["Recovered", "recover_registry"]

_EPOCHS_GAP = 1000
"""Epochs that may have been given after the newest copy was written."""


class LogEnd(NamedTuple):
    """The end of a replica's log. Of two the larger one has all records of the other that were committed."""

    latest_epoch: LeaderEpoch
    end_offset: Offset


class Recovered(NamedTuple):
    """The result of a recovery."""

    image: MetadataImage
    """The metadata of the newest copy."""
    partitions: int
    without_log: Sequence[TopicPartition]
    """Partitions of which no data directory has a replica."""
    out_of_isr: Sequence[TopicPartition]
    """Partitions of which no in-sync replica of the copy was among the data directories: records may be missing."""


def recover_registry(path: Path, data_dirs: Sequence[str]) -> Recovered:
    """Founds the registry at `path`. `data_dirs` are those of all brokers of the cluster, which must not run. Raises
    UsageError."""
    if is_founded(path):
        raise UsageError(f"--registry {path}: is there already; move it away if it is not to be used any more")
    twice = next((name for number, name in enumerate(data_dirs) if _is_among(name, data_dirs[:number])), None)
    if twice is not None:
        raise UsageError(f"--data-dir {twice}: is named twice; name the data directories of all brokers, each once")
    image = _newest_copy(data_dirs)
    config = BrokerConfig.of({"log.dirs": ",".join(data_dirs)})
    ends: dict[TopicPartition, dict[BrokerId, LogEnd]] = {}
    producers = 0
    for directory in data_dirs:
        node_id = _node_id(directory)
        logs = LogManager([directory], SYSTEM_CLOCK)
        logs.startup(
            lambda topic: config.log_config(image.topic_config(topic)),
            node_id=node_id,
            cluster_id=image.cluster_id,
            belongs=lambda tp, topic_id: (
                tp.topic not in image.topics or topic_id in (None, image.topics[tp.topic].topic_id)
            ),
        )
        try:
            for tp, log in logs.logs.items():
                ends.setdefault(tp, {})[node_id] = LogEnd(log.leader_epochs.latest, log.log_end_offset)
            producers = max(producers, next_producer_id(logs.logs.values()))
        finally:
            logs.shutdown()
    without_log: list[TopicPartition] = []
    out_of_isr: list[TopicPartition] = []
    topics: dict[str, TopicImage] = {}
    count = 0
    for name, topic in sorted(image.topics.items()):
        partitions = []
        for index, partition in enumerate(topic.partitions):
            tp = TopicPartition(name, index)
            found = {node_id: end for node_id, end in ends.get(tp, {}).items() if node_id in partition.replicas}
            if not found:
                without_log.append(tp)
            elif not found.keys() & {*partition.isr, *partition.elr}:
                out_of_isr.append(tp)
            partitions.append(_recovered(partition, found))
        count += len(partitions)
        topics[name] = topic._replace(partitions=tuple(partitions))
    epochs = (image.version, *(broker.epoch for broker in image.brokers.values()))
    recovered = MetadataImage(
        image.cluster_id,
        version=max(epochs) + _EPOCHS_GAP,
        controller_epoch=image.controller_epoch + _EPOCHS_GAP,
        brokers={node_id: BrokerImage(node_id, 0, (), fenced=True) for node_id in sorted(image.brokers)},
        topics=topics,
        topic_configs=image.topic_configs,
        broker_configs=image.broker_configs,
    )
    EmbeddedRegistry(path, founding=RegistryContent(recovered, producers)).close()
    return Recovered(image, count, without_log, out_of_isr)


def _is_among(directory: str, others: Iterable[str]) -> bool:
    return os.path.realpath(directory) in map(os.path.realpath, others)


def _newest_copy(data_dirs: Iterable[str]) -> MetadataImage:
    copies: list[MetadataImage] = []
    for directory in data_dirs:
        try:
            copies.append(read_copy(f"{directory}/{METADATA_COPY}"))
        except FileNotFoundError:
            continue
        except (OSError, CorruptMessage) as error:
            raise UsageError(f"--data-dir {directory}: {error}; leave it out if another one has a copy") from None
    if not copies:
        raise UsageError(
            f"--data-dir: none has a {METADATA_COPY}; name the data directories of all brokers of the cluster"
        )
    if len({copy.cluster_id for copy in copies}) > 1:
        raise UsageError("--data-dir: the data directories are of several clusters; name those of one")
    return max(copies, key=lambda copy: (copy.controller_epoch, copy.version))


def _node_id(directory: str) -> BrokerId:
    node_id = node_id_of(read_properties(f"{directory}/{META_PROPERTIES}"))
    if not node_id.isdecimal():
        raise UsageError(f"--data-dir {directory}: is no data directory of a broker: its {META_PROPERTIES} names none")
    return BrokerId(int(node_id))


def _recovered(partition: PartitionImage, ends: Mapping[BrokerId, LogEnd]) -> PartitionImage:
    """Returns the partition led by nobody yet; the replica with the longest log is elected when its broker is back."""
    best = max(ends, key=lambda node_id: ends[node_id], default=None)
    latest = max((end.latest_epoch for end in ends.values()), default=LeaderEpoch(-1))
    return PartitionImage(
        BrokerId(-1),
        LeaderEpoch(max(partition.leader_epoch, latest) + 1),
        partition.replicas,
        partition.isr if best is None else (best,),
        partition.partition_epoch + _EPOCHS_GAP,
        partition.adding_replicas,
        partition.removing_replicas,
    )
