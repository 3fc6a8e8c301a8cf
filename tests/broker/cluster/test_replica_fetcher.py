"""A fetcher whose leader is played by the test: what its requests name, and what it does with each response."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster.replica_fetcher import ReplicaFetcher
from barnabas.broker.process.failure_log import FailureLog
from barnabas.config.broker import BrokerConfig
from barnabas.config.log_config import DEFAULT_LOG_CONFIG
from barnabas.connection.broker.client_request import ClientRequest, connection_lost
from barnabas.errors import (
    FetchSessionIdNotFound,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownServerError,
)
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.network.time_slicing import TimeSlicer
from barnabas.protocol.codec import decode
from barnabas.protocol.fetch import FetchResponse, PartitionData
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.primitives import Part
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.replication.partition import Partition
from barnabas.replication.replication_quota import ReplicationQuota
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition
from broker.virtual_loop import run
from hand_clock import HandClock

pytestmark = pytest.mark.source

LEADER, ME = BrokerId(1), BrokerId(2)
TOPIC_ID = uuid.UUID(int=5)
SESSION = 77
Wanted = tuple[int, int]
"""The number and the fetch offset of a partition."""


def batch_at(offset: int, epoch: int = 0, value: bytes = b"x", count: int = 1) -> bytes:
    """A batch as the leader sends it."""
    data = bytearray(build_batch([Record(i, 1_700_000_000_000, None, value, ()) for i in range(count)]))
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def some(number: int, records: bytes = b"", high_watermark: int = 0, **fields: Any) -> PartitionData:
    part = Part(records, 0, len(records)) if records else None
    return PartitionData(number, 0, high_watermark, -1, 0, part, **fields)


def refused(number: int, code: int) -> PartitionData:
    return PartitionData(number, code)


class Rig:
    """A fetcher and the requests that it has sent. All times are those of a virtual loop."""

    def __init__(self, directory: Path, *, fsync: bool = False, count: int = 2, **settings: object) -> None:
        self.loop = asyncio.get_running_loop()
        self.node_id = ME
        clock = HandClock()
        self.config = BrokerConfig.of({"log.dirs": str(directory), **settings})
        self.failures = FailureLog(logging.getLogger("test"), clock)
        self.time_slicer = TimeSlicer(self.loop)
        self.image = MetadataImage("c", brokers={ME: BrokerImage(ME, 42, ())})
        self.sent: list[ClientRequest] = []
        self.asked: list[tuple[Any, asyncio.Future[Any]]] = []
        self.logs = LogManager([directory], clock)
        self.logs.startup(lambda topic: DEFAULT_LOG_CONFIG, node_id=ME)
        self.to_flush: list[Partition] = []
        self.fetcher = ReplicaFetcher(self, LEADER)  # type: ignore[arg-type]
        self.partitions = [self.make(number, fsync) for number in range(count)]
        for partition in self.partitions:
            self.elect(partition, 0)
            self.fetcher.add(partition)

    @property
    def peers(self) -> Any:
        return self

    def make(self, number: int, fsync: bool) -> Partition:
        log = self.logs.create(TopicPartition("t", number), TOPIC_ID, DEFAULT_LOG_CONFIG)
        flush_behind = self.to_flush.append if fsync else None
        return Partition(TopicPartition("t", number), TOPIC_ID, log, flush_behind=flush_behind)

    def elect(self, partition: Partition, epoch: int, leader: BrokerId = LEADER) -> None:
        partition.become(
            broker_id=ME, leader_id=leader, leader_epoch=LeaderEpoch(epoch), partition_epoch=epoch,
            replicas=(LEADER, ME), in_sync_replicas=(LEADER, ME),
        )  # fmt: skip

    def send_request(self, node_id: int, request: ClientRequest, *, role: object) -> None:
        assert node_id == LEADER
        self.sent.append(request)

    def send(self, node_id: int, request: Any) -> "asyncio.Future[Any]":
        future = self.loop.create_future()
        self.asked.append((request, future))
        return future

    async def next(self, number: int = 1) -> FetchRequest:
        """Returns the next request, when exactly `number` requests have no response."""
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(self.sent) == number, f"{len(self.sent)} requests are in flight"
        request = self.sent[-1]
        assert request.encode is not None
        body = b"".join(request.encode(18))
        return decode(FetchRequest, 18, body)[0]

    def answer(self, *partitions: PartitionData, error: int = 0, session: int = SESSION) -> None:
        """Answers the oldest request."""
        topics: list[Any] = [(TOPIC_ID.bytes, list(partitions))] if partitions else []
        self.sent.pop(0).done(FetchResponse(0, error, session, topics), None)

    def lose(self) -> None:
        sent, self.sent = self.sent, []
        for request in sent:
            request.done(None, connection_lost("leader", "request", "lost"))

    def ends(self) -> list[int]:
        return [partition.log.log_end_offset for partition in self.partitions]

    def replace_append(self, partition: Partition, append: Callable[..., Any]) -> None:
        """Has the fetcher call `append` in the place of the partition's `append_as_follower`."""
        object.__setattr__(self.fetcher._partitions[partition], "partition", _Proxy(partition, append))

    def close(self) -> None:
        self.fetcher.shutdown()
        with contextlib.suppress(KafkaStorageError):  # a log is offline
            self.logs.shutdown(flush=False)


