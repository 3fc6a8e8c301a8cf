"""Fetch from followers: over a real connection between two brokers, whose metadata the test decides."""

import asyncio
import concurrent.futures
import gc
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.handlers.peers.fetch import DelayedFollowerFetch
from barnabas.broker.peers.peer_connections import Role
from barnabas.config.broker_settings import RACK_AWARE
from barnabas.connection.broker.client_request import ClientRequest
from barnabas.errors import (
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    InvalidRequest,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.replication.replication_quota import ReplicationQuota
from barnabas.types import BrokerId
from broker.cluster.replicated_brokers import ReplicatedBrokers
from broker.wire import Wire, server_of

SOON_S = 30.0
LONG_MS = 120_000
EPOCH = 0
"""The leader epoch of new topics."""
FOLLOWER_EPOCH = 2
"""The epoch in which broker 2 has registered, the second one."""
Waiting = concurrent.futures.Future[Any]


class Follower:
    """Broker 2, which has no fetchers: the test sends its requests to broker 1."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.cluster = ReplicatedBrokers(directory, **settings)

    def create(self, name: str, *partitions: Sequence[int]) -> UUID:
        """Creates a topic that broker 1 knows."""
        self.cluster.create(name, *(partitions or [(1, 2)]), to=[1])
        return self.cluster.topics[name].topic_id

    def send(self, request: Any, at_most: int = 18) -> Waiting:
        services = self.cluster.services[2]

        async def ask() -> Any:
            future = services.loop.create_future()

            def done(response: Any, error: Any) -> None:
                future.set_exception(error) if error is not None else future.set_result(response)

            client_request = ClientRequest(request, done, at_most=at_most)
            services.peers.send_request(1, client_request, role=Role.FETCH)
            return await future

        return asyncio.run_coroutine_threadsafe(ask(), services.loop)

    def ask(self, request: Any, at_most: int = 18) -> Any:
        return self.send(request, at_most).result(SOON_S)

    def begin(self, *wanted: tuple[UUID, int, int]) -> int:
        """Begins a session and returns its id."""
        session_id: int = self.ask(fetch(*wanted)).session_id
        assert session_id > 0
        return session_id

    def waits(self) -> None:
        """Returns when a request waits at the leader."""
        leader = server_of(self.cluster.brokers[1])
        self.cluster.wait_for(lambda: leader.purgatory.size == 1, "a delayed fetch")


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    follower = Follower(tmp_path)
    yield follower
    follower.cluster.close()


def fetch(
    *wanted: tuple[UUID, int, int],
    session_id: int = 0,
    epoch: int = 0,
    leader_epoch: int = EPOCH,
    last_fetched_epoch: int = -1,
    wait_ms: int = LONG_MS,
    min_bytes: int = 1,
    max_bytes: int = 10 * 1024**2,
    partition_max_bytes: int = 1024**2,
    replica_id: int = 2,
    replica_epoch: int = FOLLOWER_EPOCH,
    forget: Sequence[tuple[UUID, int]] = (),
) -> FetchRequest:
    """A request for (topic id, partition, offset)."""
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch),
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=number,
                        fetch_offset=offset,
                        current_leader_epoch=leader_epoch,
                        last_fetched_epoch=last_fetched_epoch,
                        log_start_offset=0,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
            for topic_id, number, offset in wanted
        ],
        forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=[number]) for topic_id, number in forget],
    )


def partitions(response: Any) -> list[tuple[UUID, PartitionData]]:
    return [(topic.topic_id, each) for topic in response.responses for each in topic.partitions]


def offsets_of(records: bytes) -> list[int]:
    found, position = [], 0
    while position < len(records):
        found.append(int.from_bytes(records[position : position + 8], "big"))
        position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
    return found


def test_a_full_request_is_answered_at_once_with_all_partitions(follower: Follower) -> None:
    t, u = follower.create("t"), follower.create("u", (1, 2), (1, 2))
    follower.cluster.append(1, "t", b"a", b"b")
    response = follower.ask(fetch((t, 0, 0), (u, 0, 0), (u, 1, 0), min_bytes=1000))
    assert response.session_id > 0
    (_, first), *others = partitions(response)
    assert offsets_of(first.records or b"") == [0, 1], "up to the log's end: nothing is committed yet"
    assert first.high_watermark == 0
    assert [(topic_id, each.partition_index, each.records) for topic_id, each in others] == [(u, 0, b""), (u, 1, b"")]


def test_a_request_waits_for_records(follower: Follower) -> None:
    t, u = follower.create("t"), follower.create("u")
    session_id = follower.begin((t, 0, 0), (u, 0, 0))
    waiting = follower.send(fetch(session_id=session_id, epoch=1))
    follower.waits()
    follower.cluster.append(1, "u", b"a")
    ((topic_id, data),) = partitions(waiting.result(SOON_S))
    assert (topic_id, offsets_of(data.records or b"")) == (u, [0])


def test_answered_requests_need_no_garbage_collection(follower: Follower) -> None:
    """One for each record and follower would keep a garbage collection busy that stops the event loop."""
    t = follower.create("t")
    session_id = follower.begin((t, 0, 0))
    gc.collect()
    gc.disable()
    try:
        for number in range(20):
            waiting = follower.send(fetch((t, 0, number), session_id=session_id, epoch=number + 1))
            follower.waits()
            follower.cluster.append(1, "t", b"a")
            assert partitions(waiting.result(SOON_S))
        assert sum(isinstance(each, DelayedFollowerFetch) for each in gc.get_objects()) <= 1
    finally:
        gc.enable()


def test_records_are_sent_once_until_the_partition_is_named_again(follower: Follower) -> None:
    t, u = follower.create("t"), follower.create("u")
    follower.cluster.append(1, "t", b"a")
    session_id = follower.begin((t, 0, 0), (u, 0, 0))
    waiting = follower.send(fetch(session_id=session_id, epoch=1))
    follower.waits()
    follower.cluster.append(1, "t", b"b")
    follower.cluster.append(1, "u", b"c")
    ((topic_id, _),) = partitions(waiting.result(SOON_S))
    assert topic_id == u
    ((topic_id, data),) = partitions(follower.ask(fetch((t, 0, 0), session_id=session_id, epoch=2)))
    assert (topic_id, offsets_of(data.records or b"")) == (t, [0, 1])


def test_the_offset_of_a_follower_moves_the_high_watermark(follower: Follower) -> None:
    t = follower.create("t")
    follower.cluster.append(1, "t", b"a", b"b")
    session_id = follower.begin((t, 0, 0))
    leader = follower.cluster.partition(1, "t")
    assert leader.log.high_watermark == 0
    response = follower.ask(fetch((t, 0, 2), session_id=session_id, epoch=1, last_fetched_epoch=EPOCH, wait_ms=0))
    ((_, data),) = partitions(response)
    assert (data.high_watermark, data.records) == (2, b"")
    assert leader.log.high_watermark == 2
    assert not partitions(follower.ask(fetch(session_id=session_id, epoch=2, wait_ms=0))), "it is told once"


def test_offsets_are_told_again_to_a_follower_that_names_the_same_fetch_again(follower: Follower) -> None:
    t = follower.create("t")
    follower.cluster.append(1, "t", b"a", b"b")
    session_id = follower.begin((t, 0, 0))
    for epoch in (1, 2):
        request = fetch((t, 0, 2), session_id=session_id, epoch=epoch, last_fetched_epoch=EPOCH, wait_ms=0)
        ((_, data),) = partitions(follower.ask(request))
        assert data.high_watermark == 2


def test_a_high_watermark_goes_along_with_the_next_response(follower: Follower) -> None:
    t = follower.create("t")
    follower.cluster.append(1, "t", b"a")
    session_id = follower.begin((t, 0, 1))
    leader = follower.cluster.partition(1, "t")
    waiting = follower.send(fetch(session_id=session_id, epoch=1, wait_ms=100))
    follower.waits()
    follower.cluster.on(1, lambda: leader.delete_records(1))  # type: ignore[arg-type]
    ((_, data),) = partitions(waiting.result(SOON_S))
    assert (data.log_start_offset, data.high_watermark) == (1, 1)


def test_where_consumers_read_from_followers_a_high_watermark_is_sent_soon(tmp_path: Path) -> None:
    follower = Follower(tmp_path, replica_selector_class=RACK_AWARE)
    try:
        t, u = follower.create("t"), follower.create("u")
        follower.cluster.append(1, "t", b"a")
        session_id = follower.begin((t, 0, 1), (u, 0, 0))
        leader = follower.cluster.partition(1, "t")
        waiting = follower.send(fetch(session_id=session_id, epoch=1))
        follower.waits()
        follower.cluster.on(1, lambda: leader.delete_records(1))  # type: ignore[arg-type]
        ((_, data),) = partitions(waiting.result(SOON_S))
        assert (data.log_start_offset, data.high_watermark) == (1, 1)
        waiting = follower.send(fetch(session_id=session_id, epoch=2))
        follower.waits()
        follower.cluster.append(1, "u", b"a")
        ((topic_id, _),) = partitions(waiting.result(SOON_S))
        assert topic_id == u
        waiting = follower.send(fetch((u, 0, 1), session_id=session_id, epoch=3))
        ((topic_id, data),) = partitions(waiting.result(SOON_S))
        assert (topic_id, data.high_watermark) == (u, 1), "it moves by this request"
    finally:
        follower.cluster.close()


def test_the_next_request_of_the_follower_ends_the_wait(follower: Follower) -> None:
    t, u = follower.create("t"), follower.create("u")
    follower.cluster.append(1, "u", b"a")
    session_id = follower.begin((t, 0, 0))
    waiting = follower.send(fetch(session_id=session_id, epoch=1))
    follower.waits()
    second = follower.send(fetch((u, 0, 0), session_id=session_id, epoch=2))
    assert not partitions(waiting.result(SOON_S))
    ((topic_id, _),) = partitions(second.result(SOON_S))
    assert topic_id == u


def test_a_request_waits_for_min_bytes(follower: Follower) -> None:
    t, u = follower.create("t"), follower.create("u")
    session_id = follower.begin((t, 0, 0), (u, 0, 0))
    waiting = follower.send(fetch(session_id=session_id, epoch=1, min_bytes=250))
    follower.waits()
    follower.cluster.append(1, "t", b"x" * 100)
    follower.cluster.on(1, lambda: None)
    assert not waiting.done()
    follower.cluster.append(1, "u", b"x" * 100)
    assert {topic_id for topic_id, _ in partitions(waiting.result(SOON_S))} == {t, u}


def test_the_limits_leave_partitions_for_the_next_response(follower: Follower) -> None:
    ids = [follower.create(name) for name in ("t", "u", "v")]
    for name in ("t", "u", "v"):
        follower.cluster.append(1, name, b"x" * 1000)
    session_id = follower.begin()
    served: list[UUID] = []
    response = follower.ask(fetch(*((each, 0, 0) for each in ids), session_id=session_id, epoch=1, max_bytes=100))
    for epoch in (2, 3, 4):
        served += [topic_id for topic_id, data in partitions(response) if data.records]
        response = follower.ask(
            fetch((served[-1], 0, 1), session_id=session_id, epoch=epoch, max_bytes=100, last_fetched_epoch=EPOCH,
                  wait_ms=0)
        )  # fmt: skip
    assert served == ids


def throttle(follower: Follower, topic: str, rate: float) -> ReplicationQuota:
    """Throttles a topic of which only the leader is in sync, in a new leader epoch."""
    cluster = follower.cluster
    cluster.change(topic, leader=BrokerId(1), isr=(BrokerId(1),))
    cluster.publish(topic, to=[1])
    quota = ReplicationQuota(server_of(cluster.brokers[1]).loop, rate)
    cluster.partition(1, topic).leader_quota = quota
    return quota


def debt(follower: Follower, quota: ReplicationQuota, count: int) -> None:
    follower.cluster.on(1, lambda: quota.record(count))


def test_throttled_partitions_are_left_out_until_the_rate_allows_them(follower: Follower) -> None:
    t, u = follower.create("t"), follower.create("u")
    quota = throttle(follower, "t", 1e6)
    debt(follower, quota, 1_300_000)
    begun = time.monotonic()
    follower.cluster.append(1, "t", b"a")
    follower.cluster.append(1, "u", b"b")
    response = follower.ask(fetch((t, 0, 0), (u, 0, 0), leader_epoch=-1))
    found = {topic_id: offsets_of(data.records or b"") for topic_id, data in partitions(response)}
    assert found == {t: [], u: [0]}, "the other goes on"
    waiting = follower.send(fetch((u, 0, 1), session_id=response.session_id, epoch=1, last_fetched_epoch=EPOCH))
    ((topic_id, data),) = [each for each in partitions(waiting.result(SOON_S)) if each[1].records]
    assert (topic_id, offsets_of(data.records or b"")) == (t, [0])
    assert time.monotonic() - begun >= 0.25


def test_a_throttled_partition_gets_as_much_at_once_as_one_window_has(follower: Follower) -> None:
    t = follower.create("t")
    throttle(follower, "t", 1000)
    follower.cluster.append(1, "t", *[b"x" * 300] * 10)
    ((_, data),) = partitions(follower.ask(fetch((t, 0, 0), leader_epoch=-1)))
    assert len(data.records or b"") == 1000


def test_throttled_partitions_of_one_response_share_the_rate(follower: Follower) -> None:
    t, u = follower.create("t"), follower.create("u")
    quota = throttle(follower, "t", 1000)
    throttle(follower, "u", 1)
    follower.cluster.partition(1, "u").leader_quota = quota
    follower.cluster.append(1, "t", *[b"x" * 1200] * 10)
    follower.cluster.append(1, "u", *[b"x" * 100] * 10)
    response = follower.ask(fetch((t, 0, 0), (u, 0, 0), leader_epoch=-1))
    found = {topic_id: offsets_of(data.records or b"") for topic_id, data in partitions(response)}
    assert found == {t: [0], u: []}
    assert follower.cluster.on(1, quota.is_exceeded)


def test_an_in_sync_follower_is_not_throttled(follower: Follower) -> None:
    t = follower.create("t")
    quota = throttle(follower, "t", 1000)
    follower.cluster.change("t", isr=(BrokerId(1), BrokerId(2)))
    follower.cluster.publish("t", to=[1])
    debt(follower, quota, 1_000_000)
    follower.cluster.append(1, "t", *[b"x" * 300] * 10)
    ((_, data),) = partitions(follower.ask(fetch((t, 0, 0), leader_epoch=-1)))
    assert offsets_of(data.records or b"") == list(range(10))


def test_the_bytes_of_an_in_sync_follower_do_not_count(follower: Follower) -> None:
    t = follower.create("t")
    quota = throttle(follower, "t", 1000)
    follower.cluster.append(1, "t", *[b"x" * 300] * 10)
    response = follower.ask(fetch((t, 0, 10), leader_epoch=-1))
    follower.cluster.append(1, "t", *[b"x" * 800] * 3)
    follower.ask(fetch((t, 0, 10), session_id=response.session_id, epoch=1, leader_epoch=-1))
    assert not follower.cluster.on(1, lambda: quota.is_exceeded(900))


def test_a_throttled_follower_hears_of_the_high_watermark(follower: Follower) -> None:
    t = follower.create("t")
    quota = throttle(follower, "t", 0)
    follower.cluster.append(1, "t", b"a")
    session_id = follower.ask(fetch((t, 0, 0), leader_epoch=-1)).session_id
    waiting = follower.send(fetch(session_id=session_id, epoch=1, wait_ms=50))
    follower.cluster.append(1, "t", b"b")
    ((_, data),) = partitions(waiting.result(SOON_S))
    assert (data.records, data.high_watermark) == (b"", 2)
    waiting = follower.send(fetch(session_id=session_id, epoch=2))
    follower.waits()
    leader = follower.cluster.partition(1, "t")

    def end() -> None:
        leader.leader_quota = None
        leader.set_config(leader.log.config)

    follower.cluster.on(1, end)
    ((_, data),) = partitions(waiting.result(SOON_S))
    assert offsets_of(data.records or b"") == [0, 1]
    assert quota.is_limited


def test_sessions_that_do_not_fit(follower: Follower) -> None:
    t = follower.create("t")
    session_id = follower.begin((t, 0, 0))
    for wanted, error in (
        (fetch(session_id=session_id, epoch=2), InvalidFetchSessionEpoch),
        (fetch(session_id=session_id + 1, epoch=1), FetchSessionIdNotFound),
        (fetch(session_id=0, epoch=1), FetchSessionIdNotFound),
    ):
        assert follower.ask(wanted).error_code == error.code
    assert follower.begin((t, 0, 0)) != session_id
    assert follower.ask(fetch(session_id=session_id, epoch=1)).error_code == FetchSessionIdNotFound.code


def test_a_request_without_a_session(follower: Follower) -> None:
    t = follower.create("t")
    follower.cluster.append(1, "t", b"a")
    for _ in range(2):
        response = follower.ask(fetch((t, 0, 0), epoch=-1))
        assert (response.session_id, response.error_code) == (0, 0)
        ((_, data),) = partitions(response)
        assert offsets_of(data.records or b"") == [0]
    assert follower.ask(fetch(session_id=0, epoch=1)).error_code == FetchSessionIdNotFound.code


def test_no_slots_for_consumers_are_no_matter_for_followers(tmp_path: Path) -> None:
    follower = Follower(tmp_path, max_incremental_fetch_session_cache_slots=0)
    try:
        assert follower.begin((follower.create("t"), 0, 0))
    finally:
        follower.cluster.close()


def test_a_broker_cannot_fetch_for_another(follower: Follower) -> None:
    t = follower.create("t")
    assert follower.ask(fetch((t, 0, 0), replica_id=3)).error_code == InvalidRequest.code


@pytest.mark.parametrize("version", [4, 12, 14, 17])
def test_a_broker_without_a_replica_id_is_a_consumer(follower: Follower, version: int) -> None:
    t = follower.create("t")
    follower.cluster.append(1, "t", b"a")
    request = fetch((t, 0, 0), epoch=-1, replica_id=-1, wait_ms=0)
    request.topics[0].topic = "t"
    request.replica_id = -1
    ((_, data),) = partitions(follower.ask(request, at_most=version))
    assert not data.records, "nothing is committed"


def test_a_client_with_a_replica_id_is_a_consumer(follower: Follower) -> None:
    t = follower.create("t")
    follower.cluster.append(1, "t", b"a")
    with Wire(follower.cluster.brokers[1]) as client:
        ((_, data),) = partitions(client.ask(fetch((t, 0, 0), epoch=-1, wait_ms=0), 17))
        asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        listed = client.ask(ListOffsetsRequest(replica_id=2, topics=[asked]), 5)
    assert not data.records
    assert follower.cluster.partition(1, "t").log.high_watermark == 0
    assert listed.topics[0].partitions[0].offset == 0


def test_a_follower_is_told_the_end_of_the_log(follower: Follower) -> None:
    follower.create("t")
    follower.cluster.append(1, "t", b"a", b"b")
    found = []
    for timestamp in (-1, -2):
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=EPOCH)
        topics = [ListOffsetsTopic(name="t", partitions=[asked])]
        (data,) = follower.ask(ListOffsetsRequest(replica_id=2, topics=topics), 11).topics[0].partitions
        found.append((data.error_code, data.offset, data.leader_epoch))
    assert found == [(0, 2, EPOCH), (0, 0, EPOCH)]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"leader_epoch": EPOCH + 1}, UnknownLeaderEpoch),
        ({"offset": 5}, OffsetOutOfRange),
        ({"topic_id": UUID(int=99)}, UnknownTopicId),
        ({"number": 1}, NotLeaderOrFollower),
        ({"number": 2}, UnknownLeaderEpoch),
    ],
)
def test_an_error_answers_the_request_once(follower: Follower, wanted: dict[str, Any], error: type[Exception]) -> None:
    t, u = follower.create("t", (1, 2), (2, 1), (1, 3)), follower.create("u")
    session_id = follower.begin((u, 0, 0))
    wanted = {"topic_id": t, "number": 0, "offset": 0, "leader_epoch": EPOCH} | wanted
    asked = wanted["topic_id"], wanted["number"], wanted["offset"]
    response = follower.ask(fetch(asked, session_id=session_id, epoch=1, leader_epoch=wanted["leader_epoch"]))
    ((_, data),) = partitions(response)
    assert data.error_code == error.code  # type: ignore[attr-defined]
    assert not partitions(follower.ask(fetch(session_id=session_id, epoch=2, wait_ms=10)))


def test_an_election_ends_the_wait_with_an_error(follower: Follower) -> None:
    t = follower.create("t")
    session_id = follower.begin((t, 0, 0))
    waiting = follower.send(fetch(session_id=session_id, epoch=1))
    follower.waits()
    follower.cluster.change("t", leader=2)
    follower.cluster.publish("t", to=[1])
    ((_, data),) = partitions(waiting.result(SOON_S))
    assert data.error_code


def test_a_replica_that_comes_back_to_the_leader_is_served_again(follower: Follower) -> None:
    t = follower.create("t")
    session_id = follower.begin((t, 0, 0))
    follower.cluster.change("t", replicas=(2,), isr=(2,), leader=2)
    follower.cluster.publish("t", to=[1])
    follower.cluster.change("t", replicas=(1, 2), isr=(1, 2), leader=1)
    follower.cluster.publish("t", to=[1])
    follower.cluster.append(1, "t", b"a")
    response = follower.ask(fetch((t, 0, 0), session_id=session_id, epoch=1, leader_epoch=EPOCH + 2))
    ((_, data),) = partitions(response)
    assert offsets_of(data.records or b"") == [0]


def test_a_log_that_diverges_is_told_so(follower: Follower) -> None:
    t = follower.create("t")
    follower.cluster.append(1, "t", b"a")
    session_id = follower.begin()
    follower.cluster.change("t", leader=1)
    follower.cluster.publish("t", to=[1])
    asked = fetch((t, 0, 3), session_id=session_id, epoch=1, leader_epoch=EPOCH + 1, last_fetched_epoch=EPOCH)
    ((_, data),) = partitions(follower.ask(asked))
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (EPOCH, 1)
    assert not data.records


def test_a_forgotten_partition_is_not_served(follower: Follower) -> None:
    t, u = follower.create("t"), follower.create("u")
    session_id = follower.begin((t, 0, 0), (u, 0, 0))
    waiting = follower.send(fetch(session_id=session_id, epoch=1, forget=[(t, 0), (t, 7)]))
    follower.waits()
    follower.cluster.append(1, "t", b"a")
    follower.cluster.append(1, "u", b"a")
    assert [topic_id for topic_id, _ in partitions(waiting.result(SOON_S))] == [u]
    leader = follower.cluster.partition(1, "t")
    assert not leader.watchers


def test_a_caught_up_follower_outside_of_the_isr_is_proposed_by_a_request_that_does_not_name_it(
    follower: Follower,
) -> None:
    follower.create("t")
    follower.cluster.change("t", isr=(1,))
    follower.cluster.fenced.add(2)
    follower.cluster.publish("t", to=[1])
    session_id = follower.begin((follower.cluster.topics["t"].topic_id, 0, 0))
    assert not follower.cluster.isr_changes
    follower.cluster.fenced.clear()
    follower.cluster.publish("t", to=[1])
    assert not partitions(follower.ask(fetch(session_id=session_id, epoch=1, wait_ms=0)))
    (change,) = follower.cluster.isr_changes
    assert [member.broker_id for member in change.new_isr] == [1, 2]


def test_a_follower_that_asks_for_other_partitions_stays_in_sync_with_an_idle_one(tmp_path: Path) -> None:
    """The follower has all records of `t`. It has only just asked for more when one comes, so it does not lag."""
    follower = Follower(tmp_path, replica_lag_time_max_ms=500)
    try:
        t = follower.create("t")
        session_id = follower.begin((t, 0, 0))
        leader = follower.cluster.partition(1, "t")
        clock = server_of(follower.cluster.brokers[1]).clock
        began = clock.monotonic()
        epoch = 0
        while clock.monotonic() < began + 0.6:
            epoch += 1
            asked = clock.monotonic()
            follower.ask(fetch(session_id=session_id, epoch=epoch, wait_ms=50))
        follower.cluster.append(1, "t", b"a")
        assert follower.cluster.on(1, lambda: leader.propose_isr_change(asked + 0.4)) is None
        later = clock.monotonic() + 1
        assert follower.cluster.on(1, lambda: leader.propose_isr_change(later)) is not None
    finally:
        follower.cluster.close()
