"""GiveUpReplicas v0, an API of our own. A broker cannot write or read some of its replicas: others have to lead and
count."""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.controller.isr_control import GivenUpReplica
from barnabas.errors import KafkaError
from barnabas.protocol.peer_messages.give_up_replicas import GiveUpReplicasRequest, GiveUpReplicasResponse
from barnabas.types import BrokerId, LeaderEpoch


async def handle(
    broker: BrokerServices, request: GiveUpReplicasRequest, context: RequestContext | None
) -> GiveUpReplicasResponse:
    replicas = [
        GivenUpReplica(replica.topic_id, replica.partition, LeaderEpoch(replica.leader_epoch), replica.is_damaged)
        for replica in request.replicas
    ]
    try:
        await broker.controller.call(
            lambda controller: controller.give_up_replicas(BrokerId(request.broker_id), request.broker_epoch, replicas),
            until_known=False,
        )
    except KafkaError as error:
        return GiveUpReplicasResponse(error_code=error.code)
    return GiveUpReplicasResponse()
