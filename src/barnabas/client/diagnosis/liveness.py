"""Finds out whether one broker serves, by that broker's own answers."""

from collections.abc import Mapping

from barnabas.client.diagnosis.checks import BROKER_RESOURCE, probe_for
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

__all__ = ["find_live_broker"]


def find_live_broker(host: str, port: int, given: Mapping[str, object], timeout_s: float) -> int | None:
    """Returns the node id of the broker at an address; None if it answers and says that it is not among the live ones.
    No other broker is asked. Each of two answers may take `timeout_s`. Raises KafkaError, ClientError."""
    with probe_for(host, port, given, timeout_s) as probe:
        live = [broker.node_id for broker in probe.metadata().brokers]
        # A broker tells its own settings only.
        resources = [
            DescribeConfigsResource(
                resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=["node.id"]
            )
            for node_id in live
        ]
        response = probe.send(DescribeConfigsRequest(resources=resources))
        return next((int(result.resource_name) for result in response.results if not result.error_code), None)
