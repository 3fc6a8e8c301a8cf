"""Settings of the brokers that one command starts, made from those that are given for all of them."""

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from barnabas.broker.startup.directory_check import REGISTRY_FILE
from barnabas.config.broker import BrokerConfig
from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import META_PROPERTIES
from barnabas.registry.embedded import is_founded

__all__ = ["check_directories", "cluster_defaults", "plan_brokers", "registry_file"]

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
    """Returns the path of the registry that the brokers share."""
    return Path(config.registry_file or os.path.join(config.data_dirs[0], REGISTRY_FILE))


def plan_brokers(config: BrokerConfig, brokers: int, racks: Sequence[str] = ()) -> list[BrokerConfig]:
    """Returns the settings of brokers 1, 2, ...: each has directories of its own in each data directory, and the ports
    after those of the broker before. Raises UsageError."""
    if "node.id" in config.static:
        raise UsageError(f"node.id: --brokers gives the brokers the ids 1 to {brokers}; leave node.id out")
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
        "log.dirs": ",".join(_directory_of(directory, node_id) for directory in config.data_dirs),
        "registry.file": str(registry_file(config)),
        "listeners": _shifted("listeners", config.listeners, index),
    }
    if config.advertised_listeners:
        own["advertised.listeners"] = _shifted("advertised.listeners", config.advertised_listeners, index)
    if racks:
        own["broker.rack"] = racks[index]
    return own


def _directory_of(directory: str, node_id: int) -> str:
    return os.path.join(directory, f"broker-{node_id}")


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
    """Raises UsageError if the directories belong to one broker alone, or have lost their registry."""
    for directory in config.data_dirs:
        if os.path.exists(os.path.join(directory, META_PROPERTIES)):
            raise UsageError(
                f"log.dirs: {directory} belongs to one broker, and cannot be a directory for {len(brokers)}; choose "
                f"another one, or let brokers join that one by `barnabas serve --node-id 2 --registry "
                f"{os.path.join(directory, REGISTRY_FILE)} --data-dir DIR --listen HOST:PORT`"
            )
    path = registry_file(config)
    used = [
        directory
        for broker in brokers
        for directory in broker.data_dirs
        if os.path.exists(os.path.join(directory, META_PROPERTIES))
    ]
    if used and not is_founded(path):
        directories = " ".join(f"--data-dir {directory}" for directory in used)
        raise UsageError(
            f"{path}: brokers have used {used[0]}, but their registry is missing: restore it by `barnabas cluster "
            f"recover --registry {path} {directories}`"
        )
