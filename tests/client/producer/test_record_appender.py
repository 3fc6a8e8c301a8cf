"""Records that the appender takes or refuses; and Ctrl-C in the middle of a send, where the appender is plain Python:
what was taken comes whole, once and in order."""

import pytest

from barnabas.errors import MessageTooLarge, UsageError
from interrupts import interrupted_at
from simulation.producer import SimulatedProducer

FILES = (
    "client/producer/record_appender.py",
    "records/compiled/record_walk.py",
    "client/producer/record_accumulator.py",
)
PLACES_MAX = 1000


@pytest.mark.source
@pytest.mark.parametrize("batch_size", [200, 1 << 16])
def test_an_interrupted_append_leaves_no_half_record(batch_size: int) -> None:
    producing = SimulatedProducer(batch_size=batch_size, linger_ms=50)
    producer = producing.kafka_producer
    taken: list[bytes] = []
    for place in range(PLACES_MAX):
        value = b"%d" % place + b"v" * 90
        before = producer.appender.appended

        def append(value: bytes = value) -> object:
            return producer.appender.append("t", value, None, 0, 1000, [("name", b"x")], None)

        interrupted, _ = interrupted_at(place, FILES, append)
        assert producer.appender.appended - before in (0, 1)
        if producer.appender.appended > before:  # it was taken, whatever the caller was told
            taken.append(value)
        if not interrupted:
            break
        assert producer.appender.append("t", b"after %d" % place, None, 0, 1000, None, None) is not None
        taken.append(b"after %d" % place)
    else:
        raise AssertionError("it never goes through")
    assert place > 20
    producing.flush()
    assert producing.values() == taken
    assert producer.appender.used_bytes == 0


def test_records_that_can_never_be_sent() -> None:
    producing = SimulatedProducer(max_request_size=1000)
    with pytest.raises(MessageTooLarge, match=r"max\.request\.size.* 1000"):
        producing.send(b"x" * 2000)
    with pytest.raises(TypeError, match="value is bytes or None, not str; encode it, or set value_serializer"):
        producing.send("text")
    with pytest.raises(UsageError, match="timestamp=-5"):
        producing.send(b"a", timestamp=-5)
    assert producing.kafka_producer.appender.used_bytes == 0


def test_new_partitions_are_used_once_they_are_known() -> None:
    producing = SimulatedProducer()
    assert producing.send(b"v", partition=1) is None
    producing.cluster.topics["t"][1] = 1
    producing.cluster.result(producing.cluster.network_client.refresh_metadata())
    assert producing.send(b"v", partition=1).result().partition == 1


def test_forgotten_topics_leave_the_metadata() -> None:
    producing = SimulatedProducer(metadata_max_idle_ms=10_000)
    producing.send(b"v").result()
    producing.run(seconds=9)
    assert "t" in producing.kafka_producer.appender.topics
    producing.run(seconds=25)
    assert "t" not in producing.kafka_producer.appender.topics
    assert producing.cluster.network_client.metadata.topics == []
