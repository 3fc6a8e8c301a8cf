"""Transactions that no coordinator knows."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.errors import error_for
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from broker.wire import Wire

Ask = Callable[..., Any]


def hang(bootstrap: str, topic: str, partition: int, producer_id: int, *, epoch: int = 3) -> int:
    """Write within a transaction that no coordinator knows; the offset of it."""
    record = Record(0, time.time_ns() // 1_000_000, None, b"v", ())
    batch = build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
    request = ProduceRequest(transactional_id="nobody", acks=-1, timeout_ms=5000, topic_data=data)

    host, port = bootstrap.split(":")
    deadline = time.monotonic() + 60
    with Wire((host, int(port))) as wire:
        while True:
            answer = wire.ask(request, 9).responses[0].partition_responses[0]
            if not answer.error_code or not error_for(answer.error_code).retriable or time.monotonic() > deadline:
                break
            time.sleep(0.02)
    if answer.error_code:
        pytest.skip(f"the broker lets no transaction hang (error {answer.error_code})")
    return int(answer.base_offset)
