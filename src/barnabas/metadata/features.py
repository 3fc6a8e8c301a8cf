"""The features in ApiVersions: the finalized levels of the cluster, and the supported levels of a broker.

Only what is true is listed. A level comes with a release and nothing changes it, so each feature has one supported
level. `metadata.version` is 4.0-IV3, the level whose client-visible behaviour is served here;
`transaction.version` 2 is KIP-890's, `eligible.leader.replicas.version` 1 is KIP-966's. `group.version`,
`share.version` and `streams.version` are absent until the groups of these kinds work: clients switch them on by this
list.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["ABSENT", "FEATURES", "Features"]


class Features(NamedTuple):
    """The level in force of each feature, which is the only supported one; `epoch` counts changes."""

    levels: Mapping[str, int]
    epoch: int


FEATURES: Final = Features(
    {"metadata.version": 25, "transaction.version": 2, "eligible.leader.replicas.version": 1}, epoch=2
)
ABSENT: Final = frozenset(("group.version", "kraft.version", "share.version", "streams.version"))
"""The features of Kafka that are not here: their level is 0."""
