"""`barnabas.Consumer` and `barnabas.aio.Consumer` against a broker of ours: the same story told to both, and what only
one of them has to stand: threads, signals and forks here, cancellation there."""

import asyncio
import contextlib
import inspect
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.errors import ClientClosed, UsageError, WokenUp
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from client.conftest import SOON_S
from stopwatch import Stopwatch

pytestmark = pytest.mark.timeout(120)  # here nearly everything ends only when all records have come
RECORDS = 200


class Awaited:
    """The asyncio front with the synchronous one's manners, on a loop of its own."""

    def __init__(self, *topics: Any, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self._consumer = barnabas.aio.Consumer(*topics, **settings)

    def _run(self, call: Callable[[], Any]) -> Any:
        async def awaited() -> Any:
            result = call()
            return await result if inspect.isawaitable(result) else result

        return self._runner.run(awaited())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._run(lambda: getattr(self._consumer, name)(*args, **kwargs))

    def _iterate(self, iterator: AsyncIterator[Any]) -> Iterator[Any]:
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield self._run(lambda: anext(iterator))

    def __iter__(self) -> Iterator[Any]:
        return self._iterate(aiter(self._consumer))

    def batches(self) -> Iterator[Any]:
        return self._iterate(self._consumer.batches())

    def arrow(self) -> Iterator[Any]:
        return self._iterate(self._consumer.arrow())

    def close(self) -> None:
        self._run(self._consumer.close)

    def end(self) -> None:
        self._runner.close()


@pytest.fixture(params=["sync", "aio"])
def front(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "sync":
        yield barnabas.Consumer
        return
    with contextlib.ExitStack() as loops:

        def make(*topics: Any, **settings: Any) -> Awaited:
            consumer = Awaited(*topics, **settings)
            loops.callback(consumer.end)
            return consumer

        yield make


@pytest.fixture
def topic(broker: Broker, name: str) -> str:
    """Two partitions of a hundred records each."""
    broker.create_topic(name, partitions=2)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(100):
            for partition in (0, 1):
                producer.send(name, b"%d" % number, key=b"k", partition=partition, timestamp=1000 + number)
    return name


def test_both_fronts_have_the_same_names_and_arguments() -> None:
    def told(front: Any) -> dict[str, Any]:
        return {
            name: inspect.signature(member).replace(return_annotation=None)
            for name, member in inspect.getmembers(front, inspect.isfunction)
            if not name.startswith("_")
        }

    assert told(barnabas.Consumer) == told(barnabas.aio.Consumer)


def read_all(consumer: barnabas.Consumer) -> None:
    count = 0
    while count < RECORDS:
        count += len(consumer.poll(60))
    assert count == RECORDS, "records came twice"


# --- the same story for both ------------------------------------------------------------------------------------------


def test_reading_committing_and_going_on(front: Any, topic: str, settings: dict[str, Any]) -> None:
    seen = []
    consumer = front(topic, **settings, enable_auto_commit=False)
    for record in consumer:
        seen.append((record.partition, record.offset))
        if len(seen) == 150:
            break
    consumer.commit()
    topic_partition = [TopicPartition(topic, number) for number in (0, 1)]
    committed = consumer.committed(topic_partition)
    assert sum(found.offset for found in committed.values() if found is not None) == 150
    assert {place: consumer.position(place) for place in topic_partition} == {
        place: found.offset if found is not None else 0 for place, found in committed.items()
    }
    consumer.close()
    consumer = front(topic, **settings)
    for records in consumer.batches():
        seen += [(record.partition, record.offset) for record in records]
        if len(seen) >= RECORDS:
            break
    consumer.close()
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(100)]
    with barnabas.Consumer(**settings) as later:
        assert {found.offset for found in later.committed(topic_partition).values() if found is not None} == {100}


def test_batches_as_columns(front: Any, topic: str, settings: dict[str, Any]) -> None:
    consumer = front(topic, **settings)
    count = 0
    for batch in consumer.batches():
        assert batch.to_arrow().column("value").to_pylist() == batch.values()
        assert batch.values() == [record.value for record in batch]
        assert consumer.position(TopicPartition(batch.topic, batch.partition)) == batch[-1].offset + 1
        count += len(batch)
        if count >= RECORDS:
            break
    consumer.close()
    assert count == RECORDS, "records came twice"


def test_polling_for_batches(front: Any, topic: str, settings: dict[str, Any]) -> None:
    consumer = front(**settings, enable_auto_commit=False)
    place = TopicPartition(topic, 1)
    consumer.assign([place])
    batch = consumer.poll_batch(60)
    assert (batch.topic, batch.partition, len(batch)) == (topic, 1, 100)
    assert list(batch.offsets()) == list(range(100))
    assert list(batch.timestamps()) == list(range(1000, 1100))
    columns = batch.offsets(), batch.timestamps(), batch.keys(), batch.values(), batch.headers()
    rows = [(record.offset, record.timestamp, record.key, record.value, record.headers) for record in batch]
    assert list(zip(*columns, strict=True)) == rows
    assert consumer.position(place) == 100
    assert consumer.poll_batch(0.01) is None, "nothing more came"
    consumer.commit()
    assert consumer.committed([place])[place].offset == 100
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll_batch(0)


def test_batches_that_deserializers_have_seen(front: Any, topic: str, settings: dict[str, Any]) -> None:
    consumer = front(topic, **{**settings, "value_deserializer": bytes.hex})
    batch = next(iter(consumer.batches()))
    assert batch.values() == [record.value for record in batch]
    assert all(isinstance(value, str) for value in batch.values())
    with pytest.raises(UsageError, match=r"use Consumer\.arrow"):
        batch.to_arrow()
    consumer.close()


def test_partitions_by_hand(front: Any, topic: str, settings: dict[str, Any]) -> None:
    place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = front(**settings)
    consumer.assign([place])
    assert consumer.assignment() == {place}
    assert [record.offset for record in consumer.poll(60, max_records=5)] == [0, 1, 2, 3, 4]
    consumer.seek(place, 90)
    assert [record.offset for record in consumer.poll(60)] == [*range(90, 100)]
    assert consumer.poll(0.05) == []
    consumer.seek_to_beginning()
    consumer.pause([place])
    assert consumer.paused() == {place}
    assert consumer.poll(0.1) == []
    consumer.resume([place])
    assert consumer.poll(60, max_records=1)[0].offset == 0
    assert consumer.beginning_offsets([place, other]) == {place: 0, other: 0}
    assert consumer.end_offsets([place]) == {place: 100}
    times = consumer.offsets_for_times({place: 1050, other: 5000})
    assert times[place][:2] == (50, 1050)
    assert times[other] is None
    assert [view.leader for view in consumer.partitions_for(topic)] == [1, 1]
    consumer.seek_to_end()
    assert consumer.position(place, timeout=60) == 100
    assert consumer.health().state == "assigned by hand"
    assert consumer.metrics()["assigned_partitions"] == 1
    consumer.close()
    consumer.close()


def test_arrow_tables(front: Any, topic: str, settings: dict[str, Any]) -> None:
    pytest.importorskip("pyarrow")
    consumer = front(topic, **settings)
    rows = 0
    for table in consumer.arrow():
        rows += table.num_rows
        if rows >= RECORDS:
            break
    consumer.close()
    assert rows == RECORDS, "records came twice"


def test_what_the_listener_hears(front: Any, topic: str, settings: dict[str, Any]) -> None:
    heard: list[tuple[str, int]] = []
    consumer = front(
        topic,
        **settings,
        on_assigned=lambda _, partitions: heard.append(("assigned", len(partitions))),
        on_revoked=lambda _, partitions: heard.append(("revoked", len(partitions))),
    )
    assert consumer.poll(60)
    assert consumer.group_metadata()[:2] == (settings["group_id"], 1)
    consumer.unsubscribe()
    assert heard == [("assigned", 2), ("revoked", 2)]
    assert consumer.assignment() == set()
    consumer.subscribe([topic])
    while len(heard) == 2:
        consumer.poll(0.1)
    assert heard[2:] == [("assigned", 2)]
    consumer.close()
    assert heard[3:] == [("revoked", 2)]


def test_asynchronous_commits_are_told(front: Any, topic: str, settings: dict[str, Any]) -> None:
    told: list[Any] = []
    consumer = front(**settings)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.commit_async({place: 7}, lambda offsets, error: told.append((offsets[place].offset, error)))
    deadline = time.monotonic() + 60
    while not told and time.monotonic() < deadline:
        consumer.poll(0.05)
    assert told == [(7, None)]
    assert consumer.committed([place])[place].offset == 7
    consumer.close()


def test_wakeup_comes_out_of_the_next_poll(front: Any, topic: str, settings: dict[str, Any]) -> None:
    consumer = front(topic, **settings)
    consumer.wakeup()
    with pytest.raises(WokenUp):
        consumer.poll(60)
    assert consumer.poll(60)
    consumer.close()


def test_a_closed_consumer_does_nothing_more(front: Any, topic: str, settings: dict[str, Any]) -> None:
    consumer = barnabas.Consumer(topic, **settings)
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll(1)
    assert list(consumer) == []


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a consumer without a group."""
    return {**settings, "group_id": None}


def places(records: list[Any]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


def poll_all(consumer: Any, count: int = RECORDS) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        records += consumer.poll(60)
    return records


def test_without_a_group_all_partitions_of_the_topics_are_read(front: Any, topic: str, alone: dict[str, Any]) -> None:
    everything = [(partition, offset) for partition in (0, 1) for offset in range(100)]
    for _ in range(2):  # nothing is committed: the second reads the same
        consumer = front(topic, **alone)
        assert places(poll_all(consumer)) == everything
        assert consumer.health().state == "without a group"
        with pytest.raises(UsageError, match=r"needs group\.id"):
            consumer.commit()
        consumer.close()


def test_without_a_group_the_reset_says_where_to_begin(
    front: Any, topic: str, alone: dict[str, Any], broker: Broker
) -> None:
    consumer = front(topic, **{**alone, "auto_offset_reset": "latest"})
    while not consumer.assignment():
        consumer.poll(0)
    assert [consumer.position((topic, partition), 60) for partition in (0, 1)] == [100, 100]
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"new", partition=1)
    assert [record.value for record in consumer.poll(60)] == [b"new"]
    consumer.close()


def test_without_a_group_the_listener_may_seek_before_anything_is_read(
    front: Any, topic: str, alone: dict[str, Any]
) -> None:
    heard = []

    def begin_late(consumer: Any, partitions: Any) -> None:
        heard.append(sorted(partitions))
        for partition in partitions:
            consumer.seek(partition, 90)

    consumer = front(topic, **alone, on_assigned=begin_late, on_revoked=lambda _, gone: heard.append(sorted(gone)))
    assert places(poll_all(consumer, 20)) == [(partition, offset) for partition in (0, 1) for offset in range(90, 100)]
    consumer.close()
    assert heard == [[(topic, 0), (topic, 1)]] * 2


def test_without_a_group_new_partitions_are_read_as_they_come(
    front: Any, topic: str, alone: dict[str, Any], broker: Broker
) -> None:
    consumer = front(topic, **alone, metadata_max_age_ms=50)
    poll_all(consumer)
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin, pytest.warns(barnabas.errors.KeysMove):
        admin.create_partitions({topic: 3})
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"new", partition=2)
    assert [(record.partition, record.value) for record in consumer.poll(60)] == [(2, b"new")]
    consumer.close()


def test_without_a_group_a_new_subscription_replaces_the_old_one(
    front: Any, topic: str, alone: dict[str, Any], broker: Broker
) -> None:
    broker.create_topic(f"{topic}-other", partitions=1)
    gone: list[Any] = []
    consumer = front(topic, **alone, on_revoked=lambda _, partitions: gone.extend(partitions))
    poll_all(consumer)
    consumer.subscribe([f"{topic}-other"])
    while consumer.assignment() != {(f"{topic}-other", 0)}:
        consumer.poll(0.01)
    assert sorted(gone) == [(topic, 0), (topic, 1)]
    consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.close()


@pytest.mark.parametrize("group", [True, False], ids=["group", "alone"])
def test_what_begins_with_a_circumflex_is_a_regular_expression(
    front: Any, topic: str, settings: dict[str, Any], broker: Broker, group: bool
) -> None:
    named = f"plain-{topic}"
    broker.create_topic(named, partitions=1)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(named, b"one more")
    settings["group_id"] = settings["group_id"] if group else None
    consumer = front(f"^{topic[:-1]}[{topic[-1]}]", named, **settings)
    records = poll_all(consumer, RECORDS + 1)
    assert {record.topic for record in records} == {topic, named} == consumer.subscription()
    consumer.close()


def test_an_expression_that_is_none_is_refused(front: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"\^orders-\(.*no regular expression"):
        front("^orders-(", **settings)


@pytest.mark.parametrize("ask", ["poll", "iterate", "batches"])
def test_who_polls_without_anything_to_read_hears_so_at_once(front: Any, settings: dict[str, Any], ask: str) -> None:
    consumer = front(**settings)
    calls: dict[str, Callable[[], object]] = {
        "poll": lambda: consumer.poll(60),
        "iterate": lambda: next(iter(consumer)),
        "batches": lambda: next(iter(consumer.batches())),
    }
    with pytest.raises(UsageError, match=r"nothing to read: give it topics.*subscribe.*assign"):
        calls[ask]()
    consumer.close()


def test_who_waits_in_a_poll_hears_that_another_thread_unsubscribes(topic: str, alone: dict[str, Any]) -> None:
    with barnabas.Consumer(topic, **alone) as consumer:
        read_all(consumer)
        failures: list[UsageError] = []

        def poll() -> None:
            with pytest.raises(UsageError) as failure:
                consumer.poll(60)
            failures.append(failure.value)

        thread = threading.Thread(target=poll)
        thread.start()
        while not consumer._state.is_waiting:
            time.sleep(0.001)
        consumer.unsubscribe()
        thread.join(60)
        assert "nothing to read" in str(failures)


@pytest.mark.timeout(60)
def test_without_a_reachable_broker_the_user_is_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

    def told() -> list[str]:
        return [record.message for record in caplog.records if record.levelno == logging.WARNING]

    async def wait_there() -> None:
        async with barnabas.aio.Consumer("t", bootstrap_servers=address) as consumer:
            while len(told()) < 2:
                assert await consumer.poll(0.1) == []

    def wait_here() -> None:
        with barnabas.Consumer("t", bootstrap_servers=address) as consumer:
            while len(told()) < 2:
                assert consumer.poll(0.1) == []

    thread = threading.Thread(target=wait_here)
    thread.start()
    asyncio.run(wait_there())
    thread.join()
    refused = f"the consumer goes on trying: no broker reachable: {address}: tcp: connection refused (nothing listens"
    assert [text.startswith(refused) for text in told()] == [True, True], told()


def test_a_constructor_that_fails_leaves_nothing_open(settings: dict[str, Any]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(UsageError, match="no regular expression"):
            barnabas.Consumer("^(", **settings)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_what_settings_warn_of_is_told(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    barnabas.Consumer(**settings, sasl_username="me").close()
    assert "security.protocol is PLAINTEXT, so sasl.username has no effect" in caplog.text


# --- threads, signals, forks ------------------------------------------------------------------------------------------


def test_close_ends_what_other_threads_wait_for(
    topic: str, settings: dict[str, Any], broker: Broker, stopwatch: Stopwatch
) -> None:
    consumer = barnabas.Consumer(topic, **settings)
    read_all(consumer)
    broker.faults.delay("OFFSET_COMMIT", 60)
    ended: list[Any] = []

    def wait_in(call: Callable[[], object]) -> None:
        try:
            call()
        except ClientClosed:
            ended.append(call)

    calls: list[Callable[[], object]] = [consumer.poll, consumer.commit]
    threads = [threading.Thread(target=wait_in, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    while consumer.health().since_poll != 0 or not consumer.metrics()["commits"]:
        time.sleep(0.001)
    began = stopwatch()
    consumer.close()
    for thread in threads:
        thread.join(60)
    assert stopwatch() - began < SOON_S
    assert len(ended) == 2


def test_an_iteration_gives_nothing_beyond_what_a_close_has_committed(topic: str, settings: dict[str, Any]) -> None:
    revoked, looked = threading.Event(), threading.Event()

    def on_revoked(*_: object) -> None:
        revoked.set()
        looked.wait(0.3)  # the iteration below ends when the close does, and gives a record before that if it is wrong

    consumer = barnabas.Consumer(topic, **settings, on_revoked=on_revoked)
    records = iter(consumer)
    read = [next(records) for _ in range(70)]
    closing = threading.Thread(target=consumer.close)
    closing.start()
    assert revoked.wait(60)
    beyond = next(records, None)
    looked.set()
    closing.join(60)
    assert len(read) == 70
    assert beyond is None


def test_a_signal_handler_may_close(topic: str, settings: dict[str, Any], stopwatch: Stopwatch) -> None:
    consumer = barnabas.Consumer(topic, **settings)
    read_all(consumer)
    handled: list[float] = []

    def close(*_: object) -> None:
        handled.append(stopwatch())
        consumer.close()

    before = signal.signal(signal.SIGUSR1, close)
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(ClientClosed):
            consumer.poll()
        assert stopwatch() - handled[0] < SOON_S
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_child_of_a_fork_reads_for_itself(topic: str, settings: dict[str, Any]) -> None:
    del settings["group_id"]
    consumer = barnabas.Consumer(**settings)
    consumer.assign([(topic, 0)])
    assert consumer.poll(60, max_records=10)[-1].offset == 9
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.write(write, b"%d" % consumer.poll(60, max_records=1)[0].offset)
        os._exit(0)
    os.close(write)
    assert os.read(read, 10) == b"0"  # a consumer of its own, at the beginning
    os.close(read)
    os.waitpid(child, 0)
    assert consumer.poll(60, max_records=1)[0].offset == 10
    consumer.close()


# --- the loop ---------------------------------------------------------------------------------------------------------


def test_coroutine_functions_are_listeners_too(topic: str, settings: dict[str, Any]) -> None:
    async def story() -> list[str]:
        heard: list[str] = []

        async def assigned(consumer: barnabas.aio.Consumer, partitions: Any) -> None:
            await consumer.position(partitions[0], timeout=10)
            heard.append("assigned")

        async def revoked(consumer: barnabas.aio.Consumer, partitions: Any) -> None:
            await consumer.commit()
            heard.append("revoked")

        async with barnabas.aio.Consumer(
            topic, **settings, on_assigned=assigned, on_revoked=revoked, enable_auto_commit=False
        ) as consumer:
            await consumer.poll(60)
        return heard

    assert asyncio.run(story()) == ["assigned", "revoked"]
    with barnabas.Consumer(**settings) as consumer:
        assert any(consumer.committed([(topic, 0), (topic, 1)]).values())


def test_a_consumer_made_outside_a_loop(topic: str, settings: dict[str, Any]) -> None:
    consumer = barnabas.aio.Consumer(topic, **settings)

    async def story() -> int:
        async with consumer:
            return len(await consumer.poll(60))

    assert asyncio.run(story())


def test_cancelled_polls_take_no_record_along(topic: str, settings: dict[str, Any]) -> None:
    async def story() -> list[tuple[int, int]]:
        seen = []
        async with barnabas.aio.Consumer(topic, **settings, max_poll_records=3) as consumer:
            delays = [0.0, 0.0005, 0.002, 0.01]
            while len(seen) < RECORDS:
                task = asyncio.create_task(consumer.poll())
                delays.append(delays.pop(0))
                await asyncio.wait([task], timeout=delays[-1])
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    seen += [(record.partition, record.offset) for record in await task]
        return seen

    seen = asyncio.run(asyncio.wait_for(story(), 60))
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(100)]


def test_one_task_polls_at_a_time(topic: str, settings: dict[str, Any]) -> None:
    async def story() -> None:
        async with barnabas.aio.Consumer(topic, **settings) as consumer:
            first = asyncio.create_task(consumer.poll(60))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="another task polls"):
                await consumer.poll(1)
            assert await first

    asyncio.run(story())


def test_close_ends_what_other_tasks_wait_for(
    topic: str, settings: dict[str, Any], broker: Broker, stopwatch: Stopwatch
) -> None:
    async def story() -> None:
        consumer = barnabas.aio.Consumer(topic, **settings)
        read = 0
        while read < RECORDS:
            read += len(await consumer.poll(60))
        broker.faults.delay("OFFSET_COMMIT", 60)

        async def iterate() -> str:
            async for _ in consumer:
                pass
            return "ended"

        waiting = [asyncio.create_task(consumer.commit()), asyncio.create_task(iterate())]
        await asyncio.sleep(0.05)
        began = stopwatch()
        await consumer.close()
        commit, iteration = await asyncio.gather(*waiting, return_exceptions=True)
        assert stopwatch() - began < SOON_S
        assert isinstance(commit, ClientClosed)
        assert iteration == "ended"
        with pytest.raises(ClientClosed):
            await consumer.poll(1)

    asyncio.run(story())


def test_a_cancelled_block_closes_at_once(
    topic: str, settings: dict[str, Any], broker: Broker, stopwatch: Stopwatch
) -> None:
    async def block(entered: asyncio.Event) -> None:
        async with barnabas.aio.Consumer(topic, **settings) as consumer:
            await consumer.poll(60)
            entered.set()
            while True:
                await consumer.poll()

    async def story() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(block(entered))
        await entered.wait()
        broker.faults.delay("LEAVE_GROUP", 60)
        began = stopwatch()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stopwatch() - began < SOON_S

    asyncio.run(story())


def test_heartbeats_go_out_while_records_are_worked_on(topic: str, settings: dict[str, Any], broker: Broker) -> None:
    async def story() -> None:
        async with barnabas.aio.Consumer(topic, **settings) as consumer:
            await anext(aiter(consumer))
            heartbeats = broker.faults.delay("HEARTBEAT", 0, times=None)
            done = 0
            async for _ in consumer:
                time.sleep(0.01)  # noqa: ASYNC251 -- the point is that this work awaits nothing
                done += 1
                if done == 150:
                    break
            assert heartbeats.hits >= 3, "in a second and a half, with one due each 0.3 s"

    asyncio.run(story())


def test_wakeup_from_another_thread(topic: str, settings: dict[str, Any]) -> None:
    async def story() -> None:
        async with barnabas.aio.Consumer(**settings) as consumer:
            consumer.assign([(topic, 0)])
            consumer.seek_to_end()
            threading.Timer(0.05, consumer.wakeup).start()
            with pytest.raises(WokenUp):
                await consumer.poll(60)

    asyncio.run(story())
