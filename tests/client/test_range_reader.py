"""Exact ranges of offsets, against a broker of ours."""

import pytest

import barnabas
from barnabas.client.fetch import fetch_response
from barnabas.client.partition_reader import RangeReader
from barnabas.errors import OffsetOutOfRange, OperationTimedOut
from barnabas.protocol.codec import Part
from barnabas.testing import Broker
from barnabas.types import TopicPartition

pytest.importorskip("pyarrow")


def write(broker: Broker, topic: str, count: int) -> TopicPartition:
    broker.create_topic(topic)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=2) as producer:
        for index in range(count):
            producer.send(topic, b"v%d" % index)
    return TopicPartition(topic, 0)


def offsets(reader: RangeReader, where: TopicPartition, start: int, end: int) -> list[int]:
    return [o for batch in reader.read(where, start, end, timeout=60) for o in batch.column("offset").to_pylist()]


@pytest.fixture
def reader(broker: Broker):
    with RangeReader({"bootstrap.servers": broker.bootstrap_servers, "max.partition.fetch.bytes": 300}) as reader:
        yield reader


def test_ranges_are_exact(broker: Broker, reader: RangeReader, name: str) -> None:
    where = write(broker, name, 500)
    for start, end in ((0, 500), (17, 18), (100, 333), (499, 500), (250, 250), (0, 1)):
        assert offsets(reader, where, start, end) == list(range(start, end))


def test_one_answer_holds_several_batches(broker: Broker, name: str) -> None:
    broker.create_topic(name)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=100_000) as producer:
        producer.send_many(name, [b"v" * 1000] * 4000)
    with RangeReader({"bootstrap.servers": broker.bootstrap_servers}) as reader:
        batches = reader.read(TopicPartition(name, 0), 0, 4000, timeout=60)
        first = [next(batches).column("offset") for _ in range(2)]
        assert first[0][0].as_py() == 0
        assert first[1][0].as_py() == len(first[0])
        rest = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        assert rest == list(range(len(first[0]) + len(first[1]), 4000))


def test_an_abandoned_range_leaves_nothing_behind(broker: Broker, reader: RangeReader, name: str) -> None:
    where = write(broker, name, 500)
    first = next(reader.read(where, 100, 400, timeout=60))
    assert first.column("offset")[0].as_py() == 100
    assert offsets(reader, where, 90, 110) == list(range(90, 110))


def test_the_end_of_a_range_leaves_no_question_with_the_broker(broker: Broker, name: str) -> None:
    where = write(broker, name, 10)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "fetch.max.wait.ms": 60_000}
    with RangeReader(settings) as reader:
        for _ in range(3):
            assert offsets(reader, where, 0, 10) == list(range(10))
        assert not reader._core.fetcher._in_flight


def test_what_is_gone_is_out_of_range(broker: Broker, reader: RangeReader, name: str) -> None:
    where = write(broker, name, 20)
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({where: 10})
    with pytest.raises(OffsetOutOfRange, match=f"{name}-0: offset 3"):
        offsets(reader, where, 3, 20)
    assert offsets(reader, where, 10, 20) == list(range(10, 20))


def test_an_end_that_does_not_come_times_out(broker: Broker, reader: RangeReader, name: str) -> None:
    where = write(broker, name, 20)
    with pytest.raises(OperationTimedOut, match=f"{name}-0: nothing came from offset 20 on, wanted up to 21"):
        list(reader.read(where, 15, 21, timeout=3))


def test_aborted_records_at_the_end_are_no_reason_to_wait(broker: Broker, name: str) -> None:
    where = write(broker, name, 5)
    settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": name}
    with barnabas.Producer(**settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"never")
        producer.flush()
        producer.abort_transaction()
    settings = {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": "read_committed"}
    with RangeReader(settings) as reader:
        assert offsets(reader, where, 0, 7) == list(range(5))
        assert offsets(reader, where, 5, 7) == []


def test_a_log_whose_last_records_are_compacted_away_ends_there(
    broker: Broker, reader: RangeReader, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker says that it has everything up to the end, and gives nothing."""
    where = write(broker, name, 20)
    monkeypatch.setattr(fetch_response, "Part", lambda data, start, end: Part(data, start, start))
    assert offsets(reader, where, 12, 20) == []
