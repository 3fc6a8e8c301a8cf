"""PushMetadata v0, an API of our own. The controller sends a part of a metadata update."""

from barnabas.broker.peers.session import PeerContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import (
    InconsistentClusterId,
    InvalidRequest,
    KafkaError,
    RequestTimedOut,
    StaleControllerEpoch,
)
from barnabas.protocol.peer_messages.push_metadata import PushMetadataRequest, PushMetadataResponse
from barnabas.registry.registry import RegistryUnavailable


async def handle(broker: BrokerServices, request: PushMetadataRequest, context: PeerContext) -> PushMetadataResponse:
    if broker.cluster is None:
        return PushMetadataResponse(error_code=StaleControllerEpoch.code)
    try:
        return PushMetadataResponse(version=await broker.cluster.receive(request))
    except InconsistentClusterId as error:
        assert context.peer.identity is not None
        broker.cluster.note_refused(context.peer.identity, context.connection.peer_host, error.message)
        code = error.code
    except KafkaError as error:
        code = error.code
    except RegistryUnavailable:
        code = RequestTimedOut.code
    except ValueError:
        code = InvalidRequest.code
    return PushMetadataResponse(error_code=code, version=broker.image.version)
