"""Makes a lost registry anew from the copies of the metadata beside the brokers' logs, and from the logs themselves.

Of each partition the replica leads whose log ends last, in the latest leader epoch: it has every record that the
in-sync replicas had, if one of them is among the data directories. Of several the one that leads is not damaged, as
far as anybody knows. The others copy from it.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.broker.cluster.metadata_copy import read_copy
from barnabas.broker.startup.adoption import next_producer_id
from barnabas.clock import SYSTEM_CLOCK
from barnabas.config.broker import BrokerConfig
from barnabas.errors import CorruptMessage, UsageError
from barnabas.log.directories.checkpoints import (
    META_PROPERTIES,
    METADATA_COPY,
    node_id_of,
    parse_topic_id,
    read_properties,
)
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.registry.content import RegistryContent
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.embedded_tables import is_founded
from barnabas.registry.registry import PRODUCER_IDS_BLOCK
from barnabas.types import BrokerId, LeaderEpoch, Offset, TopicPartition

__all__ = ["Recovered", "recover_registry"]

_EPOCHS_GAP: Final = 1000
"""Epochs that may have been given after the newest copy was written, or by brokers whose directories are missing."""


class LogEnd(NamedTuple):
    """The end of a replica's log. Of two the larger one has all records of the other that were committed."""

    latest_epoch: LeaderEpoch
    end_offset: Offset
    is_whole: bool
    """Whether no damage is known. A damaged log that ends later is the larger one: nobody else has its last records."""


class Recovered(NamedTuple):
    """The result of a recovery."""

    image: MetadataImage
    """The metadata of the newest copy."""
    partitions: int
    missing: Mapping[BrokerId, Sequence[TopicPartition]]
    """The replicas without a log of the brokers of which not all data directories are there: nothing is made, unless
    they are given up."""
    is_made: bool
    without_log: Sequence[TopicPartition]
    """Partitions of which no data directory has a replica."""
    out_of_isr: Sequence[TopicPartition]
    """Partitions of which no in-sync replica of the copy was among the data directories: records may be missing."""


def recover_registry(path: Path, data_dirs: Sequence[str], given_up: Collection[int] = ()) -> Recovered:
    """Founds the registry at `path`. `data_dirs` are those of all brokers of the cluster, which must not run, except
    for what is lost for good of the brokers that are `given_up`. Raises UsageError."""
    wal = Path(f"{path}-wal")  # SQLite would take that of another file for this one's
    if is_founded(path) or wal.exists():
        there = path if is_founded(path) else wal
        raise UsageError(f"--registry {there}: is there already; move it away if it is not to be used any more")
    twice = next((name for number, name in enumerate(data_dirs) if _is_among(name, data_dirs[:number])), None)
    if twice is not None:
        raise UsageError(f"--data-dir {twice}: is named twice; name the data directories of all brokers, each once")
    copies = _copies(data_dirs)
    image = max(copies, key=lambda copy: (copy.controller_epoch, copy.version))
    ends, producers = _log_ends(data_dirs, image)
    missing = _missing(image, ends, {_node_id(directory) for directory in data_dirs})
    is_made = missing.keys() <= set(given_up)
    without_log: list[TopicPartition] = []
    out_of_isr: list[TopicPartition] = []
    topics: dict[str, TopicImage] = {}
    for name, topic in sorted(image.topics.items()):
        partitions = []
        for index, partition in enumerate(topic.partitions):
            tp = TopicPartition(name, index)
            found = {node_id: end for node_id, end in ends.get(tp, {}).items() if node_id in partition.replicas}
            if not found:
                without_log.append(tp)
            elif not found.keys() & {*partition.isr, *partition.elr}:
                out_of_isr.append(tp)
            known = [each for copy in copies if (each := copy.partition(name, index)) is not None]
            partitions.append(_recovered(partition, known, found))
        topics[name] = topic._replace(partitions=tuple(partitions))
    epochs = (each for copy in copies for each in (copy.version, *(broker.epoch for broker in copy.brokers.values())))
    version = max(epochs) + _EPOCHS_GAP
    recovered = MetadataImage(
        image.cluster_id,
        version=version,
        controller_epoch=max(copy.controller_epoch for copy in copies) + _EPOCHS_GAP,
        brokers={node_id: BrokerImage(node_id, 0, (), fenced=True) for node_id in sorted(image.brokers)},
        topics=topics,
        topic_configs=image.topic_configs,
        broker_configs=image.broker_configs,
    )
    if is_made:
        # Each block of producer ids counts as a write, so there were no more of them than versions.
        content = RegistryContent(
            recovered, max(producers, version * PRODUCER_IDS_BLOCK), directories=_directories(data_dirs)
        )
        EmbeddedRegistry(path, founding=content).close()
    return Recovered(image, image.partition_count, missing, is_made, without_log, out_of_isr)


