"""The batches of one partition, and their sequences."""

from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.producer.partition_batches import PartitionBatches
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.producer_id import ProducerIdAndEpoch
from barnabas.types import ProducerId, TopicPartition
from simulation.producer import SimulatedProducer


def test_sequences_go_round() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    state = next(iter(producing.kafka_producer.accumulator.partitions.values()))
    state.next_sequence = 2**31 - 2
    producing.cluster.log("t", 0).producers[1001][1][-1] = (2**31 - 3, 2**31 - 3, 0)
    for value in (b"a", b"b", b"c", b"d"):
        producing.send(value).result()
    assert [h.base_sequence for h in producing.cluster.log("t", 0).headers[1:]] == [2**31 - 2, 2**31 - 1, 0, 1]


def batches_of(count: int) -> tuple[PartitionBatches, list[ProducerBatch]]:
    partition = PartitionBatches(TopicPartition("t", 0))
    driver: Any = None
    made = [ProducerBatch("t", 0, 0, driver) for _ in range(count)]
    for batch in made:
        partition.add(batch)
    return partition, made


@given(st.data())
def test_batches_that_are_put_back_keep_their_order(data: st.DataObject) -> None:
    partition, made = batches_of(data.draw(st.integers(1, 8)))
    for _ in range(data.draw(st.integers(0, 5))):
        taken = [batch for batch in partition.queue if data.draw(st.booleans())]
        partition.queue = deque(batch for batch in partition.queue if batch not in taken)
        partition.put_back(data.draw(st.permutations(taken)))
    assert list(partition.queue) == made
    assert [batch for batch in made if partition.is_first(batch)] == made[:1]


def test_a_batch_in_flight_is_before_those_that_are_queued() -> None:
    partition, (first, second) = batches_of(2)
    partition.in_flight.append(partition.queue.popleft())
    assert partition.is_first(first)
    assert not partition.is_first(second)


def test_a_gap_is_left_by_batches_with_a_sequence() -> None:
    partition, (first, second, third) = batches_of(3)
    partition.leave_gap(first)
    assert partition.gap is None
    first.base_sequence, second.base_sequence, third.base_sequence = 0, 4, 8
    partition.leave_gap(second)
    partition.leave_gap(first)
    assert partition.gap == second.position
    partition.has_acknowledged = True
    partition.restart_sequences(ProducerIdAndEpoch(ProducerId(5), 0))
    assert (partition.gap, partition.next_sequence, partition.has_acknowledged) == (None, 0, False)
    assert [batch.base_sequence for batch in partition.queue] == [-1, -1, -1]
    partition.has_acknowledged = True
    partition.restart_sequences(ProducerIdAndEpoch(ProducerId(5), 1))
    assert partition.has_acknowledged, "the same producer id"
