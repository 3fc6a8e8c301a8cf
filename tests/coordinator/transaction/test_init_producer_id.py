"""InitProducerId: who gets the transactional id, who is fenced, and who keeps what its predecessor prepared."""

import pytest

from barnabas import errors
from barnabas.coordinator.transaction.transaction_metadata import EPOCH_MAX, NO_TIMEOUT
from coordinator.transaction_rig import ORDERS, OTHER, TransactionRig, prepared_rig


class TestFencing:
    def test_a_second_producer_ends_the_first_ones_transaction(self) -> None:
        rig = TransactionRig()
        first = rig.producer()
        rig.add(first)
        assert isinstance(rig.init(), errors.ConcurrentTransactions)
        rig.settle()
        assert rig.state() == "CompleteAbort"
        assert rig.markers.sent[0].commit is False
        second = rig.producer()
        assert second == (first[0], first[1] + 2)
        for answer in (rig.add(first), rig.end(first), rig.end(first, transaction_version=0)):
            assert isinstance(answer, errors.ProducerFenced)
        assert rig.add(second) is None

    def test_a_producer_has_to_wait_for_the_markers(self) -> None:
        rig, _ = prepared_rig()
        assert isinstance(rig.init(), errors.ConcurrentTransactions)
        rig.markers.release()
        assert rig.init().producer_epoch == 2

    def test_fencing_that_cannot_be_written_changes_nothing(self) -> None:
        rig = TransactionRig()
        first = rig.producer()
        rig.add(first)
        rig.log.fail = errors.KafkaStorageError("full")
        assert isinstance(rig.init(), errors.NotCoordinator)
        rig.log.fail = None
        assert rig.end(first) == (first[0], 1), "the producer that is still there may go on"


