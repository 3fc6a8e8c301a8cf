"""Transactions of a producer, against simulated brokers of either transaction version."""

from typing import Any

import pytest

from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.client.producer.transactions.transaction_manager import TransactionManager, TransactionState
from barnabas.errors import (
    ClientClosed,
    ClientError,
    CommitFailed,
    InvalidTransactionTimeout,
    OperationTimedOut,
    ProducerFenced,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    TransactionFailed,
    UnsupportedVersion,
    UsageError,
)
from barnabas.types import TopicPartition
from simulation.cluster import SILENT
from simulation.producer import SimulatedProducer
from simulation.transaction_coordinator import ONGOING, PREPARED

INIT, ADD_PARTITIONS, ADD_OFFSETS, END, OFFSETS = 22, 24, 25, 26, 28
WHERE = TopicPartition("in", 0)


class Transacting(SimulatedProducer):
    def __init__(self, version: int = 2, *, verifies: bool = True, **settings: Any) -> None:
        settings = {"transactional_id": "tx", "linger_ms": 0, **settings}
        super().__init__(transaction_version=version, verifies_transactions=verifies, **settings)
        assert self.kafka_producer.transactions is not None
        self.transactions: TransactionManager = self.kafka_producer.transactions

    def wait(self, promise: Any) -> Any:
        try:
            return self.cluster.result(promise)
        finally:
            self.transactions.heard(promise)

    def init(self, **options: Any) -> None:
        self.wait(self.transactions.init(**options))

    def commit(self) -> None:
        self.wait(self.transactions.commit())

    def abort(self) -> None:
        self.wait(self.transactions.abort())

    def seen(self, partition: int = 0) -> list[bytes | None]:
        return self.cluster.log("t", partition).committed_values()

    @property
    def identity(self) -> tuple[int, int]:
        assert self.kafka_producer.producer_ids is not None
        return self.kafka_producer.producer_ids.current

    @property
    def at_coordinator(self) -> Any:
        return self.cluster.transactions.transactions["tx"]


@pytest.fixture(params=[2, 0], ids=["v2", "v0"])
def it(request: pytest.FixtureRequest) -> Transacting:
    it = Transacting(request.param)
    it.init()
    return it


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


def test_an_abort_does_not_send_what_waits(it: Transacting) -> None:
    it.transactions.begin()
    handle = it.send(b"a")
    it.abort()
    assert isinstance(handle.exception(), TransactionAborted)
    assert it.cluster.count(0) == 0
    assert it.cluster.count(END) == 0
    it.transactions.begin()
    it.send(b"b")
    it.commit()
    assert it.seen() == [b"b"]


def test_the_versions_of_requests_fit_the_transaction_version(it: Transacting) -> None:
    it.transactions.begin()
    it.send(b"a")
    it.wait(it.transactions.send_offsets({WHERE: OffsetAndMetadata(7)}, GroupMetadata("g")))
    it.commit()
    versions = {received.api_key: received.version for received in it.cluster.requests}
    if it.cluster.transactions.version >= 2:
        assert versions[0] >= 12
        assert (versions[END], versions[OFFSETS]) == (5, 5)
        assert ADD_PARTITIONS not in versions
        assert ADD_OFFSETS not in versions
    else:
        assert versions[0] == 11
        assert (versions[ADD_PARTITIONS], versions[END], versions[OFFSETS]) == (3, 4, 4)
        assert it.cluster.count(ADD_OFFSETS) == 1
    assert it.cluster.transactions.offsets == {("g", "in", 0): 7}


def test_offsets_are_committed_with_the_transaction_only(it: Transacting) -> None:
    it.transactions.begin()
    it.wait(it.transactions.send_offsets({WHERE: OffsetAndMetadata(3)}, GroupMetadata("g", 5, "m", "i")))
    asked = next(received for received in it.cluster.requests if received.api_key == OFFSETS).request
    assert (asked.generation_id, asked.member_id, asked.group_instance_id) == (5, "m", "i")
    it.abort()
    assert it.cluster.transactions.offsets == {}
    it.transactions.begin()
    it.wait(it.transactions.send_offsets({WHERE: OffsetAndMetadata(4)}, GroupMetadata("g")))
    it.commit()
    assert it.cluster.transactions.offsets == {("g", "in", 0): 4}


