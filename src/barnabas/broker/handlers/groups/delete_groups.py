"""DeleteGroups v0-v3: removes empty groups with their offsets. Other groups get NON_EMPTY_GROUP or
GROUP_ID_NOT_FOUND."""

from collections.abc import Callable

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse


def handle(
    broker: BrokerServices, request: DeleteGroupsRequest, context: RequestContext
) -> MaybeFuture[DeleteGroupsResponse]:
    def start(reply: Callable[[DeleteGroupsResponse], None]) -> None:
        broker.groups.delete_groups(
            request.groups_names, reply=lambda results: reply(DeleteGroupsResponse(results=results))
        )

    return answer(broker.loop, start)
