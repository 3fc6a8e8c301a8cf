"""The steps of the protocol (`two_phase`), taken at real brokers."""

import logging
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from barnabas.spark.sink.decision import NOBODY, Decision, Transaction, notes_of, place_of, read_decision
from barnabas.spark.sink.two_phase import (
    Decide,
    End,
    Ended,
    Glance,
    ListOpen,
    Lost,
    ReadDecision,
    Step,
    StillOpen,
    Superseded,
    TakeOver,
    driver_id,
    end_all,
    group_of,
)

__all__ = ["Keeping", "SinkCluster", "end_query", "keeping", "open_transactions"]

_log = logging.getLogger("barnabas.spark")

T = TypeVar("T")

_OVER: Final = (ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTxnState)
"""What coordinators answer about a transaction that has ended otherwise."""
_AT_ONCE_MAX: Final = 16
_PATIENCE_S: Final = 600.0
_MAX_TIMEOUT_MS: Final = 900_000
"""transaction.max.timeout.ms, as brokers have it by default."""
_RETENTION_MINUTES: Final = 7 * 24 * 60
"""offsets.retention.minutes, as brokers have it by default."""
_OWN_TIMEOUT_MS: Final = 60_000
_BACKOFF_MS: Final = "20"
"""Also how long metadata stay new enough: a batch asks for them again, and should not wait for it."""
_PROBE: Final = "barnabas-spark-sink-probe"


class Keeping(NamedTuple):
    """How long brokers keep a transaction that a task has left open: for ever, or for this long."""

    two_phase: bool
    timeout_ms: int

    def settings(self) -> dict[str, str]:
        """For a task's producer."""
        if self.two_phase:
            return {"transaction.two.phase.commit.enable": "true"}
        return {"transaction.timeout.ms": str(self.timeout_ms)}


def keeping(client: Mapping[str, str]) -> Keeping:
    """The best that the brokers allow; a warning tells what is missing."""
    if "transaction.timeout.ms" in client:
        return Keeping(False, int(client["transaction.timeout.ms"]))
    probe = {**client, "transactional.id": _PROBE, "transaction.two.phase.commit.enable": "true"}
    try:
        with Producer(probe) as producer:
            producer.init_transactions()
        return Keeping(True, 0)
    except (TransactionalIdAuthorizationFailed, UnsupportedVersion):
        timeout_ms = _longest_timeout_ms(client)
        _log.warning(
            "the brokers end open transactions after %d s (transaction.max.timeout.ms): if a query is away for longer"
            " between deciding about a batch and ending its transactions, rows of the batch are lost, and the query"
            " says so when it goes on. With transaction.two.phase.commit.enable=true on the brokers nothing is lost",
            timeout_ms // 1000,
        )
        return Keeping(False, timeout_ms)


def _longest_timeout_ms(client: Mapping[str, str]) -> int:
    with _admin(client) as admin:
        return _least(admin, "transaction.max.timeout.ms", _MAX_TIMEOUT_MS)


def _least(admin: Admin, name: str, usual: int) -> int:
    """Of a setting, among the brokers'; `usual` where they do not tell."""
    try:
        brokers = [("broker", str(node_id)) for node_id in admin.describe_cluster().brokers]
        found = admin.describe_configs(brokers, keys=[name]).values()
        return min(int(entries[name].value or usual) for entries in found if name in entries)
    except (BarnabasError, ValueError) as error:
        _log.warning("%s cannot be asked for (%s): %d is used", name, error, usual)
        return usual


def _admin(client: Mapping[str, str]) -> Admin:
    known = AdminSettings.definitions
    settings = {name: value for name, value in client.items() if name in known}
    return Admin({"client.id": "barnabas-spark-sink", "retry.backoff.ms": _BACKOFF_MS, **settings})


def open_transactions(admin: Admin, writer: str, known: frozenset[str] = frozenset()) -> list[Transaction]:
    """Those of the writer's tasks, but for `known`."""
    return [
        Transaction(found.transactional_id, found.producer_id, found.producer_epoch)
        for found in _open_ones(admin, writer, known)
    ]


