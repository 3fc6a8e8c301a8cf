"""Transactional clients of a cluster: feeders write transactions, some of which they abort; copiers read, process and
write exactly once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import Any

import barnabas
from barnabas.errors import BarnabasError, OperationTimedOut, TransactionFailed
from barnabas.types import TopicPartition
from cluster.clients import BACKOFF, Client, group_consumer
from cluster.history import History, Outcome, Stream, Transaction, encode

__all__ = ["TRANSACTION_TIMEOUT_MS", "Copier", "Feeder"]

ABORT_SHARE = 0.15
CALL_TIMEOUT_S = 5.0
TRANSACTION_TIMEOUT_MS = 7_200_000
"""Longer than a round, and than brokers' clocks jump: what is left open must be ended by its producer."""


class _Transactional(Client):
    """A client that has a transactional producer and calls it until each call has come to its end."""

    _producer: barnabas.Producer

    def _open(self, bootstrap: str) -> None:
        self._producer = barnabas.Producer(
            bootstrap_servers=bootstrap,
            client_id=self.name,
            transactional_id=self.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            delivery_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=1,
            **BACKOFF,
        )
        self._patiently(self._producer.init_transactions)

    @staticmethod
    def _patiently(call: Any, *arguments: Any) -> None:
        """Goes on waiting for a call that has timed out, as the producer allows."""
        while True:
            try:
                call(*arguments, timeout=CALL_TIMEOUT_S)
                return
            except OperationTimedOut:
                continue


class Feeder(_Transactional):
    """A producer whose every record is in a transaction."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        partitions: Iterable[TopicPartition],
        history: History,
        rng: random.Random,
    ) -> None:
        super().__init__(name, history)
        self._bootstrap, self._rng = bootstrap, rng
        self._streams = [Stream(name, topic_partition) for topic_partition in partitions]

    def work(self) -> None:
        self._open(self._bootstrap)
        number = 0
        while not self.stopping.is_set():
            self._transact(f"{self.name}/{number}")
            number += 1
            self.stopping.wait(self._rng.uniform(0.0, 0.1))
        self._producer.close(0)

    def _transact(self, name: str) -> None:
        transaction = self.history.transactions[name] = Transaction(Outcome.UNKNOWN, [])
        self._producer.begin_transaction()
        try:
            for _ in range(self._rng.choice((1, 3, 10, 30))):
                stream = self._rng.choice(self._streams)
                sequence = self.history.sent[stream]
                self.history.sent[stream] = sequence + 1
                transaction.records.append((stream, sequence))
                topic, partition = stream.topic_partition
                value = encode(self.name, sequence, 80)
                self._producer.send(topic, value, key=self.name.encode(), partition=partition)
            if self._rng.random() >= ABORT_SHARE:
                self._patiently(self._producer.commit_transaction)
                transaction.outcome = Outcome.COMMITTED
                return
            if self._rng.random() < 0.5:
                self._patiently(self._producer.flush)
        except TransactionFailed as error:
            self.note(error)
        self._patiently(self._producer.abort_transaction)
        transaction.outcome = Outcome.ABORTED


class Copier(_Transactional):
    """A member of a group that copies records into the same partition of another topic, with its offsets, in
    transactions. A transaction that fails is aborted and its records are read again."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        source: str,
        copy: str,
        group: str,
        history: History,
        rng: random.Random,
        *,
        session_timeout_ms: int,
    ) -> None:
        super().__init__(name, history)
        self._bootstrap, self._source, self._copy, self._group = bootstrap, source, copy, group
        self._rng, self._session_timeout_ms = rng, session_timeout_ms
        self.copied = self.aborted = 0
        self.last_copied_s = time.monotonic()

    def work(self) -> None:
        self._open(self._bootstrap)
        with group_consumer(
            self.name,
            self._bootstrap,
            self._source,
            self._group,
            isolation_level="read_committed",
            session_timeout_ms=self._session_timeout_ms,
        ) as consumer:
            while not self.stopping.is_set():
                records = consumer.poll(0.1, max_records=self._rng.choice((5, 20, 100)))
                if records:
                    self._copy_all(consumer, records)
        self._producer.close(0)

    def _copy_all(self, consumer: Any, records: list[Any]) -> None:
        self._producer.begin_transaction()
        offsets = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
        try:
            for record in records:
                self._producer.send(self._copy, record.value, key=record.key, partition=record.partition)
            if self._rng.random() >= ABORT_SHARE:
                metadata = consumer.group_metadata()
                self._patiently(self._producer.send_offsets_to_transaction, offsets, metadata)
                self._patiently(self._producer.commit_transaction)
                self.copied += len(records)
                self.last_copied_s = time.monotonic()
                return
        except BarnabasError as error:
            self.note(error)  # if it cannot be mended, the abort raises it again
        self._patiently(self._producer.abort_transaction)
        self.aborted += 1
        self._rewind(consumer, records)

    @staticmethod
    def _rewind(consumer: Any, records: Iterable[Any]) -> None:
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for topic_partition, offset in first.items():
            if topic_partition in consumer.assignment():  # otherwise its next owner reads them
                consumer.seek(topic_partition, offset)
