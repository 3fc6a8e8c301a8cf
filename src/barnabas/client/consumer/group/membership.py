"""Membership in a consumer group (classic protocol): join, sync, heartbeat, leave, as a state machine.

What concerns partitions happens only while the application polls, so a rebalance has two halves. The application's:
`begin_preparation` (give partitions up), `join`, later `take_assignment`. The client's, at any time: requests, answers,
retries, heartbeats. A member that the group no longer knows owns nothing: what it had is lost, not revoked.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from barnabas.client.consumer.group.generation import Generation, GroupShare, MemberState, explained, name_of
from barnabas.client.consumer.group.heartbeat import Heartbeat, MembershipSettings, PollWatch
from barnabas.client.consumer.group.rebalance_log import RebalanceLog
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
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

__all__ = ["GroupRole", "Membership"]

JOIN_MARGIN_S: Final = 5.0

_log = logging.getLogger("barnabas.consumer")


Done = Callable[[dict[str, bytes] | None, Error | None], None]


class GroupRole(Protocol):
    """What membership needs to know of subscriptions and assignors."""

    def protocols(self, generation_id: int) -> Sequence[tuple[str, bytes]]:
        """The assignors by name, each with what this member tells the leader; the preferred one first."""

    def owns_nothing(self) -> bool:
        """Whether no partition would have to be given up."""

    def lead(self, protocol: str, members: Sequence[Any], skip: bool, done: Done) -> None:
        """Share the partitions among the members and call `done`, perhaps later. With `skip` the shares stay as they
        are: only keep an eye on what they depend on."""


class Membership:
    """See the module. A component of the network client."""

    def __init__(self, client: NetworkClient, settings: MembershipSettings, role: GroupRole) -> None:
        self.settings = settings
        self.state = MemberState.UNJOINED
        self.generation = Generation()
        self.assigned_as = Generation()
        """In which the application got the assignment that it had last: whoever lost it is known by it still, so that
        what was read in it is fenced."""
        self.is_leader = False
        self.failure: BarnabasError | None = None
        """What the application has to hear; see `take_failure`."""
        self.history = RebalanceLog()
        self.watch = PollWatch(settings)
        self.pulse = Heartbeat(settings)
        self.coordinator = Coordinator(settings.group_id)
        self._client = client
        self._role = role
        self._wanted = False
        """Whether there is a subscription at all."""
        self._reason: str | None = None
        """Why to join again; None if there is no need."""
        self._needs_preparation = False
        self._join_at = float("inf")
        """When to send JoinGroup without anybody's doing."""
        self._attempt = 0
        """Answers to requests of an earlier one are void."""
        self._in_flight = False
        self._failures = 0
        self._share: GroupShare | None = None

    # --- the application's half -------------------------------------------------------------------------------------

    def subscribe(self, reason: str = "joining the group") -> None:
        """There is a subscription from now on: join when the application polls."""
        self._wanted = True
        self.watch.touch(self._client.now)
        if self._reason is None:
            self.request_rejoin(reason)
            self._needs_preparation = True

    def request_rejoin(self, reason: str) -> None:
        """Join again; `reason` is what the coordinator and people will read."""
        if self._wanted:
            if self._reason is None:
                _log.info("group %r: rejoining: %s", self.settings.group_id, reason)
            self._reason = reason

    @property
    def reason(self) -> str | None:
        """Why a rebalance is due or under way; None if all is quiet."""
        if self._reason is not None:
            return self._reason
        return self.history.reason if self.history.is_under_way else None

    @property
    def rebalancing(self) -> bool:
        return self.state in (MemberState.PREPARING, MemberState.COMPLETING)

    @property
    def wants_preparation(self) -> bool:
        """Whether the application has to give up partitions before this member can join again."""
        if self._reason is None or self._share is not None or self._in_flight or self._join_at < float("inf"):
            return False
        return self._needs_preparation

    def begin_preparation(self) -> None:
        """The application gives up its partitions now; `is_lost` says how."""
        self._needs_preparation = False

    @property
    def is_lost(self) -> bool:
        """Whether the group no longer counts on us: others may have the partitions already."""
        return self.generation.generation_id < 0 or not self.generation.member_id

    def prepare_again(self, reason: str) -> None:
        """What the application has begun was cut short."""
        self._share = None
        self._needs_preparation = True
        self.request_rejoin(reason)

    def join(self) -> None:
        """The partitions are given up: go on by itself. Does nothing if there is something new to prepare."""
        if self._reason is None or self._needs_preparation or self._in_flight:
            return
        self.is_leader = False
        self.state = MemberState.PREPARING
        self._join_at = self._client.now
        self.advance(self._client.now)

    def take_assignment(self) -> GroupShare | None:
        """What the group gave us, once. From now on the next rebalance needs preparation."""
        share, self._share = self._share, None
        if share is not None:
            self._needs_preparation = True
            self.assigned_as = self.generation
        return share

    @property
    def has_assignment(self) -> bool:
        return self._share is not None

    def take_failure(self) -> BarnabasError | None:
        """What does not pass by itself, once; but a fenced member stays one."""
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
        self.pulse.end()
        reason, self._reason = self._reason or "", None
        self.history.begin(self._client.now, reason)
        settings = self.settings

        def build(_: int) -> JoinGroupRequest:
            protocols = self._role.protocols(self.generation.generation_id)
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
            else:  # it has been told our name: whoever asks for it for ever is not to be asked without a pause
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
        self.pulse.begin(self._client.now)
        self.is_leader = response.leader == response.member_id
        if not self.is_leader:
            self._send_sync({})
            return
        attempt = self._attempt
        self._in_flight = True

        def led(shares: dict[str, bytes] | None, error: Error | None) -> None:
            if attempt != self._attempt:
                return
            self._in_flight = False
            if shares is not None:
                self._send_sync(shares)
            elif error is not None:
                self._join_failed("the assignment", error)

        self._role.lead(self.generation.protocol, response.members, response.skip_assignment, led)

    def _send_sync(self, shares: dict[str, bytes]) -> None:
        attempt = self._attempt
        self._in_flight = True
        request = sync_request(self.settings, self.generation, shares)

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
            told = f"{response.protocol_type}/{response.protocol_name}"
            error = InconsistentGroupProtocol(f"joined with {self.generation.protocol!r}, but SyncGroup says {told}")
        if error is not None:
            self._join_failed("SyncGroup", error)
            return
        self.state = MemberState.STABLE
        self._failures = 0
        self._share = GroupShare(self.generation.protocol, bytes(response.assignment))
        self.history.end(self._client.now, self.generation.generation_id)
        _log.info("group %r: generation %d", self.settings.group_id, self.generation.generation_id)

    # --- failures ---------------------------------------------------------------------------------------------------

    def _join_failed(self, stage: str, error: Error) -> None:
        """Start over where that helps, at once or after a pause; tell the application where not."""
        text = f"{stage}: {name_of(error)}"
        self.history.set_back(text)
        _log.info("group %r: %s", self.settings.group_id, error if isinstance(error, ClientError) else text)
        find_target_again(self._client, self.coordinator, error)
        if self._reason is None:
            self._reason = self.history.reason
        if isinstance(error, UnknownMemberId | IllegalGeneration):
            self._reset(f"{name_of(error)} to {stage}", forget_member=isinstance(error, UnknownMemberId))
            self._join_at = float("inf") if self._needs_preparation else self._client.now + self._pause()
            self.state = MemberState.UNJOINED if self._needs_preparation else MemberState.PREPARING
        elif error.retriable or isinstance(error, RebalanceInProgress):
            self.state = MemberState.PREPARING
            self._join_at = self._client.now + self._pause()
        else:
            self._fail(error)

    def _pause(self) -> float:
        """None for the first failure in a row: it is mostly a race that the next try wins."""
        self._failures += 1
        return self._client.backoff_s(self._failures - 1)

    def _fail(self, error: Error) -> None:
        """The application must hear of it; its next poll tries again."""
        self.state = MemberState.UNJOINED
        self.pulse.end()
        self._join_at = float("inf")
        self._needs_preparation = True
        self.history.end(self._client.now, self.generation.generation_id)
        self.failure = explained(error, self.settings)
        self._reason = f"after {name_of(error)}"

    def _reset(self, reason: str, *, forget_member: bool) -> None:
        """We are not in the group: what is under way is void, what we own is lost."""
        self._attempt += 1
        self._in_flight = False
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id="" if forget_member else self.generation.member_id)
        self.is_leader = False
        self._share = None
        self._join_at = float("inf")
        self.pulse.end()
        self._needs_preparation = not self._role.owns_nothing()
        self.request_rejoin(reason)

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def _send_heartbeat(self, now: float) -> None:
        self.pulse.sent()
        sent = self.generation
        request = heartbeat_request(self.settings, sent)

        def done(response: Any, error: Error | None) -> None:
            if sent != self.generation or self.state not in (MemberState.COMPLETING, MemberState.STABLE):
                return  # of a generation that is over
            if error is None and response.error_code:
                error = error_for(response.error_code)
            self._take_pulse(error, now)

        timeout_s = min(self.settings.request_timeout_s, self.settings.session_timeout_s)
        self._client.send(ClientRequest(request, done, timeout_s=timeout_s), self.coordinator)

    def _take_pulse(self, error: Error | None, sent_at: float) -> None:
        now = self._client.now
        if error is None or isinstance(error, RebalanceInProgress):
            self.pulse.answered(now, sent_at)
            if error is not None and self.state is MemberState.STABLE:
                self.request_rejoin("the group is rebalancing")
        elif isinstance(error, IllegalGeneration | UnknownMemberId):
            self.expelled(error, "Heartbeat")
        elif error.retriable:
            find_target_again(self._client, self.coordinator, error)
            self.pulse.failed(now, self._client.backoff_s(1))
        else:
            self._reset(f"{name_of(error)} to Heartbeat", forget_member=isinstance(error, FencedInstanceId))
            self._needs_preparation = True
            self.failure = explained(error, self.settings)

    def expelled(self, error: Error, stage: str) -> None:
        """An answer says that the group does not count on this generation of ours any more."""
        self._reset(f"{name_of(error)} to {stage}", forget_member=isinstance(error, UnknownMemberId))
        if not self._needs_preparation:
            self.join()

    # --- leaving ----------------------------------------------------------------------------------------------------

    def leave(self, reason: str) -> Promise[None]:
        """Tell the coordinator, once: the session timeout does it otherwise. A static member only falls silent.

        The promise is settled with the answer, whatever it is.
        """
        promise: Promise[None] = Promise()
        member_id = self.generation.member_id
        was_member = self.state is not MemberState.UNJOINED and member_id
        self._reset(reason, forget_member=True)
        self.history.end(self._client.now, self.generation.generation_id)
        if not was_member or self.settings.group_instance_id is not None:
            promise.resolve(None)
            return promise
        _log.info("group %r: leaving: %s", self.settings.group_id, reason)
        request = leave_request(self.settings, member_id, reason)
        self._client.send(ClientRequest(request, lambda *_: promise.resolve(None)), self.coordinator)
        return promise

    def unsubscribe(self, reason: str) -> Promise[None]:
        """Leave, and do not come back."""
        self._wanted = False
        promise = self.leave(reason)
        self._reason = None
        self._needs_preparation = False
        return promise

    # --- time -------------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        if not self._wanted:
            return
        if now >= self._join_at:
            self._send_join()
        if now >= self.pulse.due:
            self._send_heartbeat(now)
        if self.state is not MemberState.UNJOINED and self.watch.look(now):
            interval_ms = round(self.settings.max_poll_interval_s * 1000)
            reason = f"no poll for max.poll.interval.ms={interval_ms}"
            _log.warning("group %r: leaving, its records go to others: %s", self.settings.group_id, reason)
            self.leave(reason)
            self._needs_preparation = True

    def next_deadline(self) -> float:
        if not self._wanted:
            return float("inf")
        watched = self.watch.deadline() if self.state is not MemberState.UNJOINED else float("inf")
        return min(self._join_at, self.pulse.due, watched)