def _open_ones(admin: Admin, writer: str, known: frozenset[str] = frozenset()) -> list[TransactionDescription]:
    prefix, me = f"{writer}/", driver_id(writer)
    try:
        listed = admin.list_transactions(states=["Ongoing"], pattern=re.escape(prefix) + ".*")
    except ItemsFailed as error:
        if not any(isinstance(each, UnsupportedVersion) for each in error.failed.values()):
            raise
        listed = admin.list_transactions(states=["Ongoing"])
    ids = [
        found.transactional_id
        for found in listed
        if found.transactional_id.startswith(prefix) and found.transactional_id not in {*known, me}
    ]
    if not ids:
        return []
    return [found for found in admin.describe_transactions(ids).values() if found.state == "Ongoing"]


class SinkCluster:
    """A writer's driver at its brokers. Close it."""

    def __init__(self, client: Mapping[str, str], writer: str, topic: str | None) -> None:
        """`client` as a task's producer has it. `topic` is where decisions are noted; if None, at the topic of the last
        one, or of `note_at`."""
        self.writer = writer
        self.note_at = topic
        self._anywhere = topic is None
        self._latest: Decision | None = None
        self._noted_at = ""
        self.admin = _admin(client)
        self._settings = {"client.id": "barnabas-spark-sink", **client, "transactional.id": driver_id(writer)}
        # a driver's own transaction is short: nobody is to wait for long behind one that was killed in it
        self._settings.pop("transaction.two.phase.commit.enable", None)
        if "transaction.timeout.ms" in client:
            self._settings["transaction.timeout.ms"] = str(min(int(client["transaction.timeout.ms"]), _OWN_TIMEOUT_MS))
        self._producer: Producer | None = None
        self._driver_is: PreparedTransaction | None = None
        self._pool = ThreadPoolExecutor(_AT_ONCE_MAX, thread_name_prefix="barnabas-sink")

    def close(self) -> None:
        self._pool.shutdown()
        self.admin.close()
        if self._producer is not None:
            self._producer.close(0)

    def run(self, steps: Generator[Step, Any, T]) -> T:
        """All steps to the end. Raises what they raise."""
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as ended:
                result: T = ended.value
                return result
            answer = self.take(step)

    def take(self, step: Step) -> Any:
        match step:
            case Glance():
                return self.decision(final=False)
            case TakeOver():
                self.take_over()
            case ReadDecision():
                return self.decision()
            case ListOpen(known):
                return open_transactions(self.admin, self.writer, known)
            case StillOpen(transactions):
                return self._still_open(transactions)
            case Decide(decision):
                self._decide(decision)
            case End(commits, aborts):
                self._end(commits, aborts)
        return None

    def take_over(self, continuing: PreparedTransaction | None = None) -> PreparedTransaction:
        """Who the driver is now. `continuing`: who it was when the write began; Superseded if another came since."""
        try:
            return self._take_over(continuing)
        except InvalidTransactionTimeout:
            longest = _least(self.admin, "transaction.max.timeout.ms", _MAX_TIMEOUT_MS)
            self._settings["transaction.timeout.ms"] = str(min(longest, _OWN_TIMEOUT_MS))
            return self._take_over(continuing)

    def _take_over(self, continuing: PreparedTransaction | None) -> PreparedTransaction:
        if self._producer is not None:
            self._producer.close(0)
        self._producer = Producer(self._settings)
        try:
            self._producer.init_transactions(continuing=continuing)
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise self._superseded() from error
        found = self._producer.metrics()
        self._driver_is = PreparedTransaction(found["producer_id"], found["producer_epoch"])
        return self._driver_is

    def finds_place(self, topics: Sequence[str]) -> bool:
        """Whether there is a topic to note a decision at: that of the writer, one that has got rows, or that of the
        last decision. Without any there is nothing to decide."""
        if self.note_at is None and topics:
            self.note_at = topics[0]
        if self.note_at is None:
            self.decision()
        return self.note_at is not None

    def decision(self, *, final: bool = True) -> Decision | None:
        """The latest; unless it is `final`, one may be under way."""
        offsets = self.admin.list_group_offsets(group_of(self.writer), require_stable=final)
        if offsets:
            self._noted_at = place_of(offsets)
            if self._anywhere:
                self.note_at = self._noted_at
        self._latest = read_decision(offsets, f"{self.writer}/")
        return self._latest

    def decisions_kept_ms(self) -> int:
        """How long brokers keep offsets of a group that has no members."""
        return 60_000 * _least(self.admin, "offsets.retention.minutes", _RETENTION_MINUTES)

    def _still_open(self, transactions: Sequence[Transaction]) -> list[Transaction]:
        if not transactions:
            return []
        try:
            found = self.admin.describe_transactions([each.transactional_id for each in transactions])
        except ItemsFailed as error:
            if not error.only(TransactionalIdNotFound):
                raise
            found = error.succeeded
        there = {
            Transaction(name, each.producer_id, each.producer_epoch)
            for name, each in found.items()
            if each.state == "Ongoing"
        }
        return [each for each in transactions if each in there]

    def _decide(self, decision: Decision) -> None:
        assert self._producer is not None, "a driver takes over first"
        topic = self._place_of(decision)
        if topic is None:
            self.take_over(self._driver_is)  # as writing it would, it fails if another driver has come since
            return
        count = len(self._producer.partitions_for(topic))
        notes = notes_of(decision, f"{self.writer}/{decision.run}/", topic, count)
        try:
            with self._producer.transaction():
                self._producer.send_offsets_to_transaction(notes, group_of(self.writer))
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise self._superseded() from error

    def _place_of(self, decision: Decision) -> str | None:
        """None: there is no topic for it any more, and nobody who would write there."""
        again = self._latest is not None and self._latest.batch == decision.batch
        # noted at two topics it could not be read, and option topic may be another now
        place = self._noted_at if again else self.note_at
        if NOBODY not in decision.drivers[-1:]:
            assert place is not None, "a batch with rows has a topic"
            return place
        there = {view.name for view in self.admin.list_topics()}
        places = [place]
        if not again:
            places += [
                partition.topic for found in _open_ones(self.admin, self.writer) for partition in found.partitions
            ]
        return next((topic for topic in places if topic in there), None)

    def _superseded(self) -> Superseded:
        return Superseded(
            f"writer {self.writer} was taken over by another driver: two queries have the same checkpoint, or the same"
            " txnAppId; let one of them run"
        )

    # --- ends -------------------------------------------------------------------------------------------------------

    def _end(self, commits: Sequence[Transaction], aborts: Sequence[Transaction]) -> None:
        """All at once. Raises Lost when one that is decided has ended otherwise."""
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
            self._until_answered(transaction, committed=True)
        except _OVER as error:
            raise Lost(
                f"transaction {transaction.transactional_id} (producer {transaction.producer_id}) is decided, but"
                f" cannot be committed: {error}. If it was open for longer than the brokers allow"
                " (transaction.max.timeout.ms), or somebody has aborted it, its rows are lost: write them again from"
                " the source. If another driver has finished the batch, start this one again"
            ) from error

    def _abort(self, transaction: Transaction) -> None:
        try:
            self._until_answered(transaction, committed=False)
        except _OVER:
            return  # it has ended
        _log.info("aborted %s, which a task that does not count had left open", transaction.transactional_id)

    def _until_answered(self, transaction: Transaction, *, committed: bool) -> None:
        """A coordinator that is away comes back; what is decided can wait."""
        give_up_at = time.monotonic() + _PATIENCE_S
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
                _log.warning("%s; the batch is decided, this goes on", error)


def end_query(settings: Mapping[str, str] | str, writer: str) -> Ended:
    """Finish for a query that will not come again: commit what its last batch has decided, abort all else that it has
    left open. `settings` are the client's, or where the brokers are; `writer` is the query's id, or `txnAppId`. For
    queries that do not run: one that does is fenced or fails, and what it has not decided yet is aborted.
    """
    client = {"bootstrap.servers": settings} if isinstance(settings, str) else dict(settings)
    cluster = SinkCluster(client, writer, None)
    try:
        return cluster.run(end_all())
    finally:
        cluster.close()