def named(request: FetchRequest) -> list[Wanted]:
    return [(each.partition, each.fetch_offset) for topic in request.topics for each in topic.partitions]


def forgotten(request: FetchRequest) -> list[int]:
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]


def session(request: FetchRequest) -> tuple[int, int]:
    return request.session_id, request.session_epoch


Main = Callable[[Rig], Coroutine[Any, Any, None]]
Run = Callable[..., None]


@pytest.fixture
def with_rig(tmp_path: Path) -> Run:
    def start(main: Main, **options: Any) -> None:
        async def body() -> None:
            rig = Rig(tmp_path, **options)
            try:
                await main(rig)
            finally:
                rig.close()

        run(body())

    return start


def test_the_first_request_is_full_and_later_ones_name_what_has_changed(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        request = await rig.next()
        assert session(request) == (0, 0)
        assert named(request) == [(0, 0), (1, 0)]
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (ME, 42)
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 * 1024**2)
        rig.answer(some(0, batch_at(0), 1), some(1))
        request = await rig.next()
        assert session(request) == (SESSION, 1)
        assert named(request) == [(0, 1)]
        (wanted,) = request.topics[0].partitions
        assert (wanted.last_fetched_epoch, wanted.current_leader_epoch, wanted.partition_max_bytes) == (0, 0, 1024**2)
        rig.answer()
        request = await rig.next()
        assert session(request) == (SESSION, 2)
        assert named(request) == []
        rig.answer(some(0, high_watermark=1))
        assert named(await rig.next()) == [], "a high watermark changes nothing that the leader would have to know"
        assert rig.partitions[0].log.high_watermark == 1

    with_rig(main)


def test_without_a_session_every_request_is_full(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0), some(1), session=0)
        request = await rig.next()
        assert session(request) == (0, 0)
        assert named(request) == [(0, 0), (1, 0)]

    with_rig(main)


def test_a_partition_with_an_error_leaves_the_session_for_a_while(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0), refused(1, NotLeaderOrFollower.code))
        request = await rig.next()
        assert (named(request), forgotten(request)) == ([], [1])
        for wait_s in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0):  # replica.fetch.backoff.ms is the longest
            await asyncio.sleep(wait_s - 0.01)
            await rig.next(1)
            await asyncio.sleep(0.01)
            request = await rig.next(2)
            assert (named(request), forgotten(request)) == ([(1, 0)], [])
            rig.answer()
            rig.answer(refused(1, NotLeaderOrFollower.code))
            assert forgotten(await rig.next()) == [1]

    with_rig(main)


