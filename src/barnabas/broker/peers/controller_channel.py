"""Sends this broker's own requests to the controller, which may be this broker itself."""

from typing import Any

from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.broker.peers.peer_connections import PeerConnections, Role
from barnabas.broker.services import BrokerServices
from barnabas.errors import as_kafka_error, error_for
from barnabas.late_imports import import_late
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.schema import Request

__all__ = ["ControllerChannel"]


class ControllerChannel:
    """Used on the event loop's thread."""

    def __init__(self, broker: BrokerServices, peers: PeerConnections) -> None:
        self._broker = broker
        self._peers = peers

    async def send(self, request: Request, *, role: Role = Role.CONTROL, timeout_s: float | None = None) -> Any:
        """Returns the controller's response. Where this broker is the controller, its own handler answers, which gets
        no context. Raises the error of the response, and the errors of `PeerConnections.send`."""
        broker = self._broker
        controller_id, name = broker.image.controller_id, ApiKey(request.API_KEY).name
        if controller_id == broker.node_id:
            try:
                handler = import_late(HANDLER_MODULES[name.lower()])
            except OSError as error:
                raise as_kafka_error(error) from error
            response = await handler.handle(broker, request, None)
        else:
            response = await self._peers.send(controller_id, request, role=role, timeout_s=timeout_s)
        if response.error_code:
            raise error_for(response.error_code, f"broker {controller_id} as the controller refuses {name}")
        return response
