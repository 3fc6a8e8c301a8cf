"""ApiVersions v0-v5. Lists the served APIs and versions; a request in an unknown version gets a v0 response with error
35. From v5 on clients say which broker of which cluster they mean (KIP-1242)."""

from collections.abc import Mapping

from barnabas.broker.requests.dispatch import frame_of
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import InvalidRequest, RebootstrapRequired, UnsupportedVersion
from barnabas.metadata.features import FEATURES
from barnabas.network.connection import Parts
from barnabas.protocol.apis import ADVERTISED_PRODUCE_FIRST, SERVED, ApiKey, VersionRange
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_LAST_VERSION = SERVED[ApiKey.API_VERSIONS].last
_encoded: dict[int, bytes] = {}
"""The encoded response to clients by version."""
_NO_NODE = -1
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")


def handle_frame(broker: BrokerServices, frame: memoryview, position: int, context: RequestContext) -> Parts:
    return (refusal(broker, frame, position, context) or _answer(context),)


def refusal(
    broker: BrokerServices, frame: memoryview, position: int, context: RequestContext
) -> bytes | bytearray | None:
    """Returns the response to a request that must be sent again, is invalid or is meant for another broker, and None
    for any other. Notes the client's software."""
    if not 0 <= context.api_version <= _LAST_VERSION:
        context.api_version = 0
        served = SERVED[ApiKey.API_VERSIONS]
        known = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=served.first, max_version=served.last)
        return frame_of(context, ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[known]))
    request, _ = decode(ApiVersionsRequest, context.api_version, bytes(frame[position:]))
    if context.api_version >= 3:
        if not (_is_valid(request.client_software_name) and _is_valid(request.client_software_version)):
            return frame_of(context, ApiVersionsResponse(error_code=InvalidRequest.code))
        if (request.cluster_id is None) != (request.node_id == _NO_NODE):
            return frame_of(context, ApiVersionsResponse(error_code=InvalidRequest.code))
        if request.cluster_id is not None and (request.cluster_id, request.node_id) != (
            broker.cluster_id,
            broker.node_id,
        ):
            # Its address belongs to this broker now: it must not take our metadata for those of its cluster.
            return frame_of(context, ApiVersionsResponse(error_code=RebootstrapRequired.code))
        context.connection.client_software = f"{request.client_software_name} {request.client_software_version}"
    return None


def _answer(context: RequestContext) -> bytes:
    """Returns the response, which is encoded once for each version, because every connection begins with it."""
    version = context.api_version
    frame = _encoded.get(version)
    if frame is None:
        frame = _encoded[version] = bytes(frame_of(context, describe(SERVED)))
    return frame[:4] + context.correlation_id.to_bytes(4, "big", signed=True) + frame[8:]


def describe(served: Mapping[int, VersionRange]) -> ApiVersionsResponse:
    """Returns the response that lists the served APIs and the features."""
    return ApiVersionsResponse(
        api_keys=_api_keys(served),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=level, max_version=level)
            for name, level in FEATURES.levels.items()
        ],
        finalized_features_epoch=FEATURES.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.levels.items()
        ],
    )


def _api_keys(served_apis: Mapping[int, VersionRange]) -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=key,
            min_version=ADVERTISED_PRODUCE_FIRST if key == ApiKey.PRODUCE else served.first,
            max_version=served.last,
        )
        for key, served in served_apis.items()
    ]


def _is_valid(name: str) -> bool:
    """Returns whether the text has letters, digits, dots and dashes only, no dot or dash first or last (KIP-511)."""
    return bool(name) and _NAME_CHARACTERS.issuperset(name) and name[0] not in ".-" and name[-1] not in ".-"
