"""Settings of the brokers that one command starts, made from those that are given for all of them.

Broker n has the directory `broker-n` in each data directory. Where one broker has run alone, it goes on as broker 1
with the directory as it is, and the others have `brokers/broker-n` in it: no file is moved, and no log can have the
name `brokers`, as it could have `broker-2`.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from barnabas.broker.startup.directory_check import (
    OTHERS,
    REGISTRY_FILE,
    as_options,
    broker_directories,
    how_to_restore,
)
from barnabas.config.broker import BrokerConfig
from barnabas.errors import DirectoryUnusable, UsageError
from barnabas.log.directories.checkpoints import META_PROPERTIES, METADATA_COPY, node_id_of, read_properties
from barnabas.log.directories.data_directory import DataDirectory
from barnabas.log.directories.disk import is_there
from barnabas.registry.embedded_tables import is_founded

__all__ = ["check_directories", "cluster_defaults", "left_out", "plan_brokers", "registry_file"]

_PORT_MAX: Final = 65535


def cluster_defaults(brokers: int) -> dict[str, str]:
    """Returns the settings that a cluster of so many brokers has unless others are given: what is acknowledged survives
    the loss of one of three."""
    factor = str(min(3, brokers))
    defaults = {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": str(min(2, brokers)),
    }
    if brokers >= 3:
        defaults["min.insync.replicas"] = "2"
    return defaults


def registry_file(config: BrokerConfig) -> Path:
    """Returns the path of the registry that the brokers share: that of the broker which has run alone, if there is
    one."""
    if config.registry_file:
        return Path(config.registry_file)
    paths = [Path(directory) / REGISTRY_FILE for directory in config.data_dirs]
    return next(filter(is_founded, paths), paths[0])


def plan_brokers(config: BrokerConfig, brokers: int, racks: Sequence[str] = ()) -> list[BrokerConfig]:
    """Returns the settings of brokers 1, 2, ...: each has a directory of its own in each data directory, and the ports
    after those of the broker before. Raises UsageError."""
    if "node.id" in config.static:
        raise UsageError(f"node.id: --brokers gives the brokers the ids 1 to {brokers}; leave node.id out")
    if config.zookeeper_connect is not None:
        raise UsageError(
            "zookeeper.connect: --brokers runs a cluster on one file; start each broker by `barnabas serve --zookeeper`"
        )
    if racks and len(racks) != brokers:
        raise UsageError(f"--racks: {len(racks)} racks for {brokers} brokers; name one for each, such as a,b,c")
    ports = sorted(endpoint.port for endpoint in config.endpoints if endpoint.port)
    for port, following in pairwise(ports):
        if following - port < brokers:
            raise UsageError(
                f"listeners: {brokers} brokers take {brokers} ports each from {port} and from {following} on; "
                f"leave room between them"
            )
    return [BrokerConfig({**config.static, **_own_settings(config, index, racks)}) for index in range(brokers)]


def _own_settings(config: BrokerConfig, index: int, racks: Sequence[str]) -> Mapping[str, str]:
    node_id = index + 1
    own = {
        "node.id": str(node_id),
        "log.dirs": ",".join(_directories_of(config, node_id)),
        "registry.file": str(registry_file(config)),
        "listeners": _shifted("listeners", config.listeners, index),
    }
    if config.advertised_listeners:
        own["advertised.listeners"] = _shifted("advertised.listeners", config.advertised_listeners, index)
    if racks:
        own["broker.rack"] = racks[index]
    return own


def _directories_of(config: BrokerConfig, node_id: int) -> Sequence[str]:
    if node_id == 1 and any(map(_is_used, config.data_dirs)):
        return config.data_dirs
    return [os.path.join(parent, f"broker-{node_id}") for parent in _parents(config)]


def _parents(config: BrokerConfig) -> Sequence[str]:
    """Returns the directories in which the brokers have theirs, except for broker 1 where that has run alone."""
    if any(map(_is_used, config.data_dirs)):
        return [os.path.join(each, OTHERS) for each in config.data_dirs]
    return config.data_dirs


def left_out(config: BrokerConfig, brokers: int) -> list[str]:
    """Returns the directories that further brokers of the cluster have used, which are not among so many."""
    found = (each for parent in _parents(config) for each in broker_directories(parent).items())
    return [directory for node_id, directory in found if node_id > brokers]


def _is_used(directory: str) -> bool:
    return _has(directory, META_PROPERTIES)


def _has(directory: str, name: str) -> bool:
    """Returns whether a directory has this file. Raises UsageError if the disk does not tell: another directory would
    be taken for that of the broker."""
    path = os.path.join(directory, name)
    try:
        return is_there(path)
    except OSError as error:
        raise DirectoryUnusable(
            f"{path} cannot be read: {error.strerror}; mend the disk, or the permissions"
        ) from error


def _shifted(setting: str, listeners: Sequence[str], by: int) -> str:
    """Returns the listeners with higher ports. Port 0 stays: any free one."""
    shifted = []
    for text in listeners:
        address, _, port = text.rpartition(":")
        moved = int(port) + by if int(port) else 0
        if moved > _PORT_MAX:
            raise UsageError(f"{setting}: {text} leaves no port for broker {by + 1}; choose a lower one")
        shifted.append(f"{address}:{moved}")
    return ",".join(shifted)


def check_directories(config: BrokerConfig, brokers: Sequence[BrokerConfig]) -> None:
    """Raises UsageError if the directories cannot be those of these brokers, are in use, or have lost their registry.
    Called before anything is written: a broker that still runs alone must not hear of others."""
    for directory in filter(_is_used, config.data_dirs):
        _check_grows(directory, len(brokers))
    path = registry_file(config)
    used = list(_claimed(brokers))
    if not used or is_founded(path):
        return
    is_member = any(_has(directory, METADATA_COPY) for directory in used)
    if set(used) <= set(config.data_dirs) and not is_member:
        raise UsageError(
            f"{path}: a broker has used {used[0]}, but there is no registry of its topics: start it alone first by "
            f"`barnabas serve {as_options(used)}`, which makes one from the logs"
        )
    raise UsageError(
        f"{path}: brokers have used {used[0]}, but their registry is missing: {how_to_restore(path, used)}"
    )


def _check_grows(directory: str, brokers: int) -> None:
    """Raises UsageError if the broker that has used this directory alone cannot go on as broker 1 of several."""
    node_id = node_id_of(read_properties(os.path.join(directory, META_PROPERTIES)))
    if node_id != "1":
        raise UsageError(
            f"log.dirs: {directory} belongs to broker {node_id}, and --brokers starts brokers 1 to {brokers}; choose "
            f"another one, or let brokers join that one by `barnabas serve --node-id 1 --registry "
            f"{os.path.join(directory, REGISTRY_FILE)} --data-dir DIR --listen HOST:PORT`"
        )
    for number in range(1, brokers + 1):
        other = os.path.join(directory, f"broker-{number}")
        if _is_used(other):
            raise UsageError(
                f"log.dirs: both {directory} and {other} belong to a broker; move away the one that is not of this "
                "cluster"
            )


def _claimed(brokers: Sequence[BrokerConfig]) -> Iterator[str]:
    """Yields the directories that brokers have used, without those that their broker will find unusable. Raises
    UsageError if a broker runs in one of them."""
    for path in (path for broker in brokers for path in broker.data_dirs):
        directory = DataDirectory(path)
        try:
            directory.claim()
        except DirectoryUnusable:
            continue
        directory.unlock()
        if directory.used:
            yield path
