"""Executes the steps of the protocol (`two_phase`) at the brokers."""

import logging
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.client.admin.front import Admin
from barnabas.client.admin.transactions import TransactionDescription
from barnabas.client.errors import ItemsFailed, OperationTimedOut
from barnabas.client.producer.front import Producer
from barnabas.client.producer.transactions.transaction_manager import PreparedTransaction
from barnabas.client.settings import AdminSettings
from barnabas.errors import (
    BarnabasError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    UnsupportedVersion,
)
from barnabas.spark.sink.decision import (
    NO_RUN,
    Decision,
    Transaction,
    decode_decision,
    encode_decision,
    topic_of_decision,
)
from barnabas.spark.sink.two_phase import (
    EndedTransactions,
    EndTransactions,
    FilterOpenTransactions,
    ListOpenTransactions,
    Lost,
    PeekDecision,
    ReadDecision,
    Step,
    Superseded,
    TakeOver,
    WriteDecision,
    driver_id,
    end_all_transactions,
    group_of,
)

__all__ = ["SinkCluster", "TransactionTimeout", "end_query", "find_transaction_timeout", "open_transactions"]

_log = logging.getLogger("barnabas.spark")

T = TypeVar("T")

_ENDED_OTHERWISE: Final = (ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTxnState)
"""The errors of a transaction coordinator for a transaction that has ended in another way."""
_THREADS: Final = 16
_END_TIMEOUT_S: Final = 600.0
_MAX_TIMEOUT_MS: Final = 900_000
"""The brokers' default of transaction.max.timeout.ms."""
_RETENTION_MINUTES: Final = 7 * 24 * 60
"""The brokers' default of offsets.retention.minutes."""
_DRIVER_TIMEOUT_MS: Final = 60_000
_BACKOFF_MS: Final = "20"
"""The backoff is also the least age at which metadata are updated, and a batch should not wait for that."""
_PROBE: Final = "barnabas-spark-sink-probe"


class TransactionTimeout(NamedTuple):
    """The time after which brokers abort a task's open transaction; none with two-phase commit."""

    two_phase: bool
    timeout_ms: int

    def settings(self) -> dict[str, str]:
        """Returns the settings of a task's producer."""
        if self.two_phase:
            return {"transaction.two.phase.commit.enable": "true"}
        return {"transaction.timeout.ms": str(self.timeout_ms)}


def find_transaction_timeout(client: Mapping[str, str]) -> TransactionTimeout:
    """Returns two-phase commit if the brokers allow it, otherwise the longest timeout, with a warning in the log."""
    if "transaction.timeout.ms" in client:
        return TransactionTimeout(False, int(client["transaction.timeout.ms"]))
    probe = {**client, "transactional.id": _PROBE, "transaction.two.phase.commit.enable": "true"}
    try:
        with Producer(probe) as producer:
            producer.init_transactions()
        return TransactionTimeout(True, 0)
    except (TransactionalIdAuthorizationFailed, UnsupportedVersion):
        with _admin(client) as admin:
            timeout_ms = _smallest_setting(admin, "transaction.max.timeout.ms", _MAX_TIMEOUT_MS)
        _log.warning(
            "the brokers end open transactions after %d s (transaction.max.timeout.ms): if a query stops for longer"
            " between deciding about a batch and ending its transactions, rows of the batch are lost, and the query"
            " fails with the reason when it goes on. With transaction.two.phase.commit.enable=true on the brokers"
            " nothing is lost",
            timeout_ms // 1000,
        )
        return TransactionTimeout(False, timeout_ms)


def _smallest_setting(admin: Admin, name: str, default: int) -> int:
    """Returns the smallest value of a setting among the brokers, or the default if they do not answer."""
    try:
        brokers = [("broker", str(node_id)) for node_id in admin.describe_cluster().brokers]
        configs = admin.describe_configs(brokers, keys=[name]).values()
        return min(int(entries[name].value or default) for entries in configs if name in entries)
    except (BarnabasError, ValueError) as error:
        _log.warning("%s cannot be read from the brokers (%s): %d is used", name, error, default)
        return default


def _admin(client: Mapping[str, str]) -> Admin:
    known = AdminSettings.definitions
    settings = {name: value for name, value in client.items() if name in known}
    return Admin({"client.id": "barnabas-spark-sink", "retry.backoff.ms": _BACKOFF_MS, **settings})


def open_transactions(admin: Admin, writer: str, known: frozenset[str] = frozenset()) -> list[Transaction]:
    """Returns the open transactions of the writer's tasks, except those with `known` ids."""
    return [
        Transaction(each.transactional_id, each.producer_id, each.producer_epoch)
        for each in _describe_open_transactions(admin, writer, known)
    ]


