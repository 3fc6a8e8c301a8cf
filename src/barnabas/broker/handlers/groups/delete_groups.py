"""DeleteGroups v0-v2: empty groups and all their offsets. NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND for each that stays."""

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
