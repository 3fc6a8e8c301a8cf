"""Fetch over the wire: every version, limits, waiting, sessions, epochs."""

import itertools
import uuid
from typing import Any

import pytest

from barnabas.protocol.apis import SERVED, ApiKey
from barnabas.protocol.messages.fetch import FetchRequest, ForgottenTopic
from barnabas.testing import Broker
from broker.sent_requests import batch, fetch, produce, topic_id, values, whole_batches
from broker.wire import Wire, name_of, on_loop, server_of

VERSIONS = range(SERVED[ApiKey.FETCH].first, SERVED[ApiKey.FETCH].last + 1)
WITH_SESSIONS = [version for version in VERSIONS if version >= 7]


def only(answer: Any) -> Any:
    assert answer.error_code == 0
    ((partition,),) = [topic.partitions for topic in answer.responses]
    return partition


@pytest.fixture(autouse=True)
def topic(broker: Broker) -> None:
    broker.create_topic("t", partitions=3)


def fill(broker: Broker, wire: Wire, *batches: bytes, index: int = 0) -> None:
    for records in batches:
        answer = wire.ask(produce(broker, {index: records}), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_records_and_marks(broker: Broker, wire: Wire, version: int) -> None:
    fill(broker, wire, batch(b"a", b"b"), batch(b"c"))
    answer = wire.ask(fetch(broker, {0: 0}, version), version)
    partition = only(answer)
    assert values(partition.records) == [b"a", b"b", b"c"]
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)
    assert partition.log_start_offset == (0 if version >= 5 else -1)
    assert partition.aborted_transactions is None
    assert partition.preferred_read_replica == -1
    assert answer.session_id == 0
    if version >= 13:
        assert answer.responses[0].topic_id == topic_id(broker, "t")
    else:
        assert answer.responses[0].topic == "t"


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_zero_bytes_and_not_null(broker: Broker, wire: Wire, version: int) -> None:
    partition = only(wire.ask(fetch(broker, {0: 0}, version), version))
    assert partition.records == b""
    assert (partition.error_code, partition.high_watermark) == (0, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_read_committed_tells_of_aborted_transactions(broker: Broker, wire: Wire, version: int) -> None:
    fill(broker, wire, batch(b"a"))
    partition = only(wire.ask(fetch(broker, {0: 0}, version, isolation_level=1), version))
    assert list(partition.aborted_transactions) == []
    assert values(partition.records) == [b"a"]


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_partitions_fail_alone(broker: Broker, wire: Wire, version: int) -> None:
    fill(broker, wire, batch(b"a"))
    answer = wire.ask(fetch(broker, {0: 0, 1: 5, 2: -1, 77: 0}, version), version)
    got = {partition.partition_index: partition for partition in answer.responses[0].partitions}
    assert {index: name_of(partition.error_code) for index, partition in got.items()} == {
        0: "",
        1: "OffsetOutOfRange",
        2: "OffsetOutOfRange",
        77: "UnknownTopicOrPartition",
    }
    assert values(got[0].records) == [b"a"]
    assert got[77].records == b""
    assert got[77].high_watermark == -1


def test_topics_that_are_not_there(broker: Broker, wire: Wire) -> None:
    gone = fetch(broker, {0: 0}, 12, topic="gone", max_wait_ms=120_000)
    assert name_of(only(wire.ask(gone, 12)).error_code) == "UnknownTopicOrPartition", "and at once"
    strange = uuid.uuid4()
    answer = wire.ask(fetch(broker, {0: 0}, 13, by_id=strange, max_wait_ms=120_000), 13)
    assert answer.responses[0].topic_id == strange
    assert name_of(only(answer).error_code) == "UnknownTopicId"


def test_a_name_of_no_letters_is_an_unknown_topic(broker: Broker, wire: Wire) -> None:
    assert name_of(only(wire.ask(fetch(broker, {0: 0}, 12, topic=""), 12)).error_code) == "UnknownTopicOrPartition"


# --- limits ---------------------------------------------------------------------------------------------------------


def test_the_first_batch_is_whole_whatever_the_limits(broker: Broker, wire: Wire) -> None:
    big = batch(b"x" * 50_000)
    fill(broker, wire, big, big)
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0, "partition_max_bytes": 0}):
        partition = only(wire.ask(fetch(broker, {0: 0}, **limits), 12))  # type: ignore[arg-type]
        assert values(partition.records) == [b"x" * 50_000]


