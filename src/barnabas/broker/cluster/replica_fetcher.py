"""Fetches records from one leader for the partitions that follow it, within one fetch session (KIP-227).

A round names only the partitions whose next fetch is another one than the leader knows. The fetcher watches its
partitions to learn which ones these are. Usually one request is in flight. When other partitions become fetchable while
the leader holds it, a second one follows, and the leader answers the first at once.

Budget of a round for one partition that got one batch: 75 µs besides the system calls.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterator
from functools import partial
from struct import Struct
from typing import Any, Final, Protocol

from barnabas.broker.peers.peer_connections import PeerConnections, Role
from barnabas.broker.process.failure_log import FailureLog
from barnabas.config.broker import BrokerConfig
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.errors import (
    BarnabasError,
    ClientClosed,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
    OffsetOutOfRange,
    error_for,
)
from barnabas.log.unified_log import UnexpectedAppendOffset
from barnabas.metadata.image import MetadataImage
from barnabas.network.time_slicing import Slices, TimeSlicer
from barnabas.protocol.fetch import FetchResponse, PartitionData, read_fetch_response
from barnabas.protocol.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch
from barnabas.protocol.follower_fetch import FOLLOWERS_FROM, FollowerFetchRequest, encode_follower_fetch
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.primitives import Part
from barnabas.replication.partition import Partition
from barnabas.replication.replica import FollowerFetch
from barnabas.replication.replication_quota import ReplicationQuota
from barnabas.types import BrokerId

__all__ = ["FetcherServices", "ReplicaFetcher"]

_BACKOFF_S: Final = 0.05
"""The first backoff after an error. It doubles up to replica.fetch.backoff.ms."""
_DOUBLINGS_MAX: Final = 10
_BACKOFF_MIN_S: Final = 0.01
"""The backoff if the setting says 0."""
_NEVER: Final = float("inf")
_LATEST: Final = -1
_EARLIEST: Final = -2
_SESSION_ENDED: Final = frozenset(
    error.code for error in (FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch)
)
_CHUNK_BYTES: Final = 256 * 1024
_CHUNK_BATCHES: Final = 64
"""The bounds of what is appended at once: a millisecond's work, so that the event loop can serve others in between."""
_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_LENGTH_END: Final = 12

Key = tuple[bytes, int]
"""The topic id and the number of a partition."""


