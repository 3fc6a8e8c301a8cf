"""Membership in a consumer group (classic protocol): join, sync, heartbeat, leave, as a state machine.

Partitions change only while the application polls: it gives them up (`begin_join_prepare`), calls `join`, and later
`take_assignment`. Requests, responses, retries and heartbeats progress at any time. A member that was removed from the
group owns no partitions: they are lost, not revoked.

The coordinator chooses the group's leader, and its response to JoinGroup names that member (`_joined`). The leader
assigns the partitions, see `leader_assignment`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from barnabas.client.consumer.group.generation import Generation, MemberState, explained, name_of
from barnabas.client.consumer.group.heartbeat import Heartbeat, MembershipSettings, PollTimer
from barnabas.client.consumer.group.rebalance_history import RebalanceHistory
from barnabas.client.consumer.group.requests import (
    CONSUMER,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.network_client import Coordinator, NetworkClient
from barnabas.connection.promise import Promise
from barnabas.connection.retry import find_target_again
from barnabas.errors import (
    BarnabasError,
    ClientError,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    error_for,
)
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse

__all__ = ["MemberCallbacks", "Membership"]

JOIN_MARGIN_S: Final = 5.0

_log = logging.getLogger("barnabas.consumer")


OnAssigned = Callable[[dict[str, bytes] | None, Error | None], None]
"""A callback that gets the assignment of each member, or an error."""


class MemberCallbacks(Protocol):
    """The part of a member that depends on subscriptions and assignors."""

    def metadata(self, generation_id: int) -> Sequence[tuple[str, bytes]]:
        """Returns the assignors by name, the preferred one first, each with this member's metadata for the leader."""

    def owns_nothing(self) -> bool:
        """Whether this member has no partitions to give up."""

    def on_leader_elected(
        self, protocol: str, members: Sequence[JoinGroupResponseMember], skip: bool, done: OnAssigned
    ) -> None:
        """Assigns the partitions to the members and calls `done`, perhaps later. With `skip` the members keep their
        assignments, and this member only watches the topics that they depend on."""