def test_partitions_share_the_bytes_in_the_order_of_the_request(broker: Broker, wire: Wire) -> None:
    one = batch(b"x" * 10_000)
    for index in range(3):
        fill(broker, wire, one, one, one, index=index)
    answer = wire.ask(fetch(broker, {2: 0, 0: 0, 1: 0}, max_bytes=4 * len(one), partition_max_bytes=3 * len(one)), 12)
    sizes = {part.partition_index: len(part.records) for part in answer.responses[0].partitions}
    assert sizes == {2: 3 * len(one), 0: len(one), 1: 0}


def test_the_partition_limit_cuts_where_it_falls(broker: Broker, wire: Wire) -> None:
    one = batch(b"x" * 1000)
    fill(broker, wire, one, one, one)
    partition = only(wire.ask(fetch(broker, {0: 0}, partition_max_bytes=2 * len(one) + 10), 12))
    assert len(whole_batches(partition.records)) == 2 * len(one)
    assert len(partition.records) <= 2 * len(one) + 10


def test_a_fetch_from_the_middle_of_a_batch_gives_the_whole_batch(broker: Broker, wire: Wire) -> None:
    fill(broker, wire, batch(b"a", b"b", b"c"), batch(b"d"))
    assert values(only(wire.ask(fetch(broker, {0: 2}), 12)).records) == [b"a", b"b", b"c", b"d"]
    assert values(only(wire.ask(fetch(broker, {0: 3}), 12)).records) == [b"d"]
    assert only(wire.ask(fetch(broker, {0: 4}), 12)).records == b""


def test_the_broker_has_a_limit_of_its_own() -> None:
    with Broker(settings={"fetch.max.bytes": 2000}) as broker, Wire(broker) as wire:
        broker.create_topic("t", partitions=2)
        one = batch(b"x" * 900)
        for index in range(2):
            fill(broker, wire, one, one, one, index=index)
        answer = wire.ask(fetch(broker, {0: 0, 1: 0}, max_bytes=1 << 30, min_bytes=1 << 29, max_wait_ms=120_000), 12)
        assert sum(len(part.records) for part in answer.responses[0].partitions) <= 2000


# --- waiting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_a_long_poll_is_woken_by_a_produce(broker: Broker, wire: Wire, version: int) -> None:
    wire.send(fetch(broker, {0: 0, 1: 0}, version, max_wait_ms=120_000), version)
    assert wire.is_silent()
    with Wire(broker) as other:
        fill(broker, other, batch(b"news"), index=1)
    answer = wire.receive()
    got = {part.partition_index: values(part.records) for part in answer.responses[0].partitions}
    assert got == {0: [], 1: [b"news"]}


def test_a_long_poll_waits_for_min_bytes(broker: Broker, wire: Wire) -> None:
    one = batch(b"x" * 1000)
    wire.send(fetch(broker, {0: 0}, max_wait_ms=120_000, min_bytes=2 * len(one)), 12)
    with Wire(broker) as other:
        fill(broker, other, one)
        assert wire.is_silent()
        fill(broker, other, one)
    assert len(only(wire.receive()).records) == 2 * len(one)


def test_a_long_poll_ends_with_what_there_is(broker: Broker, wire: Wire) -> None:
    fill(broker, wire, batch(b"little"))
    assert values(only(wire.ask(fetch(broker, {0: 0}, max_wait_ms=50, min_bytes=1 << 20), 12)).records) == [b"little"]


