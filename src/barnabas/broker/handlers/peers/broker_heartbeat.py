"""BrokerHeartbeat v0-v2. A broker tells the controller that it is alive, and learns whether it is fenced.

Where we differ from Kafka: the controller does not compare versions of metadata, because a broker reads the registry
after its registration.
"""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import KafkaError, NotController, RequestTimedOut
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.registry.registry import RegistryUnavailable


async def handle(
    broker: BrokerServices, request: BrokerHeartbeatRequest, context: RequestContext | None
) -> BrokerHeartbeatResponse:
    if broker.cluster is None:
        return BrokerHeartbeatResponse(error_code=NotController.code)
    try:
        return await broker.cluster.answer_heartbeat(request)
    except KafkaError as error:
        return BrokerHeartbeatResponse(error_code=error.code)
    except RegistryUnavailable:
        return BrokerHeartbeatResponse(error_code=RequestTimedOut.code)
