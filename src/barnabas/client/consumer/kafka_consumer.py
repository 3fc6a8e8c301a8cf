"""The whole consumer as a state machine: subscription, group, positions, fetches, commits. Both fronts use it.

Rebalances and record delivery progress when the application polls (`poll`). Everything else progresses in the turns of
the network client, in any thread.
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
from barnabas.client.offset_messages import OffsetAndMetadata, PartitionOffset, with_epoch
from barnabas.client.settings import ConsumerSettings
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise, resolved
from barnabas.connection.timers import spelled
from barnabas.errors import BarnabasError, ClientClosed, OperationTimedOut, UsageError, WokenUp
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import Offset, TopicPartition

__all__ = ["KafkaConsumer"]

_log = logging.getLogger("barnabas.consumer")

LITTLE_BYTES: Final = 16 * 1024


class KafkaConsumer:
    """A consumer that never waits. One thread at a time uses it, under the driver's lock or on its loop."""

    def __init__(self, client: NetworkClient, settings: ConsumerSettings, wall_ms: Callable[[], int]) -> None:
        self.client = client
        self.settings = settings
        self.closing = False
        self.woken = False
        """Whether `wakeup` was called, at any time and by any thread."""
        self.is_waiting = False
        """Whether the application waits in a poll. Unset without the lock, so that no interrupt can come before."""
        self.polled_at = float("-inf")
        """The time at which an iteration last asked for records; set without the lock."""
        self.needs_poll = False
        """Whether the application has to call `poll`, for which an iteration ends its run."""
        reset = ResetStrategy.parse(settings.auto_offset_reset)
        self.subscription = SubscriptionState(reset, exclude_internal_topics=settings.exclude_internal_topics)
        self.delivered = DeliveredRecords(self.subscription)
        # declared only: after an assignment of None, mypyc would take them for None in the rest of this function
        self.coordinator: ConsumerCoordinator | None
        """The consumer's part in its group, None without a group."""
        self.standalone: StandaloneAssignment | None
        """The assignment without a group, None with a group."""
        self._make_group(settings.group_id)
        self.fetch_requests = FetchRequestManager(
            client, self.subscription, FetchConfig.of(settings), lambda: self.offset_fetcher.changed()
        )
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
        """The function that turns the offsets that were read into those that may be committed, while `process` runs."""
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
        """Subscribes to a list of topics, or to the topics whose names a pattern matches. Raises UsageError."""
        if not isinstance(topics, Iterable):
            self._topics.subscribe_pattern(topics)
            return
        is_new = self.subscription.subscribe(topics)
        if is_new or (self.coordinator is not None and not self.coordinator.membership.is_subscribed):
            self._on_subscription_changed("the subscription has changed")

    def group(self) -> ConsumerCoordinator:
        """Returns the consumer's part in its group. Raises UsageError without a group."""
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
        """Assigns partitions by hand, without the group, after a commit of the partitions that are given up. Raises
        UsageError."""
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
        """Gives up all partitions and leaves the group. The listener must receive `final_event` before."""
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
        """Schedules the interceptors' callbacks for committed offsets, so that their errors cannot affect the
        commit."""
        for interceptor in self.settings.interceptor_classes:
            if hasattr(interceptor, "on_commit"):
                self.client.completions.append(partial(interceptor.on_commit, offsets))

    def _follow_leaders(self) -> None:
        """Requests the validation of positions whose partitions have another leader now."""
        self.fetcher.follow_leaders()
        self.offset_fetcher.changed()
        self.fetch_requests.changed()

    # --- the application's polls ------------------------------------------------------------------------------------

    def begin_wait(self) -> None:
        """Notes that the application begins to wait in a poll."""
        self.is_waiting = True
        self._update_poll_timer()

    def end_wait(self) -> None:
        """Notes that the application goes back to its work. The caller has unset `is_waiting` already."""
        self._update_poll_timer()

    def _update_poll_timer(self) -> None:
        if self.coordinator is not None:
            self.coordinator.membership.poll_timer.set_waiting(self.client.now, self.is_waiting)

    def end_wait_with_records(self) -> DecodedRecords | CompletedFetch | None:
        """Ends the wait, and returns the received records. Returns None if the application has to call `poll`."""
        self.end_wait()
        if self._needs_poll():
            return None
        self.delivered.mark_processed()
        return self.next_records()

    def poll(self) -> "RebalanceEvent | DecodedRecords | CompletedFetch | None":
        """Returns the next item for the application: an event for its listener, decoded records, or a fetch to decode;
        None if it has to wait until `is_ready`. Raises the errors for the application."""
        return self.poll_coordinator() or self.next_records()

    def poll_coordinator(self) -> RebalanceEvent | None:
        """Returns the next event for the listener, like `poll`, but no records."""
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
        """Notes that the listener receives the event of the last poll now."""
        if self.standalone is not None:
            self.standalone.event_delivered()
        if self.coordinator is not None:
            self.coordinator.event_delivered()

    def poll_buffer(self) -> DecodedRecords | CompletedFetch | None:
        """Returns buffered records, between two turns of the network client; None if the caller has to use `poll`."""
        if self.needs_poll or self.fetch_requests.wants_turn or self.delivered.rollback_positions:
            return None
        self.delivered.mark_processed()
        return self.next_records()

    def _roll_back(self) -> None:
        """Notes that the application polls again: it has processed the delivered records. Records that an interrupted
        poll did not deliver are delivered again."""
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
        """Returns more records for a poll that has some already, like `next_records`. Errors wait for the next poll."""
        return self.delivered.next_decoded() or self.fetcher.buffer.next_fetch(raises_errors=False)

    def hold(self, fetch: CompletedFetch, records: list[AnyRecord], *, ended: bool) -> DecodedRecords | None:
        """Keeps the decoded records of a fetch for delivery, and returns them; None if there are none, or if the
        partition's position has been changed since."""
        before = self._advance_position(fetch, ended=ended, gives=bool(records))
        return self.delivered.hold(fetch.partition, records, before) if records and before is not None else None

    def deliver(self, fetch: CompletedFetch, *, ended: bool, gives: bool) -> bool:
        """Notes that the application receives the records of a fetch at once. Returns whether they are still wanted."""
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
        """Whether `poll` has an item to return or an error to raise."""
        return self._needs_poll() or self.delivered.next_decoded() is not None or not self.fetcher.buffer.is_empty

    def has_little(self) -> bool:
        """Whether so few bytes are buffered that the next fetch can wait until the application has them."""
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
        """Returns the offsets that an automatic commit may commit."""
        processed = self.delivered.processed()
        return processed if self._limit_commit is None else self._limit_commit(processed)

    def offsets_to_commit(self, given: Offsets | None) -> Offsets:
        """Returns the offsets for a commit of the application, which may name none, and notes that it has processed the
        records before them. Numbers alone get the leader epoch of the position."""
        if given is None:
            given = self.delivered.consumed() if self._limit_commit is None else self.processed_offsets()
        else:
            known = self.delivered.consumed()
            given = {
                partition: with_epoch(each, known[partition].offset, known[partition].leader_epoch)
                if partition in known
                else each
                for partition, each in given.items()
            }
        self.delivered.note_commit(given)
        return given

    def begin_processing(self, limit_commit: Callable[[Offsets], Offsets]) -> None:
        """Begins `process`: the offsets of processed records are committed even without enable.auto.commit.
        `limit_commit` takes the offsets that were read and returns those that may be committed."""
        self._limit_commit = limit_commit
        if self.coordinator is not None and not self.coordinator.auto_commit.is_enabled:
            self.coordinator.auto_commit.enable(True)

    def end_processing(self) -> None:
        """Ends `process`: moves the positions back to the first records that are not done. A close commits them."""
        processed = self.processed_offsets()
        self._limit_commit = None
        for partition, offset in processed.items():
            position = self.delivered.position(partition)
            if position is not None and position.offset != offset.offset:
                self.subscription.resume_at(partition, offset)
                self._position_changed([partition])
        if self.coordinator is not None and not self.settings.enable_auto_commit and not self.closing:
            self.coordinator.auto_commit.enable(False)

    def resumed_from(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Returns the commit that a partition's position comes from, if the application has not sought since."""
        state = self.subscription.get(partition)
        return None if state is None else state.resumed_from

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        self.subscription.seek(partition, offset, leader_epoch)
        self._position_changed([partition])

    def seek_to(self, partitions: Collection[TopicPartition], kind: str) -> None:
        """Seeks the `earliest` or `latest` offset of these partitions, or of all assigned ones. The offset is looked up
        later."""
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
        """Requests the offsets of timestamps from the partitions' leaders."""
        return list_offsets(self.client, timestamps, read_committed=self.settings.read_committed, timeout_s=timeout_s)

    def position(self, partition: TopicPartition, timeout_s: float) -> Promise[Offset]:
        """Promises the offset behind the last delivered record, or the initial position once it is known."""
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
        """Makes an automatic commit now, if they are enabled. With `all_delivered` all delivered records count as
        processed."""
        if all_delivered:
            self.delivered.end_iteration()  # an iteration in another thread must not give records beyond the commit
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
