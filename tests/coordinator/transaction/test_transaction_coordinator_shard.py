"""What a partition of __transaction_state does by itself: timeouts, the end of unused ids, the work after a restart."""

import pytest

from barnabas import errors
from barnabas.coordinator.transaction.transaction_metadata import EPOCH_MAX
from coordinator.transaction_rig import ORDERS, OTHER, TransactionRig, prepared_rig


class TestTimeouts:
    def test_an_open_transaction_is_aborted_on_time(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=2_000)
        rig.add(producer)
        rig.advance(2.0)
        assert rig.state() == "Ongoing"
        rig.advance(0.002)
        assert rig.state() == "CompleteAbort"
        assert rig.markers.sent[0].commit is False
        assert isinstance(rig.end(producer), errors.ProducerFenced)
        assert isinstance(rig.end(producer, transaction_version=0), errors.ProducerFenced)
        assert rig.end(producer, commit=False) == (producer[0], producer[1] + 1), "that is what happened"
        assert rig.producer(timeout_ms=2_000) == (producer[0], producer[1] + 2)

    def test_every_transaction_has_its_own_time(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=2_000)
        for _ in range(4):
            rig.add(producer)
            rig.advance(1.5)
            producer = rig.end(producer)
            rig.settle()
        rig.add(producer)
        rig.advance(1.9)
        assert rig.state() == "Ongoing"
        rig.advance(0.2)
        assert rig.state() == "CompleteAbort"

    def test_more_partitions_do_not_prolong_it(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=2_000)
        rig.add(producer, ORDERS)
        rig.advance(1.5)
        rig.add(producer, OTHER)
        rig.advance(0.6)
        assert rig.state() == "CompleteAbort"

    def test_nothing_ticks_where_nothing_is_open(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=2_000)
        rig.add(producer)
        rig.end(producer)
        rig.advance(10)
        assert rig.state() == "CompleteCommit"
        assert rig.scheduler.pending() == 0

    def test_an_abort_that_cannot_be_written_is_tried_again(self) -> None:
        rig = TransactionRig(abort_interval_ms=3_000)
        producer = rig.producer(timeout_ms=1_000)
        rig.add(producer)
        rig.log.fail = errors.NotEnoughReplicas("not now")
        rig.advance(5)
        rig.log.fail = None
        assert rig.state() == "Ongoing"
        rig.advance(3)
        assert rig.state() == "CompleteAbort"

    def test_out_of_epochs_and_of_producer_ids(self) -> None:
        rig = TransactionRig(abort_interval_ms=3_000)
        producer = rig.producer(timeout_ms=1_000)
        rig.put("t", producer_epoch=EPOCH_MAX - 1)
        rig.add((producer[0], EPOCH_MAX - 1))
        rig.no_producer_ids = errors.RequestTimedOut("the registry is away")
        rig.advance(2)
        assert rig.state() == "Ongoing"
        rig.no_producer_ids = None
        rig.advance(3)
        assert rig.state() == "CompleteAbort"
        assert rig.metadata().client_producer == (producer[0] + 1, 0)

    def test_after_a_restart(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=10_000)
        rig.add(producer)
        rig.advance(6)
        rig.restart()
        rig.advance(3.9)
        assert rig.state() == "Ongoing"
        rig.advance(0.2)
        assert rig.state() == "CompleteAbort"

    def test_overdue_at_a_restart(self) -> None:
        rig = TransactionRig()
        producer = rig.producer(timeout_ms=10_000)
        rig.add(producer)
        rig.transactions.shutdown()
        rig.advance(60)
        rig.restart()
        rig.settle()
        assert rig.state() == "CompleteAbort"


