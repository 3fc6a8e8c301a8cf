"""What the synchronous and the asyncio consumer share: all that needs no waiting, and the shapes of arguments."""

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.client.arguments import (
    INT32_MAX,
    INT64_MAX,
    by_partition,
    callback,
    number,
    refused,
    seconds,
    several,
    text,
    time_ms,
    topic_name,
)
from barnabas.client.arguments import (
    offset as read_offset,
)
from barnabas.client.arguments import (
    partition as read_partition,
)
from barnabas.client.arguments import (
    partitions as read_partitions,
)
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.group.offset_commits import Offsets
from barnabas.client.consumer.group.rebalance import ASSIGNED, LOST, Notice
from barnabas.client.consumer.health import Health
from barnabas.client.consumer.subscription_state import Pattern
from barnabas.client.offset_messages import (
    EARLIEST,
    LATEST,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetsOfPartitions,
    PartitionOffset,
)
from barnabas.client.settings import ConsumerSettings
from barnabas.client.settings.network import network_client_settings
from barnabas.client.settings.tls import ssl_context
from barnabas.connection.cluster import TopicView
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import ClientClosed, UsageError, WokenUp
from barnabas.records.consumer_record import AnyRecord, ConsumerRecord
from barnabas.types import TopicPartition

__all__ = [
    "CLOSE_TIMEOUT_S",
    "Callback",
    "ConsumerBase",
    "Listener",
    "OffsetAndTimestamp",
    "OffsetsArgument",
    "Partitions",
    "Times",
    "at_times",
    "begin",
    "end",
    "found_at_times",
    "plain_offsets",
]

T = TypeVar("T")

CLOSE_TIMEOUT_S: Final = 0.05
"""How long a close waits for answers, unless it is told otherwise."""

_log = logging.getLogger("barnabas.consumer")

Partitions = Iterable[TopicPartition | tuple[str, int]]
Times = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
OffsetsArgument = AnyRecord | OffsetsOfPartitions
"""What to commit: a record, which means all of its partition up to and with it; or the next offsets to read."""
Callback = Callable[[Any, tuple[TopicPartition, ...]], object]
"""Called with the consumer and the partitions."""


class Listener(NamedTuple):
    """What the application wants to hear of rebalances."""

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None

    def for_notice(self, notice: Notice) -> Callback | None:
        """Who does not tell what is lost from what is revoked hears of both alike."""
        if notice.kind == ASSIGNED:
            return self.on_assigned
        return (self.on_lost or self.on_revoked) if notice.kind == LOST else self.on_revoked


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int
    leader_epoch: int


