"""The fetcher: what it asks, what it does about every error, and a simulation in which all goes wrong at once."""

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

from barnabas.client.fetch.fetch_session import FetchConfig, FetchRequestBuilder
from barnabas.client.fetch.fetcher import RETRY_S
from barnabas.client.fetch.positions import FetchPosition, ResetStrategy
from barnabas.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange, TopicAuthorizationFailed
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.primitives import Part
from barnabas.types import TopicPartition
from client.fetch.rig import T0, T1, U0, Rig, append, cluster_of, one

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


# --- answers that no longer matter ------------------------------------------------------------------------------------


def test_an_answer_for_another_position_is_dropped() -> None:
    rig = one()
    (request,) = rig.requests()
    rig.subscription.seek(T0, 7)
    rig.answer(request)
    assert rig.offsets() == {}
    rig.round()
    assert rig.offsets() == {T0: [7, 8, 9]}


def test_an_answer_for_a_partition_that_went() -> None:
    rig = one()
    (request,) = rig.requests()
    rig.subscription.assign([T1])
    rig.answer(request)
    assert rig.offsets() == {}


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


def test_out_of_range_is_reset() -> None:
    rig = one()
    rig.subscription.seek(T0, 55)
    rig.round()
    assert rig.subscription.partitions_needing_reset(rig.now) == {T0: ResetStrategy("earliest")}
    assert rig.requests() == []
    assert rig.invalid == 1
    rig.subscription.reset_to(T0, ResetStrategy("earliest"), FetchPosition(0, -1, 1, 0))
    assert rig.requests() == [], "what was looked up may be out of range, too"
    rig.cluster.advance(RETRY_S)
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
    (request,) = rig.requests()
    assert request.node == 1
    rig.fetcher.failed(FetchRequestBuilder(1, request.data, 0, rig.fetcher.config))
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
    (request,) = rig.requests()
    assert request.node == 1, "unknown"
    assert rig.metadata.update_requested
    cluster.preferred_replicas[T0] = 2
    rig.answer(request)
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
    assert rig.invalid == 1
    asked = rig.subscription.partitions_needing_validation(rig.now)[T0]
    assert (asked.leader, asked.leader_epoch) == (2, 1)
    rig.subscription.validated(T0, asked, *cluster.logs[T0].end_of_epoch(asked.offset_epoch), 0)
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
    rig.cluster.advance(RETRY_S)
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
                subscription.validated(topic_partition, asked, *log.end_of_epoch(asked.offset_epoch), 0)
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
