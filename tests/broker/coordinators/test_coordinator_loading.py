"""Requests that meet a coordinator while it reads its partition: on the wire they are late, not refused."""

from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.testing import Broker
from broker.loading import Held
from broker.wire import Wire

GROUP, TRANSACTION = 0, 1


def test_a_commit_waits_for_the_transactions_coordinator(broker: Broker, wire: Wire) -> None:
    broker.create_topic("orders")
    wire.ask(FindCoordinatorRequest(key="t", key_type=TRANSACTION), 3)
    producer = wire.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4)
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
    )
    wire.ask(added, 3)
    held = Held(broker, lambda running: running.transactions, "t")
    end = EndTxnRequest(
        transactional_id="t",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    wire.send(end, 3)
    wire.send(FindCoordinatorRequest(key="t", key_type=TRANSACTION), 3)
    assert wire.is_silent()
    held.go_on()
    assert wire.receive().error_code == 0
    assert wire.receive().error_code == 0


def test_offsets_wait_for_the_groups_coordinator_and_heartbeats_do_not(broker: Broker, wire: Wire) -> None:
    broker.create_topic("orders")
    wire.ask(FindCoordinatorRequest(key="g", key_type=GROUP), 3)
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="orders", partitions=[place])])
    wire.ask(commit, 8)
    held = Held(broker, lambda running: running.groups, "g")
    wanted = OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
    place.committed_offset = 8
    wire.send(commit, 8)
    wire.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[wanted])]), 8)
    with Wire(broker) as other:
        assert other.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4).error_code == 0
    assert wire.is_silent()
    held.go_on()
    assert wire.receive().topics[0].partitions[0].error_code == 0
    fetched = wire.receive().groups[0].topics[0].partitions[0]
    assert (fetched.error_code, fetched.committed_offset) == (0, 8)