def test_a_leader_has_the_time_of_the_setting_to_answer(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        assert rig.sent[-1].timeout_s == 30
        rig.config = BrokerConfig.of({"replica.socket.timeout.ms": 7000})
        rig.answer(some(0))
        rig.fetcher.partition_changed(rig.partitions[0])
        for _ in range(5):
            await asyncio.sleep(0)
        assert rig.sent[-1].timeout_s == 7

    with_rig(main)


def test_new_metadata_ends_the_backoff(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0), refused(1, NotLeaderOrFollower.code))
        await rig.next()
        rig.elect(rig.partitions[1], 1)
        assert named(await rig.next(2)) == [(1, 0)]

    with_rig(main)


def test_an_error_whose_backoff_ends_in_the_same_turn(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        refusing, other = rig.partitions[1], rig.partitions[0]
        append = other.append_as_follower

        def renew(*arguments: Any, **options: Any) -> Any:
            """The metadata comes while the response is applied, after the error."""
            refusing.partition_epoch += 1
            return append(*arguments, **options)

        rig.replace_append(other, renew)
        rig.answer(refused(1, UnknownServerError.code), some(0))
        assert named(await rig.next()) == [(1, 0)], "the leader waits for an answer to its error"

    with_rig(main)


class _Proxy:
    """A partition with another `append_as_follower`."""

    def __init__(self, partition: Partition, append: Callable[..., Any]) -> None:
        self._partition = partition
        self.append_as_follower = append

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)


def test_records_that_cannot_be_appended_whole_are_asked_for_again(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0, batch_at(0)[:-1]), some(1))
        assert rig.ends() == [0, 0]
        assert named(await rig.next()) == [(0, 0)]

    with_rig(main)


def test_corrupt_records_are_not_appended(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        broken = batch_at(0)[:-1] + b"?"
        rig.answer(some(0, broken), some(1, batch_at(0)))
        request = await rig.next()
        assert rig.ends() == [0, 1]
        assert (named(request), forgotten(request)) == ([(1, 1)], [0])

    with_rig(main)


def test_bytes_that_are_no_batches_do_not_stop_the_fetcher(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        for rubbish in (b"\xff" * 100, b"\0" * 100, batch_at(0) + b"\xff" * 61, bytes(11), batch_at(7, 9)):
            request = await rig.next()
            assert (1, 0) in named(request) or rubbish != b"\xff" * 100
            rig.answer(some(0, rubbish), some(1))
            await asyncio.sleep(2)
            if len(rig.sent) > 1:
                rig.answer()

    with_rig(main)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_many_batches_are_appended_in_pieces(with_rig: Run, count: int) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0, b"".join(batch_at(offset) for offset in range(count)), count), some(1))
        for _ in range(20):
            await asyncio.sleep(0)
        assert rig.ends() == [count, 0]
        assert named(await rig.next()) == [(0, count)]

    with_rig(main)


def test_a_response_about_an_earlier_fetch_is_ignored(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0), some(1))
        await rig.next()
        rig.elect(rig.partitions[0], 1)
        assert named(await rig.next(2)) == [(0, 0)]
        rig.answer(some(0, batch_at(0, 0, b"of the leader before")))
        assert rig.ends() == [0, 0]
        rig.answer(some(0, batch_at(0, 1)))
        assert rig.ends() == [1, 0]

    with_rig(main)


def test_offsets_that_came_for_an_earlier_fetch_are_asked_for_again(with_rig: Run) -> None:
    """Otherwise the follower's high watermark would stay behind until the next record."""

    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0, batch_at(0), 1), some(1))
        await rig.next()
        rig.elect(rig.partitions[0], 1)
        assert named(await rig.next(2)) == [(0, 1)]
        rig.answer(some(0, b"", high_watermark=1))
        assert named(await rig.next(2)) == [(0, 1)]
        rig.answer()
        rig.answer(some(0, b"", high_watermark=1))
        assert named(await rig.next()) == []
        assert rig.partitions[0].log.high_watermark == 1

    with_rig(main)