class TestTwoPhaseCommit:
    """KIP-939. Kafka 4.3 has the protocol, and the part without KeepPreparedTxn."""

    @pytest.fixture
    def rig(self) -> TransactionRig:
        return TransactionRig(two_phase_commit_enable=True)

    def open(self, rig: TransactionRig) -> tuple[int, int]:
        producer = rig.producer(timeout_ms=5, two_phase_commit=True)
        rig.add(producer, ORDERS, OTHER)
        return producer

    def test_has_to_be_allowed(self) -> None:
        rig = TransactionRig()
        assert isinstance(rig.init(two_phase_commit=True), errors.TransactionalIdAuthorizationFailed)

    def test_never_times_out(self, rig: TransactionRig) -> None:
        self.open(rig)
        assert rig.metadata().timeout_ms == NO_TIMEOUT
        rig.advance(1e9)
        assert rig.state() == "Ongoing"
        rig.restart()
        rig.advance(1e9)
        assert rig.state() == "Ongoing"
        rig.transactions.expire_transactional_ids()
        assert rig.state() == "Ongoing"

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_successor_finishes_what_was_prepared(self, rig: TransactionRig, commit: bool) -> None:
        producer = self.open(rig)
        answer = rig.init(two_phase_commit=True, keep_prepared=True)
        successor = (answer.producer_id, answer.producer_epoch)
        assert successor == (producer[0], producer[1] + 1)
        assert (answer.ongoing_producer_id, answer.ongoing_producer_epoch) == producer
        assert rig.state() == "Ongoing"
        following = rig.end(successor, commit)
        assert following == (producer[0], producer[1] + 2)
        rig.settle()
        (markers,) = rig.markers.sent
        assert (markers.producer_id, markers.producer_epoch, markers.commit) == (producer[0], producer[1] + 1, commit)
        assert rig.end(successor, commit) == following, "a repetition"
        assert rig.add(following) is None

    def test_the_predecessor_is_fenced_and_the_successor_adds_nothing(self, rig: TransactionRig) -> None:
        producer = self.open(rig)
        answer = rig.init(two_phase_commit=True, keep_prepared=True)
        successor = (answer.producer_id, answer.producer_epoch)
        assert isinstance(rig.end(producer), errors.ProducerFenced)
        assert isinstance(rig.add(producer), errors.ProducerFenced)
        assert type(rig.verify_or_add(producer, ORDERS, verify_only=True)[ORDERS]) is errors.InvalidProducerEpoch
        assert isinstance(rig.add(successor, ORDERS), errors.InvalidTxnState)
        answers = rig.verify_or_add(successor, ORDERS, verify_only=True)
        assert isinstance(answers[ORDERS], errors.InvalidTxnState)

    def test_the_predecessor_does_not_go_on_as_the_successor_when_that_has_ended_it(self, rig: TransactionRig) -> None:
        producer = self.open(rig)
        answer = rig.init(two_phase_commit=True, keep_prepared=True)
        following = rig.end((answer.producer_id, answer.producer_epoch))
        rig.settle()
        assert isinstance(rig.init(expected=producer), errors.ProducerFenced)
        assert rig.producer(expected=(answer.producer_id, answer.producer_epoch)) == following, "a repetition"

    def test_every_successor_learns_the_same_transaction(self, rig: TransactionRig) -> None:
        producer = self.open(rig)
        for number in range(1, 4):
            answer = rig.init(two_phase_commit=True, keep_prepared=True)
            assert answer.producer_epoch == producer[1] + number
            assert (answer.ongoing_producer_id, answer.ongoing_producer_epoch) == producer
            rig.restart()
        assert rig.metadata().timeout_ms == NO_TIMEOUT
        assert rig.end((producer[0], producer[1] + 3)) == (producer[0], producer[1] + 4)
        rig.settle()
        assert rig.state() == "CompleteCommit"

    def test_nothing_to_keep(self, rig: TransactionRig) -> None:
        answer = rig.init(two_phase_commit=True, keep_prepared=True)
        assert (answer.producer_epoch, answer.ongoing_producer_id, answer.ongoing_producer_epoch) == (0, -1, -1)
        producer = (answer.producer_id, 0)
        rig.add(producer)
        rig.end(producer)
        rig.settle()
        assert rig.init(two_phase_commit=True, keep_prepared=True).ongoing_producer_id == -1

    def test_a_successor_that_does_not_keep_it_aborts_it(self, rig: TransactionRig) -> None:
        producer = self.open(rig)
        rig.init(two_phase_commit=True, keep_prepared=True)
        assert isinstance(rig.init(two_phase_commit=True), errors.ConcurrentTransactions)
        rig.settle()
        assert rig.state() == "CompleteAbort"
        assert rig.markers.sent[0].producer_epoch == producer[1] + 1
        assert rig.producer(two_phase_commit=True) == (producer[0], producer[1] + 3)

    def test_epochs_run_out_of_successors(self, rig: TransactionRig) -> None:
        producer_id, _ = self.open(rig)
        rig.put("t", next_producer_id=producer_id, next_producer_epoch=EPOCH_MAX - 2)
        one = rig.init(two_phase_commit=True, keep_prepared=True)
        assert (one.producer_id, one.producer_epoch) == (producer_id, EPOCH_MAX - 1)
        two = rig.init(two_phase_commit=True, keep_prepared=True)
        assert (two.producer_id, two.producer_epoch) == (producer_id + 1, 0)
        assert (two.ongoing_producer_id, two.ongoing_producer_epoch) == (producer_id, 0)
        assert isinstance(rig.end((producer_id, EPOCH_MAX - 1)), errors.ProducerFenced)
        assert rig.end((producer_id + 1, 0)) == (producer_id + 1, 1)
        rig.settle()
        assert rig.markers.sent[0][:2] == (producer_id, 1)
        assert rig.metadata().client_producer == (producer_id + 1, 1)

    def test_epochs_run_out_at_the_end(self, rig: TransactionRig) -> None:
        producer_id, _ = self.open(rig)
        rig.put("t", next_producer_id=producer_id, next_producer_epoch=EPOCH_MAX - 1)
        successor = (producer_id, EPOCH_MAX - 1)
        following = rig.end(successor)
        assert following == (producer_id + 1, 0)
        assert isinstance(rig.end(successor), errors.ConcurrentTransactions)
        rig.settle()
        assert rig.end(successor) == following
        rig.restart()
        assert rig.end(successor) == following

    def test_a_transaction_with_a_timeout_may_be_kept_too(self, rig: TransactionRig) -> None:
        producer = rig.producer(timeout_ms=2_000)
        rig.add(producer)
        rig.advance(1)
        answer = rig.init(timeout_ms=60_000, keep_prepared=True)
        assert answer.ongoing_producer_id == producer[0]
        rig.advance(1.1)
        assert rig.state() == "CompleteAbort", "its time is what it was"
        assert rig.metadata().client_producer == (producer[0], producer[1] + 2)

    def test_an_older_end_transaction_ends_it_as_well(self, rig: TransactionRig) -> None:
        producer = self.open(rig)
        answer = rig.init(two_phase_commit=True, keep_prepared=True)
        successor = (answer.producer_id, answer.producer_epoch)
        rig.end(successor, transaction_version=0)
        rig.settle()
        assert rig.metadata().client_producer == successor
        assert rig.end(successor, transaction_version=0) == successor
        assert rig.markers.sent[0][:2] == producer
