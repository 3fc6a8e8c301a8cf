"""Moves a registry to another store: reads it whole, writes it there, reads it there again and compares.

No crash makes two registries of one:

| step | source | target |
|---|---|---|
| 1. nobody has a session; everything is read | in use | not there |
| 2. everything is written | in use | is not whole |
| 3. it is read back, and compared with the source | in use | is not whole |
| 4. the source is marked, if it is still at the version of step 1 | moved | is not whole |
| 5. the mark of the target is removed | moved | in use |

Brokers refuse a store that is not whole or was moved (`Move`). After a crash up to step 3 the source is what it was.
The same move, run again, overwrites what is not whole; after step 4 only in the target that has the same id. The other
way round, a registry that was moved is overwritten by what has become of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

from barnabas.errors import UsageError
from barnabas.metadata.image import MetadataImage
from barnabas.registry.content import Move, RegistryContent
from barnabas.types import BrokerId

__all__ = ["Moved", "RegistryStore", "StoredRegistry", "differences", "move_registry"]


_NAMED_MAX: Final = 5
_IMAGE: Final = (
    *("cluster_id", "version", "controller_id", "controller_epoch"),
    *("brokers", "topics", "topic_configs", "broker_configs"),
)


class StoredRegistry(NamedTuple):
    """A store as it was found, at one moment."""

    content: RegistryContent
    move: Move | None = None
    live: Sequence[BrokerId] = ()
    """The brokers whose session has not certainly ended."""
    requests: Sequence[str] = ()
    """The places in which other programs ask the controller for something."""


class RegistryStore(ABC):
    """A place for a registry, as a whole: no session of a broker. A store whose registry moves has this beside its
    `Registry`. Methods raise UsageError for what is no registry, and RegistryUnavailable."""

    name: str
    """The name by which `barnabas cluster migrate-registry` finds the store."""
    max_leader_changes: int
    """The number of rows of the history of leaders that are kept."""

    @abstractmethod
    def read(self) -> StoredRegistry | None:
        """Returns everything, of one moment; None if there is nothing."""

    @abstractmethod
    def write(self, content: RegistryContent, move: Move) -> None:
        """Replaces what was read, if there was anything, by this content. Brokers find the mark before any part of
        it."""

    @abstractmethod
    def set_move(self, move: Move | None) -> bool:
        """Sets the mark, or removes it. Returns False if the registry was written since it was read: then it is as it
        was."""

    @abstractmethod
    def close(self) -> None:
        """Closes the store."""


class Moved(NamedTuple):
    """The result of a move."""

    content: RegistryContent
    """The content of the source."""
    differences: Sequence[str]
    """The values that the target has otherwise. If there are any, the source is what it was."""


def move_registry(source: RegistryStore, target: RegistryStore) -> Moved:
    """Moves the registry, or completes a move that was interrupted. Raises UsageError if there is nothing to move, the
    target is another registry, or brokers use one of them."""
    found, there = source.read(), target.read()
    if found is None:
        raise UsageError(f"{source.name}: there is no registry to move")
    for store, stored in ((source, found), (target, there)):
        if stored is not None:
            _require_no_brokers(store, stored)
    if found.requests and found.move is None:
        raise UsageError(
            f"{source.name}: other programs wait for the controller in {', '.join(found.requests[:_NAMED_MAX])}; start "
            "the brokers, which carry that out, or remove it"
        )
    content = found.content.at_rest(target.max_leader_changes)
    moved = found.move
    if moved is None:
        _require_room(target, found.content, there)
        moved = Move(uuid4().hex, target.name, is_target=False)
    elif there is None or there.move is None or not there.move.completes(moved):
        raise UsageError(f"{source.name}: {moved.refusal(source.name)}")
    target.write(content, Move(moved.move_id, source.name, is_target=True))
    written = target.read()
    wrong = list(differences(content, None if written is None else written.content))
    if wrong:
        return Moved(content, wrong)
    if found.move is None and not source.set_move(moved):
        raise UsageError(f"{source.name}: was written while it was moved; stop the brokers, and move it again")
    if not target.set_move(None):
        raise UsageError(f"{target.name}: was written while it was compared; move the registry again")
    return Moved(content, ())


def _require_no_brokers(store: RegistryStore, found: StoredRegistry) -> None:
    if found.live:
        raise UsageError(
            f"{store.name}: brokers use it: {', '.join(map(str, sorted(found.live)))}; stop them. One that was killed "
            "counts until its session is over, or it has been started and stopped"
        )


def _require_room(target: RegistryStore, content: RegistryContent, there: StoredRegistry | None) -> None:
    """Raises UsageError unless the target is empty, is not whole, or was moved to where the content comes from."""
    if there is None:
        return
    image = there.content.image
    if there.move is None or image.cluster_id != content.image.cluster_id:
        raise UsageError(f"{target.name}: is the registry of cluster {image.cluster_id}; name a place that has none")
    if image.version > content.image.version:
        raise UsageError(f"{target.name}: has later writes of this cluster; name a place that has none")


def differences(wanted: object, found: object, place: str = "") -> Iterator[str]:
    """Yields a line for each value of a content that is another one than the wanted one, by its place."""
    if wanted == found:
        return
    parts, others = _parts(wanted), _parts(found)
    if parts is None or others is None:
        shown = "differs" if isinstance(wanted, bytes) else f"is {found!r:.100} instead of {wanted!r:.100}"
        yield f"{place} {shown}"
        return
    for name in sorted({*parts, *others}, key=str):
        below = f"{place} {name}".strip()
        if name not in others:
            yield f"{below} is missing"
        elif name not in parts:
            yield f"{below} is too much"
        else:
            yield from differences(parts[name], others[name], below)


def _parts(value: object) -> Mapping[Any, object] | None:
    """Returns the parts of a value by their names; None for one that has none."""
    if isinstance(value, MetadataImage):
        return {name: getattr(value, name) for name in _IMAGE}
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()  # type: ignore[no-any-return]
    if isinstance(value, tuple) and all(_parts(each) is not None for each in value):
        return dict(enumerate(value))
    return None
