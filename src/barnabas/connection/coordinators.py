"""Finds the coordinators of groups and transactional ids."""

from typing import Any

from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.cluster import Broker
from barnabas.connection.metadata import Metadata
from barnabas.connection.targets import ANY, Coordinator, RequestSender
from barnabas.errors import error_for
from barnabas.types import BrokerId

__all__ = ["Coordinators"]


class Coordinators:
    """Keeps the coordinators that were found, and holds back the requests whose coordinator is unknown."""

    def __init__(self, sender: RequestSender, metadata: Metadata) -> None:
        self._sender = sender
        self._metadata = metadata
        self._node_ids: dict[Coordinator, BrokerId] = {}
        self._unsent: dict[Coordinator, list[ClientRequest]] = {}
        """The requests that are held back, by the coordinator that is being looked up."""

    def clear(self) -> None:
        self._node_ids.clear()

    def node_id(self, coordinator: Coordinator) -> BrokerId | None:
        """Returns the coordinator's node id if it is known and the cluster lists that broker."""
        node_id = self._node_ids.get(coordinator)
        return node_id if node_id in self._metadata.cluster.brokers else None

    def forget(self, coordinator: Coordinator) -> None:
        """Drops the coordinator, so that the next request looks it up again."""
        self._node_ids.pop(coordinator, None)

    def look_up(self, coordinator: Coordinator, request: ClientRequest) -> None:
        """Finds the coordinator, and then sends it the request."""
        unsent = self._unsent.setdefault(coordinator, [])
        unsent.append(request)
        if len(unsent) > 1:
            return
        from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest

        def build(version: int) -> FindCoordinatorRequest:
            if version >= 4:
                return FindCoordinatorRequest(key_type=coordinator.key_type, coordinator_keys=[coordinator.key])
            return FindCoordinatorRequest(key_type=coordinator.key_type, key=coordinator.key)

        def found(response: Any, error: Error | None) -> None:
            if error is None:
                answer = response.coordinators[0] if response.coordinators else response
                if answer.error_code:
                    text = answer.error_message or f"no coordinator for {coordinator.key!r} yet"
                    error = error_for(answer.error_code, text)
                else:
                    self._node_ids[coordinator] = answer.node_id
                    self._metadata.add_broker(Broker(answer.node_id, answer.host, answer.port, None))
            for request in self._unsent.pop(coordinator):
                if error is None:
                    self._sender.send(request, coordinator)
                else:
                    request.done(None, error)

        self._sender.send(ClientRequest(FindCoordinatorRequest, found, build=build), ANY)
