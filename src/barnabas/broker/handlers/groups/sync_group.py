"""SyncGroup v0-v5. The answer waits for the leader's assignment; from v5 on protocol type and name are required."""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.errors import InconsistentGroupProtocol
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_WITH_PROTOCOL = 5


def handle(
    broker: BrokerServices, request: SyncGroupRequest, context: RequestContext
) -> MaybeFuture[SyncGroupResponse]:
    without_protocol = request.protocol_type is None or request.protocol_name is None
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and without_protocol:
        return SyncGroupResponse(error_code=InconsistentGroupProtocol.code)
    return answer(broker.loop, lambda reply: broker.groups.sync(request, reply=reply))