def test_a_long_poll_ends_when_its_topic_goes(broker: Broker, wire: Wire) -> None:
    wire.send(fetch(broker, {0: 0}, max_wait_ms=120_000), 12)
    assert wire.is_silent()
    broker.delete_topic("t")
    assert name_of(only(wire.receive()).error_code) == "UnknownTopicOrPartition"


def test_a_client_that_goes_away_while_it_waits_leaves_nothing(broker: Broker) -> None:
    def parked() -> int:
        return int(on_loop(broker, lambda: server_of(broker).purgatory.size))

    with Wire(broker) as impatient:
        impatient.send(fetch(broker, {0: 0}, max_wait_ms=120_000), 12)
        broker.wait_for(lambda: parked() == 1, what="the parked fetch")
    with Wire(broker) as other:
        fill(broker, other, batch(b"x"))
    broker.wait_for(lambda: parked() == 0, what="an empty purgatory")


# --- epochs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, ""), (0, ""), (1, "UnknownLeaderEpoch"), (2**31 - 1, "UnknownLeaderEpoch")]
)
def test_clients_that_know_another_epoch_are_fenced(broker: Broker, wire: Wire, epoch: int, error: str) -> None:
    fill(broker, wire, batch(b"x"))
    partition = only(wire.ask(fetch(broker, {0: 0}, 12, current_leader_epoch=epoch), 12))
    assert name_of(partition.error_code) == error


def test_an_old_epoch_is_fenced(broker: Broker, wire: Wire) -> None:
    def newer() -> None:
        partition = server_of(broker).replica_manager.leader_of("t", 0)
        partition.leader_epoch = 5

    fill(broker, wire, batch(b"x"))
    on_loop(broker, newer)
    fill(broker, wire, batch(b"y"))
    assert name_of(only(wire.ask(fetch(broker, {0: 0}, 12, current_leader_epoch=4), 12)).error_code) == (
        "FencedLeaderEpoch"
    )
    # A reader that last saw epoch 3 has a record too many: epoch 0 ended at offset 1.
    diverging = only(wire.ask(fetch(broker, {0: 2}, 12, last_fetched_epoch=3), 12)).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (0, 1)
    agreed = only(wire.ask(fetch(broker, {0: 1}, 12, last_fetched_epoch=0), 12))
    assert (agreed.diverging_epoch.epoch, values(agreed.records)) == (-1, [b"y"])


# --- sessions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_a_session_tells_only_news(broker: Broker, wire: Wire, version: int) -> None:
    first = wire.ask(fetch(broker, {0: 0, 1: 0}, version, session_epoch=0), version)
    assert first.session_id > 0
    assert len(first.responses[0].partitions) == 2
    session = {"session_id": first.session_id}
    nothing = wire.ask(fetch(broker, {}, version, session_epoch=1, **session), version)
    assert (nothing.error_code, nothing.session_id, list(nothing.responses)) == (0, first.session_id, [])
    fill(broker, wire, batch(b"a"), index=1)
    news = only(wire.ask(fetch(broker, {}, version, session_epoch=2, **session), version))
    assert (news.partition_index, values(news.records)) == (1, [b"a"])
    moved = wire.ask(fetch(broker, {1: 1}, version, session_epoch=3, **session), version)
    assert list(moved.responses) == []
    forgotten = ForgottenTopic(partitions=[1])
    if version >= 13:
        forgotten.topic_id = topic_id(broker, "t")
    else:
        forgotten.topic = "t"
    wire.ask(fetch(broker, {}, version, session_epoch=4, forgotten_topics_data=[forgotten], **session), version)
    fill(broker, wire, batch(b"b"), index=1)
    assert list(wire.ask(fetch(broker, {}, version, session_epoch=5, **session), version).responses) == []
    wire.ask(fetch(broker, {}, version, session_epoch=-1, **session), version)
    over = wire.ask(fetch(broker, {}, version, session_epoch=6, **session), version)
    assert name_of(over.error_code) == "FetchSessionIdNotFound"


