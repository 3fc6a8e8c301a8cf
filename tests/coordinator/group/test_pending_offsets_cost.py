"""Requests about a group cost the same with any number of producers with open transactions on its partition."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.offset_metadata_manager import OffsetMetadataManager
from barnabas.coordinator.group.records import OffsetCommit, OffsetCommitValue
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestTopics
from barnabas.types import NO_PRODUCER_ID

ASKED = 10
"""Partitions of each request."""


def with_open_transactions(producers: int) -> OffsetMetadataManager:
    """Each producer has an offset of the group in its transaction; half of what is asked for is in none."""
    offsets = OffsetMetadataManager(GroupConfig())
    for partition in range(ASKED):
        offsets.replay(partition, NO_PRODUCER_ID, commit(partition))
    for producer_id in range(producers):
        offsets.replay(ASKED + producer_id, producer_id, commit(ASKED // 2 + producer_id))
    return offsets


def commit(partition: int) -> OffsetCommit:
    return OffsetCommit("g", "orders", partition, OffsetCommitValue(offset=5))


def steps(call: Callable[[], object]) -> int:
    """Instructions of the interpreter: no clock, so no noise."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    gc.disable()  # what it finds may have finalizers, whose instructions are not of the call
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def fetch(offsets: OffsetMetadataManager) -> object:
    wanted = [OffsetFetchRequestTopics(name="orders", partition_indexes=list(range(ASKED)))]
    return offsets.fetch("g", wanted, True)


def fetch_all(offsets: OffsetMetadataManager) -> object:
    return offsets.fetch_all("g", True)


def forget(offsets: OffsetMetadataManager) -> object:
    return offsets.replay(10_000, NO_PRODUCER_ID, OffsetCommit("g", "orders", 3, None))


@pytest.mark.parametrize("ask", [fetch, fetch_all, forget])
def test_nothing_walks_over_the_producers(ask: Callable[[OffsetMetadataManager], object]) -> None:
    few, many = with_open_transactions(ASKED), with_open_transactions(40 * ASKED)
    cost = steps(lambda: ask(few))
    assert cost > 0
    assert steps(lambda: ask(many)) == cost
