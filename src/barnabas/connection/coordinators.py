"""Who coordinates which group and which transactional id: asked for when it is needed first, and until it moves."""

from typing import TYPE_CHECKING, Any

from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.cluster import Broker
from barnabas.connection.metadata import Metadata
from barnabas.connection.targets import ANY, COORDINATOR_ROLE, Coordinator, Node
from barnabas.errors import error_for

if TYPE_CHECKING:
    from barnabas.connection.network_client import NetworkClient

__all__ = ["Coordinators"]


class Coordinators:
    """A part of the network client."""

    def __init__(self, client: "NetworkClient", metadata: Metadata) -> None:
        self._client = client
        self._metadata = metadata
        self._known: dict[Coordinator, int] = {}
        self._lookups: dict[Coordinator, list[ClientRequest]] = {}

    def clear(self) -> None:
        """Another cluster, perhaps."""
        self._known.clear()

    def known(self, to: Coordinator) -> int | None:
        """The node id that answered last."""
        return self._known.get(to)

    def forget(self, to: Coordinator) -> None:
        """It moved, or is gone: the next request asks who it is."""
        self._known.pop(to, None)

    def send(self, call: ClientRequest, to: Coordinator) -> None:
        """To whoever it is, once that is known."""
        node_id = self._known.get(to)
        if node_id is not None and node_id in self._metadata.view.brokers:
            self._client.send_to_node(call, Node(node_id, COORDINATOR_ROLE))
            return
        waiting = self._lookups.get(to)
        if waiting is not None:
            waiting.append(call)
            return
        self._lookups[to] = [call]
        self._find(to)

    def _find(self, to: Coordinator) -> None:
        from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest

        def build(version: int) -> FindCoordinatorRequest:
            if version >= 4:
                return FindCoordinatorRequest(key_type=to.key_type, coordinator_keys=[to.key])
            return FindCoordinatorRequest(key_type=to.key_type, key=to.key)

        def found(response: Any, error: Error | None) -> None:
            waiting = self._lookups.pop(to)
            if error is None:
                answer = response.coordinators[0] if response.coordinators else response
                if answer.error_code:
                    text = answer.error_message or f"no coordinator for {to.key!r} yet"
                    error = error_for(answer.error_code, text)
                else:
                    self._learn(to, Broker(answer.node_id, answer.host, answer.port, None))
            for call in waiting:
                if error is None:
                    self.send(call, to)
                else:
                    call.done(None, error)

        self._client.send(ClientRequest(FindCoordinatorRequest, found, build=build), ANY)

    def _learn(self, to: Coordinator, broker: Broker) -> None:
        self._known[to] = broker.node_id
        known = self._metadata.view.brokers.get(broker.node_id)
        if known is None or (known.host, known.port) != (broker.host, broker.port):
            brokers = self._metadata.view.brokers | {broker.node_id: broker}
            self._metadata.view = self._metadata.view._replace(brokers=brokers)
