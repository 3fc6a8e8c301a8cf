"""The whole consumer on a client: subscription, membership, positions, fetching, commits. The fronts stand on it.

The application's polls drive what concerns its partitions (`look`); everything else goes on in the client's turns,
whoever makes them.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from barnabas.client.consumer.assignors import assignor_for
from barnabas.client.consumer.delivered_records import DeliveredRecords, Held
from barnabas.client.consumer.group.heartbeat import MembershipSettings
from barnabas.client.consumer.group.membership import Membership
from barnabas.client.consumer.group.offset_commits import AutoCommit, OffsetCommits, Offsets
from barnabas.client.consumer.group.partition_assignment import Leading
from barnabas.client.consumer.group.rebalance import LOST, REVOKED, Notice, Rebalancing
from barnabas.client.consumer.health import Health
from barnabas.client.consumer.offset_fetcher import OffsetFetcher
from barnabas.client.consumer.reporting import health_of, metrics_of
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
from barnabas.types import TopicPartition

__all__ = ["ConsumerCore"]

_log = logging.getLogger("barnabas.consumer")

LITTLE_BYTES: Final = 16 * 1024


class ConsumerCore:
    """See the module. Everything is called by one thread at a time, under the driver's lock or on its loop."""

    def __init__(self, client: NetworkClient, settings: ConsumerSettings, wall_ms: Callable[[], int]) -> None:
        self.client = client
        self.settings = settings
        self.closing = False
        self.woken = False
        """Set by `wakeup`, at any time and by anybody."""
        self.waits = False
        """The application waits in a poll. Unset without the lock, so that nothing can come before that."""
        self.touched_at = float("-inf")
        """When an iteration last showed that the application is alive; set without the lock."""
        self.attention = False
        """The application should come and look; an iteration ends for it."""
        reset = ResetStrategy.parse(settings.auto_offset_reset)
        self.subscription = SubscriptionState(reset, exclude_internal_topics=settings.exclude_internal_topics)
        self.handing = DeliveredRecords(self.subscription)
        # declared only: a None here would be all that mypyc believes of them for the rest of this function
        self.commits: OffsetCommits | None
        self.membership: Membership | None
        self.leading: Leading | None
        self.auto_commit: AutoCommit | None
        self.rebalancing: Rebalancing | None
        self.standalone: StandaloneAssignment | None
        self._make_group(settings.group_id)
        self.fetching = FetchRequestManager(client, self.subscription, FetchConfig.of(settings))
        self.fetcher = self.fetching.fetcher
        self.locating = OffsetFetcher(
            client,
            self.subscription,
            self.commits,
            read_committed=settings.read_committed,
            timeout_s=settings.default_api_timeout_ms / 1000,
            wall_ms=wall_ms,
            on_located=self.fetching.changed,
        )
        self._bound: Callable[[Offsets], Offsets] | None = None
        """While records go through a pool of workers: what of the offsets that were read may be committed."""
        self._topics = SubscribedTopics(client, self.subscription)
        self._positions_asked: list[Callable[[], None]] = []
        if self.commits is not None and settings.interceptor_classes:
            self.commits.on_committed.append(self._tell_committed)
        client.components.append(self)
        client.on_metadata.append(self._follow_metadata)

    def _make_group(self, group_id: str | None) -> None:
        settings, client = self.settings, self.client
        if group_id is None:
            self.commits = self.membership = self.leading = self.auto_commit = self.rebalancing = None
            self.standalone = StandaloneAssignment(client.metadata, self.subscription, self._assignment_changed)
            return
        self.standalone = None
        self.commits = OffsetCommits(client, group_id, settings.group_instance_id)
        self.leading = Leading(
            client,
            group_id,
            [assignor_for(strategy) for strategy in settings.partition_assignment_strategy],
            topics=lambda: self.subscription.topics,
            owned=self.subscription.assigned,
            rack=settings.client_rack,
        )
        member = MembershipSettings(
            group_id,
            settings.group_instance_id,
            session_timeout_s=settings.session_timeout_ms / 1000,
            heartbeat_interval_s=settings.heartbeat_interval_ms / 1000,
            max_poll_interval_s=settings.max_poll_interval_ms / 1000,
            request_timeout_s=settings.request_timeout_ms / 1000,
        )
        self.membership = Membership(client, member, self.leading)
        self.auto_commit = self._make_auto_commit(self.commits) if settings.enable_auto_commit else None
        self.rebalancing = Rebalancing(
            self.membership, self.subscription, self.leading, self.auto_commit, self._assignment_changed
        )

    def _make_auto_commit(self, commits: OffsetCommits) -> AutoCommit:
        return AutoCommit(commits, self.settings.auto_commit_interval_ms / 1000, self.done_offsets)

    # --- the network client's component -------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        membership = self.membership
        if membership is not None:
            watch = membership.watch
            watch.look_in(now, self.waits)
            if self.touched_at > watch.polled_at:
                watch.touch(self.touched_at)
            membership.advance(now)
        self.locating.advance(now)
        self.fetching.advance(now)
        if self.auto_commit is not None:
            self.auto_commit.advance(now)
        if self._positions_asked:
            asked, self._positions_asked = self._positions_asked, []
            for look in asked:
                look()
        self.attention = self._wants_application()

    def next_deadline(self) -> float:
        due = min(self.locating.next_deadline(), self.fetching.next_deadline())
        if self.membership is not None:
            due = min(due, self.membership.next_deadline())
        if self.auto_commit is not None:
            due = min(due, self.auto_commit.next_deadline())
        return due

    def _wants_application(self) -> bool:
        return bool(
            self.woken
            or self.closing
            or self._topics.has_failed
            or self.locating.has_failed
            or self.fetching.has_failed
            or (
                self.membership is not None
                and self.rebalancing is not None
                and (self.membership.failure is not None or self.rebalancing.can_step)
            )
            or (self.standalone is not None and self.standalone.can_step)
            or self.subscription.kind is SubscriptionKind.NONE
        )

    # --- subscribing ------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | Pattern) -> None:
        """Subscribes to a list of topics, or to those whose names a pattern matches. Raises UsageError."""
        if not isinstance(topics, Iterable):
            self._topics.subscribe_pattern(topics)
            return
        is_new = self.subscription.subscribe(topics)
        if is_new or (self.commits is not None and self.commits.membership is None):
            self._subscription_changed("the subscription has changed")

    def group_commits(self) -> OffsetCommits:
        if self.commits is None:
            raise UsageError("offsets are committed for a group: this needs group.id")
        return self.commits

    def _subscription_changed(self, reason: str) -> None:
        self._topics.want()
        commits, membership = self.commits, self.membership
        if commits is None or membership is None:
            if self.standalone is not None:
                self.standalone.follow()
        elif commits.membership is None:
            commits.membership = membership
            membership.subscribe()
        else:
            membership.request_rejoin(reason)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """By hand, without the group; what is given up is committed before. Raises UsageError."""
        wanted = list(partitions)
        gone = set(self.subscription.assigned()).difference(wanted)
        if gone and self.subscription.kind is SubscriptionKind.MANUAL:
            self.last_commit(0.0, all_done=False)
        self.subscription.assign(wanted)
        self._topics.want()
        self._assignment_changed(gone)
        if self.auto_commit is not None:
            self.auto_commit.start()

    def unsubscribe(self, reason: str = "the consumer has unsubscribed") -> Promise[None]:
        """Back to nothing; leaves the group. `parting` says what the listener is to hear before."""
        gone = self.subscription.assigned()
        self.subscription.unsubscribe()
        self._topics.unsubscribe()
        self._assignment_changed(gone)
        if self.auto_commit is not None:
            self.auto_commit.stop()
        if self.standalone is not None:
            self.standalone.abandon()
        if self.membership is None or self.rebalancing is None or self.leading is None:
            return resolved(None)
        self.rebalancing.abandon()
        self.leading.follow()
        self.group_commits().membership = None
        return self.membership.unsubscribe(reason)

    def parting(self) -> Notice | None:
        """What the listener is to hear before the partitions of a subscription are given up for good."""
        owned = tuple(self.subscription.assigned())
        if not owned or not self.subscription.subscribes:
            return None
        return Notice(LOST if self.membership is not None and self.membership.is_lost else REVOKED, owned)

    def _assignment_changed(self, removed: Collection[TopicPartition]) -> None:
        self.handing.drop(removed)
        self.fetching.drop(removed)
        self.locating.changed()

    def _follow_metadata(self) -> None:
        news = self._topics.follow()
        if news is not None:
            self._subscription_changed(news)
        elif self.standalone is not None:
            self.standalone.follow()
        if self.leading is not None and self.membership is not None and self.membership.is_leader:
            reason = self.leading.what_changed()
            if reason is not None and self.membership.reason is None:
                self.membership.request_rejoin(reason)
        self._follow_leaders()

    def _tell_committed(self, offsets: Offsets) -> None:
        """Interceptors hear of commits, and cannot harm them."""
        for interceptor in self.settings.interceptor_classes:
            if hasattr(interceptor, "on_commit"):
                self.client.completions.append(partial(interceptor.on_commit, offsets))

    def _follow_leaders(self) -> None:
        """Positions are checked with leaders that changed."""
        self.fetcher.follow_leaders()
        self.locating.changed()
        self.fetching.changed()

    # --- the application's polls ------------------------------------------------------------------------------------

    def enter(self) -> None:
        """The application waits in a poll from now on."""
        self.waits = True
        self._look_in()

    def leave(self) -> None:
        """It goes back to its work; `waits` is unset already."""
        self._look_in()

    def _look_in(self) -> None:
        if self.membership is not None:
            self.membership.watch.look_in(self.client.now, self.waits)

    def arrived(self) -> Held | CompletedFetch | None:
        """As `leave`, with what came if it is nothing but records; None: look."""
        self.leave()
        if self._wants_application():
            return None
        self.handing.came_back()
        return self.more()

    def look(self) -> "Notice | Held | CompletedFetch | None":
        """What the application has to do or to get next: tell its listener, take what is held, decode what came. None:
        wait until `is_ready`. Raises what it has to hear."""
        return self.attend() or self.more()

    def attend(self) -> Notice | None:
        """As `look`, without records."""
        self._came_back()
        if self.membership is not None:
            self.membership.watch.touch(self.client.now)
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
            return self.standalone.step()
        return None if self.rebalancing is None else self.rebalancing.step()

    def told(self) -> None:
        """The listener hears of a notice now."""
        if self.standalone is not None:
            self.standalone.told()
        if self.rebalancing is not None:
            self.rebalancing.told()

    def glance(self) -> Held | CompletedFetch | None:
        """As `look`, between two turns of the network client while all is quiet; None: look properly."""
        if self.attention or self.fetching.wants_turn or self.handing.owed:
            return None
        self.handing.came_back()
        return self.more()

    def _came_back(self) -> None:
        """The application asks for more. What did not come to it before, because that was interrupted, it gets now."""
        for where, before in list(self.handing.owed.items()):
            self.subscription.go_back(where, before)
            self.fetching.drop([where])
            self.handing.drop([where])
        self.handing.came_back()

    def more(self) -> Held | CompletedFetch | None:
        """Records that are held, or what is to be decoded next: read it without the lock, then `take` it."""
        return self.handing.next_held() or self.fetcher.buffer.next_fetch()

    def more_of_it(self) -> Held | CompletedFetch | None:
        """As `more`, for a poll that has some records already: what has failed can wait for the next one."""
        return self.handing.next_held() or self.fetcher.buffer.next_fetch(raises_errors=False)

    def take(self, fetch: CompletedFetch, records: list[AnyRecord], *, ended: bool) -> Held | None:
        """What came of a fetch; None if there is nothing to hand out, or the partition has moved elsewhere since."""
        before = self._was_read(fetch, ended=ended, gives=bool(records))
        return self.handing.take(fetch.partition, records, before) if records and before is not None else None

    def took(self, fetch: CompletedFetch, *, ended: bool, gives: bool) -> bool:
        """As `take`, for what goes to the application at once, if there is any; whether it still counts."""
        before = self._was_read(fetch, ended=ended, gives=gives)
        if before is not None:
            self.handing.return_all(fetch.partition, before)
        return before is not None

    def _was_read(self, fetch: CompletedFetch, *, ended: bool, gives: bool) -> OffsetAndMetadata | None:
        state = self.subscription.get(fetch.partition)
        before = None if state is None else state.stands_at()
        if before is None:
            return None
        if ended and not self.fetcher.is_fetching(fetch.partition):
            self.fetching.changed()
        if gives:
            self.handing.owe(fetch.partition, before)
        return before if self.fetcher.buffer.was_read(fetch, ended=ended) else None

    def is_ready(self) -> bool:
        """Whether `look` has something to say."""
        return self._wants_application() or self.handing.next_held() is not None or not self.fetcher.buffer.is_empty

    def has_little(self) -> bool:
        """Whether so little has come that asking for more can wait until the application has it."""
        return self.fetcher.buffer.size_bytes <= LITTLE_BYTES

    def _take_failure(self) -> BarnabasError | None:
        failure = None if self.membership is None else self.membership.take_failure()
        return failure or self._topics.take_failure() or self.locating.take_failure() or self.fetching.take_failure()

    # --- positions and commits --------------------------------------------------------------------------------------

    def done_offsets(self) -> Offsets:
        """What may be committed by itself."""
        done = self.handing.done()
        return done if self._bound is None else self._bound(done)

    def consumed_offsets(self) -> Offsets:
        """What the application means when it commits without saying what."""
        return self.handing.consumed() if self._bound is None else self.done_offsets()

    def begin_work(self, bound: Callable[[Offsets], Offsets]) -> None:
        """Records go through a pool of workers from now on: what it has done is committed, whatever
        enable.auto.commit says. `bound` takes what was read and gives what may be committed."""
        self._bound = bound
        if self.commits is not None and self.auto_commit is None:
            self._switch_auto_commit(self._make_auto_commit(self.commits))

    def resumed_from(self, where: TopicPartition) -> OffsetAndMetadata | None:
        """The commit that a partition's position comes from, if nobody has sought since."""
        state = self.subscription.get(where)
        return None if state is None else state.resumed_from

    def end_work(self) -> None:
        """Positions go back to what is not done."""
        stands = self.done_offsets()
        self._bound = None
        for where, offset in stands.items():
            position = self.handing.position(where)
            if position is not None and position.offset != offset.offset:
                self.subscription.resume_at(where, offset)
                self._sought([where])
        if not self.settings.enable_auto_commit:
            self._switch_auto_commit(None)

    def _switch_auto_commit(self, auto_commit: AutoCommit | None) -> None:
        self.auto_commit = auto_commit
        if self.rebalancing is not None:
            self.rebalancing.auto_commit = auto_commit
        if auto_commit is not None:
            auto_commit.start()

    def seek(self, where: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        self.subscription.seek(where, offset, leader_epoch)
        self._sought([where])

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.subscription.pause(partitions)
        current = self.handing.current
        if current is not None and current.where in partitions:
            self.handing.interrupt()
        self.fetching.changed()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.subscription.resume(partitions)
        self.fetching.changed()

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float
    ) -> Promise[dict[TopicPartition, PartitionOffset]]:
        """See `leader_offsets`."""
        return list_offsets(self.client, timestamps, read_committed=self.settings.read_committed, timeout_s=timeout_s)

    def seek_to(self, partitions: Collection[TopicPartition], kind: str) -> None:
        """The first or the last offset, or the default's, looked up at the next opportunity."""
        for where in partitions or self.subscription.assigned():
            self.subscription.request_reset(where, ResetStrategy(kind))
        self._sought(partitions or self.subscription.assigned())

    def _sought(self, partitions: Collection[TopicPartition]) -> None:
        self.handing.drop(partitions)
        self.fetching.drop(partitions)
        self.locating.changed()
        self._follow_leaders()

    def ask_position(self, where: TopicPartition, timeout_s: float) -> Promise[int]:
        """Where the application stands, once that is known."""
        promise: Promise[int] = Promise()
        deadline = self.client.now + timeout_s
        state = self.subscription.get(where)
        if state is not None:
            state.is_asked_for = True

        def look() -> None:
            if promise.done:
                return
            try:
                found = self.handing.position(where)
            except BarnabasError as error:
                promise.fail(error)
                return
            if found is not None:
                promise.resolve(found.offset)
            elif self.locating.has_failed:
                promise.fail(self.locating.take_failure() or UsageError(f"{where} has no position"))
            elif self.client.now >= deadline:
                text = f"no position of {where} within {spelled(timeout_s)}"
                promise.fail(OperationTimedOut(text, self.client.unreachable().attempts))
            else:
                self._positions_asked.append(look)
                self.client.at(deadline, look)

        self.locating.changed()
        look()
        return promise

    # --- the end ----------------------------------------------------------------------------------------------------

    def last_commit(self, timeout_s: float, *, all_done: bool) -> Promise[None]:
        """Commit what was read, if that is this consumer's to do; `all_done`: what is at hand counts."""
        if all_done:
            self.handing.interrupt()  # what an iteration in another thread gave beyond this would be done twice
            self._came_back()
        if self.auto_commit is not None and self.subscription.kind is not SubscriptionKind.NONE:
            return self.auto_commit.commit(timeout_s or None)
        return resolved(None)

    def can_say_goodbye(self) -> bool:
        """Whether the coordinator is known and the last connection to it came about, so that waiting for its answer
        makes sense."""
        return self.membership is not None and self.client.is_coordinator_reachable(self.membership.coordinator)

    # --- health -----------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """How it is."""
        return health_of(self)

    def metrics(self) -> dict[str, int]:
        """What this consumer did and has in store, as plain numbers."""
        return metrics_of(self)