class FetcherServices(Protocol):
    """The parts of a broker that its fetchers use."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def node_id(self) -> BrokerId: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def failures(self) -> FailureLog: ...
    @property
    def time_slicer(self) -> TimeSlicer: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def peers(self) -> PeerConnections | None: ...


class _FetchedPartition:
    """A partition of the fetcher."""

    __slots__ = (
        "backoff_epochs",
        "backoff_until",
        "caught_up_at",
        "failures",
        "fetch",
        "is_answered",
        "key",
        "number",
        "partition",
        "timer",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id.bytes, partition.topic_partition.partition)
        self.fetch: FollowerFetch | None = None
        """The fetch that the leader knows by the session; None if the partition is not in the session."""
        self.number = 0
        """The number of the request that named it last. Responses to earlier requests are about another fetch."""
        self.is_answered = False
        """Whether the leader has sent records or an error for the fetch. It sends no more before the partition is named
        again."""
        self.caught_up_at = -_NEVER
        """The latest time at which a throttled partition had all committed records."""
        self.failures = 0
        """The number of errors in a row."""
        self.backoff_until = 0.0
        self.backoff_epochs = (0, 0)
        """Leader epoch and partition epoch of the backoff, as newer metadata ends it."""
        self.timer: asyncio.TimerHandle | None = None


class _Request:
    """A request in flight. Those of an earlier session are ignored."""

    __slots__ = ("is_full", "number", "session")

    def __init__(self, number: int, session: int, is_full: bool) -> None:
        self.number = number
        self.session = session
        self.is_full = is_full


class ReplicaFetcher:
    """Fetches from one leader. All methods are called on the loop's thread."""

    def __init__(self, broker: FetcherServices, leader_id: BrokerId) -> None:
        self.leader_id = leader_id
        self._broker = broker
        self._partitions: dict[Partition, _FetchedPartition] = {}
        self._changed: dict[_FetchedPartition, None] = {}
        """Those whose next fetch may differ from the one in the session."""
        self._named: dict[Key, _FetchedPartition] = {}
        """Those in the session as of the last request."""
        self._forgotten: dict[Key, None] = {}
        """Those that the next request removes from the session."""
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._sessions = 0
        """The number of full requests, which tells the requests of an earlier session."""
        self._last_number = 0
        self._in_flight = 0
        self._responses: deque[tuple[_Request, FetchResponse]] = deque()
        """The responses that are not applied yet, at most two. The first is being applied."""
        self._slices: Slices[None] | None = None
        self._throttled: dict[_FetchedPartition, None] = {}
        """Those that are not fetched before the quota has room for them."""
        self._out_of_range: list[tuple[_FetchedPartition, FollowerFetch]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._backoff: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._stopped = False

    def __len__(self) -> int:
        return len(self._partitions)

    # --- partitions -------------------------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Begins to fetch a partition that follows this leader."""
        state = self._partitions[partition] = _FetchedPartition(partition)
        self._changed[state] = None
        partition.watchers[self] = None
        self._send_soon()

    def remove(self, partition: Partition) -> None:
        state = self._partitions.pop(partition)
        partition.watchers.pop(self, None)
        self._changed.pop(state, None)
        self._throttled.pop(state, None)
        if state.timer is not None:
            state.timer.cancel()
        self._forget(state)

    def partition_changed(self, partition: Partition) -> None:
        """Called by the partition when its log, its high watermark or its leader epoch has changed."""
        state = self._partitions.get(partition)
        if state is None:
            return
        self._changed[state] = None
        if not self._responses:
            self._send_soon()

    def leader_registered(self) -> None:
        """Ends the backoff, because the leader has registered again, or became active."""
        self._failures = 0
        if self._backoff is not None:
            self._backoff.cancel()
            self._end_backoff()

    def shutdown(self) -> None:
        """Stops. A response that comes later is ignored."""
        self._stopped = True
        for partition in list(self._partitions):
            self.remove(partition)
        for handle in (self._backoff, self._soon):
            if handle is not None:
                handle.cancel()
        for task in self._tasks:
            task.cancel()

    # --- requests ---------------------------------------------------------------------------------------------------

    def _send_soon(self) -> None:
        if self._soon is None and not self._stopped:
            self._soon = self._broker.loop.call_soon(self._scheduled_send)

    def _scheduled_send(self) -> None:
        self._soon = None
        self._send()

    def _send(self) -> None:
        """Sends the next request if there is anything to fetch, and no request that it has to wait for."""
        peers = self._broker.peers
        if self._stopped or self._backoff is not None or self._responses or peers is None:
            return
        is_full = self._epoch == INITIAL_EPOCH
        if self._in_flight and (is_full or self._in_flight > 1):
            return
        if is_full and self._named:
            self._begin_session(self._session_id)  # the leader keeps none
        number = self._last_number + 1
        fetches = self._next_fetches(number)
        if not (fetches if self._in_flight else self._named):
            return
        self._last_number = number
        self._in_flight += 1
        request = _Request(number, self._sessions, is_full)
        encode = partial(self._encode, self._session_id, self._epoch, fetches, self._take_forgotten())
        if not is_full:
            self._epoch = next_epoch(self._epoch)
        client_request = ClientRequest(
            FetchRequest,
            partial(self._done, request),
            encode=encode,
            decode=read_fetch_response,
            at_least=FOLLOWERS_FROM,
            timeout_s=self._broker.config.replica_socket_timeout_ms / 1000,
        )
        peers.send_request(self.leader_id, client_request, role=Role.FETCH)

    def _next_fetches(self, number: int) -> list[_FetchedPartition]:
        """Brings the session in line with the partitions that have changed. Returns those that the request names."""
        changed, self._changed = self._changed, {}
        named = self._named
        fetches = []
        for state in changed:
            fetch = self._next_fetch(state)
            if fetch is None:
                self._forget(state)
            elif fetch != state.fetch or state.is_answered:
                state.fetch, state.number, state.is_answered = fetch, number, False
                named[state.key] = state
                self._forgotten.pop(state.key, None)
                fetches.append(state)
        return fetches

    def _next_fetch(self, state: _FetchedPartition) -> FollowerFetch | None:
        """Returns the partition's next fetch, None if there is none yet: then the partition wakes the fetcher."""
        partition = state.partition
        if state.backoff_until:
            if state.backoff_epochs == (partition.leader_epoch, partition.partition_epoch):
                return None
            self._end_backoff_of(state)
        if partition.is_retired or partition.leader_id != self.leader_id:
            return None
        if partition.follower_quota is not None and self._must_wait(state, partition.follower_quota):
            return None
        try:
            return partition.next_fetch()
        except KafkaError as error:
            self._back_off(state, error)
            return None

    # --- throttled partitions ---------------------------------------------------------------------------------------

    def _must_wait(self, state: _FetchedPartition, quota: ReplicationQuota) -> bool:
        """Returns whether a throttled partition must not be fetched yet. The quota wakes this fetcher for it."""
        if not quota.is_exceeded() or self._is_in_sync(state):
            return False
        self._throttled[state] = None
        quota.wait(self)
        return True

    def _is_in_sync(self, state: _FetchedPartition) -> bool:
        """Returns whether the leader's high watermark may wait for the partition, so that it must not be throttled."""
        broker = self._broker
        if broker.loop.time() - state.caught_up_at <= broker.config.replica_lag_time_max_ms / 1000:
            return True
        known = broker.image.partition(*state.partition.topic_partition)
        return known is not None and broker.node_id in known.isr

    def quota_available(self) -> None:
        """Called by the quota for which throttled partitions wait."""
        self._changed.update(self._throttled)
        self._throttled.clear()
        if not self._responses:
            self._send_soon()

    def _forget(self, state: _FetchedPartition) -> None:
        if state.fetch is not None:
            state.fetch = None
            del self._named[state.key]
            self._forgotten[state.key] = None

    def _take_forgotten(self) -> Collection[Key]:
        forgotten, self._forgotten = self._forgotten, {}
        return forgotten

    def _encode(
        self,
        session_id: int,
        epoch: int,
        fetches: list[_FetchedPartition],
        forgotten: Collection[Key],
        version: int,
    ) -> list[bytes | bytearray | memoryview]:
        broker = self._broker
        config = broker.config
        max_bytes = config.replica_fetch_max_bytes
        registered = broker.image.brokers.get(broker.node_id)
        wanted = [(*each.key, *_order(each.fetch), max_bytes) for each in fetches if each.fetch is not None]
        request = FollowerFetchRequest(
            broker.node_id,
            -1 if registered is None else registered.epoch,
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            session_id,
            epoch,
            wanted,
            list(forgotten),
        )
        return [encode_follower_fetch(request)]

    # --- responses --------------------------------------------------------------------------------------------------

    def _done(self, request: _Request, response: FetchResponse | None, error: Error | None) -> None:
        if self._stopped or request.session != self._sessions:
            return
        self._in_flight -= 1
        if response is None:
            assert error is not None
            if not isinstance(error, ClientClosed):  # this broker stops
                self._begin_session(self._session_id)
                self._back_off_leader(error)
            return
        if response.error_code:
            ended = response.error_code in _SESSION_ENDED
            self._begin_session(NO_SESSION if ended else self._session_id)
            if not ended or self._failures:  # at once at the first time
                self._back_off_leader(error_for(response.error_code))
            self._failures += ended
            self._send_soon()
            return
        if request.is_full:
            self._session_id = response.session_id
            self._epoch = 1 if response.session_id != NO_SESSION else INITIAL_EPOCH
        self._responses.append((request, response))
        if len(self._responses) == 1:
            self._apply()

    def _begin_session(self, session_id: int) -> None:
        """Makes the next request a full one, which ends the session of this id if there is one."""
        self._session_id, self._epoch = session_id, INITIAL_EPOCH
        self._sessions += 1
        self._in_flight = 0
        self._forgotten.clear()
        self._named.clear()
        for state in self._partitions.values():
            state.fetch = None
            self._changed[state] = None

    def _back_off_leader(self, error: BarnabasError) -> None:
        self._broker.failures.warn(
            f"fetching from broker {self.leader_id}", f"fetching from broker {self.leader_id} failed: {error}"
        )
        self._backoff = self._broker.loop.call_later(self._backoff_s(self._failures), self._end_backoff)
        self._failures += 1

    def _end_backoff(self) -> None:
        self._backoff = None
        self._send_soon()

    def _backoff_s(self, failures: int) -> float:
        longest_s = max(self._broker.config.replica_fetch_backoff_ms / 1000, _BACKOFF_MIN_S)
        return min(_BACKOFF_S * 2.0 ** min(failures, _DOUBLINGS_MAX), longest_s)

    # --- applying ---------------------------------------------------------------------------------------------------

    def _apply(self) -> None:
        """Begins to apply the first response. A long one gives way to other work in between."""
        self._slices = self._apply_partitions(*self._responses[0])
        if self._advance():
            self._broker.time_slicer.add(self._advance)

    def _advance(self) -> bool:
        assert self._slices is not None
        if self._stopped:
            return False
        try:
            self._broker.time_slicer.advance(self._slices)
        except StopIteration:
            self._applied()
            return False
        return True

    def _applied(self) -> None:
        self._failures = 0
        self._responses.popleft()
        if self._out_of_range:
            found, self._out_of_range = self._out_of_range, []
            task = self._broker.loop.create_task(self._reset_to_leader(found))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not self._responses:
            self._send()
        elif not self._stopped:
            self._apply()

    def _apply_partitions(self, request: _Request, response: FetchResponse) -> Slices[None]:
        for topic_id, partitions in response.topics:
            for data in partitions:
                assert isinstance(topic_id, bytes)
                state = self._named.get((topic_id, data.partition))
                if state is None:
                    continue
                has_offsets_alone = not data.records and not data.error_code and data.diverging_epoch is None
                self._changed[state] = None
                if state.number > request.number:  # the partition's fetch is another one meanwhile
                    # The leader takes the offsets for known, and sends them again only if it is asked again.
                    state.is_answered |= has_offsets_alone
                    continue
                state.is_answered |= not has_offsets_alone
                try:
                    for _ in self._apply_data(state, data):
                        yield
                        if self._partitions.get(state.partition) is not state:
                            break  # its log may be deleted
                except (KafkaError, UnexpectedAppendOffset) as error:
                    self._back_off(state, error)
                except Exception as error:
                    self._back_off(state, self._broker.failures.report(f"following {_name(state)}", error))

    def _apply_data(self, state: _FetchedPartition, data: PartitionData) -> Iterator[None]:
        """Applies the leader's answer, and yields between appends. Raises KafkaError, UnexpectedAppendOffset."""
        partition, fetch = state.partition, state.fetch
        assert fetch is not None
        if data.error_code == OffsetOutOfRange.code:
            self._out_of_range.append((state, fetch))
            self._suspend(state, _NEVER)
            return
        if data.error_code:
            raise error_for(data.error_code)
        if data.diverging_epoch is not None:
            epoch, end_offset = data.diverging_epoch
            partition.truncate_to_diverging_epoch(fetch, epoch, end_offset)  # type: ignore[arg-type]
            return
        log, quota = partition.log, partition.follower_quota
        if quota is not None and data.records is not None and not self._is_in_sync(state):
            quota.record(len(data.records))
        for records in _chunks(data.records):
            appended = partition.append_as_follower(
                fetch,
                records,
                high_watermark=data.high_watermark,  # type: ignore[arg-type]
                log_start_offset=data.log_start_offset,  # type: ignore[arg-type]
            )
            if appended is None:
                return
            fetch = FollowerFetch(
                log.log_end_offset, fetch.leader_epoch, log.leader_epochs.latest, fetch.log_start_offset
            )
            yield
        if quota is not None and log.log_end_offset >= data.high_watermark:
            state.caught_up_at = self._broker.loop.time()
        state.failures = 0

    # --- errors of partitions ---------------------------------------------------------------------------------------

    def _back_off(self, state: _FetchedPartition, error: Exception) -> None:
        """Leaves the partition out of the session for a while. The others go on."""
        log = state.partition.log
        if log.offline_reason is not None or log.lacks:
            self._suspend(state, _NEVER)  # it has said so itself, and waits for a restart or another log
            return
        delay_s = self._backoff_s(state.failures)
        if state.failures:  # the first error is usual while a leader learns of its election
            subject = f"following broker {self.leader_id}"  # one for all partitions: there may be thousands
            self._broker.failures.warn(subject, f"{_name(state)} cannot follow broker {self.leader_id}: {error}")
        state.failures += 1
        self._suspend(state, self._broker.loop.time() + delay_s)
        state.timer = self._broker.loop.call_later(delay_s, self._retry, state)

    def _suspend(self, state: _FetchedPartition, until: float) -> None:
        partition = state.partition
        state.backoff_until = until
        state.backoff_epochs = partition.leader_epoch, partition.partition_epoch
        self._changed[state] = None

    def _retry(self, state: _FetchedPartition) -> None:
        self._end_backoff_of(state)
        self._changed[state] = None
        if not self._responses:
            self._send_soon()

    def _end_backoff_of(self, state: _FetchedPartition) -> None:
        state.backoff_until = 0.0
        if state.timer is not None:
            state.timer.cancel()
            state.timer = None

    async def _reset_to_leader(self, found: list[tuple[_FetchedPartition, FollowerFetch]]) -> None:
        """Truncates logs whose ends are outside of the leader's logs, by the ranges of those."""
        try:
            ends, starts = await asyncio.gather(*[self._ask_offsets(found, each) for each in (_LATEST, _EARLIEST)])
        except BarnabasError as error:
            ends, starts = {}, {}
            self._broker.failures.warn(
                f"ranges of broker {self.leader_id}", f"broker {self.leader_id} does not tell its logs' ranges: {error}"
            )
        for state, fetch in found:
            if self._partitions.get(state.partition) is not state or state.backoff_until != _NEVER:
                continue  # metadata has come in between
            key = state.partition.topic_partition
            end, start = ends.get(key), starts.get(key)
            try:
                if end is None or start is None:
                    raise OffsetOutOfRange(f"the leader's log does not reach from or to {fetch.fetch_offset}")
                state.partition.reset_to_leader(fetch, start, end)
            except KafkaError as error:
                self._back_off(state, error)
            except Exception as error:
                self._back_off(state, self._broker.failures.report(f"following {_name(state)}", error))
            else:
                self._retry(state)

    async def _ask_offsets(
        self, found: list[tuple[_FetchedPartition, FollowerFetch]], timestamp: int
    ) -> dict[tuple[str, int], Any]:
        """Returns the offsets that the leader knows. Raises KafkaError and ClientError if there is no response."""
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for state, fetch in found:
            topic, number = state.partition.topic_partition
            asked = ListOffsetsPartition(
                partition_index=number, current_leader_epoch=fetch.leader_epoch, timestamp=timestamp
            )
            topics.setdefault(topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id=self._broker.node_id,
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        peers = self._broker.peers
        assert peers is not None
        response = await peers.send(self.leader_id, request)
        return {
            (topic.name, each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }


def _order(fetch: FollowerFetch) -> tuple[int, int, int, int]:
    """Returns the fields in the order of the request."""
    return fetch.leader_epoch, fetch.fetch_offset, fetch.last_fetched_epoch, fetch.log_start_offset


def _name(state: _FetchedPartition) -> str:
    return str(state.partition.topic_partition)


def _chunks(records: Any) -> Iterator[memoryview]:
    """Cuts the records of a response between batches, at least one piece. A torn batch stays at the end of the last
    piece."""
    if not isinstance(records, Part):
        yield memoryview(b"")
        return
    view = memoryview(records.data)[records.start : records.end]
    begin, position, end, count = 0, 0, len(view), 0
    while end - position >= _LENGTH_END:
        length = _LENGTH.unpack_from(view, position + _LENGTH_POSITION)[0]
        if length <= 0 or position + _LENGTH_END + length >= end:
            break
        position += _LENGTH_END + length
        count += 1
        if count == _CHUNK_BATCHES or position - begin >= _CHUNK_BYTES:
            yield view[begin:position]
            begin, count = position, 0
    yield view[begin:]
