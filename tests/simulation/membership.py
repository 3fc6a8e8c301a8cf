"""A member whose group coordinator answers as the test says, and an application that does what the member asks for."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.client.consumer.group.heartbeat import MembershipSettings
from barnabas.client.consumer.group.membership import Membership
from barnabas.errors import BarnabasError
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from simulation.cluster import LATER, SingleClientCluster
from simulation.requests import ReceivedRequest, refusal

PARKED = object()
"""The response that `ScriptedGroup.release` sends later."""


class Callbacks:
    """One topic of two partitions, "range"; assignments are bytes that nobody reads."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.elected: list[tuple[str, list[str], bool]] = []
        self.assignment_error: BarnabasError | None = None
        self.hold: Callable[[], None] | None = None
        self.holds = False

    def metadata(self, generation_id: int) -> Sequence[tuple[str, bytes]]:
        return [("range", b"\0\1" + bytes(sorted(self.owned)))]

    def owns_nothing(self) -> bool:
        return not self.owned

    def on_leader_elected(self, protocol: str, members: Sequence[Any], skip: bool, done: Any) -> None:
        names = [member.member_id for member in members]
        self.elected.append((protocol, names, skip))

        def finish() -> None:
            if self.assignment_error is not None:
                done(None, self.assignment_error)
            else:
                done({} if skip else {name: name.encode() for name in names}, None)

        if self.holds:
            self.hold = finish
        else:
            finish()


class ScriptedGroup:
    """A member and its coordinator, whose `answers` to each API come in order, the last one for ever. Numbers are error
    codes."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = SingleClientCluster()
        self.callbacks = Callbacks()
        self.settings = MembershipSettings("g", **settings)
        self.membership = Membership(self.cluster.network_client, self.settings, self.callbacks)
        self.cluster.network_client.components.append(self.membership)
        self.answers: dict[int, deque[Any]] = {
            ApiKey.JOIN_GROUP: deque([self.joined()]),
            ApiKey.SYNC_GROUP: deque([SyncGroupResponse(assignment=b"mine")]),
            ApiKey.HEARTBEAT: deque([0]),
            ApiKey.LEAVE_GROUP: deque([0]),
        }
        for api_key in self.answers:
            self.cluster.handlers[api_key] = self._answer
        self.parked: list[ReceivedRequest] = []
        self.events: list[str] = []

    def joined(self, *, member: str = "m-1", leader: str = "m-1", generation: int = 1, **more: Any) -> Any:
        members = [JoinGroupResponseMember(member_id=member, metadata=b"\0\1")] if leader == member else []
        return JoinGroupResponse(
            generation_id=generation, protocol_name="range", leader=leader, member_id=member, members=members, **more
        )

    def answer_with(self, api_key: int, *answers: Any) -> None:
        self.answers[api_key].extendleft(reversed(answers))

    def _answer(self, received: ReceivedRequest) -> Any:
        queue = self.answers[received.api_key]
        answer = queue[0] if len(queue) == 1 else queue.popleft()
        if answer is PARKED:
            self.parked.append(received)
            return LATER
        return refusal(received, answer) if isinstance(answer, int) else answer

    def release(self, response: Any) -> None:
        """Answers the first of the parked requests."""
        self.cluster.reply(self.parked.pop(0), response)

    # --- the application ----------------------------------------------------------------------------------------------

    def poll(self, seconds: float = 0.0) -> None:
        """Does what a consumer's poll does for its membership, for so long."""
        membership, cluster = self.membership, self.cluster
        end = cluster.now + seconds
        membership.poll_timer.set_waiting(cluster.now, True)
        try:
            while True:
                cluster.run(self._wanted, seconds=max(end - cluster.now, 0.0))
                if not self._wanted():
                    return
                self._serve()
        finally:
            membership.poll_timer.set_waiting(cluster.now, False)

    def _wanted(self) -> bool:
        membership = self.membership
        return bool(membership.failure or membership.has_assignment or membership.needs_join_prepare)

    def _serve(self) -> None:
        membership = self.membership
        failure = membership.take_failure()
        if failure is not None:
            raise failure
        assignment = membership.take_assignment()
        if assignment is not None:
            self.callbacks.owned = {0, 1} if assignment else set()
            self.events.append(f"assigned {assignment.decode()}")
            return
        membership.begin_join_prepare()
        if self.callbacks.owned:
            self.events.append("lost" if membership.is_lost else "revoked")
            self.callbacks.owned = set()
        membership.join()

    def join(self) -> None:
        """A stable member."""
        self.membership.subscribe()
        self.poll(1.0)
        assert self.membership.state.value == "stable", self.membership.state

    def idle(self, seconds: float) -> None:
        """The application is busy; only the background is at work."""
        self.cluster.run(seconds=seconds)

    def asked(self, api_key: int) -> list[Any]:
        return [received.request for received in self.cluster.requests if received.api_key == api_key]

    def reasons(self) -> list[str]:
        return [request.reason for request in self.asked(ApiKey.JOIN_GROUP)]
