"""A producer and a member of a group that work while something happens to the brokers."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import barnabas

__all__ = ["SteadyClients", "steady_clients"]

PATIENCE_S = 120


class SteadyClients:
    """What they have sent and received until now."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._over, self._all_sent = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._run, args=[each]) for each in (self._produce, self._consume)]
        self.sent: list[bytes] = []
        """The records that were acknowledged."""
        self.received: list[bytes] = []
        self.errors: list[BaseException] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Ends the producer, and the consumer when it has everything."""
        for thread, event in zip(self._threads, (self._over, self._all_sent), strict=True):
            event.set()
            thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)

    def _produce(self) -> None:
        with barnabas.Producer(bootstrap_servers=self._bootstrap) as producer:
            while not self._over.is_set():
                value = b"%d" % len(self.sent)
                producer.send(self._topic, value, key=value).result(timeout=PATIENCE_S)
                self.sent.append(value)

    def _consume(self) -> None:
        with barnabas.Consumer(
            self._topic, bootstrap_servers=self._bootstrap, group_id="steady", auto_offset_reset="earliest"
        ) as consumer:
            last = time.monotonic()
            while not self._all_sent.is_set() or len(self.received) < len(self.sent):
                records = consumer.poll(0.2)
                self.received.extend(record.value for record in records)
                consumer.commit()
                last = time.monotonic() if records or not self._all_sent.is_set() else last
                assert time.monotonic() < last + PATIENCE_S, "the last records do not come"


@contextmanager
def steady_clients(bootstrap: str, topic: str) -> Iterator[SteadyClients]:
    """Yields clients at work. In the end nothing was refused, lost or seen twice."""
    clients = SteadyClients(bootstrap, topic)
    clients.start()
    try:
        yield clients
    finally:
        clients.finish()
    assert not clients.errors
    assert clients.sent
    assert sorted(clients.received, key=int) == clients.sent
