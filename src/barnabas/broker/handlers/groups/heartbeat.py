"""Heartbeat v0-v4: keeps a member's session, tells it of rebalances."""

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.requests.request_context import RequestContext
from barnabas.coordinator.event_loop import answer
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from barnabas.broker.server import Broker


def handle(
    broker: "Broker", request: HeartbeatRequest, context: RequestContext
) -> "HeartbeatResponse | asyncio.Future[HeartbeatResponse]":
    return answer(broker.loop, lambda reply: broker.groups.heartbeat(request, reply=reply))
