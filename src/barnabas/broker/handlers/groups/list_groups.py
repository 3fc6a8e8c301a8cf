"""ListGroups v0-v5: the groups that this broker coordinates; by state from v4 on, by type from v5 on."""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(
    broker: BrokerServices, request: ListGroupsRequest, context: RequestContext
) -> MaybeFuture[ListGroupsResponse]:
    return answer(
        broker.loop,
        lambda reply: broker.groups.list_groups(request.states_filter, request.types_filter, reply=reply),
    )
