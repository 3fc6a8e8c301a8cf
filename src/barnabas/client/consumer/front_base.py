"""The base of the synchronous and the asyncio consumer: the calls that do not wait, listeners, the end.

Flows that wait are coroutines over `_wait` and `_call`. The asyncio front awaits them. In the synchronous front these
two block the thread and never suspend, so that one step runs a flow to its end.
"""

import contextlib
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from barnabas.client import arguments
from barnabas.client.consumer.calls import ConsumerCalls, OffsetsArgument, Partitions, read_offsets, read_topics
from barnabas.client.consumer.health import Health, health_of
from barnabas.client.consumer.kafka_consumer import KafkaConsumer
from barnabas.client.consumer.rebalance_listener import Callback, RebalanceEvent, RebalanceListener
from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from barnabas.client.settings import ConsumerSettings
from barnabas.client.settings.network import network_client_settings
from barnabas.client.settings.tls import ssl_context
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import ClientClosed, OperationTimedOut, UsageError, WokenUp
from barnabas.types import TopicPartition

__all__ = ["CLOSE_TIMEOUT_S", "LOOK_S", "ConsumerBase"]

T = TypeVar("T")

CLOSE_TIMEOUT_S: Final = 0.05
"""The time that a close waits for responses by default."""

LOOK_S: Final = 0.1
"""The time for which `until_end` waits for records before it looks whether there are any."""
_READING: Final = ("stable", "assigned by hand", "without a group")
"""The states of a consumer that knows which partitions it reads."""

_log = logging.getLogger("barnabas.consumer")
_offset = arguments.number(0, arguments.INT64_MAX, "give the next offset to read, a number from 0 on")
_epoch = arguments.number(-1, arguments.INT32_MAX)


class ConsumerDriver(Protocol):
    """The part of both drivers that the fronts share."""

    @property
    def lock(self) -> AbstractContextManager[object]: ...
    @property
    def closed(self) -> bool: ...
    def run(self, action: Callable[[], T]) -> T: ...


