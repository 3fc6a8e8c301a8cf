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
from barnabas.client.fetch.fetch_request import FetchRules, FetchTask
from barnabas.client.fetch.fetch_response import answer_of
from barnabas.client.fetch.fetcher import RETRY_S, Fetcher
from barnabas.client.fetch.positions import FetchPosition, ResetStrategy
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
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.records.consumer_kernel import ConsumerRecord
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

    def __init__(self, cluster: Cluster, rules: FetchRules | None = None, reset: str = "earliest") -> None:
        self.cluster = cluster
        self.metadata = Metadata()
        self.metadata.want(cluster.topics)
        self.subscription = SubscriptionState(ResetStrategy(reset))
        self.fetcher = Fetcher(self.subscription, self.metadata, rules or FetchRules())
        self.refresh()

    @property
    def now(self) -> float:
        return self.cluster.now

    def refresh(self) -> None:
        response = self.cluster.call(1, MetadataRequest(topics=None), 13)
        self.metadata.take_in(response, None, self.now)
        self.fetcher.follow_leaders(lambda _: True)

    def start(self, *partitions: TopicPartition, offset: int = 0) -> None:
        self.subscription.assign(partitions)
        for where in partitions:
            self.subscription.seek(where, offset)

    def tasks(self, is_ready: Callable[[int], bool] = lambda _: True) -> list[FetchTask]:
        return self.fetcher.tasks(self.now, is_ready)

    def fetch(self, task: FetchTask) -> messages.FetchResponse:
        """Returns what the broker answers to the request."""
        newest = self.cluster.versions[ApiKey.FETCH][1]
        version = newest if task.at_most is None else min(newest, task.at_most)
        response = self.cluster.call(task.node, task.request(version), version)
        assert isinstance(response, messages.FetchResponse)
        return response

    def answer(self, task: FetchTask, response: messages.FetchResponse | None = None) -> None:
        self.fetcher.answered(task, answer_of(response or self.fetch(task)), self.now)

    def round(self) -> int:
        """One request to each broker and its answer."""
        tasks = self.tasks()
        for task in tasks:
            self.answer(task)
        return len(tasks)

    def read(self, limit: int = 1000) -> dict[TopicPartition, list[ConsumerRecord]]:
        """At most `limit` records, taken as a consumer's poll takes them."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        store = self.fetcher.store
        while limit > 0 and (fetch := store.next_fetch(tells_failures=not found)) is not None:
            try:
                records = fetch.read(limit)
            except BarnabasError:
                store.was_read(fetch, ended=False)
                if found:
                    break
                raise
            assert store.was_read(fetch, ended=fetch.is_ended)
            if records:
                found.setdefault(fetch.partition, []).extend(records)
            limit -= len(records)
        return found

    def offsets(self, limit: int = 1000) -> dict[TopicPartition, list[int]]:
        return {where: [record.offset for record in found] for where, found in self.read(limit).items()}

    def position(self, where: TopicPartition = T0) -> int | None:
        position = self.subscription.position(where)
        return None if position is None else position.offset


def one(count: int = 10, **options: Any) -> Rig:
    """One partition with `count` records, read from its beginning."""
    cluster = cluster_of({"t": 1}, nodes=1)
    append(cluster.logs[T0], count)
    rig = Rig(cluster, **options)
    rig.start(T0)
    return rig


# --- asking -----------------------------------------------------------------------------------------------------------


def test_one_request_to_each_leader() -> None:
    cluster = cluster_of({"t": 2, "u": 1}, nodes=2)
    for log in cluster.logs.values():
        append(log, 4)
    rig = Rig(cluster)
    rig.start(T0, T1, U0)
    tasks = {task.node: task for task in rig.tasks()}
    assert {node: set(task.session.to_send) for node, task in tasks.items()} == {1: {T0, U0}, 2: {T1}}
    assert rig.tasks() == [], "both are on their way"
    for task in tasks.values():
        rig.answer(task)
    assert rig.offsets() == {T0: [0, 1, 2, 3], U0: [0, 1, 2, 3], T1: [0, 1, 2, 3]}
    assert rig.position(T1) == 4


def test_whether_a_leader_has_a_request() -> None:
    rig = one()
    assert not rig.fetcher.is_asking(T0)
    (task,) = rig.tasks()
    assert rig.fetcher.is_asking(T0)
    assert not rig.fetcher.is_asking(U0), "not ours"
    rig.subscription.prefer_replica(T0, 7, rig.now + 100)
    assert not rig.fetcher.is_asking(T0), "another broker would be asked"
    rig.subscription.clear_preferred_replica(T0)
    rig.answer(task)
    assert not rig.fetcher.is_asking(T0)


def test_the_next_answer_is_on_its_way_while_one_is_read() -> None:
    rig = one(9, rules=FetchRules(max_partition_bytes=300))
    assert rig.round() == 1
    assert rig.round() == 1, "ahead of what is read"
    assert rig.round() == 0, "not further ahead"
    stored = rig.fetcher.store.size_bytes
    assert stored > 300
    assert rig.offsets(2) == {T0: [0, 1]}
    assert rig.round() == 0
    assert rig.offsets(100)[T0] == [2, 3, 4, 5]
    assert rig.fetcher.store.size_bytes == 0
    rig.round()
    assert rig.offsets() == {T0: [6, 7, 8]}
    assert rig.offsets() == {}


def test_a_broker_need_not_wait_long_while_others_of_its_partitions_are_not_asked_for() -> None:
    cluster = cluster_of({"t": 2}, nodes=1)
    append(cluster.logs[T0], 90)
    rig = Rig(cluster, FetchRules(max_partition_bytes=200, max_wait_ms=500))
    rig.start(T0, T1)
    assert [task.max_wait_ms for task in rig.tasks()] == [500]


def test_a_full_partition_shortens_the_wait_of_its_neighbours() -> None:
    cluster = cluster_of({"t": 2}, nodes=1)
    append(cluster.logs[T0], 90)
    rig = Rig(cluster, FetchRules(max_partition_bytes=200, max_wait_ms=500))
    rig.start(T0, T1)
    rig.round()
    rig.round()
    (task,) = rig.tasks()
    assert set(task.session.partitions) == {T1}
    assert task.max_wait_ms == 50


def test_nothing_is_asked_for_while_too_much_is_in_store() -> None:
    rig = one(90, rules=FetchRules(max_bytes=100))
    rig.round()
    assert rig.fetcher.store.size_bytes >= 100
    assert rig.tasks() == []
    rig.offsets()
    assert len(rig.tasks()) == 1


def test_what_is_in_store_of_a_paused_partition_gives_way() -> None:
    cluster = cluster_of({"t": 2}, nodes=1)
    for log in cluster.logs.values():
        append(log, 5)
    rig = Rig(cluster, FetchRules(max_bytes=100))
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
    assert rig.fetcher.store.is_empty
    assert rig.tasks() == []
    rig.subscription.resume([T0])
    assert rig.offsets()[T0] == list(range(10))


def test_a_broker_that_cannot_be_sent_to_is_left_alone() -> None:
    rig = one()
    assert rig.tasks(lambda _: False) == []
    assert len(rig.tasks()) == 1


def test_without_a_leader_metadata_is_asked_for() -> None:
    rig = one()
    rig.cluster.topics["t"][0] = -1
    rig.start(T1)
    rig.metadata.request(rig.now)
    assert not rig.metadata.is_stale
    assert rig.tasks() == []
    assert rig.metadata.is_stale


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
        for where, numbers in offsets.items():
            found.setdefault(where, []).extend(numbers)
        rig.round()
    assert found == {where: list(range(8)) for where in (T0, T1, U0)}


def test_what_the_settings_say_is_asked_for() -> None:
    settings = ConsumerSettings(
        fetch_min_bytes=5, fetch_max_wait_ms=70, fetch_max_bytes=900, max_partition_fetch_bytes=80, client_rack="r",
        isolation_level="read_committed", check_crcs=False,
    )  # fmt: skip
    rig = one(rules=FetchRules.of(settings))
    (task,) = rig.tasks()
    request = task.request(18)
    assert (request.min_bytes, request.max_wait_ms, request.max_bytes, request.rack_id) == (5, 70, 900, "r")
    assert request.isolation_level == 1
    assert request.topics[0].partitions[0].partition_max_bytes == 80
    assert not rig.fetcher.rules.check_crcs


def test_a_topic_without_an_id_is_asked_for_by_name() -> None:
    rig = one()
    rig.cluster.topic_ids["t"] = uuid4().__class__(int=0)
    rig.refresh()
    (task,) = rig.tasks()
    assert task.at_most == 12
    rig.answer(task)
    assert rig.offsets()[T0] == list(range(10))


# --- answers that no longer matter ------------------------------------------------------------------------------------


def test_an_answer_for_another_position_is_dropped() -> None:
    rig = one()
    (task,) = rig.tasks()
    rig.subscription.seek(T0, 7)
    rig.answer(task)
    assert rig.offsets() == {}
    rig.round()
    assert rig.offsets() == {T0: [7, 8, 9]}


def test_a_seek_drops_what_is_in_store() -> None:
    rig = one()
    rig.round()
    rig.subscription.seek(T0, 4)
    assert rig.offsets() == {}
    assert rig.fetcher.store.size_bytes == 0
    rig.round()
    assert rig.offsets() == {T0: [4, 5, 6, 7, 8, 9]}


def test_an_answer_for_a_partition_that_went() -> None:
    rig = one()
    (task,) = rig.tasks()
    rig.subscription.assign([T1])
    rig.answer(task)
    assert rig.offsets() == {}


def test_partitions_that_go_take_everything_with_them() -> None:
    rig = one()
    rig.round()
    rig.fetcher.forget([T0])
    assert rig.fetcher.store.size_bytes == 0
    assert rig.fetcher.store.is_empty


@pytest.mark.parametrize("version", [11, 18])
def test_what_the_former_leader_gave_is_not_read_behind_a_check_with_the_new_one(version: int) -> None:
    """The new leader lacks the second record and has others instead. Brokers before Fetch v12 do not tell later."""
    cluster = cluster_of({"t": 1}, nodes=3, version=version)
    log = cluster.logs[T0]
    append(log, 2)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    assert rig.offsets(1) == {T0: [0]}, "the second one is in store"
    cluster.move_leader(T0, 2)
    log.truncate(1)
    append(log, 2)
    rig.refresh()
    (asked,) = rig.subscription.needing_validation(rig.now).values()
    assert rig.subscription.validated(T0, asked, *log.end_of_epoch(asked.offset_epoch)) is None
    rig.round()
    assert [record.value for record in rig.read()[T0]] == [log.values[1], log.values[2]]


def test_a_partition_that_is_being_revoked_gives_nothing() -> None:
    rig = one()
    rig.round()
    rig.subscription.mark_pending_revocation([T0])
    assert rig.offsets() == {}
    assert rig.tasks() == []


def test_answers_of_requests_that_were_given_up() -> None:
    rig = one()
    (task,) = rig.tasks()
    response = rig.fetch(task)
    rig.fetcher.failed(task)
    rig.answer(task, response)
    rig.fetcher.failed(task)
    assert rig.offsets() == {}
    rig.round()
    assert rig.offsets()[T0] == list(range(10))


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [3, 6, 9, 56, 74, 78, 100, 103])
def test_errors_that_ask_for_metadata(code: int) -> None:
    rig = one()
    rig.subscription.prefer_replica(T0, 1, until=rig.now + 99)
    rig.metadata.request(rig.now)
    rig.cluster.logs[T0].fetch_error = code
    rig.cluster.names_leader = False
    rig.round()
    assert rig.metadata.is_stale
    assert rig.subscription.preferred_replica(T0, rig.now) == -1
    assert rig.offsets() == {}
    rig.cluster.logs[T0].fetch_error = 0
    assert rig.tasks() == [], "not at once"
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
    assert not rig.metadata.is_stale
    assert rig.tasks() == []
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
    assert not rig.fetcher.store.is_empty
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
    assert rig.subscription.needing_reset(rig.now) == {T0: ResetStrategy("earliest")}
    assert rig.tasks() == []
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
    rig = one(9, rules=FetchRules(max_partition_bytes=300))
    rig.round()
    log = rig.cluster.logs[T0]
    end, log.end = log.end, 1
    rig.round()
    log.end = end
    assert rig.subscription.needing_reset(rig.now) == {}
    assert rig.tasks() == []
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
    assert [task.node for task in rig.tasks()] == [1]
    rig.fetcher.failed(FetchTask(1, rig.fetcher._in_flight[1].session, 0, rig.fetcher.rules))
    (task,) = rig.fetcher._in_flight.values()
    rig.answer(task)
    assert rig.subscription.preferred_replica(T0, rig.now) == 2
    (task,) = rig.tasks()
    assert task.node == 2
    rig.answer(task)
    assert rig.offsets()[T0] == list(range(10))
    cluster.follower_ends[T0] = 5
    append(cluster.logs[T0], 1)
    rig.round()
    assert rig.subscription.preferred_replica(T0, rig.now) == -1
    assert rig.position() == 10
    cluster.preferred_replicas.clear()
    assert [task.node for task in rig.tasks()] == [1]


def test_a_preferred_replica_is_asked_while_it_is_there_and_fresh() -> None:
    cluster = cluster_of({"t": 1}, nodes=2)
    append(cluster.logs[T0], 3)
    rig = Rig(cluster, FetchRules(replica_max_age_s=60))
    rig.start(T0)
    rig.refresh()
    rig.subscription.prefer_replica(T0, 7, until=rig.now + 99)
    rig.metadata.request(rig.now)
    assert [task.node for task in rig.tasks()] == [1], "unknown"
    assert rig.metadata.is_stale
    cluster.preferred_replicas[T0] = 2
    rig.answer(rig.fetcher._in_flight[1])
    assert rig.subscription.preferred_replica(T0, rig.now + 60) == 2
    assert rig.subscription.preferred_replica(T0, rig.now + 60.1) == -1


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
    asked = rig.subscription.needing_validation(rig.now)[T0]
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
    assert rig.metadata.is_stale, "the id is unknown"
    rig.refresh()
    rig.round()
    assert rig.subscription.needing_reset(rig.now)
    rig.subscription.reset_to(T0, ResetStrategy("earliest"), FetchPosition(0, -1, 1, 0))
    rig.round()
    assert rig.offsets() == {T0: [0, 1]}


def test_bytes_without_a_whole_batch() -> None:
    rig = one()
    (task,) = rig.tasks()
    response = rig.fetch(task)
    partition = response.responses[0].partitions[0]
    assert partition.records is not None
    partition.records = bytes(partition.records)[:50]
    rig.answer(task, response)
    with pytest.raises(CorruptMessage, match="50 bytes that came for offset 0 hold no whole batch"):
        rig.offsets()


def test_a_broken_record_comes_up_again_until_there_is_a_seek() -> None:
    rig = one(9)
    (task,) = rig.tasks()
    response = rig.fetch(task)
    partition = response.responses[0].partitions[0]
    data = bytearray(bytes(partition.records or b""))
    data[-1] ^= 1
    partition.records = bytes(data)
    rig.answer(task, response)
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
    store = rig.fetcher.store
    fetch = store.next_fetch()
    assert fetch is not None
    batch = fetch.read_batch()
    assert batch is not None
    assert [record.offset for record in batch] == list(range(7))
    assert fetch.is_ended
    assert store.was_read(fetch, ended=True)
    assert rig.position() == 7
    assert store.next_fetch() is None
    assert store.size_bytes == 0
    rig.cluster.logs[T0].fetch_error = TopicAuthorizationFailed.code
    rig.round()
    assert store.next_fetch(tells_failures=False) is None
    with pytest.raises(TopicAuthorizationFailed):
        store.next_fetch()
    assert store.next_fetch() is None, "told once"


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_sends_what_changed_only() -> None:
    cluster = cluster_of({"t": 2, "u": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0, T1, U0)
    (first,) = rig.tasks()
    assert first.session.is_full
    rig.answer(first)
    append(cluster.logs[T1], 3)
    (second,) = rig.tasks()
    assert not second.session.is_full
    assert second.session.to_send == {}
    rig.answer(second)
    rig.offsets()
    (third,) = rig.tasks()
    assert {where: wanted.offset for where, wanted in third.session.to_send.items()} == {T1: 3}
    rig.answer(third)
    rig.subscription.pause([U0])
    (fourth,) = rig.tasks()
    assert [where for where, _ in fourth.session.to_forget] == [U0]
    rig.answer(fourth)
    assert len(cluster.sessions[1]) == 1
    (ending,) = rig.fetcher.closing()
    rig.fetch(ending)
    assert len(cluster.sessions[1]) == 0
    assert rig.fetcher.closing() == []


def test_a_session_that_the_broker_lost_begins_anew() -> None:
    cluster = cluster_of({"t": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    (task,) = rig.tasks()
    cluster.sessions[1].end(task.session.session_id)
    append(cluster.logs[T0], 2)
    rig.answer(task)
    assert rig.offsets() == {}
    (again,) = rig.tasks()
    assert again.session.is_full
    assert again.session.session_id == 0
    rig.answer(again)
    assert rig.offsets() == {T0: [0, 1]}


def test_a_lost_request_ends_the_session_it_may_have_changed() -> None:
    cluster = cluster_of({"t": 1}, nodes=1)
    rig = Rig(cluster)
    rig.start(T0)
    rig.round()
    (lost,) = rig.tasks()
    rig.fetch(lost)
    rig.fetcher.failed(lost)
    (again,) = rig.tasks()
    assert again.session.is_full
    assert again.session.session_id == lost.session.session_id != 0
    rig.answer(again)
    assert len(cluster.sessions[1]) == 1, "the former one is gone"


def test_a_broker_without_room_for_sessions() -> None:
    cluster = cluster_of({"t": 1}, nodes=1, slots=0)
    rig = Rig(cluster)
    rig.start(T0)
    for count in range(3):
        append(cluster.logs[T0], 1)
        (task,) = rig.tasks()
        assert task.session.is_full
        rig.answer(task)
        assert rig.offsets() == {T0: [count]}


@pytest.mark.parametrize("extra", [True, False])
def test_an_answer_that_does_not_fit_its_request(extra: bool) -> None:
    cluster = cluster_of({"t": 2}, nodes=1, version=12)
    rig = Rig(cluster)
    rig.start(T0, T1)
    (task,) = rig.tasks()
    response = rig.fetch(task)
    (topic,) = response.responses
    stranger = messages.PartitionData(partition_index=9)
    topic.partitions = [*topic.partitions, stranger] if extra else topic.partitions[:1]
    rig.answer(task, response)
    (again,) = rig.tasks()
    assert again.session.is_full
    rig.answer(again)
    (incremental,) = rig.tasks()
    assert not incremental.session.is_full
    response = rig.fetch(incremental)
    response.responses = [messages.FetchableTopicResponse(topic="t", partitions=[stranger])] if extra else []
    rig.answer(incremental, response)
    (following,) = rig.tasks()
    assert following.session.is_full == extra, "nothing to tell is what an incremental answer may say"


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
    (task,) = rig.tasks()
    assert task.session.is_full
    assert task.at_most == 12
    rig.answer(task)
    assert len(cluster.sessions[1]) == 1


# --- everything at once -----------------------------------------------------------------------------------------------


class Simulation(RuleBasedStateMachine):
    """Leaders move, logs are cut by unclean elections and retention, requests and answers are lost, the application
    reads, seeks and pauses. Whatever is read is what the log had; nothing is left out but what the log lost or the
    application skipped; and in the end everything has been read."""

    @initialize(version=st.sampled_from([6, 11, 12, 18]), slots=st.sampled_from([0, 10]))
    def begin(self, version: int, slots: int) -> None:
        self.cluster = cluster_of({"t": 2, "u": 1}, nodes=3, version=version, slots=slots)
        self.rig = Rig(self.cluster, FetchRules(max_partition_bytes=250, max_bytes=2000))
        self.wheres = [T0, T1, U0]
        self.rig.start(*self.wheres)
        self.expected = dict.fromkeys(self.wheres, 0)
        """The next offset that `read` must give."""
        self.seen: dict[TopicPartition, dict[int, set[bytes]]] = {where: {} for where in self.wheres}
        """Every value that a log ever had at an offset."""
        self.last: dict[TopicPartition, bytes] = {}
        """What was read just before `expected`."""
        self.shaken: set[TopicPartition] = set()
        """Partitions that lost records, or where the application went astray."""
        self.pending: list[tuple[FetchTask, messages.FetchResponse | None]] = []

    # the cluster

    def leader(self, where: TopicPartition) -> int:
        return self.cluster.topics[where.topic][where.partition]

    @rule(data=st.data(), count=st.integers(1, 7))
    def produce(self, data: st.DataObject, count: int) -> None:
        where = data.draw(st.sampled_from(self.wheres))
        log = self.cluster.logs[where]
        append(log, count)
        for offset in range(log.end - count, log.end):
            self.seen[where].setdefault(offset, set()).add(log.values[offset])

    @rule(data=st.data(), lost=st.integers(0, 4))
    def elect(self, data: st.DataObject, lost: int) -> None:
        """A new leader, which lacks the last records: an unclean one if `lost` is not 0."""
        where = data.draw(st.sampled_from(self.wheres))
        log = self.cluster.logs[where]
        if lost:
            self.shaken.add(where)
        self.cluster.move_leader(where, self.leader(where) % 3 + 1)
        log.truncate(max(log.start, log.end - lost))

    @rule(data=st.data(), count=st.integers(1, 5))
    def retain(self, data: st.DataObject, count: int) -> None:
        where = data.draw(st.sampled_from(self.wheres))
        log = self.cluster.logs[where]
        self.shaken.add(where)
        log.start = min(log.end, log.start + count)

    @rule(told=st.booleans())
    def tell_leaders(self, told: bool) -> None:
        self.cluster.names_leader = told

    @rule(data=st.data(), follower=st.integers(1, 3), behind=st.integers(0, 3))
    def prefer(self, data: st.DataObject, follower: int, behind: int) -> None:
        where = data.draw(st.sampled_from(self.wheres))
        self.cluster.preferred_replicas[where] = follower
        self.cluster.follower_ends[where] = max(0, self.cluster.logs[where].end - behind)

    @rule()
    def lose_sessions(self) -> None:
        for cache in self.cluster.sessions.values():
            for session_id in list(cache._sessions):
                cache.end(session_id)

    # the network

    @rule()
    def send(self) -> None:
        for task in self.rig.tasks():
            self.pending.append((task, None))

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def reach_the_broker(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.pending) - 1))
        task, response = self.pending[index]
        if response is None:
            self.pending[index] = task, self.rig.fetch(task)

    @precondition(lambda self: any(response for _, response in self.pending))
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        task, response = data.draw(st.sampled_from([each for each in self.pending if each[1] is not None]))
        self.pending = [each for each in self.pending if each[0] is not task]
        assert response is not None
        self.rig.answer(task, response)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        task, _ = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1)))
        self.rig.fetcher.failed(task)

    def exchange(self) -> None:
        """What is on its way goes all the way, and one more request follows it."""
        for _ in range(2):
            for task, response in self.pending:
                self.rig.answer(task, response)
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
        for where, strategy in subscription.needing_reset(self.rig.now).items():
            assert where in self.shaken, "the position was there all the time"
            log = self.cluster.logs[where]
            self.last.pop(where, None)
            subscription.reset_to(where, strategy, FetchPosition(log.start, -1, self.leader(where), log.leader_epoch))
            self.expected[where] = log.start
        for where, asked in subscription.needing_validation(self.rig.now).items():
            log = self.cluster.logs[where]
            if (asked.leader, asked.leader_epoch) == (self.leader(where), log.leader_epoch):
                subscription.validated(where, asked, *log.end_of_epoch(asked.offset_epoch))
                position = subscription.position(where)
                if position is not None and position.offset != self.expected[where]:
                    assert where in self.shaken
                    self.expected[where] = position.offset
                    self.last.pop(where, None)

    # the application

    @rule(limit=st.integers(1, 8))
    def read(self, limit: int) -> None:
        found = self.rig.read(limit)
        assert sum(map(len, found.values())) <= limit
        for where, records in found.items():
            for record in records:
                assert record.offset == self.expected[where], "left out, or twice"
                assert record.value in self.seen[where][record.offset], "never was in the log"
                itself, _, before = record.value.split()
                if where in self.last and self.cluster.versions[ApiKey.FETCH][1] >= 11:
                    assert self.last[where] == before, "the log was cut below the position, and nobody noticed"
                self.last[where] = itself
                self.expected[where] = record.offset + 1
            assert self.rig.position(where) == self.expected[where]

    @rule(data=st.data(), offset=st.integers(0, 30))
    def seek(self, data: st.DataObject, offset: int) -> None:
        where = data.draw(st.sampled_from(self.wheres))
        self.rig.subscription.seek(where, offset)
        self.expected[where] = offset
        self.last.pop(where, None)
        self.shaken.add(where)

    @rule(data=st.data(), paused=st.booleans())
    def pause(self, data: st.DataObject, paused: bool) -> None:
        where = data.draw(st.sampled_from(self.wheres))
        (self.rig.subscription.pause if paused else self.rig.subscription.resume)([where])

    @invariant()
    def store_is_bounded(self) -> None:
        if hasattr(self, "rig"):
            assert self.rig.fetcher.store.size_bytes <= 2000 + 3 * 2 * 1500
            assert len(self.rig.fetcher._in_flight) == len(self.pending)

    def teardown(self) -> None:
        """When nothing goes wrong any more, everything that is there is read."""
        if not hasattr(self, "rig"):
            return
        for task, _ in self.pending:
            self.rig.fetcher.failed(task)
        self.pending = []
        self.cluster.follower_ends.clear()
        self.rig.subscription.resume(self.wheres)
        for _ in range(200):
            self.learn()
            self.settle_positions()
            self.send()
            for task, _ in self.pending:
                self.rig.answer(task)
            self.pending = []
            self.read(50)
            self.wait()
            if all(self.rig.position(where) == self.cluster.logs[where].end for where in self.wheres):
                return
        logs = self.cluster.logs
        raise AssertionError({str(where): (self.rig.position(where), logs[where]) for where in self.wheres})


def test_simulation() -> None:
    run_state_machine_as_test(Simulation, settings=settings(max_examples=100, stateful_step_count=60, deadline=None))
