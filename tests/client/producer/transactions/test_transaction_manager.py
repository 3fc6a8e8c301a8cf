"""Transactions of a producer, against simulated brokers of either transaction version."""

from typing import Any

import pytest

from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.client.producer.transactions.transaction_manager import TransactionState
from barnabas.errors import (
    ClientClosed,
    ClientError,
    CommitFailed,
    InvalidTransactionTimeout,
    OperationTimedOut,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    TransactionFailed,
    UnsupportedVersion,
    UsageError,
)
from client.producer.transactions.rig import ADD_OFFSETS, ADD_PARTITIONS, END, INIT, OFFSETS, WHERE, Transacting
from simulation.cluster import SILENT
from simulation.transaction_coordinator import ONGOING, PREPARED


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(it: Transacting) -> None:
    for number, commit in enumerate((True, False, True, False, False, True)):
        it.transactions.begin()
        handles = [it.send(b"%d-%d" % (number, i)) for i in range(3)]
        it.flush()
        assert all(handle.result().offset >= 0 for handle in handles)
        assert it.seen() == [b"%d-%d" % (n, i) for n in (0, 2, 5) for i in range(3) if n < number]
        it.commit() if commit else it.abort()
    assert it.seen() == [b"%d-%d" % (n, i) for n in (0, 2, 5) for i in range(3)]
    assert it.at_coordinator.outcomes == [True, False, True, False, False, True]


def test_commit_sends_what_waits(it: Transacting) -> None:
    it.transactions.begin()
    handle = it.send(b"a")
    it.commit()
    assert handle.done()
    assert it.seen() == [b"a"]


def test_a_record_that_fails_fails_its_transaction(it: Transacting) -> None:
    it.transactions.begin()
    it.send(b"a")
    it.flush()
    it.cluster.produce_errors = [29]
    refused = it.send(b"b")
    behind = it.send(b"c")
    with pytest.raises(TransactionFailed, match="abort_transaction"):
        it.commit()
    assert refused.exception() is not None
    assert behind.exception() is not None
    assert it.send(b"d") is None
    assert isinstance(it.kafka_producer.why_closed(), TransactionFailed)
    with pytest.raises(TransactionFailed):
        it.commit()
    epoch = it.identity[1]
    it.abort()
    assert it.identity[1] > epoch
    it.transactions.begin()
    it.send(b"e")
    it.commit()
    assert it.seen() == [b"e"]


def test_a_fenced_producer_says_so_and_stays_fenced(it: Transacting) -> None:
    it.transactions.begin()
    it.send(b"a")
    it.flush()
    it.at_coordinator.epoch += 5
    with pytest.raises(ProducerFenced, match="'tx': another producer has taken it over"):
        it.commit()
    for call in (it.commit, it.abort, it.transactions.begin):
        with pytest.raises(ProducerFenced, match="'tx'"):
            call()
    assert it.send(b"b") is None
    assert isinstance(it.kafka_producer.why_closed(), ProducerFenced)


def test_a_partition_that_fences_leaves_it_to_the_coordinator(it: Transacting) -> None:
    it.transactions.begin()
    it.send(b"a")
    it.flush()
    it.cluster.produce_errors = [47]
    it.send(b"b")
    with pytest.raises(TransactionFailed):
        it.commit()
    it.abort()
    it.transactions.begin()
    it.send(b"c")
    it.commit()
    assert it.seen() == [b"c"]


def test_the_group_may_have_moved_on(it: Transacting) -> None:
    it.transactions.begin()
    it.send(b"a")
    it.flush()

    def refuse(received: Any) -> Any:
        it.cluster.transactions.errors.append(22)
        return it.cluster.transactions.commit_offsets(received)

    it.cluster.handlers[OFFSETS] = refuse
    with pytest.raises(CommitFailed, match="abort_transaction"):
        it.wait(it.transactions.send_offsets({WHERE: OffsetAndMetadata(7)}, GroupMetadata("g", 1, "m")))
    with pytest.raises(TransactionFailed):
        it.commit()
    it.abort()
    assert it.seen() == []


def test_without_a_transaction_nothing_is_taken() -> None:
    it = Transacting()
    assert it.send(b"a") is None
    with pytest.raises(UsageError, match=r"init_transactions\(\)"):
        raise it.kafka_producer.why_closed()
    with pytest.raises(UsageError, match=r"init_transactions\(\)"):
        it.transactions.begin()
    it.init()
    assert it.send(b"a") is None
    with pytest.raises(UsageError, match=r"begin_transaction\(\)"):
        raise it.kafka_producer.why_closed()
    for call in (it.commit, it.abort):
        with pytest.raises(UsageError, match=r"begin_transaction\(\)"):
            call()
    it.transactions.begin()
    with pytest.raises(UsageError, match="commit or abort"):
        it.transactions.begin()
    with pytest.raises(UsageError, match="commit or abort"):
        it.init()
    assert it.send(b"a") is not None


