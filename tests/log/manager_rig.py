"""Managers of a data directory that start and die, and partitions for them."""

from barnabas.config.log_config import LogConfig
from barnabas.log.log_manager import LogManager
from barnabas.types import TopicPartition

CONFIG = LogConfig()
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b-c", 0)


def start(manager: LogManager, **options: object) -> LogManager:
    manager.startup(lambda topic: CONFIG, **({"node_id": 1} | options))
    return manager


def die(manager: LogManager) -> None:
    """As SIGKILL: nothing is written, the locks go."""
    for log in manager.logs.values():
        log.release()
    for directory in manager.directories:
        directory.unlock()
