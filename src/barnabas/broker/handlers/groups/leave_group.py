"""LeaveGroup v0-v5: one member until v2, from v3 on a list with an error for each (KIP-345), from v5 on reasons."""

from collections.abc import Callable

from barnabas.broker.requests.duplicates import once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

FIRST_VERSION_WITH_MANY_MEMBERS = 3


def handle(
    broker: BrokerServices, request: LeaveGroupRequest, context: RequestContext
) -> MaybeFuture[LeaveGroupResponse]:
    if context.api_version >= FIRST_VERSION_WITH_MANY_MEMBERS:
        request.members = once(request.members, lambda member: (member.member_id, member.group_instance_id))
        return answer(broker.loop, lambda reply: broker.groups.leave(request, reply=reply))
    request.members = [MemberIdentity(member_id=request.member_id)]

    def start(reply: Callable[[LeaveGroupResponse], None]) -> None:
        broker.groups.leave(request, reply=lambda response: reply(_of_one(response)))

    return answer(broker.loop, start)


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Returns the error of the only member, which older responses have at the top."""
    if response.error_code == 0 and response.members:
        response.error_code = response.members[0].error_code
    return response
