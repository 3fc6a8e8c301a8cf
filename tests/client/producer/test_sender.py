"""Batches on their way to simulated brokers: order, retries, sequences, expiry."""

from typing import Any
from uuid import UUID

import pytest

from barnabas.errors import (
    ClusterAuthorizationFailed,
    InvalidRecord,
    MessageTooLarge,
    OperationTimedOut,
    OutOfOrderSequenceNumber,
    RecordsPurged,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.types import TopicPartition
from client.producer.batches import close_batch, numbers, send_all
from simulation.cluster import Cluster, Link
from simulation.producer import SimulatedProducer

# --- one batch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newest", [3, 7, 8, 9, 11, 12])
def test_every_version_of_produce(newest: int) -> None:
    producing = SimulatedProducer()
    producing.cluster.versions[0] = (0, newest)
    producing.cluster.network_client.reset(RecordsPurged("so that versions are asked for again"))
    assert producing.send(b"a", headers=[("h", b"v")]).result().offset == 0
    assert [received.version for received in producing.cluster.requests if received.api_key == 0] == [newest]


@pytest.mark.parametrize(("acks", "offset"), [("0", -1), ("1", 0), ("all", 0)])
def test_acks(acks: str, offset: int) -> None:
    producing = SimulatedProducer(acks=acks)
    assert producing.send(b"a").result().offset == offset
    producing.run(lambda: producing.values() == [b"a"], seconds=5)
    header = producing.cluster.log("t", 0).headers[0]
    assert (header.producer_id >= 0) == (acks == "all")


# --- retries ----------------------------------------------------------------------------------------------------------

RETRIABLE = [2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 56, 72, 74, 75, 78, 89, 100, 103]


@pytest.mark.parametrize("code", RETRIABLE)
def test_every_retriable_error_is_tried_again(code: int) -> None:
    producing = SimulatedProducer()
    producing.cluster.produce_errors = [code, code]
    handle = producing.send(b"a")
    assert handle.result().offset == 0
    producing.cluster.produce_errors_after_write = [code]
    assert producing.send(b"b").result().offset == 1
    assert producing.values() == [b"a", b"b"]


def test_batches_in_flight_keep_their_order_when_the_first_fails() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.cluster.produce_errors = [6]
    handles = send_all(producing, *range(8))
    producing.flush()
    assert producing.values() == [b"first", *numbers(*range(8))]
    assert [handle.offset for handle in handles] == list(range(1, 9))


def test_no_more_than_five_requests_fly() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    send_all(producing, *range(20))
    producing.cluster.turn()
    assert sum(len(link.pending) for link in producing.cluster.links.values()) == 5
    producing.flush()


def test_the_second_batch_of_an_id_waits_for_the_first() -> None:
    producing = SimulatedProducer()
    send_all(producing, 1, 2, 3)
    producing.run(
        lambda: any(link.pending[0].api_key == 0 for link in producing.cluster.links.values() if link.pending)
    )
    assert sum(len(link.pending) for link in producing.cluster.links.values()) == 1
    producing.flush()
    assert producing.values() == numbers(1, 2, 3)


def test_a_lost_connection_doubles_nothing() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    handles = send_all(producing, 1, 2, 3)
    producing.cluster.turn()
    (link,) = (link for link in producing.cluster.links.values() if link.pending)
    producing.cluster.handle(link)
    producing.cluster.handle(link)  # written, and the answers are lost
    producing.cluster.cut(link)
    producing.flush()
    assert producing.values() == [b"first", *numbers(1, 2, 3)]
    assert [handle.offset for handle in handles] == [1, 2, 3]


def test_a_leader_that_moved_is_followed() -> None:
    producing = SimulatedProducer(nodes=2)
    producing.send(b"a").result()
    producing.cluster.move_leader(TopicPartition("t", 0), 2)
    assert producing.send(b"b").result().offset == 1


@pytest.mark.parametrize("is_created_again", [False, True])
def test_nothing_overtakes_a_batch_at_a_leader_that_does_not_know_the_producer(is_created_again: bool) -> None:
    producing = SimulatedProducer(nodes=2, partitions=2)
    cluster, partition = producing.cluster, TopicPartition("t", 0)
    producing.send(b"first", partition=0).result()
    producing.send(b"other", partition=1).result()  # a connection to the broker that is to lead
    (held,) = send_all(producing, 1, partition=0)
    cluster.turn()
    (silent,) = (link for link in cluster.links.values() if link.pending)
    cluster.logs.clear()
    cluster.move_leader(partition, 2)
    if is_created_again:
        cluster.topic_ids["t"] = UUID(int=7)
    cluster.network_client.refresh_metadata()
    cluster.advance(1)
    answer_others(cluster, silent)
    assert cluster.network_client.metadata.leader(partition) == 2
    (later,) = send_all(producing, 2, partition=0)
    answer_others(cluster, silent)
    producing.flush()
    assert producing.values() == numbers(1, 2)
    assert [held.offset, later.offset] == [0, 1]


def answer_others(cluster: Cluster, silent: Link) -> None:
    """Lets everything happen that can happen now, but for the requests of one connection."""
    while cluster.turn():
        for link in [link for link in cluster.links.values() if link.pending and link is not silent]:
            cluster.answer(link)


@pytest.mark.parametrize("refusal", [19, 2, 56], ids=["too few replicas", "a damaged batch", "a failed disk"])
def test_nothing_overtakes_a_batch_at_a_leader_that_has_forgotten_the_producer(refusal: int) -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.cluster.advance(86_400)
    producing.cluster.log("t", 0).producers.clear()
    handles = send_all(producing, 1, 2)
    producing.cluster.turn()
    producing.cluster.produce_errors = [refusal]
    producing.flush()
    assert producing.values() == [b"first", *numbers(1, 2)]
    assert [handle.offset for handle in handles] == [1, 2]


def test_what_was_refused_does_not_count_as_written_when_later_batches_are() -> None:
    """A leader forgot the producer sooner than the producer expects, and took the second batch first."""
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.cluster.log("t", 0).producers.clear()
    refused, _ = send_all(producing, 1, 2)
    producing.cluster.turn()
    producing.cluster.produce_errors = [19]
    producing.flush()
    assert producing.values() == [b"first", b"2"] or refused.exception() is None
    with pytest.raises(OutOfOrderSequenceNumber):
        refused.result()


def test_batches_fly_together_again_at_a_new_leader_that_has_acknowledged_one() -> None:
    producing = SimulatedProducer(nodes=2)
    producing.send(b"a").result()
    producing.cluster.move_leader(TopicPartition("t", 0), 2)
    producing.send(b"b").result()
    send_all(producing, *range(20))
    producing.cluster.turn()
    assert sum(len(link.pending) for link in producing.cluster.links.values()) == 5
    producing.flush()
    assert producing.values() == [b"a", b"b", *numbers(*range(20))]


def test_the_answer_names_the_new_leader() -> None:
    producing = SimulatedProducer(nodes=2)
    producing.send(b"a").result()
    produce = producing.cluster.handlers[0]

    def moved(received: Any) -> Any:
        if received.node_id == 2:
            return produce(received)
        answer = PartitionProduceResponse(
            error_code=6, base_offset=-1, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
        )
        return ProduceResponse(
            responses=[TopicProduceResponse(topic_id=producing.cluster.topic_id("t"), partition_responses=[answer])],
            node_endpoints=[NodeEndpoint(node_id=2, host="n2", port=9092)],
        )

    producing.cluster.handlers[0] = moved
    producing.cluster.handlers[3] = lambda received: pytest.fail("metadata was asked for")
    producing.cluster.topics["t"][0] = 2
    handle = producing.send(b"b")
    producing.cluster.network_client.metadata.update_requested = False
    while not handle.done():
        producing.cluster.turn()
        producing.cluster.network_client.metadata.update_requested = False
        for link in [link for link in producing.cluster.links.values() if link.pending]:
            producing.cluster.answer(link)
        producing.cluster.advance(0.01)
    assert handle.offset == 1


def test_a_record_fails_when_its_time_is_over_and_says_why() -> None:
    producing = SimulatedProducer(delivery_timeout_ms=40_000)
    producing.cluster.topics["t"][0] = -1
    producing.cluster.result(producing.cluster.network_client.refresh_metadata())
    started = producing.cluster.now
    handle = producing.send(b"a")
    with pytest.raises(OperationTimedOut, match=r"1 records for t-0 .* delivery.timeout.ms \(40000\)"):
        handle.result()
    assert producing.cluster.now - started == pytest.approx(40, abs=0.1)
    producing.cluster.topics["t"][0] = 1
    assert producing.send(b"b").result().offset == 0


def test_a_record_in_flight_fails_in_time_too() -> None:
    producing = SimulatedProducer(delivery_timeout_ms=31_000, request_timeout_ms=30_000)
    producing.send(b"first").result()
    producing.cluster.produce_errors = [7] * 1000
    handle = producing.send(b"a")
    with pytest.raises(OperationTimedOut, match="REQUEST_TIMED_OUT") as raised:
        handle.result()
    assert raised.value.attempts


def test_retries_are_bounded_where_the_caller_says_so() -> None:
    producing = SimulatedProducer(retries=2, acks="1")
    producing.cluster.produce_errors = [19] * 10
    with pytest.raises(Exception, match="NOT_ENOUGH_REPLICAS"):
        producing.send(b"a").result()
    assert len(producing.cluster.produce_errors) == 7


def test_without_an_id_nothing_is_sent() -> None:
    producing = SimulatedProducer()
    producing.cluster.handlers[22] = lambda received: InitProducerIdResponse(error_code=ClusterAuthorizationFailed.code)
    with pytest.raises(ClusterAuthorizationFailed):
        producing.send(b"a").result()
    assert producing.cluster.count(0) == 0


# --- what is too large ------------------------------------------------------------------------------------------------


def test_a_single_record_that_is_too_large_fails_alone() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.cluster.log("t", 0).batch_size_max = 200
    good, bad, after = send_all(producing, 1)[0], producing.send(b"x" * 500), None
    close_batch(producing)
    after = send_all(producing, 2, 3)
    producing.flush()
    with pytest.raises(MessageTooLarge):
        bad.result()
    assert good.result().offset == 1
    assert [handle.result().offset for handle in after] == [2, 3]
    assert producing.values() == [b"first", *numbers(1, 2, 3)]


# --- gaps -------------------------------------------------------------------------------------------------------------


def test_what_follows_a_refused_batch_is_written_under_the_next_epoch() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.cluster.produce_errors = [87]
    bad, *good = send_all(producing, 0, 1, 2, 3)
    producing.flush()
    with pytest.raises(InvalidRecord):
        bad.result()
    assert producing.values() == [b"first", *numbers(1, 2, 3)]
    assert [handle.result().offset for handle in good] == [1, 2, 3]
    assert [header.producer_epoch for header in producing.cluster.log("t", 0).headers] == [0, 1, 1, 1]
    assert [header.base_sequence for header in producing.cluster.log("t", 0).headers] == [0, 0, 1, 2]


@pytest.mark.parametrize("code", [6, 7, 20, 56])
def test_a_new_epoch_does_not_renumber_what_may_be_written_elsewhere(code: int) -> None:
    """Partition 1 has a batch whose fate is unknown while partition 0 leaves a gap behind."""
    producing = SimulatedProducer(partitions=2)
    for partition in (0, 1):
        producing.send(b"first", partition=partition).result()
    unknown = send_all(producing, 7, partition=1)[0]
    producing.cluster.produce_errors_after_write = [code]
    producing.run(lambda: not producing.cluster.produce_errors_after_write)
    producing.cluster.produce_errors = [87]
    send_all(producing, 0, 1, partition=0)
    producing.flush()
    assert unknown.result().offset == 1
    assert producing.values(1) == [b"first", b"7"]
    assert producing.values(0) == [b"first", b"1"]
    producing.send(b"8", partition=1).result()
    assert producing.values(1) == [b"first", b"7", b"8"]


def test_a_batch_that_was_given_up_may_be_written_after_all() -> None:
    producing = SimulatedProducer(delivery_timeout_ms=31_000, request_timeout_ms=30_000, linger_ms=0)
    producing.send(b"first").result()
    producing.cluster.produce_errors_after_write = [7] * 1000
    lost = producing.send(b"lost")
    with pytest.raises(OperationTimedOut):
        lost.result()
    producing.cluster.produce_errors_after_write = []
    producing.send(b"next").result()
    assert producing.values() == [b"first", b"lost", b"next"]


def test_a_refusal_of_a_repeat_does_not_tell_that_the_first_try_was_not_written() -> None:
    """Both batches are written and their answers lost; the first is given up, the second is refused once on its way to
    being recognised. Numbering it anew would write it twice."""
    producing = SimulatedProducer(delivery_timeout_ms=40_000, request_timeout_ms=30_000, linger_ms=0)
    producing.send(b"first").result()
    lost = producing.send(b"lost")
    producing.cluster.turn()
    (link,) = (link for link in producing.cluster.links.values() if link.pending)
    producing.cluster.advance(20)
    kept = producing.send(b"kept")
    producing.cluster.turn()
    producing.cluster.handle(link)
    producing.cluster.handle(link)
    producing.cluster.cut(link)
    producing.cluster.produce_errors = [6] * 1000
    with pytest.raises(OperationTimedOut):
        lost.result()
    producing.cluster.produce_errors = [6]
    assert kept.result().offset == 2
    assert producing.values() == [b"first", b"lost", b"kept"]


@pytest.mark.parametrize("code", [6, None], ids=["not leader", "connection lost"])
def test_those_after_a_batch_whose_leader_is_held_still_wait_for_its_answer(code: int | None) -> None:
    """The old leader has written the batch and answers long after the new one was elected."""
    producing = SimulatedProducer(nodes=2, linger_ms=0)
    cluster = producing.cluster
    producing.send(b"first").result()
    held = producing.send(b"held")
    cluster.turn()
    (link,) = (link for link in cluster.links.values() if link.pending)
    if code is not None:
        cluster.produce_errors_after_write = [code]
    answer = cluster.handle(link)
    link.busy = True
    cluster.move_leader(TopicPartition("t", 0), 2)
    cluster.network_client.metadata.update_leader(TopicPartition("t", 0), 2, 1, None)
    later = send_all(producing, *range(8))
    producing.run(seconds=10)
    assert not any(handle.done() for handle in [held, *later])
    if code is not None:
        assert answer is not None
        cluster._deliver(link, answer)
    else:
        cluster.cut(link)
    assert [handle.result().offset for handle in [held, *later]] == list(range(1, 10))
    assert producing.values() == [b"first", b"held", *numbers(*range(8))]
    assert {header.producer_epoch for header in cluster.log("t", 0).headers} == {0}


def test_a_batch_that_its_leader_remembers_no_more_is_known_by_those_after_it() -> None:
    """A broker that was started again may remember the last batch of each producer only."""
    producing = SimulatedProducer(linger_ms=0)
    cluster = producing.cluster
    producing.send(b"first").result()
    held, later = send_all(producing, 1, 2)
    cluster.turn()
    (link,) = (link for link in cluster.links.values() if link.pending)
    cluster.produce_errors_after_write = [7]
    cluster.answer(link)
    cluster.answer(link)
    ((_, remembered),) = cluster.log("t", 0).producers.values()
    while len(remembered) > 1:
        remembered.popleft()
    assert held.result().offset == -1
    assert later.result().offset == 2
    assert producing.send(b"last").result().offset == 3
    assert producing.values() == [b"first", *numbers(1, 2), b"last"]
    assert {header.producer_epoch for header in cluster.log("t", 0).headers} == {0}


def test_epochs_that_are_used_up_give_way_to_a_new_id() -> None:
    producing = SimulatedProducer()
    producing.cluster.first_producer_epoch = 32766
    producing.send(b"first").result()
    producing.cluster.produce_errors = [87]
    send_all(producing, 0, 1, 2)
    producing.cluster.first_producer_epoch = 0
    producing.flush()
    assert producing.values() == [b"first", *numbers(1, 2)]
    assert [header.producer_id for header in producing.cluster.log("t", 0).headers] == [1001, 1002, 1002]


def test_a_broker_that_lost_what_it_acknowledged_is_noticed() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.send(b"second").result()
    _, kept = producing.cluster.log("t", 0).producers[1001]
    kept.pop()
    with pytest.raises(OutOfOrderSequenceNumber):
        producing.send(b"third").result()
    assert producing.send(b"fourth").result().offset == 2


def test_a_broker_that_forgot_the_producer_gets_a_new_epoch() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    producing.cluster.produce_errors = [59]
    assert producing.send(b"second").result().offset == 1
    assert producing.values() == [b"first", b"second"]


# --- purge ------------------------------------------------------------------------------------------------------------


def test_purge_gives_up_what_waits() -> None:
    producing = SimulatedProducer(linger_ms=60_000)
    producing.send(b"first")
    producing.flush()
    handle = producing.send(b"a")
    assert producing.kafka_producer.sender.purge(RecordsPurged("purged"), in_flight=True) == 1
    with pytest.raises(RecordsPurged):
        handle.result()
    assert producing.kafka_producer.appender.used_bytes == 0
    producing.send(b"b")
    producing.flush()
    assert producing.values() == [b"first", b"b"]


def test_purge_leaves_what_is_in_flight_where_it_is() -> None:
    producing = SimulatedProducer()
    producing.send(b"first").result()
    flying = send_all(producing, *range(5))
    waiting = send_all(producing, 5, 6)
    producing.cluster.turn()
    assert producing.kafka_producer.sender.purge(RecordsPurged("purged"), in_flight=False) == 2
    producing.flush()
    assert [handle.result().offset for handle in flying] == [1, 2, 3, 4, 5]
    assert all(isinstance(handle.exception(), RecordsPurged) for handle in waiting)
    producing.send(b"after").result()
    assert producing.values() == [b"first", *numbers(*range(5)), b"after"]
