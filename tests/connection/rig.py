"""A request sent to a simulated cluster, and brokers that answer it."""

from typing import Any

from barnabas.connection.broker.client_request import ClientRequest
from barnabas.connection.promise import Promise
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.list_groups import ListGroupsResponse
from simulation.cluster import SingleClientCluster


def sent(cluster: SingleClientCluster, request: Any, to: Any, **options: Any) -> Promise[Any]:
    promise: Promise[Any] = Promise()

    def done(response: Any, error: Any) -> None:
        promise.fail(error) if error is not None else promise.resolve(response)

    cluster.network_client.send(ClientRequest(request, done, **options), to)
    return promise


def groups(cluster: SingleClientCluster) -> None:
    cluster.handlers[ApiKey.LIST_GROUPS] = lambda received: ListGroupsResponse()
