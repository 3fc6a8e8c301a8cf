"""FindCoordinator in both of its shapes: one key (to version 3) and a list of keys (from version 4)."""

from typing import Any

from barnabas.client.connection import Connection
from barnabas.client.core.views import Broker
from barnabas.client.deadline import Deadline
from barnabas.errors import error_for
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

__all__ = ["find_coordinator"]


def find_coordinator(connection: Connection, key: str, key_type: int, deadline: Deadline) -> Broker:
    """The broker that coordinates a group (key_type 0) or a transactional id (1). Raises the answer's KafkaError."""
    version = connection.version_of(FindCoordinatorRequest, at_most=4)
    request = FindCoordinatorRequest(key_type=key_type)
    if version >= 4:
        request.coordinator_keys = [key]
    else:
        request.key = key
    response: FindCoordinatorResponse = connection.call(request, deadline, version=version)
    answer: Any = response.coordinators[0] if version >= 4 else response
    if answer.error_code:
        raise error_for(answer.error_code, answer.error_message or f"no coordinator for {key!r} yet")
    return Broker(answer.node_id, answer.host, answer.port, None)
