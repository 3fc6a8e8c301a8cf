"""UnregisterBroker v0: removes the registration of a broker that is not to come back (KIP-500).

Where we differ: a broker that is live, or whose session goes on, is refused. It would go on without a registration.
"""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import KafkaError
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.types import BrokerId


async def handle(
    broker: BrokerServices, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    try:
        await broker.controller.call(lambda controller: controller.unregister(BrokerId(request.broker_id)))
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse(error_message=None)