def _log_ends(
    data_dirs: Sequence[str], image: MetadataImage
) -> tuple[Mapping[TopicPartition, Mapping[BrokerId, LogEnd]], int]:
    """Returns the ends of all logs, and a producer id above those in them."""
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
                ends.setdefault(tp, {})[node_id] = LogEnd(log.leader_epochs.latest, log.log_end_offset, not log.lacks)
            producers = max(producers, next_producer_id(logs.logs.values()))
        finally:
            logs.shutdown()
    return ends, producers


def _missing(
    image: MetadataImage, ends: Mapping[TopicPartition, Mapping[BrokerId, LogEnd]], named: Collection[BrokerId]
) -> dict[BrokerId, list[TopicPartition]]:
    """Returns the replicas without a log by their brokers, and the brokers that have no replica, but were registered:
    their copies of the metadata may be newer. A replica may have records that no other one has, whatever a copy says of
    the ISR, if the copy is that of a broker that was down."""
    found: dict[BrokerId, list[TopicPartition]] = {
        node_id: [] for node_id, broker in image.brokers.items() if broker.epoch > 0 and node_id not in named
    }
    for name, topic in sorted(image.topics.items()):
        for index, partition in enumerate(topic.partitions):
            tp = TopicPartition(name, index)
            for node_id in partition.replicas:
                if node_id not in ends.get(tp, {}):
                    found.setdefault(node_id, []).append(tp)
    return dict(sorted(found.items()))


def _is_among(directory: str, others: Iterable[str]) -> bool:
    return os.path.realpath(directory) in map(os.path.realpath, others)


def _copies(data_dirs: Iterable[str]) -> list[MetadataImage]:
    copies: list[MetadataImage] = []
    for directory in data_dirs:
        try:
            copies.append(read_copy(f"{directory}/{METADATA_COPY}"))
        except FileNotFoundError:
            continue
        except (OSError, CorruptMessage) as error:
            raise UsageError(
                f"--data-dir {directory}: {error}; remove that file if another directory has one"
            ) from None
    if not copies:
        raise UsageError(
            f"--data-dir: none has a {METADATA_COPY}; name the data directories of all brokers of the cluster"
        )
    if len({copy.cluster_id for copy in copies}) > 1:
        raise UsageError("--data-dir: the data directories are of several clusters; name those of one")
    return copies


def _directories(data_dirs: Iterable[str]) -> dict[BrokerId, dict[UUID, str]]:
    """Returns the paths of the directories by their brokers and ids: a start has to miss one that is not there."""
    found: dict[BrokerId, dict[UUID, str]] = {}
    for directory in data_dirs:
        directory_id = parse_topic_id(read_properties(f"{directory}/{META_PROPERTIES}")["directory.id"])
        found.setdefault(_node_id(directory), {})[directory_id] = os.path.abspath(directory)
    return found


def _node_id(directory: str) -> BrokerId:
    node_id = node_id_of(read_properties(f"{directory}/{META_PROPERTIES}"))
    if not node_id.isdecimal():
        raise UsageError(f"--data-dir {directory}: is no data directory of a broker: its {META_PROPERTIES} names none")
    return BrokerId(int(node_id))


def _recovered(
    partition: PartitionImage, known: Sequence[PartitionImage], ends: Mapping[BrokerId, LogEnd]
) -> PartitionImage:
    """Returns the partition led by nobody yet; the replica with the longest log is elected when its broker is back.
    `known` is the partition in all copies."""
    best = max(ends, key=lambda node_id: ends[node_id], default=None)
    latest = max(*(each.leader_epoch for each in known), *(end.latest_epoch for end in ends.values()), LeaderEpoch(-1))
    return PartitionImage(
        BrokerId(-1),
        LeaderEpoch(latest + _EPOCHS_GAP),
        partition.replicas,
        partition.isr if best is None else (best,),
        max(each.partition_epoch for each in known) + _EPOCHS_GAP,
        partition.adding_replicas,
        partition.removing_replicas,
    )
