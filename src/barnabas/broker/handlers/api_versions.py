"""ApiVersions v0-v4. Says what is served and nothing else; to a version unknown to us it answers v0 with error 35."""

from typing import TYPE_CHECKING

from barnabas.broker.context import RequestContext
from barnabas.errors import InvalidRequest, UnsupportedVersion
from barnabas.network.connection import Parts
from barnabas.protocol.apis import ADVERTISED_PRODUCE_FIRST, SERVED, ApiKey
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from barnabas.broker.server import Broker

_LAST_VERSION = SERVED[ApiKey.API_VERSIONS].last
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")


def handle_frame(broker: "Broker", frame: memoryview, position: int, context: RequestContext) -> Parts:
    from barnabas.broker.dispatch import frame_of

    if not 0 <= context.api_version <= _LAST_VERSION:
        context.api_version = 0
        served = SERVED[ApiKey.API_VERSIONS]
        known = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=served.first, max_version=served.last)
        return (frame_of(context, ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[known])),)
    request, _ = decode(ApiVersionsRequest, context.api_version, bytes(frame[position:]))
    if context.api_version >= 3:
        if not (_is_valid(request.client_software_name) and _is_valid(request.client_software_version)):
            return (frame_of(context, ApiVersionsResponse(error_code=InvalidRequest.code)),)
        context.connection.client_software = f"{request.client_software_name} {request.client_software_version}"
    features = broker.controller.features
    response = ApiVersionsResponse(
        api_keys=_api_keys(),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in features.supported.items()
            if context.api_version >= 4 or low > 0
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.finalized.items()
            if level > 0
        ],
    )
    return (frame_of(context, response),)


def _api_keys() -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=key,
            min_version=ADVERTISED_PRODUCE_FIRST if key == ApiKey.PRODUCE else served.first,
            max_version=served.last,
        )
        for key, served in SERVED.items()
    ]


def _is_valid(name: str) -> bool:
    """KIP-511: letters, digits, dots and dashes; neither first nor last a dot or dash."""
    return bool(name) and _NAME_CHARACTERS.issuperset(name) and name[0] not in ".-" and name[-1] not in ".-"