def test_at_most_two_requests_are_in_flight(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.elect(rig.partitions[0], 1)
        await rig.next(1)  # there is no session yet in which to ask for more
        rig.answer(some(0), some(1))
        await rig.next()
        rig.elect(rig.partitions[0], 2)
        await rig.next(2)
        rig.elect(rig.partitions[1], 2)
        await rig.next(2)
        rig.answer()
        assert named(await rig.next(2)) == [(1, 0)]

    with_rig(main)


@pytest.mark.parametrize("code", [FetchSessionIdNotFound.code, UnknownServerError.code])
def test_an_error_of_the_session_begins_another(with_rig: Run, code: int) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0, batch_at(0)), some(1))
        await rig.next()
        rig.answer(error=code, session=0)
        await asyncio.sleep(0 if code == FetchSessionIdNotFound.code else 0.06)
        request = await rig.next()
        assert session(request) == (0 if code == FetchSessionIdNotFound.code else SESSION, 0)
        assert named(request) == [(0, 1), (1, 0)]

    with_rig(main)


def test_a_leader_that_never_keeps_the_session_is_not_asked_in_a_tight_loop(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        requests = 0
        for _ in range(1000):  # ten seconds
            await asyncio.sleep(0.01)
            if rig.sent:
                requests += 1
                rig.answer(error=FetchSessionIdNotFound.code, session=0)
        assert 10 < requests < 20

    with_rig(main)


def test_a_lost_connection_begins_another_session_after_a_backoff(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0), some(1))
        await rig.next()
        for wait_s in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
            rig.lose()
            await asyncio.sleep(wait_s - 0.01)
            await rig.next(0) if rig.sent else None
            assert not rig.sent
            await asyncio.sleep(0.02)
            assert session(await rig.next()) == (SESSION, 0)
        rig.lose()
        rig.fetcher.leader_registered()
        assert named(await rig.next()) == [(0, 0), (1, 0)]

    with_rig(main)


def test_a_log_that_diverges_is_truncated(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0, batch_at(0) + batch_at(1) + batch_at(2)), some(1))
        await rig.next()
        rig.elect(rig.partitions[0], 1)
        assert named(await rig.next(2)) == [(0, 3)]
        rig.answer()
        rig.answer(some(0, diverging_epoch=(0, 1)))
        assert rig.ends() == [1, 0]
        assert named(await rig.next()) == [(0, 1)]

    with_rig(main)


