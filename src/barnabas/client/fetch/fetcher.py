"""What a consumer fetches next and from whom, and what it makes of the answers.

One request to each broker at a time. A partition is asked for while it has at most one answer in store, so that the
next one is on its way while that is read. What an answer says of a partition counts only if it still is what the
partition waits for. Errors that the application must hear are raised by `store.next_fetch`, after the records before
them.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.fetch_buffer import FetchBuffer
from barnabas.client.fetch.fetch_request import FetchRules, FetchTask
from barnabas.client.fetch.fetch_response import FetchAnswer, PartitionAnswer
from barnabas.client.fetch.fetch_session import FetchSession, Wanted
from barnabas.client.fetch.positions import NO_NODE, FetchPosition, PartitionState
from barnabas.connection.cluster import Broker
from barnabas.connection.metadata import Metadata
from barnabas.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    FetchSessionTopicIdError,
    InconsistentTopicId,
    KafkaStorageError,
    NoOffsetForPartition,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    ReplicaNotAvailable,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for,
)
from barnabas.types import TopicPartition

__all__ = ["Fetcher"]

STORED_MAX: Final = 2
"""Answers that a partition has in store or on the way, at most."""
RETRY_S: Final = 0.1
"""Between two requests for a partition that was refused, unless metadata is news."""
HURRY: Final = 10
"""How many times shorter a broker may wait while it has partitions that are not asked for just now."""

_ASK_METADATA: Final = frozenset(
    error.code
    for error in (
        NotLeaderOrFollower,
        ReplicaNotAvailable,
        KafkaStorageError,
        FencedLeaderEpoch,
        OffsetNotAvailable,
        UnknownTopicOrPartition,
        UnknownTopicId,
        InconsistentTopicId,
    )
)
_TELL_LEADER: Final = frozenset((NotLeaderOrFollower.code, FencedLeaderEpoch.code))
_ASK_AGAIN: Final = frozenset((UnknownLeaderEpoch.code, UnknownServerError.code))

_log = logging.getLogger("barnabas.consumer")


class _Held(NamedTuple):
    """A partition that is not asked for before that time, or before there is newer metadata."""

    until: float
    metadata_version: int


class Fetcher:
    """See the module."""

    def __init__(self, subscription: SubscriptionState, metadata: Metadata, rules: FetchRules) -> None:
        self.rules = rules
        self.store = FetchBuffer(subscription)
        self._subscription = subscription
        self._metadata = metadata
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[int, FetchTask] = {}
        self._held: dict[TopicPartition, _Held] = {}

    # --- asking -----------------------------------------------------------------------------------------------------

    def tasks(self, now: float, is_ready: Callable[[int], bool]) -> list[FetchTask]:
        """Requests to send now; each is `answered` or `failed` later. `is_ready`: whether a broker can be sent to."""
        if self.store.size_bytes >= self.rules.max_bytes:
            self.store.make_room()
            if self.store.size_bytes >= self.rules.max_bytes:
                return []
        wanted: dict[int, dict[TopicPartition, Wanted]] = {}
        left_out: set[int] = set()
        for where in self._subscription.fetchable():
            state = self._subscription.get(where)
            assert state is not None
            position = self._position(where, state)
            if self._is_held(where, now):
                continue
            node = self._node_for(where, position, now)
            if node == NO_NODE:
                self._metadata.mark_stale()
            elif node in self._in_flight or not is_ready(node):
                continue
            elif self.store.count(where, position) >= STORED_MAX or self.store.has_failure(where):
                left_out.add(node)
            elif state.fetch_until is None or self.store.next_offset(where, position) < state.fetch_until:
                wanted.setdefault(node, {})[where] = Wanted(
                    self._metadata.topic_id(where.topic),
                    self.store.next_offset(where, position),
                    position.leader_epoch,
                    self.rules.max_partition_bytes,
                )
        return [self._task(node, partitions, node in left_out) for node, partitions in wanted.items()]

    def _task(self, node: int, partitions: Mapping[TopicPartition, Wanted], hurry: bool) -> FetchTask:
        session = self._sessions.setdefault(node, FetchSession())
        wait_ms = self.rules.max_wait_ms // HURRY if hurry else self.rules.max_wait_ms
        task = FetchTask(node, session.request(partitions), wait_ms, self.rules)
        self._in_flight[node] = task
        return task

    def _position(self, where: TopicPartition, state: PartitionState) -> FetchPosition:
        position = state.position
        assert position is not None, f"{where} is fetchable without a position"
        if position.leader == NO_NODE and position.offset_epoch < 0:
            # a seek before any leader was known: there is nothing to validate
            known = self._metadata.partition(where)
            if known is not None:
                state.follow_leader(self._metadata.leader(where), known.leader_epoch, can_validate=False)
                position = state.position or position
        return position

    def is_asking(self, where: TopicPartition) -> bool:
        """Whether the partition's leader has a request of ours: nothing else is asked before it is answered."""
        state = self._subscription.get(where)
        return (
            state is not None
            and state.position is not None
            and state.preferred_replica == NO_NODE
            and state.position.leader in self._in_flight
        )

    def _is_held(self, where: TopicPartition, now: float) -> bool:
        held = self._held.get(where)
        if held is None:
            return False
        if now < held.until and held.metadata_version == self._metadata.version:
            return True
        del self._held[where]
        return False

    def _node_for(self, where: TopicPartition, position: FetchPosition, now: float) -> int:
        """The replica that the leader prefers for us while it is there, or the leader."""
        preferred = self._subscription.preferred_replica(where, now)
        if preferred == NO_NODE:
            return position.leader
        if self._is_there(where, preferred):
            return preferred
        self._subscription.clear_preferred_replica(where)
        self._metadata.mark_stale()
        return position.leader

    def _is_there(self, where: TopicPartition, replica: int) -> bool:
        """As far as metadata knows."""
        known = self._metadata.partition(where)
        there = known is not None and replica in known.replicas and replica not in known.offline_replicas
        return there and replica in self._metadata.view.brokers

    def next_deadline(self) -> float:
        """When a partition that was refused may be asked for again."""
        return min((held.until for held in self._held.values()), default=float("inf"))

    def follow_leaders(self, can_validate: Callable[[int], bool]) -> None:
        """Metadata is news: positions are checked with leaders that changed. `can_validate`: whether a broker answers
        OffsetsForLeaderEpoch of a useful version."""
        for where in self._subscription.assigned():
            leader, known = self._metadata.leader(where), self._metadata.partition(where)
            if leader != NO_NODE and known is not None:
                epoch = known.leader_epoch
                self._subscription.follow_leader(where, leader, epoch, can_validate=can_validate(leader))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are no longer assigned."""
        gone = list(partitions)
        self.store.forget(gone)
        for where in gone:
            self._held.pop(where, None)

    def closing(self) -> list[FetchTask]:
        """Requests that end the sessions, so that brokers need not keep them; answers are of no interest."""
        requests = [(node, session.closing()) for node, session in self._sessions.items()]
        self._sessions.clear()
        self._in_flight.clear()
        return [FetchTask(node, request, 0, self.rules) for node, request in requests if request is not None]

    # --- answers ----------------------------------------------------------------------------------------------------

    def failed(self, task: FetchTask) -> None:
        """No answer came."""
        if self._in_flight.get(task.node) is not task:
            return
        del self._in_flight[task.node]
        session = self._sessions[task.node]
        session.failed()
        for where in session.partitions:
            self._subscription.clear_preferred_replica(where)

    def answered(self, task: FetchTask, response: FetchAnswer, now: float) -> bool:
        """Whether the answer was of use; if not, the next request is a full one."""
        if self._in_flight.get(task.node) is not task:
            return True
        del self._in_flight[task.node]
        answers = _answers(task, response)
        session = self._sessions[task.node]
        if not session.answered(task.session, response.error_code, response.session_id, answers.keys()):
            _log.debug("fetch session with node %s begins anew: error %s", task.node, response.error_code)
            if response.error_code == FetchSessionTopicIdError.code:
                self._metadata.mark_stale()
            return False
        for where, answer in answers.items():
            state = self._subscription.get(where)
            if state is None or not state.is_valid or state.position is None:
                continue  # it went, or its position is no longer sure
            asked = task.session.partitions[where].offset
            if answer.error_code:
                self._take_error(where, asked, answer, response.brokers, now)
            else:
                self._take(where, asked, answer, state.position, now)
        return True

    def _take(
        self, where: TopicPartition, asked: int, answer: PartitionAnswer, position: FetchPosition, now: float
    ) -> None:
        self._held.pop(where, None)
        self._subscription.note_offsets(
            where, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
        )
        preferred = answer.preferred_replica
        if preferred >= 0 and self._is_there(where, preferred):
            self._subscription.prefer_replica(where, preferred, now + self.rules.replica_max_age_s)
        elif preferred >= 0:  # the leader would say so again at once
            self._metadata.mark_stale()
            self._held[where] = _Held(now + RETRY_S, self._metadata.version)
        if not answer.records:
            self._subscription.note_empty(where, asked)
            return
        if asked != self.store.next_offset(where, position):
            return
        fetch = CompletedFetch(
            where,
            answer.records,
            asked,
            check_crcs=self.rules.check_crcs,
            aborted=answer.aborted if self.rules.read_committed else None,
            key_deserializer=self.rules.key_deserializer,
            value_deserializer=self.rules.value_deserializer,
        )
        if fetch.end_offset is not None and fetch.end_offset > asked:
            self.store.add(fetch)
            return
        error = CorruptMessage(
            f"{where}: the {fetch.size_bytes} bytes that came for offset {asked} hold no whole batch of it; if it is"
            f" larger, raise max.partition.fetch.bytes, now {self.rules.max_partition_bytes}"
        )
        self.store.fail(where, asked, error)

    def _take_error(
        self, where: TopicPartition, asked: int, answer: PartitionAnswer, brokers: Mapping[int, Broker], now: float
    ) -> None:
        """What Kafka's client does about each error: ask for metadata, begin elsewhere, or tell the application."""
        code = answer.error_code
        _log.debug("fetching %s from offset %s: %s", where, asked, error_for(code))
        if code == OffsetOutOfRange.code:
            self._out_of_range(where, asked, now)
            return
        self._held[where] = _Held(now + RETRY_S, self._metadata.version)
        if code in _ASK_METADATA:
            self._subscription.clear_preferred_replica(where)
            self._metadata.mark_stale()
            if code in _TELL_LEADER:
                self._follow_answer(where, answer.leader, answer.leader_epoch, brokers)
        elif code not in _ASK_AGAIN:
            error = error_for(code, f"fetching {where} from offset {asked}: {error_for(code)}")
            self.store.fail(where, asked, error)

    def _follow_answer(
        self, where: TopicPartition, leader: int, leader_epoch: int, brokers: Mapping[int, Broker]
    ) -> None:
        """The broker says who leads now (KIP-951): no need to wait for metadata."""
        if leader < 0 or leader_epoch < 0:
            return
        if self._metadata.learn_leader(where, leader, leader_epoch, brokers.get(leader)):
            self._subscription.follow_leader(where, leader, leader_epoch, can_validate=True)
            del self._held[where]

    def _out_of_range(self, where: TopicPartition, asked: int, now: float) -> None:
        if self._subscription.clear_preferred_replica(where):
            return  # a follower may be behind; the leader knows
        state = self._subscription.get(where)
        if state is None or state.position is None or asked != state.position.offset:
            # asked ahead of what is read: see again when all before it is read
            self._held[where] = _Held(now + RETRY_S, self._metadata.version)
            return
        _log.info("%s: offset %s is out of range, reset to %s", where, asked, self._subscription.reset)
        try:
            self._subscription.request_reset(where)
        except NoOffsetForPartition:
            known = state.high_watermark >= 0
            there = f", which has {state.log_start_offset} to {state.high_watermark}" if known else ""
            error = OffsetOutOfRange(
                f"{where}: offset {asked} is not in the log{there}; auto.offset.reset is none: seek to where to go on"
            )
            self.store.fail(where, asked, error)


def _answers(task: FetchTask, response: FetchAnswer) -> dict[TopicPartition, PartitionAnswer]:
    names: dict[bytes, str] | None = None
    found = {}
    for topic in response.topics:
        name = topic.name
        if not name:
            if names is None:
                names = {wanted.topic_id.bytes: where.topic for where, wanted in task.session.partitions.items()}
            # an id that was never asked for gets a name that nobody has
            name = names.get(topic.topic_id) or topic.topic_id.hex()
        for partition in topic.partitions:
            found[TopicPartition(name, partition.partition)] = partition
    return found
