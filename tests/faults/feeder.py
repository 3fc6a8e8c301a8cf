"""A source of records in transactions, some of them aborted."""

from __future__ import annotations

import random
import threading

from confluent_kafka import KafkaException, Producer

from workload import client_settings, patiently

RECORDS_PER_ROUND = 600
ABORT_SHARE = 0.1
READY_TIMEOUT_S = 60


class Feeder:
    """A transactional producer that knows of each of its transactions whether it was committed."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        self.committed: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        self.errors: list[str] = []
        self._topic = topic
        self._serial = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._producer = Producer({**client_settings(address), "transactional.id": "feeder", "linger.ms": 1})

    def prepare(self) -> None:
        self._producer.init_transactions(READY_TIMEOUT_S)

    def start(self, rng: random.Random) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._feed, args=(rng,), name="feeder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns once the outcome of the last transaction is known."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _feed(self, rng: random.Random) -> None:
        written = 0
        while written < RECORDS_PER_ROUND and not self._stop.is_set():
            size = rng.choice((1, 5, 20, 60))
            try:
                self._transaction(rng, size)
            except KafkaException as error:
                self.errors.append(f"the feeder's transaction failed: {error}")
                return
            written += size
            self._stop.wait(rng.uniform(0.0, 0.02))

    def _transaction(self, rng: random.Random, size: int) -> None:
        self._producer.begin_transaction()
        batch: list[tuple[int, bytes]] = []
        for _ in range(size):
            partition = rng.randrange(len(self.committed))
            batch.append((partition, b"%d:%d" % (partition, self._serial)))
            self._serial += 1
            self._producer.produce(self._topic, batch[-1][1], key=b"%d" % partition, partition=partition)
        if rng.random() < ABORT_SHARE:
            self._producer.flush()
            patiently(self._producer.abort_transaction)
            return
        patiently(self._producer.commit_transaction)
        for partition, value in batch:
            self.committed[partition].append(value)