def ranges(request: Any, offset: int, code: int = 0) -> Any:
    """The response to ListOffsets."""
    topics = [
        SimpleNamespace(
            name=topic.name,
            partitions=[
                SimpleNamespace(partition_index=each.partition_index, offset=offset, error_code=code)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return SimpleNamespace(topics=topics)


def test_a_fetch_out_of_range_asks_for_the_range(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(refused(0, OffsetOutOfRange.code), some(1))
        request = await rig.next()
        assert forgotten(request) == [0]
        assert [each.topics[0].partitions[0].timestamp for each, _ in rig.asked] == [-1, -2]
        assert {each.replica_id for each, _ in rig.asked} == {ME}
        for (asked, future), offset in zip(rig.asked, (9, 5), strict=True):
            future.set_result(ranges(asked, offset))
        assert named(await rig.next(2)) == [(0, 5)]
        assert rig.partitions[0].log.log_start_offset == 5

    with_rig(main)


@pytest.mark.parametrize("failure", ["lost", "refused"])
def test_a_range_that_is_not_told_is_asked_for_again(with_rig: Run, failure: str) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(refused(0, OffsetOutOfRange.code), some(1))
        await rig.next()
        for asked, future in rig.asked:
            if failure == "lost":
                future.set_exception(connection_lost("leader", "request", "lost"))
            else:
                future.set_result(ranges(asked, -1, NotLeaderOrFollower.code))
        await asyncio.sleep(0.06)
        assert named(await rig.next(2)) == [(0, 0)]
        assert rig.ends() == [0, 0]

    with_rig(main)


def test_metadata_that_comes_before_the_range_overtakes_it(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(refused(0, OffsetOutOfRange.code), some(1))
        await rig.next()
        rig.elect(rig.partitions[0], 1)
        assert named(await rig.next(2)) == [(0, 0)]
        for asked, future in rig.asked:
            future.set_result(ranges(asked, 5))
        await rig.next(2)
        assert rig.ends() == [0, 0]

    with_rig(main)


def test_with_fsync_a_partition_waits_for_its_sync(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0, batch_at(0)), some(1))
        request = await rig.next()
        assert (named(request), forgotten(request)) == ([], [0])
        rig.partitions[0].log.flush()
        rig.partitions[0].flushed()
        request = await rig.next(2)
        assert (named(request), forgotten(request)) == ([(0, 1)], [])

    with_rig(main, fsync=True)


def test_with_fsync_the_only_partition_is_not_forgotten_and_named_in_one_request(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0, batch_at(0)))
        await asyncio.sleep(1)
        assert not rig.sent, "nothing can be fetched"
        rig.partitions[0].log.flush()
        rig.partitions[0].flushed()
        request = await rig.next()
        assert (session(request), named(request), forgotten(request)) == ((SESSION, 1), [(0, 1)], [])

    with_rig(main, fsync=True, count=1)


def test_a_failed_sync_is_tried_again(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0, batch_at(0)))
        rig.partitions[0].flush_failed(KafkaStorageError("the disk is full"))
        await asyncio.sleep(0)
        syncs = len(rig.to_flush)
        await asyncio.sleep(2)
        assert rig.to_flush[-1] is rig.partitions[0]
        assert syncs >= 1
        rig.partitions[0].log.flush()
        rig.partitions[0].flushed()
        await asyncio.sleep(2)
        assert named(await rig.next()) == [(0, 1)]

    with_rig(main, fsync=True, count=1)


def test_a_log_that_went_offline_does_not_stop_the_others(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.partitions[0].log.take_offline("the disk is broken")
        rig.answer(some(0, batch_at(0)), some(1, batch_at(0)))
        request = await rig.next()
        assert (named(request), forgotten(request), rig.ends()) == ([(1, 1)], [0], [0, 1])
        await asyncio.sleep(60)
        await rig.next(1)

    with_rig(main)


def test_a_removed_partition_is_forgotten_and_its_data_ignored(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.answer(some(0), some(1))
        await rig.next()
        rig.fetcher.remove(rig.partitions[0])
        rig.answer(some(0, batch_at(0)), some(1, batch_at(0)))
        request = await rig.next()
        assert (named(request), forgotten(request), rig.ends()) == ([(1, 1)], [0], [0, 1])
        rig.fetcher.remove(rig.partitions[1])
        rig.answer()
        await rig.next(0) if rig.sent else None
        assert not rig.sent
        rig.fetcher.add(rig.partitions[0])
        request = await rig.next()
        assert (named(request), forgotten(request)) == ([(0, 0)], [1])

    with_rig(main)


def test_a_partition_that_is_removed_between_two_pieces_gets_no_more(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        partition = rig.partitions[0]
        before = partition.append_as_follower
        calls: list[int] = []

        def append(*arguments: Any, **options: Any) -> Any:
            calls.append(1)
            result = before(*arguments, **options)
            rig.fetcher.remove(partition)
            return result

        rig.replace_append(partition, append)
        rig.answer(some(0, b"".join(batch_at(offset) for offset in range(200)), 200), some(1))
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(calls) == 1

    with_rig(main)


def test_a_partition_that_this_broker_leads_is_not_fetched(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.elect(rig.partitions[0], 1, ME)
        rig.answer(some(0, batch_at(0)), some(1))
        assert rig.ends() == [0, 0]
        request = await rig.next()
        assert (named(request), forgotten(request)) == ([], [0])

    with_rig(main)


def throttle(rig: Rig, *numbers: int, rate: float = 1000) -> ReplicationQuota:
    """Throttles partitions, of which this broker is not in the ISR."""
    quota = ReplicationQuota(rig.loop, rate)
    for number in numbers:
        rig.partitions[number].follower_quota = quota
    return quota


def test_a_throttled_partition_is_not_fetched_while_the_rate_is_exceeded(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        quota = throttle(rig, 0)
        await rig.next()
        copied = batch_at(0, value=b"x" * 3000)
        rig.answer(some(0, copied, 1000), some(1, batch_at(0), 1))
        request = await rig.next()
        assert (named(request), forgotten(request)) == ([(1, 1)], [0]), "the other goes on"
        assert quota.is_exceeded()
        before = rig.loop.time()
        while not rig.sent or named(request) != [(0, 1)]:
            rig.answer()
            await asyncio.sleep(0.01)
            request = await rig.next(len(rig.sent))
        assert rig.loop.time() - before == pytest.approx(len(copied) / 1000 - 1, abs=0.05)

    with_rig(main)


def test_a_fetcher_whose_partitions_are_all_throttled_sends_nothing(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        quota = throttle(rig, 0, 1)
        quota.record(11_000)
        await asyncio.sleep(9.9)
        assert not rig.sent
        await asyncio.sleep(0.2)
        assert named(await rig.next()) == [(0, 0), (1, 0)]

    with_rig(main)


@pytest.mark.parametrize("isr", [(LEADER, ME), (LEADER,)])
def test_an_in_sync_replica_is_not_throttled(with_rig: Run, isr: tuple[BrokerId, ...]) -> None:
    """In the ISR as the metadata says it, or with all committed records, so that the leader is about to let it join."""

    async def main(rig: Rig) -> None:
        partition = PartitionImage(LEADER, LeaderEpoch(0), (LEADER, ME), isr, 0)
        brokers = {ME: BrokerImage(ME, 42, ())}
        rig.image = MetadataImage("c", brokers=brokers, topics={"t": TopicImage("t", TOPIC_ID, (partition,) * 2)})
        quota = throttle(rig, 0, 1)
        await rig.next()
        rig.answer(some(0, batch_at(0), 1), some(1, batch_at(0), 5))
        await rig.next()
        before = quota.is_exceeded()
        quota.record(10_000)
        rig.answer(some(0, batch_at(1), 2), some(1, batch_at(1), 5))
        assert not before
        assert named(await rig.next()) == [(0, 2), (1, 2)] if ME in isr else [(0, 2)]

    with_rig(main)


def test_only_bytes_of_replicas_that_are_copied_count(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        quota = throttle(rig, 0)
        await rig.next()
        rig.answer(some(0, batch_at(0), 1), some(1, batch_at(0, value=b"x" * 9000), 1))
        await rig.next()
        assert not quota.is_exceeded(900), "few bytes of the one that is copied"
        rig.answer(some(0, batch_at(1, value=b"x" * 9000), 2), some(1))
        await rig.next()
        assert not quota.is_exceeded(900), "the copy is in sync"

    with_rig(main)


def test_a_throttle_that_ends_ends_the_wait(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        quota = throttle(rig, 0)
        quota.record(1_000_000)
        assert named(await rig.next()) == [(1, 0)]
        rig.partitions[0].follower_quota = None
        rig.partitions[0].set_config(DEFAULT_LOG_CONFIG)
        rig.answer(some(1))
        assert named(await rig.next()) == [(0, 0)]

    with_rig(main)


def test_nothing_is_sent_after_the_shutdown(with_rig: Run) -> None:
    async def main(rig: Rig) -> None:
        await rig.next()
        rig.fetcher.shutdown()
        rig.answer(some(0, batch_at(0)), some(1))
        await asyncio.sleep(5)
        assert not rig.sent
        assert rig.ends() == [0, 0]
        assert not rig.partitions[0].watchers

    with_rig(main)
