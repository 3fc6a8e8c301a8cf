"""`barnabas.Producer` against a broker in this process: where records go, who hears of them, and how it ends."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import barnabas
from barnabas.client.producer.plugins import ProducerRecord
from barnabas.errors import (
    BufferExhausted,
    ClientClosed,
    KeysMove,
    MessageTooLarge,
    OperationTimedOut,
    RecordsPurged,
    TopicNotFound,
    UsageError,
)
from barnabas.testing import Broker
from client.conftest import SOON_S
from stopwatch import Stopwatch


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    shared.reset()
    shared.create_topic("t", partitions=3)
    yield shared
    shared.faults.clear()


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def producer_of(broker: Broker, **settings: Any) -> barnabas.Producer:
    return barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, **settings)


def values(broker: Broker, partition: int | None = None) -> list[bytes | None]:
    return [record.value for record in broker.records("t", partition)]


# --- where records go -------------------------------------------------------------------------------------------------


def test_the_partition_that_was_asked_for(broker: Broker) -> None:
    with producer_of(broker) as producer:
        assert [producer.send("t", b"v", b"key", partition=p).result(60).partition for p in (0, 1, 2, 1)] == [
            0,
            1,
            2,
            1,
        ]
        with pytest.raises(UsageError, match="partition=-1"):
            producer.send("t", b"v", partition=-1)


def test_a_partition_that_does_not_exist_is_refused_after_one_look_at_the_metadata(broker: Broker) -> None:
    refused = "topic 't' has 3 partitions, 0 to 2: there is no partition 3"
    with producer_of(broker, max_block_ms=600_000) as producer:
        producer.send("t", b"v").result(60)
        asked = broker.faults.delay("METADATA", 0, times=None)
        with pytest.raises(TopicNotFound, match=refused):
            producer.send("t", b"v", partition=3)
        assert asked.hits == 1
        with pytest.raises(TopicNotFound, match=refused):
            producer.send_many("t", [b"v"], partition=3)


def test_round_robin(broker: Broker) -> None:
    with producer_of(broker, partitioner_class="round_robin") as producer:
        handles = [producer.send("t", b"v", b"same key") for _ in range(9)]
    counts = [[handle.partition for handle in handles].count(partition) for partition in range(3)]
    assert counts == [3, 3, 3]


def test_a_partitioner_of_the_application(broker: Broker) -> None:
    asked: list[Any] = []

    def choose(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        asked.append((topic, key, value, count))
        return int(value or b"0")

    with producer_of(broker, partitioner_class=choose, value_serializer=lambda v: b"%d" % v) as producer:
        assert producer.send("t", 2, b"k").result(60).partition == 2
        assert producer.send("t", 2, b"k", partition=0).result(60).partition == 0
        with pytest.raises(UsageError, match="chose 7"):
            producer.send("t", 7)
    assert asked == [("t", b"k", b"2", 3), ("t", None, b"7", 3)]


def test_a_topic_that_gets_more_partitions_gets_records_there(broker: Broker) -> None:
    with producer_of(broker) as producer, barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        producer.send("t", b"v").result(60)
        with pytest.warns(KeysMove):
            admin.create_partitions({"t": 5})
        assert producer.send("t", b"v", partition=4).result(60).partition == 4


# --- interceptors -----------------------------------------------------------------------------------------------------


class Watching:
    def __init__(self) -> None:
        self.sent: list[ProducerRecord] = []
        self.heard: list[Any] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return record._replace(value=record.value + "!", headers={"seen": "yes"})

    def on_acknowledgement(self, error: BaseException | None, metadata: Any) -> None:
        self.heard.append((type(error), metadata.topic, metadata.partition, metadata.offset))


def test_interceptors_see_and_change_records_and_hear_of_their_end(broker: Broker) -> None:
    first, second = Watching(), Watching()
    delivered: list[Any] = []
    with producer_of(
        broker, interceptor_classes=[first, second], value_serializer=str.encode, max_request_size=1000
    ) as producer:
        producer.send("t", "a", partition=1, on_delivery=lambda *result: delivered.append(result)).result(60)
        with pytest.raises(MessageTooLarge):
            producer.send("t", "x" * 2000, partition=2)
        producer.flush()
        with pytest.raises(UsageError, match="interceptor"):
            producer.send_many("t", ["b"])
    assert values(broker) == [b"a!!"]
    assert second.sent[0].value == "a!"
    assert first.heard == second.heard == [(type(None), "t", 1, 0), (MessageTooLarge, "t", 2, -1)]
    assert delivered[0][0] is None


def test_interceptors_that_fail_break_nothing(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        def on_send(self, record: ProducerRecord) -> Any:
            raise ZeroDivisionError

        def on_acknowledgement(self, error: BaseException | None, metadata: Any) -> None:
            raise ZeroDivisionError

    class Odd:
        def on_send(self, record: ProducerRecord) -> Any:
            return b"odd"

    with producer_of(broker, interceptor_classes=[Failing, Odd]) as producer:
        assert producer.send("t", b"v").result(60).offset == 0
    assert values(broker) == [b"v"]
    assert "on_send" in caplog.text
    assert "on_acknowledgement" in caplog.text
    assert "no ProducerRecord" in caplog.text
    with pytest.raises(UsageError, match="neither on_send nor on_acknowledgement"):
        producer_of(broker, interceptor_classes=[object()])


# --- the end of records -----------------------------------------------------------------------------------------------


def test_flush_waits_for_all_or_tells_how_many_are_missing(broker: Broker) -> None:
    with producer_of(broker, linger_ms=60_000) as producer:
        handles = [producer.send("t", b"v") for _ in range(10)]
        producer.flush()
        assert all(handle.done() for handle in handles)
        broker.faults.delay("PRODUCE", 60.0, times=None)
        producer.send("t", b"late")
        with pytest.raises(OperationTimedOut, match="1 records were not acknowledged"):
            producer.flush(0.1)
        producer.close(0)


def test_purge_gives_up_what_waits_and_what_is_under_way(broker: Broker) -> None:
    with producer_of(broker, linger_ms=60_000) as producer:
        heard: list[Any] = []
        waiting = producer.send("t", b"v", on_delivery=lambda error, _: heard.append(error))
        assert producer.purge(in_flight=False) == 1
        assert isinstance(waiting.exception(60), RecordsPurged)
        assert isinstance(heard[0], RecordsPurged)
        assert producer.send("t", b"kept", partition=0).offset == -1
        producer.flush()
    assert values(broker) == [b"kept"]


@pytest.mark.parametrize("timeout", [0, 0.2, None])
def test_close_waits_as_long_as_it_may(broker: Broker, timeout: float | None, stopwatch: Stopwatch) -> None:
    producer = producer_of(broker, linger_ms=60_000)
    producer.send("t", b"first")
    producer.flush()
    if timeout is not None:
        broker.faults.delay("PRODUCE", 60.0, times=None)
    handle = producer.send("t", b"v")
    started = stopwatch()
    producer.close(timeout)
    assert stopwatch() - started < (timeout or 0) + SOON_S
    if timeout is None:
        assert handle.result().offset >= 0
    else:
        assert isinstance(handle.exception(), ClientClosed)
    with pytest.raises(ClientClosed):
        producer.send("t", b"v")
    producer.close()


def test_a_full_buffer_blocks_or_raises(broker: Broker) -> None:
    with producer_of(broker, buffer_memory=20_000, max_block_ms=0) as producer:
        with pytest.raises(OperationTimedOut):
            producer.send("t", b"x")
        producer.partitions_for("t", 10)
        broker.faults.delay("PRODUCE", 60.0, times=None)
        producer.send("t", b"x" * 9000)
        producer.send("t", b"x" * 9000)
        with pytest.raises(BufferExhausted, match=r"buffer\.memory"):
            producer.send("t", b"x" * 9000)
        producer.close(0)


def test_a_record_that_waits_for_room_is_serialized_once(broker: Broker) -> None:
    seen: list[int] = []

    def serialize(number: int) -> bytes:
        seen.append(number)
        return b"x" * 9000

    with producer_of(broker, buffer_memory=20_000, value_serializer=serialize) as producer:
        handles = [producer.send("t", number) for number in range(20)]
        assert [handle.result(30).topic for handle in handles] == ["t"] * 20
    assert seen == [*range(20)]


# --- threads and processes --------------------------------------------------------------------------------------------


def test_threads_share_a_producer(broker: Broker) -> None:
    def work(number: int) -> None:
        handles = []
        for index in range(2000):
            handles.append(producer.send("t", b"%d-%04d" % (number, index), partition=number % 3))
            if index % 500 == number:
                handles[-1].result(60)
            if index % 700 == number:
                producer.flush(60)
        failures.extend(handle.exception(60) for handle in handles if handle.exception(60))

    failures: list[Any] = []
    with producer_of(broker, buffer_memory=200_000, linger_ms=1) as producer:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert failures == []
    for partition in range(3):
        for number in range(partition, 8, 3):
            prefix = b"%d-" % number
            own = [value for value in values(broker, partition) if value and value.startswith(prefix)]
            assert own == [b"%d-%04d" % (number, index) for index in range(2000)]


def test_close_in_one_thread_ends_what_blocks_in_others(deaf: str, stopwatch: Stopwatch) -> None:
    producer = barnabas.Producer(bootstrap_servers=deaf)
    heard: list[type[BaseException]] = []

    def block(call: Any) -> None:
        try:
            call()
        except BaseException as error:
            heard.append(type(error))

    calls = [lambda: producer.send("t", b"v"), lambda: producer.partitions_for("t")]
    threads = [threading.Thread(target=block, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    while not producer._driver._leader:
        time.sleep(0.001)
    started = stopwatch()
    producer.close(0)
    for thread in threads:
        thread.join(60)
    assert stopwatch() - started < SOON_S
    assert heard == [ClientClosed, ClientClosed]


def test_after_a_fork_parent_and_child_have_their_own(broker: Broker) -> None:
    with producer_of(broker, linger_ms=60_000) as producer:
        before = producer.send("t", b"of the parent", partition=0)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert isinstance(before.exception(60), ClientClosed)
                producer.send("t", b"of the child", partition=1)
                producer.flush(60)
                producer.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.flush(60)
        assert before.result().offset == 0
        producer.send("t", b"of the parent, again", partition=0)
    assert values(broker, 0) == [b"of the parent", b"of the parent, again"]
    assert values(broker, 1) == [b"of the child"]