class ConsumerBase(ABC):
    """See the module."""

    settings: ConsumerSettings
    _core: ConsumerCore
    _driver: Any

    def _set_up(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Settings and subscription from the constructor's arguments."""
        listener = Listener(*(callback(name, named.pop(name, None)) for name in Listener._fields))
        settings: Mapping[str, object] = {}
        topics: list[Any] = []
        for argument in arguments:
            if isinstance(argument, Mapping):
                settings = {**settings, **argument}
            else:
                topics.append(argument)
        self.settings = ConsumerSettings(settings, **named)
        for warning in self.settings.warnings:
            _log.warning("%s", warning)
        self._tls = ssl_context(self.settings)
        self._listener = self._default_listener = listener
        self._subscribed: Callable[[], None] | None = None
        """Says again what was subscribed to or assigned."""
        if topics:
            patterns = [topic for topic in topics if isinstance(topic, re.Pattern)]
            self._subscribed = self._subscribing(topics[0] if patterns and len(topics) == 1 else topics, listener)
        self._open()

    def _new_core(self) -> ConsumerCore:
        settings = network_client_settings(
            self.settings, allow_auto_topic_creation=self.settings.allow_auto_create_topics
        )
        return ConsumerCore(NetworkClient(settings, time.monotonic()), self.settings, _wall_ms)

    @abstractmethod
    def _open(self) -> None:
        """Make core and driver, and subscribe to what is subscribed to."""

    @abstractmethod
    def _check_process(self) -> None:
        """Raises ClientClosed; after a fork the child begins anew."""

    def _check_not_static(self) -> None:
        if self.settings.group_instance_id is not None:
            raise ClientClosed(
                "the consumer belongs to the parent process; a static member (group.instance.id) cannot be in two"
            )

    def _run(self, action: Callable[[], T]) -> T:
        """Do something with the core, at once."""
        self._check_process()
        result: T = self._driver.run(action)
        return result

    # --- subscribing ------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: "Iterable[str] | re.Pattern[str]",
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Reads these topics, or those whose whole names match a compiled pattern. The last call counts.

        A text that begins with `^` is a regular expression, for topics whose names begin so: `"^orders-"`. The members
        of a group share the partitions; without `group_id` this consumer reads all of them.

        The callbacks (the constructor's if there are none) get the consumer and the partitions, while the consumer
        polls: `on_revoked` before partitions go (commit there), `on_assigned` when partitions came and before they are
        read (seek there), `on_lost` when they have gone without being asked for; without it `on_revoked` hears that,
        too.
        """
        asked = Listener(on_assigned, on_revoked, on_lost)
        listener = Listener(*map(callback, asked._fields, asked))
        self._remember(self._subscribing(topics, listener if any(listener) else self._default_listener))

    def _remember(self, subscribe: Callable[[], None]) -> None:
        """Do it, and again in the child of a fork."""
        self._run(subscribe)
        self._subscribed = subscribe

    def _subscribing(self, topics: "Iterable[str] | re.Pattern[str]", listener: Listener) -> Callable[[], None]:
        wanted = topics_to_read([topics] if isinstance(topics, str) else topics)

        def subscribe() -> None:
            self._core.subscribe(wanted)
            self._listener = listener

        return subscribe

    def assign(self, partitions: Partitions) -> None:
        """Read these partitions, without the group's help; the last call counts."""
        wanted = read_partitions("partitions", partitions)
        self._remember(lambda: self._core.assign(wanted))

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now."""
        return set(self._run(lambda: self._core.subscription.assigned()))

    def subscription(self) -> set[str]:
        """The topics that it subscribes to; of a pattern those that match."""
        return set(self._run(lambda: self._core.subscription.topics))

    def enforce_rebalance(self, reason: str = "the application asks for a rebalance") -> None:
        """Join the group again with the next poll."""
        text("reason", reason)

        def enforce() -> None:
            if self._core.membership is not None:
                self._core.membership.request_rejoin(reason)

        self._run(enforce)

    # --- positions --------------------------------------------------------------------------------------------------

    def seek(self, partition: "TopicPartition | tuple[str, int]", offset: int, leader_epoch: int = -1) -> None:
        """Read on from this offset. With the epoch of the record before it the leader is asked whether its log still
        has that record."""
        where = read_partition("partition", partition)
        at, epoch = _offset("offset", offset), _epoch("leader_epoch", leader_epoch)
        self._run(lambda: self._core.seek(where, at, epoch))

    def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        """Of these, or of all that are assigned."""
        wanted = read_partitions("partitions", partitions)
        self._run(lambda: self._core.seek_to(wanted, "earliest"))

    def seek_to_end(self, partitions: Partitions = ()) -> None:
        """Of these, or of all that are assigned."""
        wanted = read_partitions("partitions", partitions)
        self._run(lambda: self._core.seek_to(wanted, "latest"))

    def pause(self, partitions: Partitions) -> None:
        """Give no records of these until `resume`; the group does not notice."""
        wanted = read_partitions("partitions", partitions)
        self._run(lambda: self._core.pause(wanted))

    def resume(self, partitions: Partitions) -> None:
        """Gives records of these again, after `pause`."""
        wanted = read_partitions("partitions", partitions)
        self._run(lambda: self._core.resume(wanted))

    def paused(self) -> set[TopicPartition]:
        """Returns the partitions that `pause` was called for."""
        return set(self._run(lambda: self._core.subscription.paused()))

    # --- how it is --------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """What it has, what it waits for, and why it was rebalanced; also while another thread polls."""
        return self._run(lambda: self._core.health())

    def metrics(self) -> dict[str, int]:
        """What this consumer did, as plain numbers."""
        return self._run(lambda: self._core.metrics())

    def group_metadata(self) -> GroupMetadata:
        """For a producer that commits this consumer's offsets in a transaction."""

        def describe() -> GroupMetadata:
            if self._core.membership is None:
                raise UsageError("there is no group: group.id is not set")
            generation = self._core.membership.assigned_as
            member = self._core.membership.settings
            return GroupMetadata(
                member.group_id, generation.generation_id, generation.member_id, member.group_instance_id
            )

        return self._run(describe)

    # --- questions that take time -----------------------------------------------------------------------------------

    def _answer(self, promise: Promise[T], parting: bool) -> T:
        """What came of a question, asked when the consumer was closed already (`parting`) or not. A close meanwhile
        takes away what was asked about, and so may be behind a failure."""
        core = self._core
        if core.closing is not parting and not (promise.done and promise.error is None):
            raise ClientClosed("the consumer is closed") from promise.error
        if not promise.done:
            core.woken = False
            raise WokenUp("wakeup was called")
        return promise.result()

    def _timeout(self, timeout: float | None) -> float:
        return self.settings.default_api_timeout_ms / 1000 if timeout is None else seconds("timeout", timeout)

    def _ask_commit(self, offsets: OffsetsArgument | None, timeout_s: float | None) -> Promise[None]:
        given = None if offsets is None else _offsets(offsets)

        def commit() -> Promise[None]:
            commits = self._core.group_commits()
            return commits.commit(self._core.consumed_offsets() if given is None else given, timeout_s=timeout_s)

        return self._run(commit)

    def _ask_committed(
        self, partitions: Partitions, timeout_s: float
    ) -> Promise[dict[TopicPartition, OffsetAndMetadata | None]]:
        wanted = read_partitions("partitions", partitions)
        return self._run(lambda: self._core.group_commits().committed(wanted, timeout_s))

    def _commit_async(self, offsets: OffsetsArgument | None, on_done: Callable[[Any, Any], object] | None) -> None:
        given = None if offsets is None else _offsets(offsets)
        callback("callback", on_done)

        def commit() -> None:
            wanted = self._core.consumed_offsets() if given is None else given

            def done(promise: Promise[None]) -> None:
                if on_done is not None:
                    self._core.client.completions.append(partial(_call, on_done, wanted, promise.error))
                elif promise.error is not None:
                    _log.warning("a commit of %d partitions fails: %s", len(wanted), promise.error)

            self._core.group_commits().commit(wanted).on_done(done)

        self._run(commit)

    def _ask_position(self, partition: "TopicPartition | tuple[str, int]", timeout_s: float) -> Promise[int]:
        where = read_partition("partition", partition)
        return self._run(lambda: self._core.ask_position(where, timeout_s))

    def _ask_offsets(
        self, places: Mapping[TopicPartition, int], timeout_s: float
    ) -> Promise[dict[TopicPartition, PartitionOffset]]:
        return self._run(lambda: self._core.list_offsets(places, timeout_s))

    def _ask_topic(self, topic: str, timeout_s: float) -> Promise[TopicView]:
        name = topic_name("topic", topic)
        return self._run(lambda: self._core.client.topic(name, timeout_s))


def _call(callback: Callable[[Any, Any], object], offsets: Offsets, error: BaseException | None) -> None:
    callback(offsets, error)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class _Topics:
    """Names of topics and regular expressions, in the place of one pattern."""

    def __init__(self, wanted: list[str]) -> None:
        self._names = {text for text in wanted if not text.startswith("^")}
        self._expressions = [_expression(text) for text in wanted if text.startswith("^")]

    def fullmatch(self, name: str, /) -> bool | None:
        return name in self._names or any(expression.match(name) for expression in self._expressions) or None


def topics_to_read(given: "Iterable[str] | re.Pattern[str]") -> list[str] | Pattern:
    """Returns what the core subscribes to: names, or a pattern if one of them begins with `^`. Raises UsageError."""
    if isinstance(given, re.Pattern):
        return given
    wanted = _topics("topics", given)
    return _Topics(wanted) if any(text.startswith("^") for text in wanted) else wanted


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise refused("topics", text, f"it begins with ^ and is no regular expression: {error}") from None


def _topic(what: str, given: object) -> str:
    if isinstance(given, re.Pattern):
        raise refused(what, given, 'give names of topics, one pattern alone, or texts that begin with ^, "^orders-"')
    return text(what, given)


_topics: Final = several(_topic, 'topics, such as ["orders"]')
_offset: Final = number(0, INT64_MAX, "give the next offset to read, a number from 0 on")
_epoch: Final = number(-1, INT32_MAX)
_offsets_of: Final = by_partition(read_offset, "100")
at_times: Final = by_partition(time_ms, "int(time.time() * 1000)")


def _offsets(offsets: OffsetsArgument) -> Offsets:
    if isinstance(offsets, ConsumerRecord):
        where = TopicPartition(offsets.topic, offsets.partition)
        return {where: OffsetAndMetadata(offsets.offset + 1, "", offsets.leader_epoch)}
    return _offsets_of("offsets", offsets)


def found_at_times(found: dict[TopicPartition, PartitionOffset]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """None where no record is so new."""
    return {where: OffsetAndTimestamp(*each) if each.offset >= 0 else None for where, each in found.items()}


def plain_offsets(found: dict[TopicPartition, PartitionOffset]) -> dict[TopicPartition, int]:
    return {where: each.offset for where, each in found.items()}


def begin(partitions: Partitions) -> dict[TopicPartition, int]:
    return dict.fromkeys(read_partitions("partitions", partitions), EARLIEST)


def end(partitions: Partitions) -> dict[TopicPartition, int]:
    return dict.fromkeys(read_partitions("partitions", partitions), LATEST)
