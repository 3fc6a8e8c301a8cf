"""Ctrl-C wherever it may come while a client talks with a broker, caught by the application, which goes on with the
same client: no turn of the network client is cut in two, so nothing is lost, done twice or waited for in vain."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.client.producer.transactions.transaction_manager import TransactionState
from barnabas.connection.drivers.signals import HELD
from barnabas.errors import UsageError
from barnabas.records.compiled.record_walk import is_compiled
from barnabas.testing import Broker
from interrupts import signalled_at

PACKAGE = Path(barnabas.__file__).parent
FILES = tuple(
    str(path)
    for folder in ("client", "connection")
    for path in (PACKAGE / folder).rglob("*.py")
    if not path.name.startswith("aio")
)
PLACES_MAX = 20_000
WARM, COLD = (2, 13) if is_compiled() else (7, 211)
"""Every so-manieth place, as their tests take their time: prime, so that a loop's places take turns. Compiled code has
none."""


def everywhere(stride: int, tell: Callable[[int], bool]) -> None:
    """`tell` a place after the other, until it says that there was none so late."""
    for place in range(0, PLACES_MAX, stride):
        if not tell(place):
            assert place > 5 * stride
            return
    raise AssertionError("it never goes through")


@pytest.fixture(autouse=True)
def at_rest() -> Iterator[None]:
    yield
    assert not HELD.noted
    assert not HELD.holds
    assert not HELD.entries
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def sent(producer: barnabas.Producer, values: list[bytes], taken: list[bytes]) -> None:
    for value in values:
        before = producer._calls.producer.appender.appended
        try:
            producer.send("t", value, partition=0)
        finally:
            if producer._calls.producer.appender.appended > before:  # it was taken, whatever its sender was told
                taken.append(value)
    producer.flush(60)


def undamaged(client: Any) -> None:
    with client._driver.lock:  # nobody is at work
        assert not client._driver._damaged
    assert not client._driver._polling or threading.get_ident() != client._driver._leader


def written(address: str) -> list[bytes]:
    with barnabas.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        end = consumer.end_offsets([("t", 0)])["t", 0]  # type: ignore[index]
        values: list[bytes] = []
        while len(values) < end:
            values += [record.value for record in consumer.poll(60) if record.value is not None]
        return values


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("t")
        yield broker


def test_a_producer_that_sends_and_flushes(own_broker: Broker) -> None:
    taken: list[bytes] = []
    with barnabas.Producer(bootstrap_servers=own_broker.bootstrap_servers) as producer:
        sent(producer, [b"first"], taken)

        def interrupt(place: int) -> bool:
            struck, _ = signalled_at(place, FILES, lambda: sent(producer, [b"%d" % place, b"%d+" % place], taken))
            undamaged(producer)
            assert producer._calls.producer.accumulator.flushing == 0
            sent(producer, [b"after %d" % place], taken)
            return struck

        everywhere(WARM, interrupt)
        assert producer.metrics()["retries"] == 0
    assert written(own_broker.bootstrap_servers) == taken


def test_a_producer_that_connects(own_broker: Broker) -> None:
    taken: list[bytes] = []

    def interrupt(place: int) -> bool:
        with barnabas.Producer(bootstrap_servers=own_broker.bootstrap_servers) as producer:
            struck, _ = signalled_at(place, FILES, lambda: sent(producer, [b"%d" % place], taken))
            undamaged(producer)
            sent(producer, [b"after %d" % place], taken)
            return struck

    everywhere(COLD, interrupt)
    assert written(own_broker.bootstrap_servers) == taken


def settle(producer: barnabas.Producer) -> None:
    """Wait for the end that Ctrl-C did not wait for. Nothing is left open."""
    transactions = producer._calls.producer.transactions
    assert transactions is not None
    assert transactions.state is not TransactionState.IN_TRANSACTION
    for end in producer.commit_transaction, producer.abort_transaction:
        with contextlib.suppress(UsageError):
            end(10)


def test_transactions(own_broker: Broker) -> None:
    """Each is committed or aborted as a whole, and the next one begins."""
    settings = {"bootstrap_servers": own_broker.bootstrap_servers, "transactional_id": "tx"}
    with barnabas.Producer(**settings) as producer:
        producer.init_transactions()

        def transact(value: bytes) -> None:
            with producer.transaction():
                producer.send("t", value, partition=0)
                producer.send("t", value + b"+", partition=0)

        def interrupt(place: int) -> bool:
            struck, _ = signalled_at(place, FILES, lambda: transact(b"%d" % place))
            undamaged(producer)
            settle(producer)
            transact(b"after %d" % place)
            return struck

        everywhere(WARM, interrupt)


def fill(broker: Broker, values: list[bytes]) -> None:
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send("t", value, partition=0)


def member(broker: Broker, group: str) -> barnabas.Consumer:
    settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": group, "auto_offset_reset": "earliest"}
    return barnabas.Consumer("t", heartbeat_interval_ms=20, fetch_max_wait_ms=50, **settings)


def test_a_member_that_polls_and_commits(own_broker: Broker) -> None:
    """It neither leaves nor joins again, however often."""
    got: list[int] = []
    fill(own_broker, [b"v"])
    with member(own_broker, "g") as consumer:
        got += [record.offset for record in consumer.poll(60)]

        def interrupt(place: int) -> bool:
            fill(own_broker, [b"v"])

            def work() -> None:
                records = consumer.poll(60, max_records=1)
                got.extend(record.offset for record in records)
                consumer.commit()

            struck, _ = signalled_at(place, FILES, work)
            undamaged(consumer)
            while len(got) < own_broker.end_offsets("t")[0]:
                got.extend(record.offset for record in consumer.poll(60))
            consumer.commit()
            return struck

        everywhere(WARM, interrupt)
        assert got == [*range(len(got))]
        assert own_broker.committed("g") == {("t", 0): len(got)}
        assert consumer.health().state == "stable"
        assert len(consumer.health().rebalances) == 1


def test_a_member_that_joins(own_broker: Broker) -> None:
    fill(own_broker, [b"v"])

    def interrupt(place: int) -> bool:
        with member(own_broker, f"g{place}") as consumer:
            struck, records = signalled_at(place, FILES, lambda: consumer.poll(60))
            undamaged(consumer)
            assert records or len(consumer.poll(60)) == 1
            assert len(consumer.health().rebalances) == 1
            consumer.commit()
        return struck

    everywhere(COLD, interrupt)


@pytest.mark.parametrize("call", ["flush", "purge"])
def test_a_handler_that_calls_the_producer_it_interrupted_is_told(
    broker: Broker, name: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of `send`, which has the lock; it would wait for itself."""

    class Headers(dict[str, bytes]):
        def items(self) -> Any:
            signal.raise_signal(signal.SIGUSR1)
            return super().items()

    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(name, b"first").result(30)
        before = signal.signal(signal.SIGUSR1, lambda *_: getattr(producer, call)())
        try:
            with monkeypatch.context() as patch:
                patch.setattr("barnabas.client.producer.front.REENTRY_LOOKS", 100)
                with pytest.raises(UsageError, match="set a flag"):
                    producer.send(name, b"second", headers=Headers(a=b"b"))
        finally:
            signal.signal(signal.SIGUSR1, before)
        producer.send(name, b"third").result(30)
