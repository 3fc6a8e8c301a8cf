"""UpdateFeatures v0-v2: accepts the level that a feature has, and refuses every other with Kafka's error (KIP-584).

A level comes with a release, so nothing is written, and any broker answers for itself. One update that is refused
refuses the request, as in Kafka.
"""

from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import InvalidUpdateVersion
from barnabas.metadata.features import ABSENT, FEATURES
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE_TYPES = range(1, 4)
"""An upgrade, a safe downgrade, an unsafe one."""


def handle(broker: BrokerServices, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    for update in request.feature_updates:
        reason = _refusal(update, broker.node_id)
        if reason:
            told = f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}"
            return UpdateFeaturesResponse(error_code=InvalidUpdateVersion.code, error_message=told)
    accepted = [update.feature for update in request.feature_updates]
    results = [UpdatableFeatureResult(feature=name, error_message=None) for name in accepted]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _refusal(update: FeatureUpdateKey, node_id: int) -> str:
    """Returns why a feature cannot get this level, an empty text if that is its level."""
    level, name = update.max_version_level, update.feature
    if update.upgrade_type not in _UPGRADE_TYPES:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if name not in FEATURES.levels:
        if level:
            return f"Broker {node_id} does not support this feature."
        return "" if name in ABSENT else f"Feature {name} not found."
    supported = FEATURES.levels[name]
    return "" if level == supported else f"Broker {node_id} only supports versions {supported}"
