"""Records in batches of their own."""

from typing import Any

from simulation.producer import SimulatedProducer


def numbers(*values: int) -> list[bytes]:
    return [b"%d" % value for value in values]


def send_all(producing: SimulatedProducer, *values: int, **more: Any) -> list[Any]:
    """One batch each."""
    handles = []
    for value in values:
        handles.append(producing.send(b"%d" % value, **more))
        close_batch(producing, handles[-1].partition)
    return handles


def close_batch(producing: SimulatedProducer, partition: int = 0) -> None:
    """Has the next record of the partition begin another batch."""
    appender = producing.kafka_producer.appender
    topic = appender.topics["t"]
    batch = topic.open_batches[partition]
    assert batch is not None
    appender.close_batch(topic, batch)