class ConsumerBase(ABC):
    settings: ConsumerSettings
    _state: KafkaConsumer
    _calls: ConsumerCalls
    _driver: ConsumerDriver

    def _set_up(self, topics_and_settings: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Takes settings and subscription from the constructor's arguments."""
        callbacks = {name: named.pop(name, None) for name in RebalanceListener._fields}
        settings: Mapping[str, object] = {}
        topics: list[Any] = []
        for argument in topics_and_settings:
            if isinstance(argument, Mapping):
                settings = {**settings, **argument}
            else:
                topics.append(argument)
        listener = _listener(callbacks)
        self.settings = ConsumerSettings(settings, **named)
        for warning in self.settings.warnings:
            _log.warning("%s", warning)
        self._tls = ssl_context(self.settings)
        self._listener = self._default_listener = listener
        self._subscribed: Callable[[], None] | None = None
        """A function that subscribes or assigns again, in a forked child."""
        if topics:
            is_pattern = len(topics) == 1 and isinstance(topics[0], re.Pattern)
            self._subscribed = self._subscribing(topics[0] if is_pattern else topics, listener)
        self._open()

    def _new_state(self) -> KafkaConsumer:
        settings = network_client_settings(
            self.settings, allow_auto_topic_creation=self.settings.allow_auto_create_topics
        )
        state = KafkaConsumer(NetworkClient(settings, time.monotonic()), self.settings, _wall_ms)
        self._calls = ConsumerCalls(state)
        return state

    @abstractmethod
    def _open(self) -> None:
        """Makes the state machine and its driver, and renews the subscription if there is one."""

    @abstractmethod
    def _check_process(self) -> None:
        """Opens another consumer in a forked child. Raises ClientClosed."""

    @abstractmethod
    async def _wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits until `done()`. Returns False if the time is over before. Raises ClientClosed."""

    @abstractmethod
    async def _call(self, function: Callable[..., Any], *args: Any) -> None:
        """Calls a function of the application, which may be a coroutine function in the asyncio front."""

    @abstractmethod
    async def _deliver_event(self, event: RebalanceEvent) -> None:
        """Calls the listener with an event."""

    def _check_not_static(self) -> None:
        if self.settings.group_instance_id is not None:
            raise ClientClosed(
                "the consumer belongs to the parent process; a static member (group.instance.id) cannot be in two"
            )

    def _run(self, action: Callable[[], T]) -> T:
        """Calls `action`, which uses the state machine, and makes a turn."""
        self._check_process()
        return self._driver.run(action)

    def _answer(self, promise: Promise[T], was_closing: bool) -> T:
        """Returns the result of a call that began before or after a close (`was_closing`). A close in between may be
        the cause of an error, which is then ClientClosed."""
        state = self._state
        if state.closing is not was_closing and not (promise.done and promise.error is None):
            raise ClientClosed("the consumer is closed") from promise.error
        if not promise.done:
            state.woken = False
            raise WokenUp("wakeup was called")
        return promise.result()

    # --- subscribing ------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: "Iterable[str] | re.Pattern[str]",
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Reads these topics, or the topics whose whole names match a compiled pattern. Each call replaces the last.

        A text that begins with `^` is a regular expression for the beginning of names: `"^orders-"`. The members of a
        group share the partitions; without `group_id` this consumer reads all of them.

        The callbacks (by default the constructor's) are called with the consumer and the partitions, while the consumer
        polls: `on_revoked` before partitions are given up (for commits), `on_assigned` before new partitions are read
        (for seeks), `on_lost` after partitions were lost to other members; without it `on_revoked` is called for that.
        """
        listener = _listener({"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost})
        self._remember(self._subscribing(topics, listener if any(listener) else self._default_listener))

    def _remember(self, subscribe: Callable[[], None]) -> None:
        self._run(subscribe)
        self._subscribed = subscribe

    def _subscribing(
        self, topics: "Iterable[str] | re.Pattern[str]", listener: RebalanceListener
    ) -> Callable[[], None]:
        wanted = read_topics(topics)

        def subscribe() -> None:
            self._state.subscribe(wanted)
            self._listener = listener

        return subscribe

    def assign(self, partitions: Partitions) -> None:
        """Reads these partitions, which the group does not assign. Each call replaces the last."""
        wanted = arguments.partitions("partitions", partitions)
        self._remember(lambda: self._state.assign(wanted))

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that this consumer reads now."""
        return set(self._run(lambda: self._state.subscription.assigned()))

    def subscription(self) -> set[str]:
        """Returns the subscribed topics; for a pattern those that match."""
        return set(self._run(lambda: self._state.subscription.topics))

    def enforce_rebalance(self, reason: str = "the application asks for a rebalance") -> None:
        """Joins the group again with the next poll."""
        arguments.text("reason", reason)

        def enforce() -> None:
            if self._state.coordinator is not None:
                self._state.coordinator.membership.request_rejoin(reason)

        self._run(enforce)

    # --- positions --------------------------------------------------------------------------------------------------

    def seek(self, partition: "TopicPartition | tuple[str, int]", offset: int, leader_epoch: int = -1) -> None:
        """Continues at this offset. With the epoch of the record before it, the leader is asked whether its log still
        has that record."""
        wanted = arguments.partition("partition", partition)
        at, epoch = _offset("offset", offset), _epoch("leader_epoch", leader_epoch)
        self._run(lambda: self._state.seek(wanted, at, epoch))

    def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        """Seeks the first offsets of these partitions, or of all that are assigned."""
        wanted = arguments.partitions("partitions", partitions)
        self._run(lambda: self._state.seek_to(wanted, "earliest"))

    def seek_to_end(self, partitions: Partitions = ()) -> None:
        """Seeks the ends of these partitions, or of all that are assigned."""
        wanted = arguments.partitions("partitions", partitions)
        self._run(lambda: self._state.seek_to(wanted, "latest"))

    def pause(self, partitions: Partitions) -> None:
        """Returns no records of these partitions until `resume`. They stay assigned."""
        wanted = arguments.partitions("partitions", partitions)
        self._run(lambda: self._state.pause(wanted))

    def resume(self, partitions: Partitions) -> None:
        """Returns records of these partitions again, after `pause`."""
        wanted = arguments.partitions("partitions", partitions)
        self._run(lambda: self._state.resume(wanted))

    def paused(self) -> set[TopicPartition]:
        """Returns the partitions that `pause` was called for."""
        return set(self._run(lambda: self._state.subscription.paused()))

    def commit_async(
        self, offsets: OffsetsArgument | None = None, callback: Callable[[Any, Any], object] | None = None
    ) -> None:
        """Commits without waiting, and without a retry. `callback(offsets, error)` is called by the consumer's loop, or
        by any thread that works for the consumer; without a callback errors are logged."""
        given = read_offsets(offsets)
        on_commit: Callable[..., Any] | None = arguments.callback("callback", callback)

        def commit() -> None:
            wanted = self._state.offsets_to_commit(given)

            def done(promise: Promise[None]) -> None:
                if on_commit is not None:
                    self._state.client.completions.append(partial(on_commit, wanted, promise.error))
                elif promise.error is not None:
                    _log.warning("a commit of %d partitions fails: %s", len(wanted), promise.error)

            self._state.group().commits.commit(wanted).on_done(done)

        self._run(commit)

    # --- health -----------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """Returns the assignment, the reasons for waiting, and the last rebalances; also while another thread polls."""
        return self._run(lambda: health_of(self._state))

    def metrics(self) -> dict[str, int]:
        """Returns counts of fetches, commits, rebalances and so on."""
        return self._run(lambda: self._state.metrics())

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns what `commit()` would commit, with leader epochs: the offset behind the last delivered record of each
        partition. A producer commits it by `send_offsets_to_transaction`."""
        return self._run(lambda: self._state.delivered.consumed())

    def _without_end(self, ends: Mapping[TopicPartition, int]) -> set[TopicPartition] | None:
        """Returns the partitions whose `ends` are not known; None while the group has not assigned any yet."""
        health = self.health()
        if health.rejoining is not None or health.state not in _READING:
            return None
        return set(health.assigned) - ends.keys()

    def _has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Returns whether all records before these ends were delivered."""
        offsets = self.next_offsets()
        return all(where in offsets and offsets[where].offset >= ends[where] for where in self.assignment())

    def _no_end(self, ends: Mapping[TopicPartition, int], seconds: float) -> OperationTimedOut:
        offsets = self.next_offsets()
        behind = [str(where) for where, end in ends.items() if where not in offsets or offsets[where].offset < end]
        state = f"{', '.join(sorted(behind))} are not read to the end" if behind else f"it is {self.health().state}"
        return OperationTimedOut(f"the consumer has read nothing for {seconds:g} s; {state}")

    def group_metadata(self) -> GroupMetadata:
        """Returns the membership for a producer that commits this consumer's offsets in a transaction."""

        def describe() -> GroupMetadata:
            if self._state.coordinator is None:
                raise UsageError("there is no group: group.id is not set")
            membership = self._state.coordinator.membership
            generation, member = membership.assigned_generation, membership.settings
            return GroupMetadata(
                member.group_id, generation.generation_id, generation.member_id, member.group_instance_id
            )

        return self._run(describe)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _unsubscribe(self) -> None:
        self._run(lambda: self._state.auto_commit(0.0, all_delivered=True))
        event = self._run(self._state.final_event)
        try:
            if event is not None:
                await self._deliver_event(event)
        finally:
            self._subscribed = None
            if not self._state.closing:  # a close does the other steps itself
                self._run(self._state.unsubscribe)

    async def _leave(self, deadline: float, all_delivered: bool) -> None:
        """Commits, calls the listener and leaves the group. Tries to commit until the deadline, and then leaves as far
        as the coordinator can be reached."""
        state, driver = self._state, self._driver

        def left_s() -> float:
            return max(deadline - time.monotonic(), 0.0)

        with contextlib.suppress(ClientClosed):
            commit = driver.run(lambda: state.auto_commit(left_s(), all_delivered=all_delivered))
            await self._wait(lambda: commit.done, left_s())
            event = driver.run(state.final_event)
            if event is not None:
                try:
                    await self._deliver_event(event)
                except Exception:
                    _log.exception("on_%s fails while the consumer is closed", event.kind)
            left = driver.run(lambda: state.unsubscribe("the consumer is closed"))
            await self._wait(
                lambda: left.done or state.coordinator is None or not state.coordinator.is_reachable, left_s()
            )
            driver.run(state.fetch_requests.close)


def _listener(callbacks: dict[str, Any]) -> RebalanceListener:
    return RebalanceListener(**{name: arguments.callback(name, given) for name, given in callbacks.items()})


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
