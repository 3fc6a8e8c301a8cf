"""A membership against a coordinator that answers by script, and an application that does what it is asked to."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.client.consumer.group.heartbeat import MembershipSettings
from barnabas.client.consumer.group.membership import Membership
from barnabas.connection.network_client import COORDINATOR_ROLE
from barnabas.errors import BarnabasError
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.leave_group import LeaveGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from simulation.world import Asked, World, frame_response

JOIN, HEARTBEAT, LEAVE, SYNC, FIND = 11, 12, 13, 14, 10
PARKED = object()
"""An answer that is kept for later."""


class Role:
    """One topic of two partitions, "range"; shares are bytes that nobody reads."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.led: list[tuple[str, list[str], bool]] = []
        self.lead_error: BarnabasError | None = None
        self.hold: Callable[[], None] | None = None
        self.holds = False

    def protocols(self, generation_id: int) -> Sequence[tuple[str, bytes]]:
        return [("range", b"\0\1" + bytes(sorted(self.owned)))]

    def owns_nothing(self) -> bool:
        return not self.owned

    def lead(self, protocol: str, members: Sequence[Any], skip: bool, done: Any) -> None:
        names = [member.member_id for member in members]
        self.led.append((protocol, names, skip))

        def finish() -> None:
            if self.lead_error is not None:
                done(None, self.lead_error)
            else:
                done({} if skip else {name: name.encode() for name in names}, None)

        if self.holds:
            self.hold = finish
        else:
            finish()


class Script:
    """The coordinator: answers for each API in order, the last one for ever; ints are error codes."""

    def __init__(self, **settings: Any) -> None:
        self.world = World()
        self.role = Role()
        self.settings = MembershipSettings("g", **settings)
        self.membership = Membership(self.world.network_client, self.settings, self.role)
        self.world.network_client.components.append(self.membership)
        self.answers: dict[int, deque[Any]] = {
            JOIN: deque([self.joined()]),
            SYNC: deque([SyncGroupResponse(assignment=b"mine")]),
            HEARTBEAT: deque([0]),
            LEAVE: deque([0]),
        }
        for api_key in self.answers:
            self.world.handlers[api_key] = self._answer
        self.parked: list[Asked] = []
        self.told: list[str] = []

    def joined(self, *, member: str = "m-1", leader: str = "m-1", generation: int = 1, **more: Any) -> Any:
        members = [JoinGroupResponseMember(member_id=member, metadata=b"\0\1")] if leader == member else []
        return JoinGroupResponse(
            generation_id=generation, protocol_name="range", leader=leader, member_id=member, members=members, **more
        )

    def answer_with(self, api_key: int, *answers: Any) -> None:
        self.answers[api_key].extendleft(reversed(answers))

    def _answer(self, asked: Asked) -> Any:
        queue = self.answers[asked.api_key]
        answer = queue[0] if len(queue) == 1 else queue.popleft()
        if answer is PARKED:
            self.parked.append(asked)
            return None
        if isinstance(answer, int):
            kinds = {JOIN: JoinGroupResponse, SYNC: SyncGroupResponse, HEARTBEAT: HeartbeatResponse}
            return kinds.get(asked.api_key, LeaveGroupResponse)(error_code=answer)
        return answer

    def release(self, response: Any) -> None:
        """Answer what was parked first."""
        asked = self.parked.pop(0)
        peer = self.world.network_client._peers.get(asked.node_id, COORDINATOR_ROLE)
        assert peer is not None
        self.world.network_client.received(peer.number, frame_response(asked, response), self.world.now)

    # --- the application ----------------------------------------------------------------------------------------------

    def poll(self, seconds: float = 0.0) -> None:
        """What the consumer's poll does for membership, for so long."""
        membership, world = self.membership, self.world
        end = world.now + seconds
        membership.watch.look_in(world.now, True)
        try:
            while True:
                world.run(self._wanted, seconds=max(end - world.now, 0.0))
                if not self._wanted():
                    return
                self._serve()
        finally:
            membership.watch.look_in(world.now, False)

    def _wanted(self) -> bool:
        membership = self.membership
        return bool(membership.failure or membership.has_assignment or membership.wants_preparation)

    def _serve(self) -> None:
        membership = self.membership
        failure = membership.take_failure()
        if failure is not None:
            raise failure
        share = membership.take_assignment()
        if share is not None:
            self.role.owned = {0, 1} if share.assignment else set()
            self.told.append(f"assigned {share.assignment.decode()}")
            return
        membership.begin_preparation()
        if self.role.owned:
            self.told.append("lost" if membership.is_lost else "revoked")
            self.role.owned = set()
        membership.join()

    def join(self) -> None:
        """A stable member."""
        self.membership.subscribe()
        self.poll(1.0)
        assert self.membership.state.value == "stable", self.membership.state

    def idle(self, seconds: float) -> None:
        """The application is busy; only the background is at work."""
        self.world.run(seconds=seconds)

    def asked(self, api_key: int) -> list[Any]:
        return [asked.request for asked in self.world.asked if asked.api_key == api_key]

    def reasons(self) -> list[str]:
        return [request.reason for request in self.asked(JOIN)]
