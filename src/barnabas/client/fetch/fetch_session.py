"""Fetch requests to one broker: incremental fetch sessions (KIP-227), and the requests that are made of them.

A session is between one broker and one client. After a full request only changes are sent. When the two sides disagree,
the next request is a full one.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.client.fetch.completed_fetch import Deserializer
from barnabas.client.settings import ConsumerSettings
from barnabas.errors import FetchSessionIdNotFound, FetchSessionTopicIdError
from barnabas.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, next_epoch
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.types import BrokerId, TopicPartition

__all__ = ["FetchConfig", "FetchRequestBuilder", "FetchRequestData", "FetchSessionHandler", "RequestedPartition"]

READ_COMMITTED: Final = 1
ZERO_ID: Final = UUID(int=0)
_TOPIC_IDS_FROM: Final = 13


class RequestedPartition(NamedTuple):
    """The fields of a Fetch request about one partition."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    max_bytes: int


class FetchRequestData(NamedTuple):
    """The part of a Fetch request about the session and its partitions."""

    session_id: int
    epoch: int
    to_send: Mapping[TopicPartition, RequestedPartition]
    """The partitions that are new or have changed; all of them in a full request."""
    to_forget: tuple[tuple[TopicPartition, UUID], ...]
    to_replace: tuple[tuple[TopicPartition, UUID], ...]
    """Partitions of topics that were created anew, with their former ids. They are forgotten where requests have topic
    ids."""
    partitions: Mapping[TopicPartition, RequestedPartition]
    """All partitions of the session, which the response may have."""
    uses_topic_ids: bool

    @property
    def is_full(self) -> bool:
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def topics(self, version: int) -> list[FetchTopic]:
        found: dict[str, list[FetchPartition]] = {}
        for (topic, partition), requested in self.to_send.items():
            data = FetchPartition(
                partition=partition,
                current_leader_epoch=requested.leader_epoch,
                fetch_offset=requested.offset,
                partition_max_bytes=requested.max_bytes,
            )
            found.setdefault(topic, []).append(data)
        if version < _TOPIC_IDS_FROM:
            return [FetchTopic(topic=topic, partitions=partitions) for topic, partitions in found.items()]
        ids = {topic: requested.topic_id for (topic, _), requested in self.to_send.items()}
        return [FetchTopic(topic_id=ids[topic], partitions=partitions) for topic, partitions in found.items()]

    def forgotten(self, version: int) -> list[ForgottenTopic]:
        by_id = version >= _TOPIC_IDS_FROM
        found: dict[str | UUID, list[int]] = {}
        for topic_partition, topic_id in (*self.to_forget, *(self.to_replace if by_id else ())):
            found.setdefault(topic_id if by_id else topic_partition.topic, []).append(topic_partition.partition)
        return [
            ForgottenTopic(topic_id=key, partitions=partitions)
            if isinstance(key, UUID)
            else ForgottenTopic(topic=key, partitions=partitions)
            for key, partitions in found.items()
        ]


