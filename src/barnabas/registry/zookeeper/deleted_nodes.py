"""Makes nodes again that others have deleted while brokers run.

What brokers know then stays the truth: a broker that starts must not see another cluster than those that run. The
controller knows all that was written, and looks at the parents of it whenever it looks at the registry. Every broker
has the nodes of its own registration watched.
"""

import logging
from collections.abc import Sequence
from typing import Final

from barnabas.metadata.image import MetadataImage
from barnabas.registry.registry import RegistryUnreachable
from barnabas.registry.zookeeper import znodes
from barnabas.registry.zookeeper.session import Check, Create, ZooKeeperSession
from barnabas.registry.zookeeper.topic_nodes import batches, image_nodes

__all__ = ["DeletedNodes", "lacking"]

_NAMED_MAX: Final = 5
_log = logging.getLogger("barnabas.registry")


def lacking(what: object) -> RegistryUnreachable:
    """Returns the error of a broker that misses nodes, and is not the controller."""
    return RegistryUnreachable(
        f"somebody has deleted nodes of the registry in ZooKeeper: {what}; a controller that runs makes them again, "
        "those of a partition at its next change; without one, make the registry anew by `barnabas cluster recover`"
    )


class DeletedNodes:
    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def make_parents(self) -> None:
        """Makes the parents again that are gone: nobody could write below them."""
        found = self._session.read(znodes.PARENTS)
        missing = [path for path, node in zip(znodes.PARENTS, found) if node is None]
        if missing:
            _tell(missing)
            self._session.make(missing)

    def make(self, path: str, data: bytes) -> None:
        """Makes a node that is gone."""
        self.make_parents()
        _tell([path])
        self._session.make([path], data)

    def are_some_missing(self, image: MetadataImage) -> bool:
        """Returns whether nodes are gone, as far as a look at the parents shows it."""
        wanted = {
            znodes.TOPICS: len(image.topics),
            znodes.TOPIC_CONFIGS: len(image.topics),
            znodes.BROKER_CONFIGS: len(image.broker_configs),
            znodes.REGISTRATIONS: len(image.brokers),
        }
        paths = (*znodes.PARENTS, znodes.CLUSTER_ID, znodes.SECRET)
        nodes = zip(paths, self._session.read(paths))
        return any(node is None or node.children < wanted.get(path, 0) for path, node in nodes)

    def restore(self, image: MetadataImage, secret: bytes, conditions: Sequence[Check]) -> None:
        """Makes again what is gone of all that an image has. Raises Conflict if a condition does not hold: then it is
        not the present one."""
        self.make_parents()
        nodes = [
            Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(image.cluster_id)),
            Create(znodes.SECRET, secret, secret=True),
            *image_nodes(image),
        ]
        missing = [node for node, found in zip(nodes, self._session.read([each.path for each in nodes])) if not found]
        if not missing:
            return
        for part in batches(missing):
            self._session.commit([*conditions, *part])
        _tell([node.path for node in missing])


def _tell(paths: Sequence[str]) -> None:
    more = len(paths) - _NAMED_MAX
    _log.warning(
        "somebody has deleted nodes of the registry in ZooKeeper, which are made again: %s%s",
        ", ".join(paths[:_NAMED_MAX]),
        f" and {more} more" if more > 0 else "",
    )