def _describe_open_transactions(
    admin: Admin, writer: str, known: frozenset[str] = frozenset()
) -> list[TransactionDescription]:
    prefix, excluded = f"{writer}/", {*known, driver_id(writer)}
    try:
        listed = admin.list_transactions(states=["Ongoing"], pattern=re.escape(prefix) + ".*")
    except ItemsFailed as error:
        if not any(isinstance(each, UnsupportedVersion) for each in error.failed.values()):
            raise
        listed = admin.list_transactions(states=["Ongoing"])
    ids = [
        each.transactional_id
        for each in listed
        if each.transactional_id.startswith(prefix) and each.transactional_id not in excluded
    ]
    if not ids:
        return []
    return [each for each in admin.describe_transactions(ids).values() if each.state == "Ongoing"]


class SinkCluster:
    """Executes a driver's steps with a producer and an admin client, until it is closed."""

    def __init__(self, client: Mapping[str, str], writer: str, topic: str | None) -> None:
        """Takes the settings of a task's producer. Decisions are committed at partitions of `topic`; if it is None, at
        the topic of the last decision, or at one of the batch's topics (`choose_decision_topic`)."""
        self.writer = writer
        self.decision_topic = topic
        self._topic_may_change = topic is None
        self._latest: Decision | None = None
        self._latest_topic = ""
        self.admin = _admin(client)
        self._settings = {"client.id": "barnabas-spark-sink", **client, "transactional.id": driver_id(writer)}
        # a driver's own transaction is short; when the driver is killed in it, others must not wait for long
        self._settings.pop("transaction.two.phase.commit.enable", None)
        if "transaction.timeout.ms" in client:
            self._settings["transaction.timeout.ms"] = str(
                min(int(client["transaction.timeout.ms"]), _DRIVER_TIMEOUT_MS)
            )
        self._producer: Producer | None = None
        self._driver_epoch: PreparedTransaction | None = None
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="barnabas-sink")

    def close(self) -> None:
        self._pool.shutdown()
        self.admin.close()
        if self._producer is not None:
            self._producer.close(0)

    def run(self, steps: Generator[Step, Any, T]) -> T:
        """Executes all steps and returns their result. Raises their errors."""
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as ended:
                result: T = ended.value
                return result
            answer = self.execute(step)

    def execute(self, step: Step) -> Any:
        match step:
            case PeekDecision():
                return self.decision(stable=False)
            case TakeOver():
                self.take_over()
            case ReadDecision():
                return self.decision()
            case ListOpenTransactions(known):
                return open_transactions(self.admin, self.writer, known)
            case FilterOpenTransactions(transactions):
                return self._filter_open(transactions)
            case WriteDecision(decision):
                self._decide(decision)
            case EndTransactions(commits, aborts):
                self._end(commits, aborts)
        return None

    def take_over(self, continuing: PreparedTransaction | None = None) -> PreparedTransaction:
        """Returns the driver's new producer epoch. If the epoch to continue is not the last one, raises Superseded."""
        try:
            return self._take_over(continuing)
        except InvalidTransactionTimeout:
            timeout_ms = _smallest_setting(self.admin, "transaction.max.timeout.ms", _MAX_TIMEOUT_MS)
            self._settings["transaction.timeout.ms"] = str(min(timeout_ms, _DRIVER_TIMEOUT_MS))
            return self._take_over(continuing)

    def _take_over(self, continuing: PreparedTransaction | None) -> PreparedTransaction:
        if self._producer is not None:
            self._producer.close(0)
        self._producer = Producer(self._settings)
        try:
            self._producer.init_transactions(continuing=continuing)
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise self._superseded() from error
        metrics = self._producer.metrics()
        self._driver_epoch = PreparedTransaction(metrics["producer_id"], metrics["producer_epoch"])
        return self._driver_epoch

    def choose_decision_topic(self, topics: Sequence[str]) -> bool:
        """Chooses the topic at which the decision is committed: the writer's, one with rows of the batch, or that of
        the last decision. Returns whether there is one; without a topic there is nothing to decide."""
        if self.decision_topic is None and topics:
            self.decision_topic = topics[0]
        if self.decision_topic is None:
            self.decision()
        return self.decision_topic is not None

    def decision(self, *, stable: bool = True) -> Decision | None:
        """Returns the latest decision; unless it is `stable`, a newer one may be in an open transaction."""
        offsets = self.admin.list_group_offsets(group_of(self.writer), require_stable=stable)
        if offsets:
            self._latest_topic = topic_of_decision(offsets)
            if self._topic_may_change:
                self.decision_topic = self._latest_topic
        self._latest = decode_decision(offsets, f"{self.writer}/")
        return self._latest

    def offsets_retention_ms(self) -> int:
        """Returns the time for which brokers keep the offsets of a group without members."""
        return 60_000 * _smallest_setting(self.admin, "offsets.retention.minutes", _RETENTION_MINUTES)

    def _filter_open(self, transactions: Sequence[Transaction]) -> list[Transaction]:
        if not transactions:
            return []
        try:
            descriptions = self.admin.describe_transactions([each.transactional_id for each in transactions])
        except ItemsFailed as error:
            if not error.only(TransactionalIdNotFound):
                raise
            descriptions = error.succeeded
        still_open = {
            Transaction(name, each.producer_id, each.producer_epoch)
            for name, each in descriptions.items()
            if each.state == "Ongoing"
        }
        return [each for each in transactions if each in still_open]

    def _decide(self, decision: Decision) -> None:
        assert self._producer is not None, "a driver takes over before it decides"
        topic = self._topic_for(decision)
        if topic is None:
            self.take_over(self._driver_epoch)  # raises Superseded if another driver has taken over, as writing would
            return
        count = len(self._producer.partitions_for(topic))
        offsets = encode_decision(decision, f"{self.writer}/{decision.run}/", topic, count)
        try:
            with self._producer.transaction():
                self._producer.send_offsets_to_transaction(offsets, group_of(self.writer))
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise self._superseded() from error

    def _topic_for(self, decision: Decision) -> str | None:
        """Returns the topic at which a decision is committed; None for one of `NO_RUN` whose topics were deleted."""
        is_repeat = self._latest is not None and self._latest.batch == decision.batch
        # a repeat stays at its topic, although option topic may have changed: parts at two topics could not be read
        topic = self._latest_topic if is_repeat else self.decision_topic
        if NO_RUN not in decision.drivers[-1:]:
            assert topic is not None, "a batch with rows has a topic"
            return topic
        existing = {view.name for view in self.admin.list_topics()}
        candidates = [topic]
        if not is_repeat:
            transactions = _describe_open_transactions(self.admin, self.writer)
            candidates += [partition.topic for each in transactions for partition in each.partitions]
        return next((name for name in candidates if name in existing), None)

    def _superseded(self) -> Superseded:
        return Superseded(
            f"writer {self.writer} was taken over by another driver: two queries have the same checkpoint, or the same"
            " txnAppId; let one of them run"
        )

    # --- ends of transactions ---------------------------------------------------------------------------------------

    def _end(self, commits: Sequence[Transaction], aborts: Sequence[Transaction]) -> None:
        """Ends the transactions concurrently. Raises Lost if a decided one was aborted."""
        jobs: list[Callable[[], None]] = [
            *(partial(self._commit, each) for each in commits),
            *(partial(self._abort, each) for each in aborts),
        ]
        if len(jobs) == 1:
            jobs[0]()
            return
        for future in [self._pool.submit(job) for job in jobs]:
            future.result()

    def _commit(self, transaction: Transaction) -> None:
        try:
            self._end_transaction(transaction, committed=True)
        except _ENDED_OTHERWISE as error:
            raise Lost(
                f"transaction {transaction.transactional_id} (producer {transaction.producer_id}) is decided, but"
                f" cannot be committed: {error}. If it was open for longer than the brokers allow"
                " (transaction.max.timeout.ms), or if it was aborted by hand, its rows are lost: write them again from"
                " the source. If another driver has finished the batch, start this one again"
            ) from error

    def _abort(self, transaction: Transaction) -> None:
        try:
            self._end_transaction(transaction, committed=False)
        except _ENDED_OTHERWISE:
            return
        _log.info("aborted transaction %s, which is not part of a committed batch", transaction.transactional_id)

    def _end_transaction(self, transaction: Transaction, *, committed: bool) -> None:
        """Retries while the transaction coordinator does not answer: the decision stands in the meantime."""
        give_up_at = time.monotonic() + _END_TIMEOUT_S
        while True:
            try:
                self.admin.end_transaction(
                    transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                    committed=committed,
                )
                return
            except OperationTimedOut as error:
                if time.monotonic() > give_up_at:
                    raise
                _log.warning("%s; the batch is decided, so its transactions are ended again", error)


def end_query(settings: Mapping[str, str] | str, writer: str) -> EndedTransactions:
    """Ends the open transactions of a query that will not run again: commits those that its last batch has decided to
    commit, and aborts the others. `settings` are the client's settings, or the addresses of brokers; `writer` is the
    query's id, or `txnAppId`. A query that still runs is fenced or fails, and its undecided transactions are aborted.
    """
    client = {"bootstrap.servers": settings} if isinstance(settings, str) else dict(settings)
    with closing(SinkCluster(client, writer, None)) as cluster:
        return cluster.run(end_all_transactions())
