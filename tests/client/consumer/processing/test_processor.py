"""`process` of both consumers against a broker of ours: order, commits, errors, rebalances, and the ends there are."""

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.errors import UsageError, WokenUp
from barnabas.testing import Broker
from stopwatch import Stopwatch

RECORDS = 600
KEYS = 20
PARTITIONS = 3
TIMEOUT_S = 60

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def topic(broker: Broker, name: str) -> str:
    """Records of twenty keys; a value is the number of the record among those of its key."""
    broker.create_topic(name, partitions=PARTITIONS)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(RECORDS):
            key = number % KEYS
            producer.send(name, b"%d" % (number // KEYS), key=b"key-%d" % key, partition=key % PARTITIONS)
    return name


@pytest.fixture
def settings(settings: dict[str, Any]) -> dict[str, Any]:
    return settings | {"heartbeat_interval_ms": 200, "auto_commit_interval_ms": 50}


class Seen:
    """What was handled, by key, in order; closes the consumer after so many. Safe for several threads."""

    def __init__(self, until: int, sleep: Callable[[Any], float] = lambda _: 0.0) -> None:
        self.until = until
        self.sleep = sleep
        self.by_key: dict[bytes, list[int]] = {}
        self.offsets: Counter[tuple[int, int]] = Counter()
        self.running: Counter[bytes] = Counter()
        self.most = 0
        self.done = threading.Event()
        self._lock = threading.Lock()

    def begin(self, record: Any) -> float:
        with self._lock:
            self.running[record.key] += 1
            assert self.running[record.key] == 1, "two records of one key at a time"
            self.most = max(self.most, self.running.total())
        return self.sleep(record)

    def end(self, record: Any) -> None:
        with self._lock:
            self.running[record.key] -= 1
            self.by_key.setdefault(record.key, []).append(int(record.value))
            self.offsets[record.partition, record.offset] += 1
            if len(self.offsets) >= self.until:
                self.done.set()

    def handle(self, record: Any) -> None:
        time.sleep(self.begin(record))
        self.end(record)

    async def handle_soon(self, record: Any) -> None:
        await asyncio.sleep(self.begin(record))
        self.end(record)


def run(front: str, topic: str, settings: dict[str, Any], seen: Seen, stop: threading.Event, **options: Any) -> None:
    """Process until `stop` is set; raises what process raises."""
    if front == "sync":
        with barnabas.Consumer(topic, **settings) as consumer:
            ended = threading.Event()

            def wake() -> None:
                while not ended.is_set():
                    if stop.wait(0.02):
                        consumer.wakeup()
                        return

            waker = threading.Thread(target=wake)
            waker.start()
            try:
                consumer.process(**{"handler": seen.handle} | options)
            except WokenUp:
                pass
            finally:
                ended.set()
                waker.join()
        return

    async def story() -> None:
        async with barnabas.aio.Consumer(topic, **settings) as consumer:
            task = asyncio.create_task(consumer.process(**{"handler": seen.handle_soon} | options))
            while not task.done() and not stop.is_set():
                await asyncio.wait([task], timeout=0.01)
            if not task.done():
                consumer.wakeup()
            with contextlib.suppress(WokenUp):
                await task

    asyncio.run(story())


@pytest.fixture(params=["sync", "aio"])
def front(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("auto_commit", [True, False])
def test_each_key_in_order_and_all_committed(
    front: str, topic: str, settings: dict[str, Any], broker: Broker, auto_commit: bool
) -> None:
    rng = random.Random(1)
    seen = Seen(RECORDS, lambda _: rng.choice([0, 0, 0.005]))
    run(front, topic, settings | {"enable_auto_commit": auto_commit}, seen, seen.done, workers=8)
    assert seen.by_key == {b"key-%d" % key: [*range(RECORDS // KEYS)] for key in range(KEYS)}
    assert seen.most > 2
    assert broker.committed(settings["group_id"]) == dict(zip_ends(broker, topic))


def zip_ends(broker: Broker, topic: str) -> Any:
    return [((topic, partition), end) for partition, end in enumerate(broker.end_offsets(topic))]


def test_an_exception_ends_it_before_the_record_that_failed(
    front: str, topic: str, settings: dict[str, Any], broker: Broker
) -> None:
    failing = [True]

    def sleep(record: Any) -> float:
        if record.partition == 0 and record.offset == 7 and failing:
            failing.clear()
            raise ValueError("not this one")
        return 0.0

    seen = Seen(RECORDS, sleep)
    with pytest.raises(ValueError, match="not this one") as raised:
        run(front, topic, settings, seen, seen.done, workers=4)
    assert "offset 7, was processed" in raised.value.__notes__[0]
    committed = broker.committed(settings["group_id"]).get((topic, 0), 0)
    assert committed <= 7
    assert all(seen.offsets[0, offset] for offset in range(committed))
    seen.running.clear()
    done_before = set(seen.offsets)
    run(front, topic, settings, seen, seen.done, workers=4)
    assert len(seen.offsets) == RECORDS
    again = {at for at, count in seen.offsets.items() if count > 1}
    assert again <= done_before, "only what was done beyond the failure may be done again"


def test_the_same_consumer_goes_on_with_the_record_that_failed(topic: str, settings: dict[str, Any]) -> None:
    tries: list[int] = []

    def handle(record: Any) -> None:
        tries.append(record.offset)
        if record.offset == 3:
            raise ValueError("three")

    with barnabas.Consumer(**settings) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(ValueError, match="three"):
            consumer.process(handle, workers=1)
        assert consumer.position((topic, 0)) == 3
        assert consumer.committed([(topic, 0)])[topic, 0].offset == 3  # type: ignore[union-attr, index]
        assert consumer.poll(60, max_records=1)[0].offset == 3
    assert tries == [0, 1, 2, 3]


def test_records_that_fail_are_skipped_with_a_callback(
    front: str, topic: str, settings: dict[str, Any], broker: Broker
) -> None:
    def sleep(record: Any) -> float:
        if record.offset % 10 == 3:
            seen.running[record.key] -= 1
            raise ValueError(record.offset)
        return 0.0

    skipped: list[tuple[int, int]] = []
    ends = broker.end_offsets(topic)
    bad = sum(offset % 10 == 3 for end in ends for offset in range(end))
    seen = Seen(RECORDS - bad, sleep)

    def skip(record: Any, error: Exception) -> None:
        assert error.args == (record.offset,)
        skipped.append((record.partition, record.offset))

    run(front, topic, settings, seen, seen.done, workers=4, on_error=skip)
    assert len(set(skipped)) == len(skipped) == bad
    assert broker.committed(settings["group_id"]) == dict(zip_ends(broker, topic))


def test_what_cannot_be_deserialized_is_skipped_too(
    front: str, topic: str, settings: dict[str, Any], broker: Broker
) -> None:
    def odd(data: bytes) -> int:
        if int(data) == 5:
            raise ValueError("five")
        return int(data)

    skipped: list[Any] = []
    seen = Seen(RECORDS - KEYS)
    run(
        front,
        topic,
        settings | {"value_deserializer": odd},
        seen,
        seen.done,
        on_error=lambda record, _: skipped.append(record.value),
    )
    assert skipped == [b"5"] * KEYS
    assert broker.committed(settings["group_id"]) == dict(zip_ends(broker, topic))


def test_members_come_and_go_and_nothing_is_done_twice(front: str, topic: str, settings: dict[str, Any]) -> None:
    """Work on what moves is finished and committed before it goes."""
    rng = random.Random(2)
    seen = Seen(RECORDS, lambda _: rng.choice([0.0, 0.03]))
    stops = [threading.Event() for _ in range(2)]
    failures: list[BaseException] = []

    def member(stop: threading.Event) -> None:
        try:
            run(front, topic, settings | {"max_poll_records": 20}, seen, stop, workers=3, limit=20)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=member, args=(seen.done,))]
    threads[0].start()
    for stop in stops:
        while len(seen.offsets) < 100 * (1 + stops.index(stop)):
            time.sleep(0.01)
        threads.append(threading.Thread(target=member, args=(stop,)))
        threads[-1].start()
    while len(seen.offsets) < 300:
        time.sleep(0.01)
    stops[0].set()
    assert seen.done.wait(TIMEOUT_S)
    stops[1].set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert not failures
    assert set(seen.offsets.values()) == {1}
    assert seen.by_key == {b"key-%d" % key: [*range(RECORDS // KEYS)] for key in range(KEYS)}


def test_ctrl_c_ends_it_at_once(topic: str, settings: dict[str, Any], broker: Broker, stopwatch: Stopwatch) -> None:
    """Although two handlers do not return."""
    stuck = threading.Event()

    def handle(record: Any) -> None:
        if record.key in (b"key-0", b"key-3"):
            stuck.wait(TIMEOUT_S)

    def committed() -> int:
        return sum(broker.committed(settings["group_id"]).values())

    pressed: list[float] = []

    def press() -> None:
        broker.wait_for(committed, what="a commit")
        pressed.append(stopwatch())
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt), barnabas.Consumer(topic, **settings) as consumer:
        consumer.process(handle, workers=4)
    assert stopwatch() - pressed[0] < 0.5
    stuck.set()
    presser.join()
    assert broker.committed(settings["group_id"]).get((topic, 0), 0) == 0


def test_what_it_refuses(topic: str, settings: dict[str, Any]) -> None:
    with barnabas.Consumer(topic, **settings) as consumer:
        for options in ({"workers": 0}, {"ordered_by": "color"}, {"limit": 0}):
            with pytest.raises(UsageError):
                consumer.process(print, **options)  # type: ignore[arg-type]
        assert consumer.poll(60)
