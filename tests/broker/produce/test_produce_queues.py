"""Produce in transactions: in which order batches get in while the coordinator is asked."""

from typing import Any

import pytest

from barnabas.broker.produce import produce_queues
from barnabas.broker.produce.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from barnabas.errors import TransactionAbortable
from barnabas.types import TopicPartition
from broker.followers import add_follower, follower_has
from broker.produce_rig import ProduceRig
from broker.produce_rig import rig as rig
from broker.sent_requests import batch


def test_batches_behind_one_that_waits_keep_their_order(rig: ProduceRig) -> None:
    sent = [rig.send(rig.batch(sequence)) for sequence in range(5)]
    assert all(one.waits for one in sent)
    assert len(rig.coordinator.asks) == 1
    assert rig.begin(0, producer_id=8).errors == [""], "another producer does not wait"
    rig.coordinator.asks[0].grant()
    assert [one.errors for one in sent] == [[""]] * 5
    assert rig.values() == [b"v0", b"v0", b"v1", b"v2", b"v3", b"v4"]
    assert len(rig.coordinator.asks) == 2
    assert rig.broker.produce_queues.waiting == {}


def test_the_line_is_the_producers_whatever_the_partition(rig: ProduceRig) -> None:
    rig.begin(0)
    first = rig.send({1: rig.batch(0)})
    second = rig.send({0: rig.batch(1)})
    third = rig.send({2: rig.batch(0)})
    assert [one.waits for one in (first, second, third)] == [True, True, True]
    rig.coordinator.last.grant()
    assert [first.errors, second.errors] == [[""], [""]]
    assert third.waits
    assert rig.coordinator.last.partitions == [TopicPartition("t", 2)]
    rig.coordinator.last.grant()
    assert third.offsets == [0]


@pytest.mark.parametrize("records", [{0: 7, 1: 8}, {0: (7, 0), 1: (7, 1)}])
def test_one_request_is_of_one_producer(rig: ProduceRig, records: dict[int, int | tuple[int, int]]) -> None:
    batches = {}
    for index, producer in records.items():
        producer_id, epoch = producer if isinstance(producer, tuple) else (producer, 0)
        batches[index] = rig.batch(0, producer_id=producer_id, epoch=epoch)
    assert rig.send(batches).errors == ["InvalidProducerIdMapping"] * 2
    assert rig.coordinator.asks == []


def test_no_plain_batch_within_a_transaction(rig: ProduceRig) -> None:
    rig.begin(0)
    assert rig.send(rig.batch(1, transactional=False)).errors == ["InvalidTxnState"]


def test_a_retried_batch_is_found_again(rig: ProduceRig) -> None:
    rig.begin(0)
    rig.send(rig.batch(1))
    assert rig.send(rig.batch(0)).offsets == [0]
    assert rig.log().log_end_offset == 2


class TestWithoutAcks:
    def test_nothing_is_answered(self, rig: ProduceRig) -> None:
        sent = rig.send(rig.batch(0), acks=0)
        assert sent.waits
        rig.coordinator.last.grant()
        assert sent.parts == ()
        assert rig.values() == [b"v0"]

    def test_an_error_ends_the_connection(self, rig: ProduceRig) -> None:
        rig.send(rig.batch(0), acks=0)
        rig.coordinator.last.refuse(TransactionAbortable("not yours"))
        assert rig.client.closed
        assert "not yours" in rig.client.reason


def test_what_was_sent_is_appended_though_the_client_is_gone(rig: ProduceRig) -> None:
    sent = rig.send(rig.batch(0))
    rig.client.closed = True
    rig.coordinator.last.grant()
    assert sent.waits
    assert rig.values() == [b"v0"]


def test_lines_are_bounded(rig: ProduceRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_queues, "_QUEUE_MAX", 3)
    sent = [rig.send({0: rig.batch(sequence), 2: batch(b"plain")}) for sequence in range(4)]
    assert [one.waits for one in sent] == [True, True, True, False]
    assert sent[3].errors == ["NotEnoughReplicas", ""]
    rig.coordinator.last.grant()
    assert rig.values() == [b"v0", b"v1", b"v2"]


@pytest.mark.source
def test_a_bug_in_front_does_not_hold_up_those_behind(rig: ProduceRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    first = rig.send({0: rig.batch(0)})
    second = rig.send({0: rig.batch(0, b"again")})
    monkeypatch.setattr("barnabas.broker.handlers.records.produce._respond", broken)
    rig.coordinator.last.grant()
    assert first.waits
    assert rig.client.reason == "RuntimeError: a bug"
    assert second.waits
    assert rig.broker.produce_queues.waiting == {}


def test_a_bug_in_asking_does_not_hold_up_those_behind(rig: ProduceRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second request's question fails; the third, another one of the same producer, is asked for and served."""
    asked: list[str] = []

    verify = AddPartitionsToTxnManager.verify

    def broken_once(*arguments: Any) -> Any:
        asked.append(arguments[1])
        if len(asked) == 1:
            raise RuntimeError("a bug")
        return verify(*arguments)

    first, second, third = (rig.send({index: rig.batch(0)}) for index in range(3))
    monkeypatch.setattr(AddPartitionsToTxnManager, "verify", broken_once)
    rig.coordinator.at_once = None
    rig.coordinator.last.grant()
    assert first.errors == [""]
    assert second.waits
    assert rig.client.reason == "RuntimeError: a bug"
    assert rig.broker.produce_queues.waiting == {}
    assert rig.log(2).log_end_offset == 1, "a closed connection takes no answer, but the records were sent"
    assert third.waits


def test_the_answer_waits_for_the_commit_too(rig: ProduceRig) -> None:
    partition = rig.broker.replica_manager.leader_of("t", 0)
    add_follower(partition)
    sent = rig.send(rig.batch(0))
    rig.coordinator.last.grant()
    assert sent.waits
    assert rig.broker.purgatory.size == 1
    follower_has(partition, 1)
    rig.broker.loop.run_until_complete(_turn())
    assert sent.offsets == [0]


async def _turn() -> None:
    """Lets the callbacks run that are due."""