class TestReload:
    @pytest.mark.parametrize("commit", [True, False])
    def test_what_was_decided_gets_its_markers(self, commit: bool) -> None:
        rig, after = prepared_rig(commit)
        rig.markers.sent.clear()
        rig.restart()
        rig.advance(0.01)
        (markers,) = rig.markers.sent
        assert (markers.commit, markers.coordinator_epoch, markers.producer_epoch) == (commit, 2, 1)
        assert set(markers.partitions) == {ORDERS, OTHER}
        assert rig.state() == ("CompleteCommit" if commit else "CompleteAbort")
        assert rig.add(after) is None

    def test_but_only_once_it_is_known_to_be_committed(self) -> None:
        """A leader that has the decision and dies before its followers do must not have told anybody."""
        rig = TransactionRig()
        producer = rig.producer()
        rig.add(producer)
        rig.log.replicated = False
        rig.end_later(producer)
        rig.restart()
        rig.advance(1)
        assert rig.markers.sent == []
        rig.transactions.on_high_watermark(0, rig.log.commit(0))
        rig.settle()
        assert len(rig.markers.sent) == 1

    def test_a_decision_after_the_load_gets_its_markers_with_its_own_commit(self) -> None:
        """The commit of what was loaded says nothing of it: the next coordinator may lack it and decide otherwise."""
        rig = TransactionRig()
        loaded, later = rig.producer("loaded"), rig.producer("later")
        rig.add(loaded, transactional_id="loaded")
        rig.add(later, transactional_id="later")
        rig.log.replicated = False
        rig.end_later(loaded, transactional_id="loaded")
        rig.restart()
        end = rig.log.ends[0]
        answer = rig.end_later(later, transactional_id="later", transaction_version=0)
        rig.log.marks[0] = end
        rig.transactions.on_high_watermark(0, end)
        rig.settle()
        assert [markers.producer_id for markers in rig.markers.sent] == [loaded[0]]
        assert (rig.state("loaded"), rig.state("later")) == ("CompleteCommit", "PrepareCommit")
        assert not answer.done
        rig.transactions.on_high_watermark(0, rig.log.commit(0))
        rig.settle()
        assert answer.value == later
        assert [markers.producer_id for markers in rig.markers.sent] == [loaded[0], later[0]]
        assert rig.state("later") == "CompleteCommit"

    def test_the_same_state(self) -> None:
        rig = TransactionRig()
        for name in ("empty", "ongoing", "committed", "aborted", "kept"):
            producer = rig.producer(name)
            if name != "empty":
                rig.add(producer, ORDERS, OTHER, transactional_id=name)
            if name in ("committed", "aborted"):
                rig.end(producer, name == "committed", transactional_id=name)
        rig.init("kept", keep_prepared=True)
        rig.settle()
        before = {
            name: metadata._replace(last_producer_epoch=-1) for name, metadata in rig.shard().transactions.items()
        }
        rig.restart()
        assert rig.shard().transactions == before

    def test_an_empty_partition_is_ready_at_once(self) -> None:
        rig = TransactionRig(partitions=50)
        assert rig.log.reads == 0
        assert rig.init("any").producer_epoch == 0


class TestExpiration:
    def test_ids_that_nobody_uses(self) -> None:
        rig = TransactionRig(id_expiration_ms=1_000)
        for name in ("idle", "done", "open"):
            producer = rig.producer(name)
            if name != "idle":
                rig.add(producer, transactional_id=name)
            if name == "done":
                rig.end(producer, transactional_id=name)
        rig.advance(0.5)
        rig.transactions.expire_transactional_ids()
        assert len(rig.shard().transactions) == 3
        rig.producer("young")
        rig.advance(0.5)
        rig.transactions.expire_transactional_ids()
        assert set(rig.shard().transactions) == {"open", "young"}
        assert isinstance(rig.describe("idle"), errors.TransactionalIdNotFound)
        rig.restart()
        assert set(rig.shard().transactions) == {"open", "young"}

    def test_many_take_more_than_one_batch(self) -> None:
        rig = TransactionRig(id_expiration_ms=1_000)
        for number in range(100):
            rig.producer(f"id-{number}")
        rig.log.max_bytes = 300
        rig.advance(1)
        appends = rig.log.appends
        rig.transactions.expire_transactional_ids()
        assert rig.shard().transactions == {}
        assert rig.log.appends - appends > 3

    def test_an_expired_id_is_a_new_one(self) -> None:
        rig = TransactionRig(id_expiration_ms=1_000)
        before = rig.producer()
        rig.advance(1)
        rig.transactions.expire_transactional_ids()
        after = rig.producer()
        assert after[0] != before[0]
        assert after[1] == 0

    def test_a_failure_is_for_the_next_time(self) -> None:
        rig = TransactionRig(id_expiration_ms=1_000)
        rig.producer()
        rig.advance(1)
        rig.log.fail = errors.KafkaStorageError("full")
        rig.transactions.expire_transactional_ids()
        assert rig.state() == "Empty"
        rig.log.fail = None
        rig.transactions.expire_transactional_ids()
        assert rig.shard().transactions == {}