@pytest.mark.parametrize("code", [14, 15, 16, 51])
@pytest.mark.parametrize("after", [False, True])
def test_what_passes_is_tried_again(it: Transacting, code: int, after: bool) -> None:
    errors = it.cluster.transactions.errors_after if after else it.cluster.transactions.errors
    it.transactions.begin()
    errors.append(code)
    it.send(b"a")
    it.flush()
    errors += [code, code]
    it.wait(it.transactions.send_offsets({WHERE: OffsetAndMetadata(7)}, GroupMetadata("g")))
    errors.append(code)
    it.commit()
    assert it.seen() == [b"a"]
    assert it.cluster.transactions.offsets == {("g", "in", 0): 7}


def test_markers_that_take_their_time_hold_up_nothing_for_good(it: Transacting) -> None:
    it.cluster.transactions.marker_delay = 3
    for value in (b"a", b"b"):
        it.transactions.begin()
        it.send(value)
        it.commit()
    it.cluster.transactions.write_markers(it.at_coordinator)
    assert it.seen() == [b"a", b"b"]
    assert it.cluster.now < 1003


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


def test_without_an_answer_to_records_the_next_transaction_has_another_epoch() -> None:
    it = Transacting(0, verifies=False, delivery_timeout_ms=3000, request_timeout_ms=2000)
    it.init()
    it.transactions.begin()
    it.cluster.handlers[0] = lambda received: SILENT
    it.send(b"late")
    promise = it.transactions.commit()
    it.run(seconds=10)
    with pytest.raises(TransactionFailed):
        it.wait(promise)
    it.cluster.handlers[0] = it.cluster.produce
    before = it.identity
    it.abort()
    assert it.identity == (before[0], before[1] + 1)
    assert it.cluster.count(INIT) == 2
    it.transactions.begin()
    it.send(b"next")
    it.commit()
    assert it.seen() == [b"next"]


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


@pytest.mark.parametrize("code", [49, 59, 120])
def test_an_abort_that_the_coordinator_does_not_understand_begins_anew(it: Transacting, code: int) -> None:
    it.transactions.begin()
    it.send(b"a")
    it.flush()
    it.cluster.transactions.errors.append(code)
    it.abort()
    it.transactions.begin()
    it.send(b"b")
    it.commit()
    assert it.seen() == [b"b"]


def test_a_coordinator_that_moves_is_found_again() -> None:
    it = Transacting(2, nodes=3)
    it.init()
    for node in (2, 3, 1, 2):
        it.cluster.coordinator = node
        it.transactions.begin()
        it.send(b"%d" % node)
        it.commit()
    assert it.seen() == [b"2", b"3", b"1", b"2"]


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


def test_brokers_that_check_nothing_get_no_end_before_late_bytes_are_gone() -> None:
    it = Transacting(0, verifies=False, request_timeout_ms=2000)
    it.init()
    it.transactions.begin()
    it.send(b"late")
    while not (links := [link for link in it.cluster.links.values() if link.pending and link.pending[0].api_key == 0]):
        it.cluster.turn()
        for link in [link for link in it.cluster.links.values() if link.pending and link.pending[0].api_key != 0]:
            it.cluster.answer(link)
    began = it.cluster.now
    it.cluster.cut(links[0])
    promise = it.transactions.abort()
    it.run(seconds=1)
    assert not promise.done
    it.cluster.handle(links[0])
    it.wait(promise)
    assert it.cluster.now >= began + 2
    it.transactions.begin()
    it.send(b"next")
    it.commit()
    assert it.seen() == [b"next"]


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
