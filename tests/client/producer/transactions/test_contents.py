"""The partitions and offsets of a transaction, and the epoch behind its end."""

import pytest

from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.errors import TransactionAborted, TransactionFailed
from client.producer.transactions.rig import END, INIT, OFFSETS, WHERE, Transacting
from simulation.cluster import SILENT


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