def test_sessions_refuse_what_does_not_follow(broker: Broker, wire: Wire) -> None:
    first = wire.ask(fetch(broker, {0: 0}, 12, session_epoch=0), 12)
    wrong = wire.ask(fetch(broker, {}, 12, session_id=first.session_id, session_epoch=7), 12)
    assert name_of(wrong.error_code) == "InvalidFetchSessionEpoch"
    other = wire.ask(fetch(broker, {}, 13, session_id=first.session_id, session_epoch=1), 13)
    assert name_of(other.error_code) == "FetchSessionTopicIdError"
    strange = wire.ask(FetchRequest(session_id=4711, session_epoch=1), 12)
    assert name_of(strange.error_code) == "FetchSessionIdNotFound"


def test_a_request_that_waits_is_told_that_its_session_went_on_without_it(broker: Broker, wire: Wire) -> None:
    """Also where what it waits for was forgotten meanwhile."""
    first = wire.ask(fetch(broker, {0: 0, 1: 0}, 12, session_epoch=0), 12)
    session = {"session_id": first.session_id}
    wire.send(fetch(broker, {}, 12, session_epoch=1, max_wait_ms=120_000, **session), 12)
    forgotten = [ForgottenTopic(topic="t", partitions=[0])]
    wire.send(fetch(broker, {}, 12, session_epoch=2, forgotten_topics_data=forgotten, **session), 12)
    sessions = server_of(broker).fetch_sessions._sessions
    broker.wait_for(lambda: sessions[first.session_id].epoch == 3, what="the second request at the broker")
    with Wire(broker) as other:
        fill(broker, other, batch(b"x"))
    assert name_of(wire.receive().error_code) == "InvalidFetchSessionEpoch"
    second = wire.receive()
    assert (second.error_code, list(second.responses)) == (0, [])


@pytest.mark.parametrize("version", [7, 12, 13])
def test_an_error_in_a_session_is_repeated_until_it_is_gone(broker: Broker, wire: Wire, version: int) -> None:
    first = wire.ask(fetch(broker, {0: 9}, version, session_epoch=0), version)
    for epoch in (1, 2):
        answer = wire.ask(
            fetch(broker, {}, version, session_id=first.session_id, session_epoch=epoch, max_wait_ms=120_000), version
        )
        assert name_of(only(answer).error_code) == "OffsetOutOfRange"
    good = wire.ask(fetch(broker, {0: 0}, version, session_id=first.session_id, session_epoch=3), version)
    assert only(good).error_code == 0


def test_the_same_partition_twice_in_one_request(broker: Broker, wire: Wire) -> None:
    fill(broker, wire, batch(b"x"))
    request = fetch(broker, {0: 0})
    request.topics[0].partitions = [*request.topics[0].partitions, *request.topics[0].partitions]  # type: ignore[misc]
    parts = wire.ask(request, 12).responses[0].partitions
    assert [values(part.records) for part in parts] == [[b"x"]]
    request.session_epoch = 0
    assert wire.ask(request, 12).error_code == 0


@pytest.mark.parametrize(
    ("max_bytes", "partition_max_bytes", "min_bytes", "max_wait_ms"),
    list(itertools.product((-1, 2**31 - 1), (-1, 2**31 - 1), (-1, 0), (-1, 1))),
)
def test_odd_limits_do_no_harm(
    broker: Broker, wire: Wire, max_bytes: int, partition_max_bytes: int, min_bytes: int, max_wait_ms: int
) -> None:
    fill(broker, wire, batch(b"x"))
    request = fetch(
        broker,
        {0: 0},
        max_bytes=max_bytes,
        partition_max_bytes=partition_max_bytes,
        min_bytes=min_bytes,
        max_wait_ms=max_wait_ms,
    )
    partition = only(wire.ask(request, 12))
    assert partition.error_code == 0
    assert values(partition.records) == [b"x"]
