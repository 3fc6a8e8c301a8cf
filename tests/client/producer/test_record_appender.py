"""Ctrl-C in the middle of a send, where the appender is plain Python: what was taken comes whole, once and in order."""

import pytest

from barnabas.records.compiled.record_walk import is_compiled
from interrupts import interrupted_at
from simulation.producer import SimulatedProducer

FILES = (
    "client/producer/record_appender.py",
    "records/compiled/record_walk.py",
    "client/producer/record_accumulator.py",
)
PLACES_MAX = 1000


@pytest.mark.skipif(is_compiled(), reason="test_uncompiled.py runs it on plain Python")
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
