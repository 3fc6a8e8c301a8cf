"""DescribeCluster v0-v2: the brokers by the addresses that this client can reach, and who is the controller.

Where we differ: `controller_id` is the active controller, not any broker that would forward a request. There are no
separate controllers, so asking for their endpoints is answered with MISMATCHED_ENDPOINT_TYPE, as by every Kafka broker.

Tagged fields that Kafka does not have tell our own clients this broker's release and the epochs of the brokers'
registrations, and, if they ask for these, the last changes of leaders with the state of the registry, and the other
brokers that this one does not reach, or has refused.
"""

import json
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from barnabas.broker.handlers.topics.metadata import CLUSTER_OPERATIONS, NOT_ASKED
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import InvalidRequest, KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from barnabas.late_imports import import_late
from barnabas.metadata.refused_broker import RefusedBroker
from barnabas.metadata.unreached_peer import UnreachedPeer
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.registry.registry import LeaderChange
from barnabas.types import BrokerId
from barnabas.version import __version__

BROKERS = 1
CONTROLLERS = 2
FIRST_VERSION_WITH_TYPES = 1
PEERS_WAIT_MAX_MS: Final = 10_000


def handle(
    broker: BrokerServices, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse | Coroutine[Any, Any, DescribeClusterResponse]:
    if request.endpoint_type != BROKERS:
        return _wrong_type(request.endpoint_type, context.api_version)
    if request.leader_changes_max > 0 or request.unreached_peers_wait_ms > 0:
        return _with_wishes(broker, request, context)
    return _describe(broker, request, context)


async def _with_wishes(
    broker: BrokerServices, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Returns the response with what only our own clients ask for."""
    changes: bytes | None = None
    usable_bytes = total_bytes = 0
    unreached: str | None = None
    if request.leader_changes_max > 0:
        try:
            changes, (usable_bytes, total_bytes) = await broker.controller.call(
                lambda controller: (  # on its thread also the JSON is made, 2 MB of ten thousand changes
                    _json(controller.leader_changes(request.leader_changes_max)).encode(),
                    controller.registry_space(),
                ),
                until_known=False,
            )
        except KafkaError as error:
            return DescribeClusterResponse(error_code=error.code, error_message=error.message)
    if request.unreached_peers_wait_ms > 0:
        wait_s = min(request.unreached_peers_wait_ms, PEERS_WAIT_MAX_MS) / 1000
        unreached = _json(await _unreached_peers(broker, wait_s))
    response = _describe(broker, request, context)
    response.leader_changes = changes
    response.registry_usable_bytes, response.registry_total_bytes = usable_bytes, total_bytes
    if changes is not None and broker.cluster is not None:
        response.registry_loss = broker.cluster.registry_loss
    response.unreached_peers = unreached
    if unreached is not None and broker.cluster is not None:
        response.refused_brokers = _json(broker.cluster.refused_brokers()).encode()
    return response


async def _unreached_peers(broker: BrokerServices, wait_s: float) -> list[UnreachedPeer]:
    if broker.peers is None:
        return []
    reachability = import_late("barnabas.broker.peers.reachability")  # a broker alone has no use for it
    found: list[UnreachedPeer] = await reachability.unreached_peers(broker.node_id, broker.image, broker.peers, wait_s)
    return found


def _json(rows: Sequence[LeaderChange] | Sequence[UnreachedPeer] | Sequence[RefusedBroker]) -> str:
    return json.dumps([row._asdict() for row in rows])


def _describe(
    broker: BrokerServices, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    image = broker.image
    fenced = {node_id for node_id, known in image.brokers.items() if known.fenced}
    ours = context.connection.client_software.startswith("barnabas ")
    epochs = {node_id: known.epoch for node_id, known in image.brokers.items()} if ours else {}
    brokers = [
        DescribeClusterBroker(
            broker_id=node_id,
            host=host,
            port=port,
            rack=rack,
            is_fenced=node_id in fenced,
            broker_epoch=epochs.get(BrokerId(node_id), 0),
        )
        for node_id, host, port, rack in broker.advertised_brokers(
            context.connection, include_fenced=request.include_fenced_brokers
        )
    ]
    reachable = any(known.broker_id == image.controller_id for known in brokers)
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=image.controller_id if reachable else -1,
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
        release=__version__ if ours else None,
    )


def _wrong_type(endpoint_type: int, version: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code = MismatchedEndpointType.code
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        code, message = UnsupportedEndpointType.code, f"Unsupported endpoint type {endpoint_type}"
    if version < FIRST_VERSION_WITH_TYPES:
        code = InvalidRequest.code
    return DescribeClusterResponse(error_code=code, error_message=message)
