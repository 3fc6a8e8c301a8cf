"""PushMetadata v0, an API of our own. The controller sends a part of a metadata update."""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import InvalidRequest, KafkaError, StaleControllerEpoch
from barnabas.protocol.peer_messages.push_metadata import PushMetadataRequest, PushMetadataResponse


def handle(broker: BrokerServices, request: PushMetadataRequest, context: RequestContext) -> PushMetadataResponse:
    if broker.cluster is None:
        return PushMetadataResponse(error_code=StaleControllerEpoch.code)
    try:
        return PushMetadataResponse(version=broker.cluster.receive(request))
    except KafkaError as error:
        return PushMetadataResponse(error_code=error.code, version=broker.image.version)
    except ValueError:
        return PushMetadataResponse(error_code=InvalidRequest.code, version=broker.image.version)
