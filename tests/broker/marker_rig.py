"""A broker with a topic of three partitions, and transactions in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.server import Broker
from barnabas.log.producers.verification_guards import Sender
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import own_batch
from broker.admin_rig import create, running_broker

T0 = 1_700_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path) as broker:
        create(broker, "t", 3)
        yield broker


def log_of(broker: Broker, index: int = 0) -> UnifiedLog:
    return broker.replica_manager.leader_of("t", index).log


def begin(broker: Broker, producer_id: int, epoch: int = 0, index: int = 0, sequence: int = 0) -> None:
    """One record of a transaction."""
    records = [Record(0, T0, b"k", b"v", ())]
    data = build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    batch = own_batch(data)
    guard = log_of(broker, index).begin_verification(Sender.of(batch.header), starts_at_zero=False)
    broker.replica_manager.leader_of("t", index).append_as_leader(batch, 1, guard=guard)
