"""All that a registry keeps, whatever its store, and the mark of a registry that moves to another store."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from barnabas.metadata.image import NO_CONTROLLER, MetadataImage
from barnabas.registry.registry import LastRegistration, LeaderChange
from barnabas.types import BrokerId

__all__ = ["Move", "RegistryContent"]


class RegistryContent(NamedTuple):
    """The content with which a registry begins: made from existing logs (`broker/startup/adoption.py`), anew after it
    was lost (`broker/startup/recovery.py`), or read from another store (`migration.py`)."""

    image: MetadataImage
    """No broker has got a larger epoch than its version."""
    next_producer_id: int = 0
    secret: bytes = b""
    """The secret of the cluster; empty if it is to be made."""
    directories: Mapping[BrokerId, Mapping[UUID, str]] = MappingProxyType({})
    """The path of each data directory by its id, of all brokers that were ever registered."""
    node_ids: int = 0
    """The number of node ids that were generated."""
    leader_changes: tuple[LeaderChange, ...] = ()
    """The history of leaders, oldest first."""
    registrations: Mapping[BrokerId, LastRegistration] = MappingProxyType({})
    """The last registration of each broker for which it is known."""

    def at_rest(self, max_leader_changes: int) -> "RegistryContent":
        """Returns the content after the end of all sessions, with so many rows of the history of leaders."""
        image = self.image
        return self._replace(
            image=MetadataImage(
                image.cluster_id,
                version=image.version,
                controller_id=NO_CONTROLLER,
                controller_epoch=image.controller_epoch,
                brokers={
                    node_id: broker._replace(fenced=True, process="") for node_id, broker in image.brokers.items()
                },
                topics=image.topics,
                topic_configs=image.topic_configs,
                broker_configs=image.broker_configs,
            ),
            leader_changes=self.leader_changes[-max_leader_changes:],
        )


class Move(NamedTuple):
    """The mark of a registry that brokers must not use: its content has been moved to another store, or is not yet
    whole. It stands where the number of the format stands otherwise, so no release takes it for a registry."""

    move_id: str
    """Tells this move from every other one."""
    other: str
    """The name of the other registry: `barnabas cluster migrate-registry` takes it."""
    is_target: bool
    """Whether the content is moved here, and is not yet known to be whole. Otherwise it has been moved away."""

    def refusal(self, name: str) -> str:
        """Returns why brokers do not use the registry of that name, and the way out."""
        command = f"`barnabas cluster migrate-registry --from {self.other} --to {name}`"
        if self.is_target:
            return f"it is not whole: the move from {self.other} was interrupted; run {command} again"
        return f"it was moved to {self.other}: start the brokers with that one, or move it back by {command}"

    def completes(self, source: "Move") -> bool:
        """Returns whether this is the mark of the target of a move whose source has that mark."""
        return self.is_target and not source.is_target and self.move_id == source.move_id

    def encoded(self) -> str:
        return json.dumps(self)

    @classmethod
    def parse(cls, found: object) -> "Move | None":
        """Returns the mark that stands in the place of a format; None if there is none. Raises ValueError, also for
        that of another release."""
        if isinstance(found, int):
            return None
        parts = json.loads(str(found))
        if not isinstance(parts, list) or len(parts) != len(cls._fields):
            raise ValueError(f"format {found}")
        return cls(*parts)
