"""Batches from their first record to their end: linger, compression, memory, halves."""

import pytest

from client.producer.batches import send_all
from simulation.producer import SimulatedProducer


def test_a_batch_lingers_for_company() -> None:
    producing = SimulatedProducer(linger_ms=100)
    started = producing.cluster.now
    handle = producing.send(b"a")
    producing.run(lambda: handle.done(), seconds=10)
    assert producing.cluster.now - started == pytest.approx(0.1, abs=0.01)


def test_a_full_batch_does_not_linger() -> None:
    producing = SimulatedProducer(linger_ms=1000, batch_size=200)
    handles = [producing.send(b"x" * 60) for _ in range(5)]
    started = producing.cluster.now
    assert producing.run(lambda: handles[0].done(), seconds=10)
    assert producing.cluster.now - started < 0.01
    assert not handles[-1].done()


def test_flush_does_not_wait_for_linger() -> None:
    producing = SimulatedProducer(linger_ms=60_000)
    started = producing.cluster.now
    producing.send(b"a")
    producing.flush()
    assert producing.cluster.now - started < 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_levels(codec: str) -> None:
    level = {} if codec in ("none", "snappy") else {f"compression_{codec}_level": 2}
    producing = SimulatedProducer(compression_type=codec, **level)
    for index in range(100):
        producing.send(b"value" * 10 + b"%d" % index, key=b"k", headers={"h": "text", "n": None})
    producing.flush()
    assert producing.values()[99] == b"value" * 10 + b"99"
    (header,) = producing.cluster.log("t", 0).headers
    assert header.compression_type == ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)
    assert producing.kafka_producer.appender.used_bytes == 0


def test_memory_is_bounded_and_given_back() -> None:
    producing = SimulatedProducer(buffer_memory=2000, linger_ms=10_000)
    taken = [handle for handle in (producing.send(b"x" * 100) for _ in range(50)) if handle is not None]
    assert 10 < len(taken) < 20
    assert producing.kafka_producer.appender.exhausted
    assert producing.run(lambda: taken[-1].done(), seconds=1), "who waits for memory does not wait for linger"
    assert producing.kafka_producer.appender.used_bytes == 0
    assert producing.send(b"x" * 100) is not None


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_that_is_too_large_is_sent_in_parts(codec: str) -> None:
    producing = SimulatedProducer(compression_type=codec)
    producing.send(b"first").result()
    producing.cluster.log("t", 0).batch_size_max = 200
    heard: list[int] = []
    handles = [
        producing.send(b"%03d" % index, on_delivery=lambda error, metadata: heard.append(metadata.offset))
        for index in range(50)
    ]
    after = send_all(producing, 50)
    producing.flush()
    assert producing.values()[1:] == [b"%03d" % index for index in range(50)] + [b"50"]
    assert [handle.offset for handle in (*handles, *after)] == list(range(1, 52))
    assert handles[17].result().offset == 18
    assert heard == list(range(1, 51))
    assert producing.kafka_producer.appender.used_bytes == 0
