"""Producers, zombies, lost answers, restarts, fail-overs and full disks, against what must always hold.

Partitions are modelled as far as transactions go: they take records that the coordinator lets them take, and end
markers. Whatever happens: producer ids and epochs never go back, records of two transactions never mix, a transaction
ends one way in all its partitions, and the way that its producer was told, none is left hanging, and reading the log
anew gives the state that the coordinator has.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas import errors
from barnabas.coordinator.transaction.records import decode_record
from barnabas.coordinator.transaction.transaction_coordinator_shard import InitProducerIdResult
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.coordinator.transaction.transaction_metadata import EPOCH_MAX, IDLE
from barnabas.records.reader import read_records
from barnabas.types import TopicPartition
from coordinator.group_rig import Later, MemoryLog
from coordinator.transaction_rig import MarkerChannel, TransactionRig

PARTITIONS = tuple(TopicPartition("orders", index) for index in range(3))
CLIENTS = (("t", 2), ("t", 2), ("u", 0), ("u", 0))
"""Transactional id and transaction.version of each client."""
TIMEOUT_MS = 30_000
RETRIABLE = (
    errors.ConcurrentTransactions,
    errors.CoordinatorNotAvailable,
    errors.NotCoordinator,
    errors.CoordinatorLoadInProgress,
)


class Transaction:
    """As its producer sees it."""

    def __init__(self) -> None:
        self.outcomes: dict[TopicPartition, bool] = {}
        self.written: set[TopicPartition] = set()
        self.told: bool | None = None


class Partition:
    """Producers' epochs and open transactions."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.producers: dict[int, tuple[int, Transaction | None]] = {}

    def append(self, producer: tuple[int, int], transaction: Transaction) -> None:
        epoch, present = self.producers.get(producer[0], (-1, None))
        if producer[1] < epoch:
            return
        assert present is None or present is transaction, "records of two transactions mix"
        assert self.name not in transaction.outcomes, "a record comes after the end"
        self.producers[producer[0]] = (producer[1], transaction)
        transaction.written.add(self.name)

    def end(self, markers: EndMarkers) -> errors.KafkaError | None:
        epoch, transaction = self.producers.get(markers.producer_id, (-1, None))
        late = markers.producer_epoch < epoch
        if markers.transaction_version >= 2 and transaction is not None:
            late = markers.producer_epoch <= epoch
        if late:
            return errors.InvalidProducerEpoch("late")
        if transaction is not None:
            transaction.outcomes[self.name] = markers.commit
        self.producers[markers.producer_id] = (markers.producer_epoch, None)
        return None


class FillingLog(MemoryLog):
    """Refuses the next `failures` appends."""

    failures = 0

    def append(self, *arguments: Any, **options: Any) -> int:
        if self.failures:
            self.failures -= 1
            raise errors.KafkaStorageError("full")
        return super().append(*arguments, **options)


class Channel(MarkerChannel):
    def __init__(self, partitions: dict[TopicPartition, Partition]) -> None:
        super().__init__()
        self._partitions = partitions

    def _answer(self, markers: EndMarkers, reply: Any) -> None:
        answers: dict[TopicPartition, errors.KafkaError | None] = {}
        for name in markers.partitions:
            queue = self.errors.get(name)
            answers[name] = queue.pop(0) if queue else self._partitions[name].end(markers)
        reply(answers)


