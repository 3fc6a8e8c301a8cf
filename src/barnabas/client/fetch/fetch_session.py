"""Incremental fetch sessions from the consumer's side (KIP-227): after a full request only what changed is sent.

One session for each broker and consumer. When the two sides do not agree any more, the next request is a full one.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.client.offset_messages import grouped
from barnabas.errors import FetchSessionIdNotFound, FetchSessionTopicIdError
from barnabas.protocol.messages import fetch as messages
from barnabas.types import TopicPartition

__all__ = ["FetchSession", "SessionRequest", "Wanted"]

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
TOPIC_IDS_FROM: Final = 13
ZERO_ID: Final = UUID(int=0)
_EPOCH_MAX: Final = 2**31 - 1


class Wanted(NamedTuple):
    """What is wanted of one partition."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    max_bytes: int


class SessionRequest(NamedTuple):
    """The part of a Fetch request that is about the session and its partitions."""

    session_id: int
    epoch: int
    to_send: Mapping[TopicPartition, Wanted]
    """What is new or has changed; everything in a full request."""
    to_forget: tuple[tuple[TopicPartition, UUID], ...]
    to_replace: tuple[tuple[TopicPartition, UUID], ...]
    """Topics that were made anew, by their former ids: forgotten where topics go by id."""
    partitions: Mapping[TopicPartition, Wanted]
    """All that the session has now: what an answer may speak of."""
    uses_topic_ids: bool

    @property
    def is_full(self) -> bool:
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def topics(self, version: int) -> list[messages.FetchTopic]:
        return _topics(self.to_send, by_id=version >= TOPIC_IDS_FROM)

    def forgotten(self, version: int) -> list[messages.ForgottenTopic]:
        by_id = version >= TOPIC_IDS_FROM
        found: dict[str | UUID, list[int]] = {}
        for where, topic_id in (*self.to_forget, *(self.to_replace if by_id else ())):
            found.setdefault(topic_id if by_id else where.topic, []).append(where.partition)
        return [
            messages.ForgottenTopic(topic_id=key, partitions=partitions)
            if isinstance(key, UUID)
            else messages.ForgottenTopic(topic=key, partitions=partitions)
            for key, partitions in found.items()
        ]


def _topics(to_send: Mapping[TopicPartition, Wanted], *, by_id: bool) -> list[messages.FetchTopic]:
    def partition(where: TopicPartition) -> messages.FetchPartition:
        wanted = to_send[where]
        return messages.FetchPartition(
            partition=where.partition,
            current_leader_epoch=wanted.leader_epoch,
            fetch_offset=wanted.offset,
            partition_max_bytes=wanted.max_bytes,
        )

    def topic(name: str, partitions: list[messages.FetchPartition]) -> messages.FetchTopic:
        if not by_id:
            return messages.FetchTopic(topic=name, partitions=partitions)
        first = TopicPartition(name, partitions[0].partition)
        return messages.FetchTopic(topic_id=to_send[first].topic_id, partitions=partitions)

    return grouped(to_send, partition, topic)


class FetchSession:
    """See the module. One request at a time: `request`, then `answered` or `failed`."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._partitions: dict[TopicPartition, Wanted] = {}
        self._uses_topic_ids = False

    @property
    def partitions(self) -> Collection[TopicPartition]:
        return self._partitions.keys()

    def request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """What to send for exactly these partitions."""
        uses_ids = all(each.topic_id != ZERO_ID for each in wanted.values())
        if uses_ids != self._uses_topic_ids and self._epoch != INITIAL_EPOCH:
            # a session names its topics in one way to its end
            self._epoch = INITIAL_EPOCH
        self._uses_topic_ids = uses_ids
        if self._epoch == INITIAL_EPOCH:
            self._partitions = dict(wanted)
            everything = dict(wanted)
            return SessionRequest(self._session_id, self._epoch, everything, (), (), everything, uses_ids)
        return self._difference(wanted, uses_ids)

    def _difference(self, wanted: Mapping[TopicPartition, Wanted], uses_ids: bool) -> SessionRequest:
        forget = []
        replace = []
        for where, before in list(self._partitions.items()):
            now = wanted.get(where)
            if now is None:
                forget.append((where, before.topic_id))
                del self._partitions[where]
            elif now.topic_id != before.topic_id and ZERO_ID not in (now.topic_id, before.topic_id):
                replace.append((where, before.topic_id))
        send = {where: each for where, each in wanted.items() if self._partitions.get(where) != each}
        self._partitions.update(send)
        return SessionRequest(
            self._session_id, self._epoch, send, tuple(forget), tuple(replace), dict(self._partitions), uses_ids
        )

    def answered(
        self, request: SessionRequest, error_code: int, session_id: int, answer: Collection[TopicPartition]
    ) -> bool:
        """Whether the answer can be used; `answer` has the partitions that it speaks of."""
        if error_code:
            unknown = error_code in (FetchSessionIdNotFound.code, FetchSessionTopicIdError.code)
            self._begin_anew(NO_SESSION if unknown else self._session_id)
            return False
        asked = request.partitions.keys()
        if request.is_full:
            # a broker that throttles answers with nothing at all
            whole = not answer or asked == set(answer)
            self._begin_anew(session_id if whole else NO_SESSION)
            if whole and session_id != NO_SESSION:
                self._epoch = 1
            return whole
        if not asked >= set(answer):
            self._begin_anew(self._session_id)
            return False
        if session_id == NO_SESSION:
            self._begin_anew(NO_SESSION)
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return True

    def failed(self) -> None:
        """No answer came: nobody knows what the broker's side has seen."""
        self._begin_anew(self._session_id)

    def _begin_anew(self, session_id: int) -> None:
        """The next request is a full one, and ends the session of this id if there is one."""
        self._session_id, self._epoch = session_id, INITIAL_EPOCH

    def closing(self) -> SessionRequest | None:
        """The request that ends the session, None if there is none; there will be no other."""
        if self._session_id == NO_SESSION:
            return None
        return SessionRequest(self._session_id, FINAL_EPOCH, {}, (), (), {}, True)
