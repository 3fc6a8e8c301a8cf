"""ApiVersions v0-v5 for brokers. Lists the APIs of brokers as well, which clients never see."""

from barnabas.broker.handlers.cluster.api_versions import describe, refusal
from barnabas.broker.requests.dispatch import frame_of
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.network.connection import Parts
from barnabas.protocol.apis import SERVED_TO_BROKERS


def handle_frame(broker: BrokerServices, frame: memoryview, position: int, context: RequestContext) -> Parts:
    refused = refusal(broker, frame, position, context)
    return (refused or frame_of(context, describe(SERVED_TO_BROKERS)),)
