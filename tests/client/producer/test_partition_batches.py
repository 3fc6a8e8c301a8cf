"""The batches of one partition, and their sequences."""

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
