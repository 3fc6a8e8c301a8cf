"""UpdateFeatures: features at their level, and every other level."""

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.errors import InvalidUpdateVersion
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from broker.admin_rig import ask, versions

BROKER: Any = SimpleNamespace(node_id=1)


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_FEATURES))
@pytest.mark.parametrize("validate_only", [True, False])
def test_the_levels_that_features_have_are_accepted(version: int, validate_only: bool) -> None:
    levels = {
        "metadata.version": 25,
        "transaction.version": 2,
        "eligible.leader.replicas.version": 1,
        "group.version": 0,
    }
    updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels.items()]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only and version > 0)
    answer = ask(BROKER, request, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert [result.feature for result in answer.results] == (list(levels) if version < 2 else [])
    assert all(result.error_code == 0 and result.error_message is None for result in answer.results)


@pytest.mark.parametrize(
    ("name", "level", "upgrade_type", "reason"),
    [
        ("transaction.version", 1, 2, "Broker 1 only supports versions 2"),
        ("transaction.version", 0, 2, "Broker 1 only supports versions 2"),
        ("metadata.version", 26, 1, "Broker 1 only supports versions 25"),
        ("group.version", 1, 1, "Broker 1 does not support this feature."),
        ("no.such.version", 0, 3, "Feature no.such.version not found."),
        ("metadata.version", -1, 1, "A feature version cannot be less than 0."),
        ("metadata.version", 25, 0, "The controller does not support the given upgrade type."),
    ],
)
def test_other_levels_are_refused(name: str, level: int, upgrade_type: int, reason: str) -> None:
    kept = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=1)
    changed = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    answer = ask(BROKER, UpdateFeaturesRequest(feature_updates=[kept, changed]))
    assert answer.error_code == InvalidUpdateVersion.code
    assert answer.error_message == f"Invalid update version {level} for feature {name}. {reason}"