class Client:
    """A transactional producer. `phase`: fresh, ready, ending, or waiting for the answer to the last request."""

    def __init__(self, transactional_id: str, version: int) -> None:
        self.transactional_id = transactional_id
        self.version = version
        self.reset()

    def reset(self) -> None:
        self.phase = "fresh"
        self.producer = (-1, -1)
        self.transaction: Transaction | None = None
        self.commit = True
        self.kept = False
        self.expected: tuple[int, int] | None = None
        self.pending: Later | None = None


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.partitions = {name: Partition(name) for name in PARTITIONS}
        self.rig = TransactionRig(two_phase_commit_enable=True, id_expiration_ms=120_000)
        self.log = FillingLog()
        self.rig.log, self.rig.markers = self.log, Channel(self.partitions)
        self.rig.restart()
        self.clients = [Client(*kind) for kind in CLIENTS]
        self.transactions: list[Transaction] = []
        self.handed_out: set[tuple[int, int]] = set()
        self.highest: dict[str, tuple[int, int]] = {}

    # --- what producers do --------------------------------------------------------------------------------------------

    @rule(
        index=st.integers(0, len(CLIENTS) - 1),
        commits=st.lists(st.booleans(), min_size=1, max_size=3),
        last=st.booleans(),
    )
    def a_producer_works(self, index: int, commits: list[bool], last: bool) -> None:
        """Transactions as programs write them."""
        client = self.clients[index]
        for number, commit in enumerate(commits):
            if client.phase == "fresh":
                self._init(client)
                self.rig.settle()
                self.answers_are_taken()
            if last:
                self._use_up_epochs(client.transactional_id)
            self._write(client, PARTITIONS[number % len(PARTITIONS)])
            self._write(client, PARTITIONS[-1])
            self._end(client, commit)
            self.rig.settle()
            self.answers_are_taken()
            metadata = self._durable().get(client.transactional_id)
            if client.phase == "ready" and metadata is not None and metadata.state in IDLE and self.log.replicated:
                assert metadata.client_producer == client.producer

    @rule(index=st.integers(0, len(CLIENTS) - 1), partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def a_producer_begins(self, index: int, partitions: set[TopicPartition]) -> None:
        client = self.clients[index]
        if client.phase == "fresh":
            self._init(client)
        for partition in sorted(partitions):
            self._write(client, partition)

    @rule(index=st.integers(0, len(CLIENTS) - 1), keep=st.booleans())
    def a_producer_comes(self, index: int, keep: bool) -> None:
        client = self.clients[index]
        client.reset()
        self._init(client, keep=keep and client.version == 2)

    @rule(index=st.integers(0, 1), successors=st.integers(1, 3), commit=st.booleans(), last=st.booleans())
    def a_producer_is_lost_with_a_prepared_transaction(
        self, index: int, successors: int, commit: bool, last: bool
    ) -> None:
        first, second = self.clients[index], self.clients[1 - index]
        if first.phase == "fresh":
            self._init(first)
        self._write(first, PARTITIONS[0])
        for _ in range(successors):
            if last and self.rig.shard() is not None:
                self._use_up_epochs(first.transactional_id)
            second.reset()
            self._init(second, keep=True)
        self._write(first, PARTITIONS[1])
        if second.kept:
            self._must_not_write(second)
        self._end(second, commit)

    def _must_not_write(self, client: Client) -> None:
        """A successor ends what it kept, and adds nothing."""
        partitions = self._durable()[client.transactional_id].partitions
        for verify_only in (True, False):
            answer = Later()
            self.rig.transactions.verify_or_add(
                client.transactional_id, *client.producer, [*partitions], verify_only=verify_only, reply=answer
            )
            assert None not in answer.value.values()

    @rule(index=st.integers(0, len(CLIENTS) - 1), commit=st.booleans())
    def a_decision_is_lost(self, index: int, commit: bool) -> None:
        """A leader that knows more than its followers restarts, and dies."""
        client = self.clients[index]
        if client.phase == "fresh":
            self._init(client)
        self._write(client, PARTITIONS[0])
        self._write(client, PARTITIONS[1])
        self.rig.log.replicated = False
        self._end(client, commit)
        client.reset()
        self.rig.markers.errors[PARTITIONS[1]] = [errors.NotLeaderOrFollower("moved")]
        self.rig.restart()
        self.fail_over()

    @rule(index=st.integers(0, len(CLIENTS) - 1))
    def a_producer_goes_on_after_an_error(self, index: int) -> None:
        client = self.clients[index]
        if client.phase in ("ready", "ending") and not client.kept:
            self._init(client, expected=client.producer)

    @rule(index=st.integers(0, len(CLIENTS) - 1), commit=st.booleans())
    def end(self, index: int, commit: bool) -> None:
        client = self.clients[index]
        if client.phase == "ending" and client.pending is None:
            self._send_end(client)
        else:
            self._end(client, commit)

    @rule(index=st.integers(0, len(CLIENTS) - 1), commit=st.booleans())
    def the_answer_is_lost(self, index: int, commit: bool) -> None:
        """The request was served, the client does not know, and will send it again."""
        client = self.clients[index]
        if client.phase == "ready" and client.pending is None:
            client.phase, client.commit = "ending", commit
            self._request_end(client)

    def _init(self, client: Client, *, keep: bool = False, expected: tuple[int, int] | None = None) -> None:
        if client.pending is None:
            client.expected = expected
            client.pending = self.rig.init_later(
                client.transactional_id, TIMEOUT_MS, expected=expected, keep_prepared=keep
            )
            client.phase = "initialising"
            self.answers_are_taken()

    def _write(self, client: Client, partition: TopicPartition) -> None:
        if client.phase != "ready" or client.pending is not None or client.kept:
            return
        if client.transaction is None:
            client.transaction = Transaction()
            self.transactions.append(client.transaction)
        transaction, producer = client.transaction, client.producer

        def leader_asked(response: dict[TopicPartition, errors.KafkaError | None]) -> None:
            if response[partition] is None:
                self.partitions[partition].append(producer, transaction)

        def ask(verify_only: bool) -> None:
            self.rig.transactions.verify_or_add(
                client.transactional_id, *producer, [partition], verify_only=verify_only, reply=leader_asked
            )

        def added(error: errors.KafkaError | None) -> None:
            if error is None:
                ask(verify_only=True)

        if client.version == 2:
            ask(verify_only=False)
        else:
            self.rig.transactions.add_partitions(
                client.transactional_id, producer, [partition], transaction_version=0, reply=added
            )

    def _end(self, client: Client, commit: bool) -> None:
        if client.phase == "ready" and client.pending is None:
            client.commit = commit
            client.phase = "ending"
            self._send_end(client)

    def _send_end(self, client: Client) -> None:
        client.pending = self._request_end(client)
        self.answers_are_taken()

    def _request_end(self, client: Client) -> Later:
        return self.rig.end_later(
            client.producer,
            client.commit,
            transactional_id=client.transactional_id,
            transaction_version=client.version,
        )

    def answers_are_taken(self) -> None:
        for client in self.clients:
            pending = client.pending
            if pending is not None and pending.done:
                client.pending = None
                if client.phase == "initialising":
                    self._initialised(client, pending.value)
                else:
                    self._ended(client, pending.value)

    def _initialised(self, client: Client, answer: Any) -> None:
        expected = client.expected
        client.reset()
        if not isinstance(answer, InitProducerIdResult):
            return
        client.phase = "ready"
        client.producer = (answer.producer_id, answer.producer_epoch)
        if expected is None:
            assert client.producer not in self.handed_out, "two producers are one"
        self.handed_out.add(client.producer)
        if answer.ongoing_producer_id >= 0:
            # It may only end what its predecessor began.
            client.kept = True
            for partition in self.partitions.values():
                client.transaction = (
                    partition.producers.get(answer.ongoing_producer_id, (0, None))[1] or client.transaction
                )

    def _ended(self, client: Client, answer: Any) -> None:
        if isinstance(answer, RETRIABLE):
            return
        if isinstance(answer, errors.KafkaError):
            was_aborted = client.transaction is not None and False in client.transaction.outcomes.values()
            assert not (was_aborted and isinstance(answer, errors.InvalidTxnState)), "a commit that came too late"
            client.reset()
            return
        if client.transaction is not None:
            assert client.transaction.told in (None, client.commit)
            client.transaction.told = client.commit
        if client.version == 2:
            client.producer = answer
        client.transaction = None
        client.kept = False
        client.phase = "ready"

    # --- what happens to the coordinator ------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.2, 5.0, 31.0, 130.0]))
    def time_passes(self, seconds: float) -> None:
        self.rig.advance(seconds)
        self.answers_are_taken()

    @rule()
    def markers_are_held_back(self) -> None:
        self.rig.markers.held = True

    @rule(partition=st.sampled_from(PARTITIONS), times=st.integers(1, 3))
    def a_partition_has_no_leader(self, partition: TopicPartition, times: int) -> None:
        self.rig.markers.errors[partition] = [errors.NotLeaderOrFollower("moved")] * times

    @rule(times=st.integers(1, 3))
    def the_disk_is_full(self, times: int) -> None:
        self.log.failures = times

    @rule()
    def replicas_are_slow(self) -> None:
        self.rig.log.replicated = False

    @rule()
    def all_is_well(self) -> None:
        self.log.failures = 0
        self.rig.log.replicated = True
        self.rig.transactions.on_high_watermark(0, self.rig.log.commit(0))
        self.rig.markers.release()
        self.rig.settle()
        self.answers_are_taken()

    @rule()
    def all_is_well_again(self) -> None:
        """Twice as likely: most of the time nothing is wrong."""
        self.all_is_well()

    @rule(replicated=st.booleans())
    def restart(self, replicated: bool) -> None:
        """All that was written is still there, replicated or not yet."""
        if replicated:
            self.rig.log.replicated = True
            self.rig.log.commit(0)
        self.rig.restart()
        self.answers_are_taken()

    @rule()
    def fail_over(self) -> None:
        """Another replica leads on: what was not replicated is lost."""
        self.rig.log.truncate(0)
        self.rig.log.replicated = True
        self.rig.restart()
        self.answers_are_taken()

    @rule(transactional_id=st.sampled_from(["t", "u"]))
    def epochs_are_used_up(self, transactional_id: str) -> None:
        self._use_up_epochs(transactional_id)

    def _use_up_epochs(self, transactional_id: str) -> None:
        """The producer that holds the id has the last epoch there is."""
        metadata = self._durable().get(transactional_id)
        if metadata is None or self.log.failures or not self.log.replicated:
            return
        producer, last = metadata.client_producer, (metadata.client_producer[0], EPOCH_MAX - 1)
        if metadata.is_kept:
            self.rig.put(transactional_id, next_producer_epoch=EPOCH_MAX - 1)
        elif metadata.state in IDLE:
            self.rig.put(transactional_id, producer_epoch=EPOCH_MAX - 1)
        else:
            return
        for client in self.clients:
            if client.transactional_id == transactional_id and client.producer == producer:
                client.producer = last

    @rule()
    def ids_expire(self) -> None:
        self.rig.transactions.expire_transactional_ids()

    # --- what must hold -----------------------------------------------------------------------------------------------

    def _durable(self) -> dict[str, Any]:
        shard = self.rig.shard()
        if shard is None:
            return {}
        return {name: metadata._replace(last_producer_epoch=-1) for name, metadata in shard.transactions.items()}

    @invariant()
    def the_log_says_what_the_coordinator_knows(self) -> None:
        read: dict[str, Any] = {}
        for batch in self.rig.log.batches.get(0, []):
            for record in read_records(batch):
                decoded = decode_record(record.key or b"", record.value)
                assert decoded is not None
                read[decoded.transactional_id] = decoded.metadata
        assert {name: metadata for name, metadata in read.items() if metadata is not None} == self._durable()

    @invariant()
    def producers_never_go_back(self) -> None:
        if not self.rig.log.replicated:
            return  # nobody was told of what is not replicated, and it may be lost
        for transactional_id, metadata in self._durable().items():
            producer = metadata.client_producer
            assert producer >= self.highest.get(transactional_id, producer)
            if metadata.state in IDLE:
                assert producer[1] < EPOCH_MAX, "the last epoch is for fencing"
            self.highest[transactional_id] = producer

    @invariant()
    def transactions_end_one_way(self) -> None:
        for transaction in self.transactions:
            outcomes = set(transaction.outcomes.values())
            assert len(outcomes) <= 1, transaction.outcomes
            if transaction.told is not None and outcomes:
                assert outcomes == {transaction.told}

    def teardown(self) -> None:
        """In the end nothing is left hanging."""
        self.all_is_well()
        self.rig.advance(2 * TIMEOUT_MS / 1000)
        for partition in self.partitions.values():
            assert all(transaction is None for _, transaction in partition.producers.values())
        for transaction in self.transactions:
            assert set(transaction.outcomes) == transaction.written
        self.transactions_end_one_way()


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)


def test_a_lost_batch_of_several_records_takes_no_other_batch_with_it() -> None:
    """The ids that expire together are removed by one batch."""
    machine = TransactionMachine()
    for index in range(len(CLIENTS)):
        machine.a_producer_works(index, [True], last=False)
    machine.a_producer_comes(3, keep=False)
    machine.producers_never_go_back()
    machine.time_passes(130.0)
    machine.replicas_are_slow()
    machine.ids_expire()
    machine.fail_over()
    machine.producers_never_go_back()
    machine.the_log_says_what_the_coordinator_knows()
