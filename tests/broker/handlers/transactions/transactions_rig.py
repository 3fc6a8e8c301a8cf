"""Transactions of a broker's coordinator, one request after the other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.server import Broker
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from broker.admin_rig import ask, create, running_broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, transaction_state_log_num_partitions=2) as broker:
        create(broker, "t", 3)
        ask(broker, FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
        yield broker


def producer(broker: Broker, name: str = "x") -> tuple[int, int]:
    answer = ask(broker, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 4)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def codes(topics: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in topics
        for partition in topic.results_by_partition
    }


def topics(*places: tuple[str, int]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in places]


def add(broker: Broker, sender: tuple[int, int], *places: tuple[str, int], version: int = 3) -> dict[Any, int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=sender[0],
        v3_and_below_producer_epoch=sender[1],
        v3_and_below_topics=topics(*places),
    )
    return codes(ask(broker, request, version).results_by_topic_v3_and_below)
