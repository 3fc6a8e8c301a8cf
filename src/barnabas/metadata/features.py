"""The features in ApiVersions: the finalized levels of the cluster, and the supported levels of a broker.

Only what is true is listed. `metadata.version` is 4.0-IV3, the level whose client-visible behaviour is served here;
`transaction.version` 2 is KIP-890's, `eligible.leader.replicas.version` 1 is KIP-966's. `group.version`,
`share.version` and `streams.version` are absent until the groups of these kinds work: clients switch them on by this
list.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["FEATURES", "Features"]


class Features(NamedTuple):
    """`supported`: first and last level of each feature; `finalized`: the level in force; `epoch` counts changes."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int


FEATURES: Final = Features(
    supported={"metadata.version": (7, 25), "transaction.version": (0, 2), "eligible.leader.replicas.version": (0, 1)},
    finalized={"metadata.version": 25, "transaction.version": 2, "eligible.leader.replicas.version": 1},
    epoch=2,
)
