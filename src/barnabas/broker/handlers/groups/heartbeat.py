"""Heartbeat v0-v4: prolongs a member's session and reports rebalances to it."""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    broker: BrokerServices, request: HeartbeatRequest, context: RequestContext
) -> MaybeFuture[HeartbeatResponse]:
    return answer(broker.loop, lambda reply: broker.groups.heartbeat(request, reply=reply))
