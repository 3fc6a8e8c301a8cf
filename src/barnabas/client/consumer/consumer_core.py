"""The whole consumer as a state machine: subscription, group, positions, fetches, commits. Both fronts use it.

Rebalances and record delivery go on when the application polls (`poll`); everything else goes on in the turns of the
network client, whichever thread makes them.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from barnabas.client.consumer.delivered_records import DecodedRecords, DeliveredRecords
from barnabas.client.consumer.group.consumer_coordinator import ConsumerCoordinator
from barnabas.client.consumer.group.offset_commits import Offsets
from barnabas.client.consumer.offset_fetcher import OffsetFetcher
from barnabas.client.consumer.rebalance_listener import LOST, REVOKED, RebalanceEvent
from barnabas.client.consumer.standalone_assignment import StandaloneAssignment
from barnabas.client.consumer.subscribed_topics import SubscribedTopics
from barnabas.client.consumer.subscription_state import Pattern, SubscriptionKind, SubscriptionState
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.fetch_session import FetchConfig
from barnabas.client.fetch.fetcher import FetchRequestManager
from barnabas.client.fetch.list_offsets import list_offsets
from barnabas.client.fetch.positions import ResetStrategy
from barnabas.client.offset_messages import OffsetAndMetadata, PartitionOffset
from barnabas.client.settings import ConsumerSettings
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise, resolved
from barnabas.connection.timers import spelled
from barnabas.errors import BarnabasError, ClientClosed, OperationTimedOut, UsageError, WokenUp
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import Offset, TopicPartition

__all__ = ["ConsumerCore"]

_log = logging.getLogger("barnabas.consumer")

LITTLE_BYTES: Final = 16 * 1024


class ConsumerCore:
    """Everything is called by one thread at a time, under the driver's lock or on its loop."""

    def __init__(self, client: NetworkClient, settings: ConsumerSettings, wall_ms: Callable[[], int]) -> None:
        self.client = client
        self.settings = settings
        self.closing = False
        self.woken = False
        """Set by `wakeup`, at any time and by any thread."""
        self.is_waiting = False
        """The application waits in a poll. Unset without the lock, so that nothing can come before that."""
        self.polled_at = float("-inf")
        """The time at which an iteration last asked for records; set without the lock."""
        self.needs_poll = False
        """The application has to call `poll`; an iteration ends for it."""
        reset = ResetStrategy.parse(settings.auto_offset_reset)
        self.subscription = SubscriptionState(reset, exclude_internal_topics=settings.exclude_internal_topics)
        self.delivered = DeliveredRecords(self.subscription)
        # declared only: a None here would be all that mypyc believes of them for the rest of this function
        self.coordinator: ConsumerCoordinator | None
        """None without a group."""
        self.standalone: StandaloneAssignment | None
        """None with a group."""
        self._make_group(settings.group_id)
        self.fetch_requests = FetchRequestManager(client, self.subscription, FetchConfig.of(settings))
        self.fetcher = self.fetch_requests.fetcher
        self.offset_fetcher = OffsetFetcher(
            client,
            self.subscription,
            None if self.coordinator is None else self.coordinator.commits,
            read_committed=settings.read_committed,
            timeout_s=settings.default_api_timeout_ms / 1000,
            wall_ms=wall_ms,
            on_position_known=self.fetch_requests.changed,
        )
        self._limit_commit: Callable[[Offsets], Offsets] | None = None
        """While `process` runs: takes the offsets that were read, and returns those that may be committed."""
        self._topics = SubscribedTopics(client, self.subscription)
        self._position_waiters: list[Callable[[], None]] = []
        client.components.append(self)
        client.on_metadata.append(self._on_metadata)

    def _make_group(self, group_id: str | None) -> None:
        if group_id is None:
            self.coordinator = None
            self.standalone = StandaloneAssignment(self.client.metadata, self.subscription, self._on_assignment_changed)
            return
        self.standalone = None
        self.coordinator = ConsumerCoordinator(
            self.client,
            self.settings,
            group_id,
            self.subscription,
            processed_offsets=self.processed_offsets,
            on_assignment_changed=self._on_assignment_changed,
            on_committed=self._call_interceptors if self.settings.interceptor_classes else None,
        )

    # --- the network client's component -------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        coordinator = self.coordinator
        if coordinator is not None:
            membership = coordinator.membership
            poll_timer = membership.poll_timer
            poll_timer.set_waiting(now, self.is_waiting)
            if self.polled_at > poll_timer.polled_at:
                poll_timer.reset(self.polled_at)
            membership.advance(now)
        self.offset_fetcher.advance(now)
        self.fetch_requests.advance(now)
        if coordinator is not None:
            coordinator.auto_commit.advance(now)
        if self._position_waiters:
            waiters, self._position_waiters = self._position_waiters, []
            for check in waiters:
                check()
        self.needs_poll = self._needs_poll()

    def next_deadline(self) -> float:
        due = min(self.offset_fetcher.next_deadline(), self.fetch_requests.next_deadline())
        if self.coordinator is not None:
            due = min(due, self.coordinator.membership.next_deadline(), self.coordinator.auto_commit.next_deadline())
        return due

    def _needs_poll(self) -> bool:
        return bool(
            self.woken
            or self.closing
            or self._topics.has_failed
            or self.offset_fetcher.has_failed
            or self.fetch_requests.has_failed
            or (
                self.coordinator is not None
                and (self.coordinator.membership.failure is not None or self.coordinator.can_poll)
            )
            or (self.standalone is not None and self.standalone.can_poll)
            or self.subscription.kind is SubscriptionKind.NONE
        )

    # --- subscribing ------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | Pattern) -> None:
        """Subscribes to a list of topics, or to those whose names a pattern matches. Raises UsageError."""
        if not isinstance(topics, Iterable):
            self._topics.subscribe_pattern(topics)
            return
        is_new = self.subscription.subscribe(topics)
        if is_new or (self.coordinator is not None and not self.coordinator.membership.is_subscribed):
            self._on_subscription_changed("the subscription has changed")

    def group(self) -> ConsumerCoordinator:
        """Raises UsageError without a group."""
        if self.coordinator is None:
            raise UsageError("offsets are committed for a group: this needs group.id")
        return self.coordinator

    def _on_subscription_changed(self, reason: str) -> None:
        self._topics.want()
        if self.coordinator is not None:
            self.coordinator.on_subscription_changed(reason)
        elif self.standalone is not None:
            self.standalone.update()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns partitions by hand, without the group; what is given up is committed before. Raises UsageError."""
        wanted = list(partitions)
        removed = set(self.subscription.assigned()).difference(wanted)
        if removed and self.subscription.kind is SubscriptionKind.MANUAL:
            self.auto_commit(0.0, all_delivered=False)
        self.subscription.assign(wanted)
        self._topics.want()
        self._on_assignment_changed(removed)
        if self.coordinator is not None:
            self.coordinator.auto_commit.start()

    def unsubscribe(self, reason: str = "the consumer has unsubscribed") -> Promise[None]:
        """Gives up all partitions and leaves the group. The listener has to receive `final_event` before."""
        removed = self.subscription.assigned()
        self.subscription.unsubscribe()
        self._topics.unsubscribe()
        self._on_assignment_changed(removed)
        if self.standalone is not None:
            self.standalone.abandon()
        return resolved(None) if self.coordinator is None else self.coordinator.unsubscribe(reason)

    def final_event(self) -> RebalanceEvent | None:
        """Returns the listener's event before the partitions of a subscription are given up for good."""
        owned = tuple(self.subscription.assigned())
        if not owned or not self.subscription.subscribes:
            return None
        is_lost = self.coordinator is not None and self.coordinator.membership.is_lost
        return RebalanceEvent(LOST if is_lost else REVOKED, owned)

    def _on_assignment_changed(self, removed: Collection[TopicPartition]) -> None:
        self.delivered.drop(removed)
        self.fetch_requests.drop(removed)
        self.offset_fetcher.changed()

    def _on_metadata(self) -> None:
        news = self._topics.on_metadata()
        if news is not None:
            self._on_subscription_changed(news)
        elif self.standalone is not None:
            self.standalone.update()
        if self.coordinator is not None:
            self.coordinator.on_metadata()
        self._follow_leaders()

    def _call_interceptors(self, offsets: Offsets) -> None:
        """Has the interceptors called with committed offsets, later and by themselves, so that they cannot harm the
        commit."""
        for interceptor in self.settings.interceptor_classes:
            if hasattr(interceptor, "on_commit"):
                self.client.completions.append(partial(interceptor.on_commit, offsets))

    def _follow_leaders(self) -> None:
        """Has positions validated whose partitions have another leader now."""
        self.fetcher.follow_leaders()
        self.offset_fetcher.changed()
        self.fetch_requests.changed()

    # --- the application's polls ------------------------------------------------------------------------------------

    def begin_wait(self) -> None:
        """The application waits in a poll from now on."""
        self.is_waiting = True
        self._update_poll_timer()

    def end_wait(self) -> None:
        """The application goes back to its work; the caller has unset `is_waiting` already."""
        self._update_poll_timer()

    def _update_poll_timer(self) -> None:
        if self.coordinator is not None:
            self.coordinator.membership.poll_timer.set_waiting(self.client.now, self.is_waiting)

    def end_wait_with_records(self) -> DecodedRecords | CompletedFetch | None:
        """Ends the wait, and returns the records that came if there is nothing else to do; otherwise None: `poll`."""
        self.end_wait()
        if self._needs_poll():
            return None
        self.delivered.mark_processed()
        return self.next_records()

    def poll(self) -> "RebalanceEvent | DecodedRecords | CompletedFetch | None":
        """Returns what the application has to do or gets next: an event for its listener, decoded records, or a fetch
        to decode. None: wait until `is_ready`. Raises the failures that the application has to know."""
        return self.poll_coordinator() or self.next_records()

    def poll_coordinator(self) -> RebalanceEvent | None:
        """As `poll`, without records."""
        self._roll_back()
        if self.coordinator is not None:
            self.coordinator.membership.poll_timer.reset(self.client.now)
        if self.closing:
            raise ClientClosed("the consumer is closed")
        if self.woken:
            self.woken = False
            raise WokenUp("wakeup was called")
        failure = self._take_failure()
        if failure is not None:
            raise failure
        if self.subscription.kind is SubscriptionKind.NONE:
            raise UsageError(
                "this consumer has nothing to read: give it topics, Consumer('orders', ...) or subscribe(['orders']),"
                " or partitions, assign([('orders', 0)]), before it is polled"
            )
        if self.standalone is not None:
            return self.standalone.poll()
        return None if self.coordinator is None else self.coordinator.poll()

    def event_delivered(self) -> None:
        """The listener receives the event of the last poll now."""
        if self.standalone is not None:
            self.standalone.event_delivered()
        if self.coordinator is not None:
            self.coordinator.event_delivered()

    def poll_buffer(self) -> DecodedRecords | CompletedFetch | None:
        """Returns records that are here already, between two turns of the network client; None: use `poll`."""
        if self.needs_poll or self.fetch_requests.wants_turn or self.delivered.rollback_positions:
            return None
        self.delivered.mark_processed()
        return self.next_records()

    def _roll_back(self) -> None:
        """The application polls again: it has processed what it received, and receives again what an interrupted poll
        did not deliver."""
        for partition, before in list(self.delivered.rollback_positions.items()):
            self.subscription.rewind(partition, before)
            self.fetch_requests.drop([partition])
            self.delivered.drop([partition])
        self.delivered.mark_processed()

    def next_records(self) -> DecodedRecords | CompletedFetch | None:
        """Returns decoded records, or the next fetch: the caller decodes it without the lock, then calls `hold` or
        `deliver`."""
        return self.delivered.next_decoded() or self.fetcher.buffer.next_fetch()

    def more_records(self) -> DecodedRecords | CompletedFetch | None:
        """As `next_records`, for a poll that has some records already: failures can wait for the next poll."""
        return self.delivered.next_decoded() or self.fetcher.buffer.next_fetch(raises_errors=False)

    def hold(self, fetch: CompletedFetch, records: list[AnyRecord], *, ended: bool) -> DecodedRecords | None:
        """Keeps the decoded records of a fetch for delivery; None if there are none, or the partition's position has
        moved elsewhere since."""
        before = self._advance_position(fetch, ended=ended, gives=bool(records))
        return self.delivered.hold(fetch.partition, records, before) if records and before is not None else None

    def deliver(self, fetch: CompletedFetch, *, ended: bool, gives: bool) -> bool:
        """As `hold`, for records that the application receives at once; returns whether they are still wanted."""
        before = self._advance_position(fetch, ended=ended, gives=gives)
        if before is not None:
            self.delivered.deliver_all(fetch.partition, before)
        return before is not None

    def _advance_position(self, fetch: CompletedFetch, *, ended: bool, gives: bool) -> OffsetAndMetadata | None:
        """Returns the position before the fetch; None if the fetch is no longer wanted."""
        state = self.subscription.get(fetch.partition)
        before = None if state is None else state.stands_at()
        if before is None:
            return None
        if ended and not self.fetcher.is_fetching(fetch.partition):
            self.fetch_requests.changed()
        if gives:
            self.delivered.note_rollback(fetch.partition, before)
        return before if self.fetcher.buffer.was_read(fetch, ended=ended) else None

    def is_ready(self) -> bool:
        """Whether `poll` has something to return or to raise."""
        return self._needs_poll() or self.delivered.next_decoded() is not None or not self.fetcher.buffer.is_empty

    def has_little(self) -> bool:
        """Whether so little is buffered that the next fetch can wait until the application has it."""
        return self.fetcher.buffer.size_bytes <= LITTLE_BYTES

    def _take_failure(self) -> BarnabasError | None:
        failure = None if self.coordinator is None else self.coordinator.take_failure()
        return (
            failure
            or self._topics.take_failure()
            or self.offset_fetcher.take_failure()
            or self.fetch_requests.take_failure()
        )

    # --- positions and commits --------------------------------------------------------------------------------------

    def processed_offsets(self) -> Offsets:
        """Returns what an automatic commit may commit."""
        processed = self.delivered.processed()
        return processed if self._limit_commit is None else self._limit_commit(processed)

    def consumed_offsets(self) -> Offsets:
        """Returns what a commit of the application's means that names no offsets."""
        return self.delivered.consumed() if self._limit_commit is None else self.processed_offsets()

    def begin_processing(self, limit_commit: Callable[[Offsets], Offsets]) -> None:
        """`process` begins: what its workers have done is committed, whatever enable.auto.commit says. `limit_commit`
        takes the offsets that were read and returns those that may be committed."""
        self._limit_commit = limit_commit
        if self.coordinator is not None and not self.coordinator.auto_commit.is_enabled:
            self.coordinator.auto_commit.enable(True)

    def end_processing(self) -> None:
        """`process` ends: positions go back to the first record that is not done."""
        processed = self.processed_offsets()
        self._limit_commit = None
        for partition, offset in processed.items():
            position = self.delivered.position(partition)
            if position is not None and position.offset != offset.offset:
                self.subscription.resume_at(partition, offset)
                self._position_changed([partition])
        if self.coordinator is not None and not self.settings.enable_auto_commit:
            self.coordinator.auto_commit.enable(False)

    def resumed_from(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Returns the commit that a partition's position comes from, if the application has not sought since."""
        state = self.subscription.get(partition)
        return None if state is None else state.resumed_from

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        self.subscription.seek(partition, offset, leader_epoch)
        self._position_changed([partition])

    def seek_to(self, partitions: Collection[TopicPartition], kind: str) -> None:
        """Seeks the `earliest` or `latest` offset of these partitions, or of all that are assigned; its value is asked
        for later."""
        wanted = partitions or self.subscription.assigned()
        for partition in wanted:
            self.subscription.request_reset(partition, ResetStrategy(kind))
        self._position_changed(wanted)

    def _position_changed(self, partitions: Collection[TopicPartition]) -> None:
        self.delivered.drop(partitions)
        self.fetch_requests.drop(partitions)
        self.offset_fetcher.changed()
        self._follow_leaders()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.subscription.pause(partitions)
        current = self.delivered.current
        if current is not None and current.partition in partitions:
            self.delivered.end_iteration()
        self.fetch_requests.changed()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.subscription.resume(partitions)
        self.fetch_requests.changed()

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float
    ) -> Promise[dict[TopicPartition, PartitionOffset]]:
        """Asks the leaders for the offsets of timestamps."""
        return list_offsets(self.client, timestamps, read_committed=self.settings.read_committed, timeout_s=timeout_s)

    def position(self, partition: TopicPartition, timeout_s: float) -> Promise[Offset]:
        """Promises the offset behind the last delivered record, once it is known where to begin."""
        promise: Promise[Offset] = Promise()
        deadline = self.client.now + timeout_s
        state = self.subscription.get(partition)
        if state is not None:
            state.is_asked_for = True

        def check() -> None:
            if promise.done:
                return
            try:
                found = self.delivered.position(partition)
            except BarnabasError as error:
                promise.fail(error)
                return
            if found is not None:
                promise.resolve(Offset(found.offset))
            elif self.offset_fetcher.has_failed:
                promise.fail(self.offset_fetcher.take_failure() or UsageError(f"{partition} has no position"))
            elif self.client.now >= deadline:
                text = f"no position of {partition} within {spelled(timeout_s)}"
                promise.fail(OperationTimedOut(text, self.client.unreachable().attempts))
            else:
                self._position_waiters.append(check)
                self.client.at(deadline, check)

        self.offset_fetcher.changed()
        check()
        return promise

    def auto_commit(self, timeout_s: float, *, all_delivered: bool) -> Promise[None]:
        """Commits now what an automatic commit may commit, if those are enabled. With `all_delivered` all delivered
        records count as processed."""
        if all_delivered:
            self.delivered.end_iteration()  # what an iteration in another thread gave beyond this would be done twice
            self._roll_back()
        if self.coordinator is None or self.subscription.kind is SubscriptionKind.NONE:
            return resolved(None)
        return self.coordinator.auto_commit.commit(timeout_s or None)

    # --- metrics ----------------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, int]:
        coordinator = self.coordinator
        return {
            "fetches": self.fetch_requests.answers,
            "fetches_failed": self.fetch_requests.failed,
            "stored_bytes": self.fetcher.buffer.size_bytes,
            "assigned_partitions": len(self.subscription.assigned()),
            "commits": 0 if coordinator is None else coordinator.commits.sent,
            "rebalances": 0 if coordinator is None else coordinator.membership.history.count,
        }
