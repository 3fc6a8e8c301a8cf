"""JoinGroup v0-v9. The answer waits until the generation is complete; see
coordinator/group/group_metadata_manager.py."""

from collections.abc import Callable

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

FIRST_VERSION_WITH_NULL_PROTOCOL = 7


def handle(
    broker: BrokerServices, request: JoinGroupRequest, context: RequestContext
) -> MaybeFuture[JoinGroupResponse]:
    def start(reply: Callable[[JoinGroupResponse], None]) -> None:
        def finish(response: JoinGroupResponse) -> None:
            if response.error_code and response.generation_id < 0:
                response.protocol_name = None
            if response.protocol_name is None and context.api_version < FIRST_VERSION_WITH_NULL_PROTOCOL:
                response.protocol_name = ""
            reply(response)

        broker.groups.join(
            request,
            client_id=context.client_id,
            client_host=f"/{context.connection.peer_host}",
            api_version=context.api_version,
            reply=finish,
        )

    return answer(broker.loop, start)
