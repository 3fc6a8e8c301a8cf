"""`barnabas.aio.Producer` against a broker in this process."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pyarrow
import pytest

import barnabas
import barnabas.aio
from barnabas.client.producer.plugins import ProducerRecord
from barnabas.errors import (
    BufferExhausted,
    ClientClosed,
    InvalidTopic,
    ProducerFenced,
    RecordsPurged,
    TopicNotFound,
    UsageError,
)
from barnabas.testing import Broker
from client.conftest import SOON_S
from client.fronts import public_methods
from stopwatch import Stopwatch

Scene = Callable[[barnabas.aio.Producer], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic("t", partitions=3)
    return shared


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def play(broker: Broker, scene: Scene, **settings: Any) -> None:
    async def whole() -> None:
        async with barnabas.aio.Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
            await scene(producer)

    asyncio.run(asyncio.wait_for(whole(), 60))


def values(broker: Broker) -> list[bytes | None]:
    return [record.value for record in broker.records("t")]


def test_both_fronts_have_the_same_names_and_arguments() -> None:
    assert public_methods(barnabas.Producer) == public_methods(barnabas.aio.Producer)


def test_what_is_sent_is_written(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        metadata = await (await producer.send("t", b"first", b"key", partition=1, headers={"a": "b"}, timestamp=77))
        assert metadata == ("t", 1, 0, 77)
        handles = [await producer.send("t", b"%d" % number, partition=0) for number in range(5000)]
        assert [(await handle).offset for handle in handles] == list(range(5000))
        assert handles[0].result().offset == 0
        assert producer.metrics()["records_taken"] == 5001

    play(broker, scene)
    assert values(broker)[:3] == [b"0", b"1", b"2"]


def test_many_at_once(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        many = [b"%06d" % number for number in range(200_000)]
        delivery = await producer.send_many("t", many, partition=0)
        with pytest.raises(TypeError, match="await it"):
            delivery.result()
        assert sum(part.record_count for part in await delivery) == len(many)
        heard = asyncio.Event()
        delivery.add_done_callback(lambda _: heard.set())
        await heard.wait()
        with pytest.raises(TypeError):
            await producer.send_many("t", "text")
        rows = pyarrow.table({"value": [b"a", b"b"], "partition": [1, 2]})
        assert [part.partition for part in await (await producer.send_table("t", rows))] == [1, 2]

    play(broker, scene, buffer_memory=1 << 20)
    assert values(broker)[:200_000] == [b"%06d" % number for number in range(200_000)]


def test_leaving_the_block_flushes(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        for number in range(100):
            await producer.send("t", b"%d" % number)

    play(broker, scene, linger_ms=10_000)
    assert len(values(broker)) == 100


def test_callbacks_come_on_the_loop_and_in_order(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        heard: list[int] = []
        for _ in range(100):
            await producer.send("t", b"v", partition=0, on_delivery=lambda _, metadata: heard.append(metadata.offset))
        handle = await producer.send("t", b"v", partition=0)
        done = asyncio.Event()
        handle.add_done_callback(lambda _: done.set())
        await producer.flush()
        await done.wait()
        assert heard == list(range(100))
        again = asyncio.Event()
        handle.add_done_callback(lambda _: again.set())
        await again.wait()

    play(broker, scene)


def test_serializers_and_a_partitioner_of_the_application(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        assert (await (await producer.send("t", 5, 7))).partition == 2

    play(broker, scene, value_serializer=lambda v: b"%d" % v, key_serializer=lambda k: b"%d" % k,
         partitioner_class=lambda topic, key, value, count: count - 1)  # fmt: skip
    assert values(broker) == [b"5"]


def test_a_partition_that_does_not_exist_is_refused_after_one_look_at_the_metadata(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        await (await producer.send("t", b"v"))
        asked = broker.faults.delay("METADATA", 0, times=None)
        with pytest.raises(TopicNotFound, match="topic 't' has 3 partitions, 0 to 2: there is no partition 3"):
            await producer.send("t", b"v", partition=3)
        assert asked.hits == 1

    play(broker, scene, max_block_ms=600_000)


def test_interceptors(broker: Broker) -> None:
    heard: list[Any] = []

    class Watching:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(partition=2)

        def on_acknowledgement(self, error: BaseException | None, metadata: Any) -> None:
            heard.append((error, metadata.partition))

    async def scene(producer: barnabas.aio.Producer) -> None:
        assert (await (await producer.send("t", b"v"))).partition == 2
        with pytest.raises(TypeError):
            await producer.send("t", "text")

    play(broker, scene, interceptor_classes=Watching)
    assert {(type(error), partition) for error, partition in heard} == {(type(None), 2), (TypeError, 2)}


def test_a_full_buffer_is_waited_for_and_not_for_ever(broker: Broker) -> None:
    async def full() -> None:
        producer = barnabas.aio.Producer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=20_000, max_block_ms=3000
        )
        await producer.send("t", b"x" * 9000)
        await producer.flush()
        for _ in range(50):
            await producer.send("t", b"x" * 9000)  # waits for room each time, and gets it
        await producer.flush()
        broker.faults.delay("PRODUCE", 60.0, times=None)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        await producer.send("t", b"x" * 9000)
        await producer.send("t", b"x" * 9000)
        with pytest.raises(BufferExhausted, match=r"buffer\.memory"):
            await producer.send("t", b"x" * 9000)
        assert ticks > 5
        ticking.cancel()
        broker.faults.clear()
        await producer.close(0)

    asyncio.run(asyncio.wait_for(full(), 60))


def test_a_topic_that_is_not_there(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        with pytest.raises(InvalidTopic):
            await producer.send("a b", b"v")
        with pytest.raises(TopicNotFound, match="there is no partition 3"):
            await producer.send("t", b"v", partition=3)
        assert [view.partition for view in await producer.partitions_for("t")] == [0, 1, 2]

    play(broker, scene, max_block_ms=3000)


def test_a_cancelled_wait_changes_nothing(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        handle = await producer.send("t", b"v", partition=0)

        async def wait() -> None:
            await handle

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        assert producer._calls.producer.accumulator.flushing == 0
        assert (await handle).offset == 0

    play(broker, scene, linger_ms=50)


@pytest.mark.parametrize("timeout", [0, None])
def test_close_ends_whatever_waits(deaf: str, timeout: float | None, stopwatch: Stopwatch) -> None:
    async def scene() -> None:
        producer = barnabas.aio.Producer(bootstrap_servers=deaf, transactional_id="tx")
        plain = barnabas.aio.Producer(bootstrap_servers=deaf)
        waiting = [
            asyncio.create_task(what)
            for what in (producer.init_transactions(), plain.send("t", b"v"), plain.partitions_for("t"))
        ]
        await asyncio.sleep(0.05)
        started = stopwatch()
        await producer.close(0)
        await plain.close(timeout)
        for task in waiting:
            with pytest.raises(ClientClosed):
                await task
        assert stopwatch() - started < SOON_S
        with pytest.raises(ClientClosed):
            await plain.send("t", b"v")
        await plain.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_a_cancelled_close_closes(broker: Broker) -> None:
    async def scene() -> None:
        producer = barnabas.aio.Producer(bootstrap_servers=broker.bootstrap_servers)
        broker.faults.delay("PRODUCE", 60.0, times=None)
        handle = await producer.send("t", b"v")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.05)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(ClientClosed):
            await handle
        broker.faults.clear()

    asyncio.run(asyncio.wait_for(scene(), 60))


def test_purged_records_hear_it(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        handle = await producer.send("t", b"v")
        assert producer.purge() == 1
        with pytest.raises(RecordsPurged):
            await handle

    play(broker, scene, linger_ms=10_000)
    assert values(broker) == []


def test_a_handle_that_would_block_the_loop_says_so(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        handle = await producer.send("t", b"v")
        with pytest.raises(TypeError, match="await it"):
            handle.result()

    play(broker, scene)


def test_transactions(broker: Broker) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        with pytest.raises(UsageError, match=r"init_transactions\(\)"):
            await producer.send("t", b"early")
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("t", b"kept", partition=0)
            await producer.send_offsets_to_transaction({("t", 1): 5}, "group")
        with pytest.raises(ZeroDivisionError):
            await failing(producer)
        producer.begin_transaction()
        await producer.send("t", b"kept, too", partition=0)
        await producer.commit_transaction()
        producer.begin_transaction()
        await producer.send("t", b"lost, too", partition=0)
        await producer.abort_transaction()
        async with barnabas.aio.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="tx"
        ) as successor:
            await successor.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"never", partition=0)
        with pytest.raises((ProducerFenced, barnabas.errors.TransactionFailed)):
            await producer.commit_transaction()

    async def failing(producer: barnabas.aio.Producer) -> None:
        async with producer.transaction():
            await (await producer.send("t", b"lost", partition=0))
            raise ZeroDivisionError

    play(broker, scene, transactional_id="tx")
    assert broker.committed("group") == {("t", 1): 5}
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([("t", 0)])
        read: list[bytes] = []
        while len(read) < 2:
            read += [record.value for record in consumer.poll(60)]
        assert read + [record.value for record in consumer.poll(0.1)] == [b"kept", b"kept, too"]


def test_a_cancelled_transaction_does_not_wait_for_the_broker(broker: Broker, stopwatch: Stopwatch) -> None:
    async def scene(producer: barnabas.aio.Producer) -> None:
        await producer.init_transactions()

        async def work() -> None:
            async with producer.transaction():
                await (await producer.send("t", b"v"))
                broker.faults.delay("END_TXN", 60.0, times=None)
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.2)
        task.cancel()
        started = stopwatch()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stopwatch() - started < SOON_S
        await producer.close(0)
        broker.faults.clear()

    play(broker, scene, transactional_id="tx2")


def test_after_a_fork_parent_and_child_have_their_own(broker: Broker) -> None:
    producer = barnabas.aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)

    async def of_the_child() -> None:
        handle = await producer.send("t", b"of the child", partition=1)
        await producer.flush(60)
        assert (await handle).offset == 0
        await producer.close()

    with asyncio.Runner() as runner:
        before = runner.run(producer.send("t", b"of the parent", partition=0))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert isinstance(before.exception(), ClientClosed)
                asyncio.run(asyncio.wait_for(of_the_child(), 60))
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        runner.run(producer.flush(60))
        assert before.result().offset == 0
        runner.run(producer.close())
    assert sorted(values(broker)) == [b"of the child", b"of the parent"]
