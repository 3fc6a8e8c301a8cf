"""ApiVersions: the APIs of a broker, at every version, and the name that a client gives itself."""

import pytest

from barnabas.errors import InvalidRequest, RebootstrapRequired
from barnabas.protocol.apis import SERVED, ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from broker.admin_rig import versions
from broker.wire import Wire


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_all_that_is_served_is_listed(wire: Wire, version: int) -> None:
    for _ in range(2):  # the second time it is there already
        answer = wire.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
        assert answer.error_code == 0
        listed = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        assert listed.pop(ApiKey.PRODUCE) == (0, SERVED[ApiKey.PRODUCE].last), "as librdkafka wants to see it"
        assert listed == {key: tuple(served) for key, served in SERVED.items() if key != ApiKey.PRODUCE}
    if version >= 3:
        supported = {feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features}
        finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        assert finalized == {
            "metadata.version": 25, "transaction.version": 2, "eligible.leader.replicas.version": 1
        }  # fmt: skip
        assert supported == {name: (level, level) for name, level in finalized.items()}, "no request changes them"


@pytest.mark.parametrize(
    ("name", "version", "is_valid"),
    [
        ("librdkafka", "2.3.0-rc1", True),
        ("x", "0", True),
        ("", "1", False),
        ("a", "", False),
        ("-a", "1", False),
        ("a", "1.", False),
        ("a b", "1", False),
        ("käse", "1", False),
    ],
)
def test_names_of_clients(wire: Wire, name: str, version: str, is_valid: bool) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    answer = wire.ask(request, 3)
    assert answer.error_code == (0 if is_valid else InvalidRequest.code)
    assert bool(answer.api_keys) is is_valid
    assert wire.ask(request, 0).error_code == 0, "which has no names yet"


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        ("ours", 0, 0),
        ("ours", 1, RebootstrapRequired.code),
        ("another", 0, RebootstrapRequired.code),
        ("another", -1, InvalidRequest.code),
        (None, 0, InvalidRequest.code),
        (None, -1, 0),
    ],
)
def test_a_client_that_means_another_broker_is_told(
    wire: Wire, cluster_id: str | None, node_id: int, error: int
) -> None:
    """As Kafka 4.4.0 answers."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    ours = wire.ask(DescribeClusterRequest(), 0)
    request.cluster_id = ours.cluster_id if cluster_id == "ours" else cluster_id
    request.node_id = node_id if node_id < 0 else ours.controller_id + node_id
    answer = wire.ask(request, 5)
    assert answer.error_code == error
    assert bool(answer.api_keys) is not bool(error)
