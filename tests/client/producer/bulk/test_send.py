"""`send_many` and `send_table` of the synchronous producer, against a broker in this process."""

import os
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import barnabas
from barnabas.errors import (
    BarnabasError,
    BufferExhausted,
    ClientClosed,
    InvalidTopic,
    OperationTimedOut,
    RecordsFailed,
    TopicNotFound,
)
from barnabas.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def values_of(broker: Broker, topic: str) -> list[bytes]:
    return [record.value or b"" for record in broker.records(topic)]


def test_many_more_than_the_buffer_takes(broker: Broker) -> None:
    broker.create_topic("many", partitions=3)
    values = [b"%06d" % number + bytes(90) for number in range(30_000)]
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=200_000) as producer:
        sent = producer.send_many("many", iter(values)).result(60)
    assert sum(part.record_count for part in sent) == 30_000
    assert sorted(values_of(broker, "many")) == values


def test_a_table(broker: Broker) -> None:
    broker.create_topic("table")
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        delivery = producer.send_table("table", pa.table({"value": ["a", "b", None], "key": ["k", None, "l"]}))
        assert delivery.result(60) == (("table", 0, 0, 3),)
    assert values_of(broker, "table") == [b"a", b"b", b""]


def test_threads_that_send_at_once_keep_their_orders(broker: Broker) -> None:
    broker.create_topic("threads")
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:

        def send(name: bytes) -> None:
            for start in range(0, 5000, 500):
                producer.send_many("threads", [name + b"%d" % number for number in range(start, start + 499)])
                producer.send("threads", name + b"%d" % (start + 499))

        threads = [threading.Thread(target=send, args=(name,)) for name in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        producer.flush(60)
    found = values_of(broker, "threads")
    for name in (b"a", b"b", b"c"):
        assert [value for value in found if value[:1] == name] == [name + b"%d" % number for number in range(5000)]


def test_callbacks_come_from_the_producers_thread(broker: Broker) -> None:
    broker.create_topic("calls")
    heard = threading.Event()
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many("calls", [b"a"]).add_done_callback(lambda delivery: heard.set())
        assert heard.wait(60)


def test_no_such_topic_and_no_such_partition(broker: Broker) -> None:
    broker.create_topic("one")
    address = broker.bootstrap_servers
    impatient = barnabas.Producer(bootstrap_servers=address, max_block_ms=3000)
    with impatient, pytest.raises(TopicNotFound, match="there is no partition 7"):
        impatient.send_many("one", [b"a"], partition=7)
    with barnabas.Producer(bootstrap_servers=address) as producer, pytest.raises(InvalidTopic):
        producer.send_many("no topic", [b"a"])


def test_brokers_that_take_nothing_any_more() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        settings = {"bootstrap_servers": broker.bootstrap_servers, "max_block_ms": 3000, "buffer_memory": 50_000}
        producer = barnabas.Producer(settings)
        producer.send("t", b"first").result(60)
    with pytest.raises(RecordsFailed, match=r"1000 records for t failed: .* max\.block\.ms") as caught:
        producer.send_many("t", [bytes(1000)] * 1000)
    (part,) = caught.value.failed
    assert isinstance(part.error, BufferExhausted)
    assert part.rows[-1] == 999
    with pytest.raises(OperationTimedOut):
        caught.value.delivery.result(0)
    producer.close(0)
    failure = caught.value.delivery.exception(60)
    assert [type(part.error) for part in failure.failed] == [ClientClosed, BufferExhausted]
    assert sum(len(part.rows) for part in failure.failed) == 1000
    with pytest.raises(ClientClosed):
        producer.send_many("t", [b"a"])


def test_after_a_fork_the_child_hears_that_they_are_the_parents(broker: Broker) -> None:
    broker.create_topic("fork")
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        delivery = producer.send_many("fork", [b"a", b"b"])
        child = os.fork()
        if not child:
            code = 1
            try:
                failure = delivery.exception(60)
                lost = failure is not None and [part.rows for part in failure.failed] == [range(2)]
                code = 0 if lost and producer.send_many("fork", [b"c"]) else 1
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        producer.flush(60)
        assert delivery.result() == (("fork", 0, 0, 2),)


def test_in_a_transaction(broker: Broker) -> None:
    broker.create_topic("transaction", partitions=2)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="bulk") as producer:
        producer.init_transactions()
        with pytest.raises(BarnabasError, match="begin_transaction"):
            producer.send_many("transaction", [b"outside"])
        with producer.transaction():
            committed = producer.send_many("transaction", [b"%d" % number for number in range(5000)])
        assert sum(part.record_count for part in committed.result(0)) == 5000
        producer.begin_transaction()
        lost = producer.send_many("transaction", [b"lost"] * 5000)
        producer.abort_transaction()
        assert lost.done()
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([("transaction", 0), ("transaction", 1)])
        found: list[bytes] = []
        while len(found) < 5000:
            found += [record.value for record in consumer.poll(60)]
    assert sorted(found, key=int) == [b"%d" % number for number in range(5000)]