def test_a_call_that_timed_out_is_taken_up_again_and_no_other_comes_between() -> None:
    it = Transacting()
    it.init()
    it.transactions.begin()
    it.send(b"a")
    it.flush()
    it.cluster.transactions.errors += [14] * 10
    first = it.transactions.commit()
    it.run(seconds=0.5)
    assert not first.done
    error = it.transactions.timed_out("commit_transaction", 0.5)
    assert isinstance(error, OperationTimedOut)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
    for call in (it.transactions.begin, it.transactions.abort):
        with pytest.raises(UsageError, match="commit_transaction has not ended"):
            call()
    assert it.transactions.commit() is first
    it.wait(first)
    assert it.seen() == [b"a"]
    it.transactions.begin()


def test_an_end_that_nobody_heard_of_can_be_asked_for_again() -> None:
    it = Transacting()
    it.init()
    it.transactions.begin()
    it.send(b"a")
    first = it.transactions.commit()
    it.run(seconds=1)
    assert first.done
    assert it.transactions.commit() is first
    it.transactions.heard(first)
    with pytest.raises(UsageError):
        it.transactions.commit()


@pytest.mark.parametrize("code", [50, 53, 31])
def test_an_init_that_is_refused_can_be_tried_again(code: int) -> None:
    it = Transacting()
    it.cluster.transactions.errors.append(code)
    with pytest.raises((InvalidTransactionTimeout, TransactionalIdAuthorizationFailed, Exception)):
        it.init()
    assert it.transactions.state is TransactionState.UNINITIALIZED
    it.init()
    it.transactions.begin()


def test_init_aborts_what_the_predecessor_left_open(it: Transacting) -> None:
    it.transactions.begin()
    it.send(b"a")
    it.flush()
    assert it.at_coordinator.state is ONGOING
    successor = Transacting(it.cluster.transactions.version)
    successor.cluster.transactions.transactions = it.cluster.transactions.transactions
    successor.cluster.logs = it.cluster.logs
    successor.init()
    assert it.at_coordinator.outcomes == [False]
    successor.transactions.begin()
    successor.send(b"b")
    successor.commit()
    assert it.seen() == [b"b"]
    with pytest.raises(ProducerFenced):
        it.commit()


def test_who_closes_while_a_commit_is_under_way_hears_it() -> None:
    it = Transacting()
    it.init()
    it.transactions.begin()
    it.send(b"a")
    it.flush()
    it.cluster.handlers[END] = lambda received: SILENT
    promise = it.transactions.commit()
    it.cluster.turn()
    it.kafka_producer.close()
    it.cluster.network_client.close()
    assert isinstance(promise.error, ClientClosed)


def test_two_phase_commit_needs_its_setting_and_a_broker_that_knows_it() -> None:
    it = Transacting()
    with pytest.raises(UsageError, match=r"two\.phase"):
        it.init(keep_prepared=True)
    it.init()
    it.transactions.begin()
    with pytest.raises(UsageError, match=r"two\.phase"):
        it.transactions.prepare()
    old = Transacting(transaction_two_phase_commit_enable=True)
    old.cluster.versions[INIT] = (0, 5)
    with pytest.raises(UnsupportedVersion, match="InitProducerId v5"):
        old.init()


def test_what_is_prepared_takes_no_records_and_ends_either_way() -> None:
    it = Transacting(transaction_two_phase_commit_enable=True)
    it.init()
    for commit in (True, False):
        it.transactions.begin()
        it.send(b"a")
        prepared = it.wait(it.transactions.prepare())
        assert type(prepared).parse(str(prepared)) == prepared
        assert it.send(b"b") is None
        other = prepared._replace(producer_epoch=prepared.producer_epoch + 1)
        it.wait(it.transactions.complete(prepared if commit else other))
        assert it.transactions.state is TransactionState.READY
        assert it.seen() == [b"a"]
    it.wait(it.transactions.complete(prepared))
    assert it.at_coordinator.outcomes == [True, False]
    assert it.at_coordinator.state is not PREPARED


def test_brokers_of_2_4() -> None:
    it = Transacting(0, verifies=False)
    oldest = {0: (0, 8), 3: (0, 9), 10: (0, 3), 18: (0, 3), INIT: (0, 2), ADD_PARTITIONS: (0, 1), ADD_OFFSETS: (0, 1)}
    it.cluster.versions |= {**oldest, END: (0, 1), OFFSETS: (0, 2)}
    it.init()
    it.transactions.begin()
    it.send(b"a")
    it.wait(it.transactions.send_offsets({WHERE: OffsetAndMetadata(3)}, GroupMetadata("g", 5, "m", "i")))
    it.commit()
    it.transactions.begin()
    it.cluster.produce_errors = [29]
    refused = it.send(b"b")
    with pytest.raises(TransactionFailed):
        it.commit()
    assert refused.exception() is not None
    it.abort()
    it.transactions.begin()
    it.send(b"c")
    it.commit()
    assert it.seen() == [b"a", b"c"]
    assert it.cluster.transactions.offsets == {("g", "in", 0): 3}


def test_an_interrupt_in_the_middle_of_an_end_leaves_a_producer_that_can_only_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def interrupted(commit: bool, *, implicit: bool) -> None:
        raise KeyboardInterrupt

    it = Transacting()
    it.init()
    it.transactions.begin()
    it.send(b"a")
    it.flush()
    monkeypatch.setattr(it.transactions._coordinator, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        it.commit()
    with pytest.raises(ClientError, match="interrupted half-way"):
        it.transactions.begin()
    assert it.send(b"b") is None
    it.kafka_producer.close()
