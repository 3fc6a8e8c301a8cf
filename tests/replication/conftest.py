"""A log manager for the replicas of a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.config.log_config import DEFAULT_LOG_CONFIG
from barnabas.log.log_manager import LogManager
from hand_clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def logs(tmp_path: Path, clock: HandClock) -> Iterator[LogManager]:
    manager = LogManager([tmp_path], clock)
    manager.startup(lambda topic: DEFAULT_LOG_CONFIG, node_id=1)
    yield manager
    manager.shutdown(flush=False)
