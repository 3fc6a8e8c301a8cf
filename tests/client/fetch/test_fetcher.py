"""The fetcher: what it asks, what it does about every error, and a simulation in which all goes wrong at once."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.fetch.fetch_session import FetchConfig, FetchRequestBuilder
from barnabas.client.fetch.fetcher import RETRY_S, Fetcher
from barnabas.client.fetch.positions import FetchPosition, PartitionState, ResetStrategy
from barnabas.client.settings import ConsumerSettings
from barnabas.connection.metadata import Metadata
from barnabas.errors import (
    BarnabasError,
    CorruptMessage,
    KafkaStorageError,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.fetch import from_message
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.primitives import Part
from barnabas.records.compiled.consumer_records import ConsumerRecord
from barnabas.types import TopicPartition
from simulation.cluster import Cluster
from simulation.log import Log

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


NEWEST = 18


def cluster_of(counts: dict[str, int], *, nodes: int = 2, version: int = NEWEST, slots: int = 10) -> Cluster:
    """A cluster with these topics, that serves Fetch up to this version and has room for so many sessions."""
    cluster = Cluster(counts, nodes=nodes, session_slots=slots)
    cluster.versions[ApiKey.FETCH] = (4, version)
    for name, count in counts.items():
        for index in range(count):
            cluster.log(name, index)
    return cluster


def append(log: Log, count: int) -> None:
    """Appends batches of up to three records. Each value names itself and the one before it, so that a reader can tell
    one history from another."""
    values = []
    for offset in range(log.end, log.end + count):
        before = values[-1] if values else log.values.get(offset - 1, b"nothing")
        assert before is not None
        itself = b"%d.%d.%s" % (log.leader_epoch, offset, uuid4().hex[:8].encode())
        values.append(b"%s after %s" % (itself, before.split()[0]))
    for first in range(0, count, 3):
        log.append(*values[first : first + 3], timestamp=1000)


class Rig:
    """A consumer's fetcher, subscription and metadata, without a network client between them and the cluster."""

    def __init__(self, cluster: Cluster, config: FetchConfig | None = None, reset: str = "earliest") -> None:
        self.cluster = cluster
        self.metadata = Metadata()
        self.metadata.add_topics(cluster.topics)
        self.subscription = SubscriptionState(ResetStrategy(reset))
        self.fetcher = Fetcher(self.subscription, self.metadata, config or FetchConfig())
        self.refresh()

    @property
    def now(self) -> float:
        return self.cluster.now

    def refresh(self) -> None:
        response = self.cluster.call(1, MetadataRequest(topics=None), 13)
        self.metadata.update(response, None, self.now)
        self.fetcher.follow_leaders()

    def start(self, *partitions: TopicPartition, offset: int = 0) -> None:
        self.subscription.assign(partitions)
        for topic_partition in partitions:
            self.subscription.seek(topic_partition, offset)

    def requests(self, is_ready: Callable[[int], bool] = lambda _: True) -> list[FetchRequestBuilder]:
        return self.fetcher.prepare_requests(self.now, is_ready)

    def fetch(self, request: FetchRequestBuilder) -> messages.FetchResponse:
        """Returns what the broker answers to the request."""
        newest = self.cluster.versions[ApiKey.FETCH][1]
        version = newest if request.at_most is None else min(newest, request.at_most)
        response = self.cluster.call(request.node, request.build(version), version)
        assert isinstance(response, messages.FetchResponse)
        return response

    def answer(self, request: FetchRequestBuilder, response: messages.FetchResponse | None = None) -> None:
        self.fetcher.answered(request, from_message(response or self.fetch(request)), self.now)

    def round(self) -> int:
        """One request to each broker and its answer."""
        requests = self.requests()
        for request in requests:
            self.answer(request)
        return len(requests)

    def read(self, limit: int = 1000) -> dict[TopicPartition, list[ConsumerRecord]]:
        """At most `limit` records, taken as a consumer's poll takes them."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        buffer = self.fetcher.buffer
        while limit > 0 and (fetch := buffer.next_fetch(raises_errors=not found)) is not None:
            try:
                records = fetch.read(limit)
            except BarnabasError:
                buffer.was_read(fetch, ended=False)
                if found:
                    break
                raise
            assert buffer.was_read(fetch, ended=fetch.is_ended)
            if records:
                found.setdefault(fetch.partition, []).extend(records)
            limit -= len(records)
        return found

    def offsets(self, limit: int = 1000) -> dict[TopicPartition, list[int]]:
        return {tp: [record.offset for record in found] for tp, found in self.read(limit).items()}

    def state(self) -> PartitionState:
        state = self.subscription.get(T0)
        assert state is not None
        return state

    def position(self, topic_partition: TopicPartition = T0) -> int | None:
        position = self.subscription.position(topic_partition)
        return None if position is None else position.offset


def one(count: int = 10, **options: Any) -> Rig:
    """One partition with `count` records, read from its beginning."""
    cluster = cluster_of({"t": 1}, nodes=1)
    append(cluster.logs[T0], count)
    rig = Rig(cluster, **options)
    rig.start(T0)
    return rig


# --- requests ---------------------------------------------------------------------------------------------------------


def test_one_request_to_each_leader() -> None:
    cluster = cluster_of({"t": 2, "u": 1}, nodes=2)
    for log in cluster.logs.values():
        append(log, 4)
    rig = Rig(cluster)
    rig.start(T0, T1, U0)
    requests = {request.node: request for request in rig.requests()}
    assert {node: set(request.data.to_send) for node, request in requests.items()} == {1: {T0, U0}, 2: {T1}}
    assert rig.requests() == [], "both are on their way"
    for request in requests.values():
        rig.answer(request)
    assert rig.offsets() == {T0: [0, 1, 2, 3], U0: [0, 1, 2, 3], T1: [0, 1, 2, 3]}
    assert rig.position(T1) == 4


def test_whether_a_leader_has_a_request() -> None:
    rig = one()
    assert not rig.fetcher.is_fetching(T0)
    (request,) = rig.requests()
    assert rig.fetcher.is_fetching(T0)
    assert not rig.fetcher.is_fetching(U0), "not ours"
    rig.state().prefer_replica(7, rig.now + 100)
    assert not rig.fetcher.is_fetching(T0), "another broker would be asked"
    rig.state().clear_preferred_replica()
    rig.answer(request)
    assert not rig.fetcher.is_fetching(T0)


def test_the_next_answer_is_on_its_way_while_one_is_read() -> None:
    rig = one(9, config=FetchConfig(max_partition_bytes=300))
    assert rig.round() == 1
    assert rig.round() == 1, "ahead of what is read"
    assert rig.round() == 0, "not further ahead"
    stored = rig.fetcher.buffer.size_bytes
    assert stored > 300
    assert rig.offsets(2) == {T0: [0, 1]}
    assert rig.round() == 0
    assert rig.offsets(100)[T0] == [2, 3, 4, 5]
    assert rig.fetcher.buffer.size_bytes == 0
    rig.round()
    assert rig.offsets() == {T0: [6, 7, 8]}
    assert rig.offsets() == {}


def test_a_broker_need_not_wait_long_while_others_of_its_partitions_are_not_asked_for() -> None:
    cluster = cluster_of({"t": 2}, nodes=1)
    append(cluster.logs[T0], 90)
    rig = Rig(cluster, FetchConfig(max_partition_bytes=200, max_wait_ms=500))
    rig.start(T0, T1)
    assert [request.max_wait_ms for request in rig.requests()] == [500]


def test_a_full_partition_shortens_the_wait_of_its_neighbours() -> None:
    cluster = cluster_of({"t": 2}, nodes=1)
    append(cluster.logs[T0], 90)
    rig = Rig(cluster, FetchConfig(max_partition_bytes=200, max_wait_ms=500))
    rig.start(T0, T1)
    rig.round()
    rig.round()
    (request,) = rig.requests()
    assert set(request.data.partitions) == {T1}
    assert request.max_wait_ms == 50


def test_nothing_is_asked_for_while_too_much_is_in_store() -> None:
    rig = one(90, config=FetchConfig(max_bytes=100))
    rig.round()
    assert rig.fetcher.buffer.size_bytes >= 100
    assert rig.requests() == []
    rig.offsets()
    assert len(rig.requests()) == 1


def test_what_is_in_store_of_a_paused_partition_gives_way() -> None:
    cluster = cluster_of({"t": 2}, nodes=1)
    for log in cluster.logs.values():
        append(log, 5)
    rig = Rig(cluster, FetchConfig(max_bytes=100))
    rig.start(T0)
    rig.round()
    rig.subscription.assign([T0, T1])
    rig.subscription.seek(T1, 0)
    rig.subscription.pause([T0])
    assert rig.offsets() == {}
    rig.round()
    assert rig.offsets() == {T1: [0, 1, 2, 3, 4]}
    rig.subscription.resume([T0])
    rig.round()
    assert rig.offsets() == {T0: [0, 1, 2, 3, 4]}


def test_paused_partitions_keep_what_is_in_store() -> None:
    rig = one()
    rig.round()
    rig.subscription.pause([T0])
    assert rig.offsets() == {}
    assert rig.fetcher.buffer.is_empty
    assert rig.requests() == []
    rig.subscription.resume([T0])
    assert rig.offsets()[T0] == list(range(10))


def test_a_broker_that_cannot_be_sent_to_is_left_alone() -> None:
    rig = one()
    assert rig.requests(lambda _: False) == []
    assert len(rig.requests()) == 1


def test_without_a_leader_metadata_is_asked_for() -> None:
    rig = one()
    rig.cluster.topics["t"][0] = -1
    rig.start(T1)
    rig.metadata.request(rig.now)
    assert not rig.metadata.update_requested
    assert rig.requests() == []
    assert rig.metadata.update_requested


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 16, 18])
def test_every_version(version: int) -> None:
    cluster = cluster_of({"t": 2, "u": 1}, nodes=1, version=version)
    rig = Rig(cluster)
    rig.start(T0, T1, U0)
    for _ in range(4):
        for log in cluster.logs.values():
            append(log, 2)
        rig.round()
    found: dict[TopicPartition, list[int]] = {}
    while offsets := rig.offsets(3):
        for topic_partition, numbers in offsets.items():
            found.setdefault(topic_partition, []).extend(numbers)
        rig.round()
    assert found == {topic_partition: list(range(8)) for topic_partition in (T0, T1, U0)}


def test_what_the_settings_say_is_asked_for() -> None:
    settings = ConsumerSettings(
        fetch_min_bytes=5, fetch_max_wait_ms=70, fetch_max_bytes=900, max_partition_fetch_bytes=80, client_rack="r",
        isolation_level="read_committed", check_crcs=False,
    )  # fmt: skip
    rig = one(config=FetchConfig.of(settings))
    (request,) = rig.requests()
    built = request.build(18)
    assert (built.min_bytes, built.max_wait_ms, built.max_bytes, built.rack_id) == (5, 70, 900, "r")
    assert built.isolation_level == 1
    assert built.topics[0].partitions[0].partition_max_bytes == 80
    assert not rig.fetcher.config.check_crcs


def test_a_topic_without_an_id_is_asked_for_by_name() -> None:
    rig = one()
    rig.cluster.topic_ids["t"] = uuid4().__class__(int=0)
    rig.refresh()
    (request,) = rig.requests()
    assert request.at_most == 12
    rig.answer(request)
    assert rig.offsets()[T0] == list(range(10))


# --- answers that no longer matter ------------------------------------------------------------------------------------


def test_an_answer_for_another_position_is_dropped() -> None:
    rig = one()
    (request,) = rig.requests()
    rig.subscription.seek(T0, 7)
    rig.answer(request)
    assert rig.offsets() == {}
    rig.round()
    assert rig.offsets() == {T0: [7, 8, 9]}


def test_a_seek_drops_what_is_in_store() -> None:
    rig = one()
    rig.round()
    rig.subscription.seek(T0, 4)
    assert rig.offsets() == {}
    assert rig.fetcher.buffer.size_bytes == 0
    rig.round()
    assert rig.offsets() == {T0: [4, 5, 6, 7, 8, 9]}


def test_an_answer_for_a_partition_that_went() -> None:
    rig = one()
    (request,) = rig.requests()
    rig.subscription.assign([T1])
    rig.answer(request)
    assert rig.offsets() == {}


def test_partitions_that_go_take_everything_with_them() -> None:
    rig = one()
    rig.round()
    rig.fetcher.forget([T0])
    assert rig.fetcher.buffer.size_bytes == 0
    assert rig.fetcher.buffer.is_empty


@pytest.mark.parametrize("version", [11, 18])
def test_what_the_former_leader_gave_is_not_read_behind_a_check_with_the_new_one(version: int) -> None:
    """The new leader lacks the second record and has others instead. Brokers before Fetch v12 do not tell later."""
    cluster = cluster_of({"t": 1}, nodes=3, version=version)
    log = cluster.logs[T0]
    append(log, 2)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    assert rig.offsets(1) == {T0: [0]}, "the second one is in buffer"
    cluster.move_leader(T0, 2)
    log.truncate(1)
    append(log, 2)
    rig.refresh()
    (asked,) = rig.subscription.partitions_needing_validation(rig.now).values()
    assert rig.subscription.validated(T0, asked, *log.end_of_epoch(asked.offset_epoch)) is None
    rig.round()
    assert [record.value for record in rig.read()[T0]] == [log.values[1], log.values[2]]


def test_a_partition_that_is_being_revoked_gives_nothing() -> None:
    rig = one()
    rig.round()
    rig.subscription.mark_pending_revocation([T0])
    assert rig.offsets() == {}
    assert rig.requests() == []


def test_answers_of_requests_that_were_given_up() -> None:
    rig = one()
    (request,) = rig.requests()
    response = rig.fetch(request)
    rig.fetcher.failed(request)
    rig.answer(request, response)
    rig.fetcher.failed(request)
    assert rig.offsets() == {}
    rig.round()
    assert rig.offsets()[T0] == list(range(10))


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [3, 6, 9, 56, 74, 78, 100, 103])
def test_errors_that_ask_for_metadata(code: int) -> None:
    rig = one()
    rig.state().prefer_replica(1, until=rig.now + 99)
    rig.metadata.request(rig.now)
    rig.cluster.logs[T0].fetch_error = code
    rig.cluster.names_leader = False
    rig.round()
    assert rig.metadata.update_requested
    assert rig.state().preferred_replica_at(rig.now) == -1
    assert rig.offsets() == {}
    rig.cluster.logs[T0].fetch_error = 0
    assert rig.requests() == [], "not at once"
    assert rig.fetcher.next_deadline() == rig.now + RETRY_S
    rig.refresh()
    assert rig.round() == 1, "as soon as metadata is news"
    assert rig.offsets()[T0] == list(range(10))


@pytest.mark.parametrize("code", [75, -1])
def test_errors_that_pass(code: int) -> None:
    rig = one()
    rig.metadata.request(rig.now)
    rig.cluster.logs[T0].fetch_error = code
    rig.round()
    rig.cluster.logs[T0].fetch_error = 0
    assert not rig.metadata.update_requested
    assert rig.requests() == []
    rig.cluster.advance(RETRY_S)
    rig.round()
    assert rig.offsets()[T0] == list(range(10))


@pytest.mark.parametrize(
    ("code", "error"), [(29, TopicAuthorizationFailed), (2, CorruptMessage), (87, Exception), (56, KafkaStorageError)]
)
def test_errors_that_the_application_hears(code: int, error: type[Exception]) -> None:
    rig = one()
    rig.round()
    append(rig.cluster.logs[T0], 1)
    rig.cluster.logs[T0].fetch_error = code
    rig.round()
    assert rig.offsets()[T0] == list(range(10)), "what came before it first"
    if error is KafkaStorageError:
        assert rig.offsets() == {}
        return
    assert not rig.fetcher.buffer.is_empty
    with pytest.raises(error, match="fetching t-0 from offset 10"):
        rig.offsets()
    assert rig.offsets() == {}
    rig.cluster.logs[T0].fetch_error = 0
    rig.cluster.advance(RETRY_S)
    rig.round()
    assert rig.offsets() == {T0: [10]}


def test_a_failure_does_not_outlive_a_seek() -> None:
    rig = one()
    rig.cluster.logs[T0].fetch_error = 29
    rig.round()
    rig.subscription.seek(T0, 3)
    assert rig.offsets() == {}
    rig.cluster.logs[T0].fetch_error = 0
    rig.cluster.advance(RETRY_S)
    rig.round()
    assert rig.offsets()[T0] == list(range(3, 10))


def test_out_of_range_is_reset() -> None:
    rig = one()
    rig.subscription.seek(T0, 55)
    rig.round()
    assert rig.subscription.partitions_needing_reset(rig.now) == {T0: ResetStrategy("earliest")}
    assert rig.requests() == []
    rig.subscription.reset_to(T0, ResetStrategy("earliest"), FetchPosition(0, -1, 1, 0))
    rig.round()
    assert rig.offsets()[T0] == list(range(10))


def test_out_of_range_without_a_reset_is_the_applications() -> None:
    rig = one(reset="none")
    rig.round()
    rig.offsets()
    rig.subscription.seek(T0, 55)
    rig.round()
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange, match="t-0: offset 55 is not in the log, which has 0 to 10; "):
            rig.offsets()
        rig.round()
    rig.subscription.seek(T0, 8)
    rig.round()
    assert rig.offsets() == {T0: [8, 9]}


def test_out_of_range_ahead_of_what_is_read_waits_for_it() -> None:
    rig = one(9, config=FetchConfig(max_partition_bytes=300))
    rig.round()
    log = rig.cluster.logs[T0]
    end, log.end = log.end, 1
    rig.round()
    log.end = end
    assert rig.subscription.partitions_needing_reset(rig.now) == {}
    assert rig.requests() == []
    assert rig.offsets() == {T0: [0, 1, 2]}
    rig.cluster.advance(RETRY_S)
    rig.round()
    assert rig.offsets() == {T0: [3, 4, 5]}


def test_a_follower_that_is_behind_sends_us_back_to_the_leader() -> None:
    cluster = cluster_of({"t": 1}, nodes=2)
    append(cluster.logs[T0], 10)
    cluster.preferred_replicas[T0] = 2
    rig = Rig(cluster)
    rig.start(T0)
    assert [request.node for request in rig.requests()] == [1]
    rig.fetcher.failed(FetchRequestBuilder(1, rig.fetcher._in_flight[1].data, 0, rig.fetcher.config))
    (request,) = rig.fetcher._in_flight.values()
    rig.answer(request)
    assert rig.state().preferred_replica_at(rig.now) == 2
    (request,) = rig.requests()
    assert request.node == 2
    rig.answer(request)
    assert rig.offsets()[T0] == list(range(10))
    cluster.follower_ends[T0] = 5
    append(cluster.logs[T0], 1)
    rig.round()
    assert rig.state().preferred_replica_at(rig.now) == -1
    assert rig.position() == 10
    cluster.preferred_replicas.clear()
    assert [request.node for request in rig.requests()] == [1]


def test_a_preferred_replica_is_asked_while_it_is_there_and_fresh() -> None:
    cluster = cluster_of({"t": 1}, nodes=2)
    append(cluster.logs[T0], 3)
    rig = Rig(cluster, FetchConfig(replica_max_age_s=60))
    rig.start(T0)
    rig.refresh()
    rig.state().prefer_replica(7, until=rig.now + 99)
    rig.metadata.request(rig.now)
    assert [request.node for request in rig.requests()] == [1], "unknown"
    assert rig.metadata.update_requested
    cluster.preferred_replicas[T0] = 2
    rig.answer(rig.fetcher._in_flight[1])
    assert rig.state().preferred_replica_at(rig.now + 60) == 2
    assert rig.state().preferred_replica_at(rig.now + 60.1) == -1


def test_a_broker_that_says_who_leads_now() -> None:
    cluster = cluster_of({"t": 1}, nodes=2)
    append(cluster.logs[T0], 6)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    rig.offsets()
    cluster.move_leader(T0, 2)
    append(cluster.logs[T0], 2)
    rig.round()
    asked = rig.subscription.partitions_needing_validation(rig.now)[T0]
    assert (asked.leader, asked.leader_epoch) == (2, 1)
    rig.subscription.validated(T0, asked, *cluster.logs[T0].end_of_epoch(asked.offset_epoch))
    rig.round()
    assert rig.offsets() == {T0: [6, 7]}


def test_a_topic_that_was_made_anew() -> None:
    rig = one()
    rig.round()
    rig.offsets()
    rig.cluster.topic_ids["t"] = uuid4()
    rig.cluster.logs[T0].truncate(0)
    append(rig.cluster.logs[T0], 2)
    rig.round()
    assert rig.metadata.update_requested, "the id is unknown"
    rig.refresh()
    rig.round()
    assert rig.subscription.partitions_needing_reset(rig.now)
    rig.subscription.reset_to(T0, ResetStrategy("earliest"), FetchPosition(0, -1, 1, 0))
    rig.round()
    assert rig.offsets() == {T0: [0, 1]}


def test_bytes_without_a_whole_batch() -> None:
    rig = one()
    (request,) = rig.requests()
    response = rig.fetch(request)
    partition = response.responses[0].partitions[0]
    assert partition.records is not None
    partition.records = Part(bytes(partition.records), 0, 50)
    rig.answer(request, response)
    with pytest.raises(CorruptMessage, match="50 bytes that came for offset 0 hold no whole batch"):
        rig.offsets()


def test_a_broken_record_comes_up_again_until_there_is_a_seek() -> None:
    rig = one(9)
    (request,) = rig.requests()
    response = rig.fetch(request)
    partition = response.responses[0].partitions[0]
    data = bytearray(bytes(partition.records or b""))
    data[-1] ^= 1
    partition.records = Part(bytes(data), 0, len(data))
    rig.answer(request, response)
    assert rig.offsets() == {T0: [0, 1, 2, 3, 4, 5]}
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="offsets 6 to 8 fails its checksum"):
            rig.offsets()
    assert rig.position() == 6
    rig.subscription.seek(T0, 6)
    with pytest.raises(CorruptMessage):
        rig.offsets()
    rig.subscription.seek(T0, 7)
    rig.round()
    rig.round()
    assert rig.offsets() == {T0: [7, 8]}


def test_batches() -> None:
    rig = one(7)
    rig.round()
    buffer = rig.fetcher.buffer
    fetch = buffer.next_fetch()
    assert fetch is not None
    batch = fetch.read_batch()
    assert batch is not None
    assert [record.offset for record in batch] == list(range(7))
    assert fetch.is_ended
    assert buffer.was_read(fetch, ended=True)
    assert rig.position() == 7
    assert buffer.next_fetch() is None
    assert buffer.size_bytes == 0
    rig.cluster.logs[T0].fetch_error = TopicAuthorizationFailed.code
    rig.round()
    assert buffer.next_fetch(raises_errors=False) is None
    with pytest.raises(TopicAuthorizationFailed):
        buffer.next_fetch()
    assert buffer.next_fetch() is None, "told once"


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_sends_what_changed_only() -> None:
    cluster = cluster_of({"t": 2, "u": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0, T1, U0)
    (first,) = rig.requests()
    assert first.data.is_full
    rig.answer(first)
    append(cluster.logs[T1], 3)
    (second,) = rig.requests()
    assert not second.data.is_full
    assert second.data.to_send == {}
    rig.answer(second)
    rig.offsets()
    (third,) = rig.requests()
    assert {topic_partition: wanted.offset for topic_partition, wanted in third.data.to_send.items()} == {T1: 3}
    rig.answer(third)
    rig.subscription.pause([U0])
    (fourth,) = rig.requests()
    assert [topic_partition for topic_partition, _ in fourth.data.to_forget] == [U0]
    rig.answer(fourth)
    assert len(cluster.sessions[1]) == 1
    (ending,) = rig.fetcher.close()
    rig.fetch(ending)
    assert len(cluster.sessions[1]) == 0
    assert rig.fetcher.close() == []


def test_a_full_request_tells_of_a_partition_without_news() -> None:
    rig = one(3)
    rig.round()
    rig.offsets()
    rig.round()
    assert rig.state().empty_at == -1, "left out of the response"
    (request,) = rig.requests()
    rig.fetcher.request_all()
    rig.answer(request)
    (following,) = rig.requests()
    assert following.data.is_full
    assert following.data.session_id == request.data.session_id
    rig.answer(following)
    assert rig.state().empty_at == 3
    (incremental,) = rig.requests()
    assert not incremental.data.is_full


def test_a_session_that_the_broker_lost_begins_anew() -> None:
    cluster = cluster_of({"t": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    (request,) = rig.requests()
    cluster.sessions[1].end(request.data.session_id)
    append(cluster.logs[T0], 2)
    rig.answer(request)
    assert rig.offsets() == {}
    (again,) = rig.requests()
    assert again.data.is_full
    assert again.data.session_id == 0
    rig.answer(again)
    assert rig.offsets() == {T0: [0, 1]}


def test_a_lost_request_ends_the_session_it_may_have_changed() -> None:
    cluster = cluster_of({"t": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    (lost,) = rig.requests()
    rig.fetch(lost)
    rig.fetcher.failed(lost)
    (again,) = rig.requests()
    assert again.data.is_full
    assert again.data.session_id == lost.data.session_id != 0
    rig.answer(again)
    assert len(cluster.sessions[1]) == 1, "the former one is gone"


def test_a_broker_without_room_for_sessions() -> None:
    cluster = cluster_of({"t": 1}, nodes=1, slots=0)
    rig = Rig(cluster)
    rig.start(T0)
    for count in range(3):
        append(cluster.logs[T0], 1)
        (request,) = rig.requests()
        assert request.data.is_full
        rig.answer(request)
        assert rig.offsets() == {T0: [count]}


@pytest.mark.parametrize("extra", [True, False])
def test_an_answer_that_does_not_fit_its_request(extra: bool) -> None:
    cluster = cluster_of({"t": 2}, nodes=1, version=12)
    rig = Rig(cluster)
    rig.start(T0, T1)
    (request,) = rig.requests()
    response = rig.fetch(request)
    (topic,) = response.responses
    stranger = messages.PartitionData(partition_index=9)
    topic.partitions = [*topic.partitions, stranger] if extra else topic.partitions[:1]
    rig.answer(request, response)
    (again,) = rig.requests()
    assert again.data.is_full
    rig.answer(again)
    (incremental,) = rig.requests()
    assert not incremental.data.is_full
    response = rig.fetch(incremental)
    response.responses = [messages.FetchableTopicResponse(topic="t", partitions=[stranger])] if extra else []
    rig.answer(incremental, response)
    (following,) = rig.requests()
    assert following.data.is_full == extra, "nothing to tell is what an incremental answer may say"


def test_a_session_keeps_to_names_or_ids() -> None:
    cluster = cluster_of({"t": 1, "u": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    no_id = uuid4().__class__(int=0)
    cluster.topic_ids["u"] = no_id
    rig.refresh()
    rig.subscription.assign([T0, U0])
    rig.subscription.seek(U0, 0)
    (request,) = rig.requests()
    assert request.data.is_full
    assert request.at_most == 12
    rig.answer(request)
    assert len(cluster.sessions[1]) == 1


# --- everything at once -----------------------------------------------------------------------------------------------


class Simulation(RuleBasedStateMachine):
    """Leaders move, logs are cut by unclean elections and retention, requests and answers are lost, the application
    reads, seeks and pauses. Whatever is read is what the log had; nothing is left out but what the log lost or the
    application skipped; and in the end everything has been read."""

    @initialize(version=st.sampled_from([6, 11, 12, 18]), slots=st.sampled_from([0, 10]))
    def begin(self, version: int, slots: int) -> None:
        self.cluster = cluster_of({"t": 2, "u": 1}, nodes=3, version=version, slots=slots)
        self.rig = Rig(self.cluster, FetchConfig(max_partition_bytes=250, max_bytes=2000))
        self.partitions = [T0, T1, U0]
        self.rig.start(*self.partitions)
        self.expected = dict.fromkeys(self.partitions, 0)
        """The next offset that `read` must give."""
        self.seen: dict[TopicPartition, dict[int, set[bytes]]] = {tp: {} for tp in self.partitions}
        """Every value that a log ever had at an offset."""
        self.last: dict[TopicPartition, bytes] = {}
        """What was read just before `expected`."""
        self.shaken: set[TopicPartition] = set()
        """Partitions that lost records, or topic_partition the application went astray."""
        self.pending: list[tuple[FetchRequestBuilder, messages.FetchResponse | None]] = []

    # the cluster

    def leader(self, topic_partition: TopicPartition) -> int:
        return self.cluster.topics[topic_partition.topic][topic_partition.partition]

    @rule(data=st.data(), count=st.integers(1, 7))
    def produce(self, data: st.DataObject, count: int) -> None:
        topic_partition = data.draw(st.sampled_from(self.partitions))
        log = self.cluster.logs[topic_partition]
        append(log, count)
        for offset in range(log.end - count, log.end):
            self.seen[topic_partition].setdefault(offset, set()).add(log.values[offset])

    @rule(data=st.data(), lost=st.integers(0, 4))
    def elect(self, data: st.DataObject, lost: int) -> None:
        """A new leader, which lacks the last records: an unclean one if `lost` is not 0."""
        topic_partition = data.draw(st.sampled_from(self.partitions))
        log = self.cluster.logs[topic_partition]
        if lost:
            self.shaken.add(topic_partition)
        self.cluster.move_leader(topic_partition, self.leader(topic_partition) % 3 + 1)
        log.truncate(max(log.start, log.end - lost))

    @rule(data=st.data(), count=st.integers(1, 5))
    def retain(self, data: st.DataObject, count: int) -> None:
        topic_partition = data.draw(st.sampled_from(self.partitions))
        log = self.cluster.logs[topic_partition]
        self.shaken.add(topic_partition)
        log.start = min(log.end, log.start + count)

    @rule(told=st.booleans())
    def tell_leaders(self, told: bool) -> None:
        self.cluster.names_leader = told

    @rule(data=st.data(), follower=st.integers(1, 3), behind=st.integers(0, 3))
    def prefer(self, data: st.DataObject, follower: int, behind: int) -> None:
        topic_partition = data.draw(st.sampled_from(self.partitions))
        self.cluster.preferred_replicas[topic_partition] = follower
        self.cluster.follower_ends[topic_partition] = max(0, self.cluster.logs[topic_partition].end - behind)

    @rule()
    def lose_sessions(self) -> None:
        for cache in self.cluster.sessions.values():
            for session_id in list(cache._sessions):
                cache.end(session_id)

    # the network

    @rule()
    def send(self) -> None:
        for request in self.rig.requests():
            self.pending.append((request, None))

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def reach_the_broker(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.pending) - 1))
        request, response = self.pending[index]
        if response is None:
            self.pending[index] = request, self.rig.fetch(request)

    @precondition(lambda self: any(response for _, response in self.pending))
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        request, response = data.draw(st.sampled_from([each for each in self.pending if each[1] is not None]))
        self.pending = [each for each in self.pending if each[0] is not request]
        assert response is not None
        self.rig.answer(request, response)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        request, _ = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1)))
        self.rig.fetcher.failed(request)

    def exchange(self) -> None:
        """What is on its way goes all the way, and one more request follows it."""
        for _ in range(2):
            for request, response in self.pending:
                self.rig.answer(request, response)
            self.pending = []
            self.send()

    # most of the time nothing goes wrong
    @rule(limit=st.integers(1, 20))
    def flow(self, limit: int) -> None:
        self.exchange()
        self.read(limit)

    @rule(limit=st.integers(1, 20))
    def steady_flow(self, limit: int) -> None:
        self.exchange()
        self.settle()
        self.read(limit)

    @rule(limit=st.integers(1, 20))
    def late_flow(self, limit: int) -> None:
        self.exchange()
        self.wait()
        self.read(limit)

    def settle(self) -> None:
        self.rig.refresh()
        self.settle_positions()

    @rule()
    def learn(self) -> None:
        self.rig.refresh()

    @rule()
    def wait(self) -> None:
        self.cluster.advance(RETRY_S)

    @rule()
    def settle_positions(self) -> None:
        """What the consumer asks leaders about: resets and validations."""
        subscription = self.rig.subscription
        for topic_partition, strategy in subscription.partitions_needing_reset(self.rig.now).items():
            assert topic_partition in self.shaken, "the position was there all the time"
            log = self.cluster.logs[topic_partition]
            self.last.pop(topic_partition, None)
            subscription.reset_to(
                topic_partition, strategy, FetchPosition(log.start, -1, self.leader(topic_partition), log.leader_epoch)
            )
            self.expected[topic_partition] = log.start
        for topic_partition, asked in subscription.partitions_needing_validation(self.rig.now).items():
            log = self.cluster.logs[topic_partition]
            if (asked.leader, asked.leader_epoch) == (self.leader(topic_partition), log.leader_epoch):
                subscription.validated(topic_partition, asked, *log.end_of_epoch(asked.offset_epoch))
                position = subscription.position(topic_partition)
                if position is not None and position.offset != self.expected[topic_partition]:
                    assert topic_partition in self.shaken
                    self.expected[topic_partition] = position.offset
                    self.last.pop(topic_partition, None)

    # the application

    @rule(limit=st.integers(1, 8))
    def read(self, limit: int) -> None:
        found = self.rig.read(limit)
        assert sum(map(len, found.values())) <= limit
        for topic_partition, records in found.items():
            for record in records:
                assert record.offset == self.expected[topic_partition], "left out, or twice"
                assert record.value in self.seen[topic_partition][record.offset], "never was in the log"
                itself, _, before = record.value.split()
                if topic_partition in self.last and self.cluster.versions[ApiKey.FETCH][1] >= 11:
                    assert self.last[topic_partition] == before, "nobody noticed that the log was cut"
                self.last[topic_partition] = itself
                self.expected[topic_partition] = record.offset + 1
            assert self.rig.position(topic_partition) == self.expected[topic_partition]

    @rule(data=st.data(), offset=st.integers(0, 30))
    def seek(self, data: st.DataObject, offset: int) -> None:
        topic_partition = data.draw(st.sampled_from(self.partitions))
        self.rig.subscription.seek(topic_partition, offset)
        self.expected[topic_partition] = offset
        self.last.pop(topic_partition, None)
        self.shaken.add(topic_partition)

    @rule(data=st.data(), paused=st.booleans())
    def pause(self, data: st.DataObject, paused: bool) -> None:
        topic_partition = data.draw(st.sampled_from(self.partitions))
        (self.rig.subscription.pause if paused else self.rig.subscription.resume)([topic_partition])

    @invariant()
    def store_is_bounded(self) -> None:
        if hasattr(self, "rig"):
            assert self.rig.fetcher.buffer.size_bytes <= 2000 + 3 * 2 * 1500
            assert len(self.rig.fetcher._in_flight) == len(self.pending)

    def teardown(self) -> None:
        """When nothing goes wrong any more, everything that is there is read."""
        if not hasattr(self, "rig"):
            return
        for request, _ in self.pending:
            self.rig.fetcher.failed(request)
        self.pending = []
        self.cluster.follower_ends.clear()
        self.rig.subscription.resume(self.partitions)
        for _ in range(200):
            self.learn()
            self.settle_positions()
            self.send()
            for request, _ in self.pending:
                self.rig.answer(request)
            self.pending = []
            self.read(50)
            self.wait()
            if all(
                self.rig.position(topic_partition) == self.cluster.logs[topic_partition].end
                for topic_partition in self.partitions
            ):
                return
        logs = self.cluster.logs
        raise AssertionError(
            {
                str(topic_partition): (self.rig.position(topic_partition), logs[topic_partition])
                for topic_partition in self.partitions
            }
        )


def test_simulation() -> None:
    run_state_machine_as_test(Simulation, settings=settings(max_examples=100, stateful_step_count=60, deadline=None))