class Membership:
    def __init__(self, client: NetworkClient, settings: MembershipSettings, callbacks: MemberCallbacks) -> None:
        self.settings = settings
        self.state = MemberState.UNJOINED
        self.generation = Generation()
        self.assigned_generation = Generation()
        """The generation of the application's last assignment. Transactions use it even after it was lost, so that the
        coordinator fences them."""
        self.is_leader = False
        self.failure: BarnabasError | None = None
        """An error for the application; see `take_failure`."""
        self.history = RebalanceHistory()
        self.poll_timer = PollTimer(settings)
        self.heartbeat = Heartbeat(settings)
        self.coordinator = Coordinator(settings.group_id)
        self._client = client
        self._callbacks = callbacks
        self.is_subscribed = False
        """Whether the consumer subscribes to topics, whose partitions come from the group."""
        self._reason: str | None = None
        """The reason to join again, None if there is none."""
        self._needs_join_prepare = False
        self._join_at = float("inf")
        """The time of the next JoinGroup."""
        self._attempt = 0
        """The number of the attempt to join; responses to earlier attempts are ignored."""
        self._in_flight = False
        self._failures = 0
        self._assignment: bytes | None = None

    # --- the application's half -------------------------------------------------------------------------------------

    def subscribe(self, reason: str = "joining the group") -> None:
        """Makes the member join at the application's next poll."""
        self.is_subscribed = True
        self.poll_timer.reset(self._client.now)
        if self._reason is None:
            self.request_rejoin(reason)
            self._needs_join_prepare = True

    def request_rejoin(self, reason: str) -> None:
        """Makes the member join again at the application's next poll. `reason` is for the logs of client and broker."""
        if self.is_subscribed:
            if self._reason is None:
                _log.info("group %r: rejoining: %s", self.settings.group_id, reason)
            self._reason = reason

    @property
    def rejoin_reason(self) -> str | None:
        """The reason of the rebalance that is due or in progress, None if there is none."""
        if self._reason is not None:
            return self._reason
        return self.history.reason if self.history.is_under_way else None

    @property
    def rebalancing(self) -> bool:
        return self.state in (MemberState.PREPARING, MemberState.COMPLETING)

    @property
    def needs_join_prepare(self) -> bool:
        """Whether the application must give up partitions before this member can join again."""
        if self._reason is None or self._assignment is not None or self._in_flight or self._join_at < float("inf"):
            return False
        return self._needs_join_prepare

    def begin_join_prepare(self) -> None:
        """Notes that the application gives up its partitions now. They are lost or revoked, see `is_lost`."""
        self._needs_join_prepare = False

    @property
    def is_lost(self) -> bool:
        """Whether this member was removed from the group, so that others may have its partitions already."""
        return self.generation.generation_id < 0 or not self.generation.member_id

    def restart_join_prepare(self, reason: str) -> None:
        """Starts the preparation again: the application was interrupted while it gave up or took partitions."""
        self._assignment = None
        self._needs_join_prepare = True
        self.request_rejoin(reason)

    def join(self) -> None:
        """Joins the group after the partitions were given up. Does nothing if partitions must be given up again."""
        if self._reason is None or self._needs_join_prepare or self._in_flight:
            return
        self.is_leader = False
        self.state = MemberState.PREPARING
        self._join_at = self._client.now
        self.advance(self._client.now)

    def take_assignment(self) -> bytes | None:
        """Returns a new assignment, once. The next rebalance then begins with `begin_join_prepare`."""
        assignment, self._assignment = self._assignment, None
        if assignment is not None:
            self._needs_join_prepare = True
            self.assigned_generation = self.generation
        return assignment

    @property
    def has_assignment(self) -> bool:
        return self._assignment is not None

    def take_failure(self) -> BarnabasError | None:
        """Returns an error that is not retriable, once. The error of a fenced member is returned each time."""
        failure = self.failure
        if not isinstance(failure, FencedInstanceId):
            self.failure = None
        return failure

    # --- joining ----------------------------------------------------------------------------------------------------

    def _send_join(self) -> None:
        self._attempt += 1
        attempt = self._attempt
        self._in_flight = True
        self._join_at = float("inf")
        self.state = MemberState.PREPARING
        self.heartbeat.end()
        reason, self._reason = self._reason or "", None
        self.history.begin(self._client.now, reason)
        settings = self.settings

        def build(_: int) -> JoinGroupRequest:
            protocols = self._callbacks.metadata(self.generation.generation_id)
            return join_request(settings, self.generation.member_id, protocols, reason)

        def done(response: Any, error: Error | None) -> None:
            if attempt == self._attempt:
                self._in_flight = False
                self._joined(response, error)

        timeout_s = max(settings.request_timeout_s, settings.max_poll_interval_s + JOIN_MARGIN_S)
        call = ClientRequest(JoinGroupRequest, done, build=build, timeout_s=timeout_s)
        self._client.send(call, self.coordinator)

    def _joined(self, response: JoinGroupResponse, error: Error | None) -> None:
        if error is None and response.error_code == MemberIdRequired.code:
            is_first = not self.generation.member_id and bool(response.member_id)
            self.generation = Generation(member_id=response.member_id)
            self._reason = self.history.reason
            if is_first:
                self._send_join()
            else:  # the request had a member id: a coordinator that asks again gets it after a pause
                self._failures += 1
                self._join_at = self._client.now + self._client.backoff_s(self._failures)
            return
        if error is None and response.error_code:
            error = error_for(response.error_code)
        if error is None and response.protocol_type not in (None, CONSUMER):
            error = InconsistentGroupProtocol(f"the group's protocol type is {response.protocol_type!r}")
        if error is not None:
            self._join_failed("JoinGroup", error)
            return
        self.state = MemberState.COMPLETING
        self.generation = Generation(response.generation_id, response.member_id, response.protocol_name or "")
        self.heartbeat.begin(self._client.now)
        self.is_leader = response.leader == response.member_id
        if not self.is_leader:
            self._send_sync({})
            return
        attempt = self._attempt
        self._in_flight = True

        def assigned(assignments: dict[str, bytes] | None, error: Error | None) -> None:
            if attempt != self._attempt:
                return
            self._in_flight = False
            if assignments is not None:
                self._send_sync(assignments)
            elif error is not None:
                self._join_failed("the assignment", error)

        self._callbacks.on_leader_elected(
            self.generation.protocol, response.members, response.skip_assignment, assigned
        )

    def _send_sync(self, assignments: dict[str, bytes]) -> None:
        attempt = self._attempt
        self._in_flight = True
        request = sync_request(self.settings, self.generation, assignments)

        def done(response: Any, error: Error | None) -> None:
            if attempt == self._attempt:
                self._in_flight = False
                self._synced(response, error)

        timeout_s = max(self.settings.request_timeout_s, self.settings.max_poll_interval_s + JOIN_MARGIN_S)
        self._client.send(ClientRequest(request, done, timeout_s=timeout_s), self.coordinator)

    def _synced(self, response: SyncGroupResponse, error: Error | None) -> None:
        if error is None and response.error_code:
            error = error_for(response.error_code)
        if error is None and (
            response.protocol_type not in (None, CONSUMER)
            or response.protocol_name not in (None, self.generation.protocol)
        ):
            chosen = f"{response.protocol_type}/{response.protocol_name}"
            error = InconsistentGroupProtocol(f"joined with {self.generation.protocol!r}, but SyncGroup says {chosen}")
        if error is not None:
            self._join_failed("SyncGroup", error)
            return
        self.state = MemberState.STABLE
        self._failures = 0
        self._assignment = bytes(response.assignment)
        self.history.end(self._client.now, self.generation.generation_id)
        _log.info("group %r: generation %d", self.settings.group_id, self.generation.generation_id)

    # --- failures ---------------------------------------------------------------------------------------------------

    def _join_failed(self, stage: str, error: Error) -> None:
        """Joins again after a retriable error. The application gets any other error."""
        text = f"{stage}: {name_of(error)}"
        self.history.set_back(text)
        _log.info("group %r: %s", self.settings.group_id, error if isinstance(error, ClientError) else text)
        find_target_again(self._client, self.coordinator, error)
        if self._reason is None:
            self._reason = self.history.reason
        if isinstance(error, UnknownMemberId | IllegalGeneration):
            self._reset_state(f"{name_of(error)} to {stage}", forget_member=isinstance(error, UnknownMemberId))
            self._join_at = float("inf") if self._needs_join_prepare else self._client.now + self._pause()
            self.state = MemberState.UNJOINED if self._needs_join_prepare else MemberState.PREPARING
        elif error.retriable or isinstance(error, RebalanceInProgress):
            self.state = MemberState.PREPARING
            self._join_at = self._client.now + self._pause()
        else:
            self._fail(error)

    def _pause(self) -> float:
        """Returns the pause before the next attempt. There is none after a first failure, which is usually a race."""
        self._failures += 1
        return self._client.backoff_s(self._failures - 1)

    def _fail(self, error: Error) -> None:
        """Keeps an error for the application, whose next poll joins again."""
        self.state = MemberState.UNJOINED
        self.heartbeat.end()
        self._join_at = float("inf")
        self._needs_join_prepare = True
        self.history.end(self._client.now, self.generation.generation_id)
        self.failure = explained(error, self.settings)
        self._reason = f"after {name_of(error)}"

    def _reset_state(self, reason: str, *, forget_member: bool) -> None:
        """Notes that the member is not in the group: pending responses are ignored, and its partitions are lost."""
        self._attempt += 1
        self._in_flight = False
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id="" if forget_member else self.generation.member_id)
        self.is_leader = False
        self._assignment = None
        self._join_at = float("inf")
        self.heartbeat.end()
        self._needs_join_prepare = not self._callbacks.owns_nothing()
        self.request_rejoin(reason)

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def _send_heartbeat(self, now: float) -> None:
        self.heartbeat.sent()
        sent = self.generation
        request = heartbeat_request(self.settings, sent)

        def done(response: Any, error: Error | None) -> None:
            if sent != self.generation or self.state not in (MemberState.COMPLETING, MemberState.STABLE):
                return  # the response is for an earlier generation
            if error is None and response.error_code:
                error = error_for(response.error_code)
            self._on_heartbeat_answer(error, now)

        timeout_s = min(self.settings.request_timeout_s, self.settings.session_timeout_s)
        self._client.send(ClientRequest(request, done, timeout_s=timeout_s), self.coordinator)

    def _on_heartbeat_answer(self, error: Error | None, sent_at: float) -> None:
        now = self._client.now
        if error is None or isinstance(error, RebalanceInProgress):
            self.heartbeat.answered(now, sent_at)
            if error is not None and self.state is MemberState.STABLE:
                self.request_rejoin("the group is rebalancing")
        elif isinstance(error, IllegalGeneration | UnknownMemberId):
            self.reset_on_error(error, "Heartbeat")
        elif error.retriable:
            find_target_again(self._client, self.coordinator, error)
            self.heartbeat.failed(now, self._client.backoff_s(1))
        else:
            self._reset_state(f"{name_of(error)} to Heartbeat", forget_member=isinstance(error, FencedInstanceId))
            self._needs_join_prepare = True
            self.failure = explained(error, self.settings)

    def reset_on_error(self, error: Error, stage: str) -> None:
        """Resets a member that a response calls unknown or fenced, or of another generation."""
        self._reset_state(f"{name_of(error)} to {stage}", forget_member=isinstance(error, UnknownMemberId))
        if not self._needs_join_prepare:
            self.join()

    # --- leaving ----------------------------------------------------------------------------------------------------

    def leave(self, reason: str) -> Promise[None]:
        """Sends LeaveGroup once: if that fails, the session timeout ends the membership. A static member only stops its
        heartbeats. Promises the response, which may be an error."""
        promise: Promise[None] = Promise()
        member_id = self.generation.member_id
        was_member = self.state is not MemberState.UNJOINED and member_id
        self._reset_state(reason, forget_member=True)
        self.history.end(self._client.now, self.generation.generation_id)
        if not was_member or self.settings.group_instance_id is not None:
            promise.resolve(None)
            return promise
        _log.info("group %r: leaving: %s", self.settings.group_id, reason)
        request = leave_request(self.settings, member_id, reason)
        self._client.send(ClientRequest(request, lambda *_: promise.resolve(None)), self.coordinator)
        return promise

    def unsubscribe(self, reason: str) -> Promise[None]:
        """Leaves the group for good."""
        self.is_subscribed = False
        promise = self.leave(reason)
        self._reason = None
        self._needs_join_prepare = False
        return promise

    # --- time -------------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        if not self.is_subscribed:
            return
        if now >= self._join_at:
            self._send_join()
        if now >= self.heartbeat.due:
            self._send_heartbeat(now)
        if self.state is not MemberState.UNJOINED and self.poll_timer.has_expired(now):
            interval_ms = round(self.settings.max_poll_interval_s * 1000)
            reason = f"no poll for max.poll.interval.ms={interval_ms}"
            _log.warning("group %r: leaving, its records go to others: %s", self.settings.group_id, reason)
            self.leave(reason)
            self._needs_join_prepare = True

    def next_deadline(self) -> float:
        if not self.is_subscribed:
            return float("inf")
        poll_due = self.poll_timer.deadline() if self.state is not MemberState.UNJOINED else float("inf")
        return min(self._join_at, self.heartbeat.due, poll_due)