class FetchConfig(NamedTuple):
    """The consumer's settings about fetching."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 50 * 1024**2
    max_partition_bytes: int = 1024**2
    read_committed: bool = False
    check_crcs: bool = True
    rack: str = ""
    replica_max_age_s: float = 300.0
    """The time for which a preferred replica is used before the leader is asked again."""
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None

    @classmethod
    def of(cls, settings: ConsumerSettings) -> "FetchConfig":
        return cls(
            settings.fetch_min_bytes,
            settings.fetch_max_wait_ms,
            settings.fetch_max_bytes,
            settings.max_partition_fetch_bytes,
            settings.read_committed,
            settings.check_crcs,
            settings.client_rack,
            settings.metadata_max_age_ms / 1000,
            settings.key_deserializer,
            settings.value_deserializer,
        )


class FetchRequestBuilder(NamedTuple):
    """A Fetch request to a broker, which may hold it back for `max_wait_ms`."""

    node: BrokerId
    data: FetchRequestData
    max_wait_ms: int
    config: FetchConfig

    @property
    def at_most(self) -> int | None:
        """The newest version that may be used, None for any."""
        return None if self.data.uses_topic_ids else _TOPIC_IDS_FROM - 1

    def build(self, version: int) -> FetchRequest:
        config = self.config
        return FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            isolation_level=READ_COMMITTED if config.read_committed else 0,
            session_id=self.data.session_id,
            session_epoch=self.data.epoch,
            topics=self.data.topics(version),
            forgotten_topics_data=self.data.forgotten(version),
            rack_id=config.rack,
        )


class FetchSessionHandler:
    """The client's side of a fetch session. There is one request at a time: `request`, then `answered` or `failed`."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._partitions: dict[TopicPartition, RequestedPartition] = {}
        self._uses_topic_ids = False
        self._needs_full_request = False

    @property
    def partitions(self) -> Collection[TopicPartition]:
        return self._partitions.keys()

    def request(self, requested: Mapping[TopicPartition, RequestedPartition]) -> FetchRequestData:
        """Returns the next request, for exactly these partitions."""
        uses_ids = all(each.topic_id != ZERO_ID for each in requested.values())
        # a session names its topics in the same way to its end
        if uses_ids != self._uses_topic_ids or self._needs_full_request:
            self._epoch = INITIAL_EPOCH
        self._uses_topic_ids, self._needs_full_request = uses_ids, False
        if self._epoch == INITIAL_EPOCH:
            self._partitions = dict(requested)
            everything = dict(requested)
            return FetchRequestData(self._session_id, self._epoch, everything, (), (), everything, uses_ids)
        return self._difference(requested, uses_ids)

    def _difference(self, requested: Mapping[TopicPartition, RequestedPartition], uses_ids: bool) -> FetchRequestData:
        forget = []
        replace = []
        for topic_partition, before in list(self._partitions.items()):
            now = requested.get(topic_partition)
            if now is None:
                forget.append((topic_partition, before.topic_id))
                del self._partitions[topic_partition]
            elif now.topic_id != before.topic_id and ZERO_ID not in (now.topic_id, before.topic_id):
                replace.append((topic_partition, before.topic_id))
        send = {tp: each for tp, each in requested.items() if self._partitions.get(tp) != each}
        self._partitions.update(send)
        return FetchRequestData(
            self._session_id, self._epoch, send, tuple(forget), tuple(replace), dict(self._partitions), uses_ids
        )

    def answered(
        self, request: FetchRequestData, error_code: int, session_id: int, partitions: Collection[TopicPartition]
    ) -> bool:
        """Takes over a response with these partitions. Returns whether it fits the session."""
        if error_code:
            unknown = error_code in (FetchSessionIdNotFound.code, FetchSessionTopicIdError.code)
            self._begin_anew(NO_SESSION if unknown else self._session_id)
            return False
        requested = request.partitions.keys()
        if request.is_full:
            # a broker that throttles sends an empty response
            fits = not partitions or requested == set(partitions)
            self._begin_anew(session_id if fits else NO_SESSION)
            if fits and session_id != NO_SESSION:
                self._epoch = 1
            return fits
        if not requested >= set(partitions):
            self._begin_anew(self._session_id)
            return False
        if session_id == NO_SESSION:
            self._begin_anew(NO_SESSION)
        else:
            self._epoch = next_epoch(self._epoch)
        return True

    def failed(self) -> None:
        """Ends a request without a response, which the broker may have got or not."""
        self._begin_anew(self._session_id)

    def request_all(self) -> None:
        """Makes the next request a full one, so that its response has all partitions."""
        self._needs_full_request = True

    def _begin_anew(self, session_id: int) -> None:
        """Makes the next request a full one, which ends the session of this id if there is one."""
        self._session_id, self._epoch = session_id, INITIAL_EPOCH

    def close(self) -> FetchRequestData | None:
        """Returns the request that ends the session, None if there is none."""
        if self._session_id == NO_SESSION:
            return None
        return FetchRequestData(self._session_id, FINAL_EPOCH, {}, (), (), {}, True)
