"""Decides at a start what a broker can believe of its data directories, and who decides about the rest.

A directory that has missed a start of its broker (an old copy, or a disk that was away) may lack records that were
acknowledged, as one that is not mounted lacks all. So may each replica that has no log in a directory that is
current. Another replica that is in sync has to take its place before the broker registers: only the broker of that one,
alive, can say so. The ISR alone proves nothing: its members may be about to start without their disks, too.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.broker.startup.adoption import some
from barnabas.broker.startup.directory_check import refuse_missing
from barnabas.errors import NotYet, UsageError
from barnabas.log.directories.checkpoints import format_topic_id
from barnabas.log.directories.data_directory import DataDirectory
from barnabas.log.directories.registration_mark import RegistrationMark
from barnabas.metadata.image import MetadataImage, PartitionImage
from barnabas.registry.registry import LastRegistration
from barnabas.types import BrokerId, TopicPartition

__all__ = ["Age", "DirectoryDoubts", "UnconfirmedReplicas", "age_of"]

_log = logging.getLogger("barnabas.broker")

_RECOVER: Final = "If the registry is the older one, stop all brokers, move it away and run `barnabas cluster recover`"


class Age(Enum):
    """A data directory beside what the registry remembers of its broker."""

    NEW = "has no logs, and was in no registration"
    CURRENT = "was in the last registration, as far as anybody knows"
    OLD = "has missed a registration"
    NEWER = "was in a registration of which the registry does not know"


class UnconfirmedReplicas(NotYet):
    """Nobody alive has the replicas that were in missing or old directories: `missing` are the paths of the former, by
    their ids."""

    def __init__(self, message: str, missing: Mapping[UUID, str] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.missing = dict(missing)


def age_of(
    mark: RegistrationMark, recorded: Collection[UUID], last: LastRegistration, directory_id: UUID | None, *, logs: bool
) -> Age:
    """Returns the age of a directory with this mark and id, and with logs or without, by the directories and the
    registration that are recorded of its broker."""
    if not recorded:
        return Age.CURRENT if logs else Age.NEW  # the broker, or all that was known of it, is new
    if mark.broker_epoch > last.broker_epoch >= 0:
        return Age.NEWER
    if directory_id not in recorded:
        return Age.OLD if logs else Age.NEW
    if not last.registration_id or mark.knows(last.registration_id):
        return Age.CURRENT
    return Age.OLD


class _InDoubt(NamedTuple):
    """Partitions of which this broker's replica may lack records."""

    others_decide: Sequence[TopicPartition]
    """Those that another replica leads or can lead, and those for which this one was not eligible anyway."""
    waiting: Mapping[TopicPartition, Collection[BrokerId]]
    """Those that only brokers could lead that are not there, with these."""
    alone: Sequence[TopicPartition]
    """Those that nobody else can lead."""


class DirectoryDoubts:
    """What a broker cannot know by its own data directories at a start. Made when these are claimed."""

    def __init__(
        self,
        image: MetadataImage,
        node_id: BrokerId,
        recorded: Mapping[UUID, str],
        last: LastRegistration,
        directories: Sequence[DataDirectory],
        *,
        lost: Collection[UUID] = (),
        accepted: Collection[UUID] = (),
    ) -> None:
        """`recorded` and `last` are what the registry remembers of the broker. The operator has declared the
        directories `lost` for good, and `accepted` old ones. Notes in each directory whether it is old. Raises
        UsageError for one that is newer than the registry, or that is there although it is declared lost."""
        self._node_id = node_id
        present = {directory.directory_id: directory for directory in directories if directory.directory_id is not None}
        missing = {directory_id: path for directory_id, path in recorded.items() if directory_id not in present}
        self._missing = {directory_id: path for directory_id, path in missing.items() if directory_id not in lost}
        for directory_id in lost:
            if directory_id in present:
                raise UsageError(
                    f"--lost-dir={format_topic_id(directory_id)}: it is there, at {present[directory_id].path}; "
                    "start without the option"
                )
        for directory in directories:
            has_logs = directory.directory_id not in recorded and any(self._logs_in(image, directory))
            age = age_of(directory.mark, recorded, last, directory.directory_id, logs=has_logs)
            if age is Age.NEWER:
                raise _registry_is_older(directory, node_id, last)
            directory.is_old = age is Age.OLD
        self.old = [directory for directory in directories if directory.is_old]
        self._accepted = [each for each in self.old if each.directory_id in accepted]
        self._refused = [each for each in self.old if each not in self._accepted]
        self._is_alone = not image.brokers.keys() - {node_id}
        self.exist = bool(missing or self.old)
        """Whether there is any doubt. Otherwise nobody reads what logs there are."""
        current = [directory for directory in directories if not directory.is_old] if self.exist else ()
        self._certain = frozenset(tp for directory in current for tp in self._logs_in(image, directory))
        self.kept = frozenset(tp for each in self._accepted for tp in self._logs_in(image, each)) - self._certain
        """The logs in old directories that the operator has accepted."""

    def _logs_in(self, image: MetadataImage, directory: DataDirectory) -> Iterator[TopicPartition]:
        for tp, topic_id in directory.named_logs():
            if image.has_replica(self._node_id, tp.topic, tp.partition, topic_id):
                yield tp

    def lost_replicas(self, image: MetadataImage, dead: Iterable[tuple[BrokerId, int]]) -> tuple[str, ...]:
        """Returns the replicas with which the broker has to register as lost upon this image: others lead, and it
        copies from them. `dead` are brokers, with their epochs, whose sessions have certainly ended.

        Raises MissingDirectories, UnconfirmedReplicas, UsageError where nobody may be there who has all records. Then
        the broker must not register: who registers as lost is not eligible any more.
        """
        if not self.exist:
            return ()
        found = self._in_doubt(image, dead)
        if self._missing and (found.alone or self._is_alone):
            raise refuse_missing(self._missing)
        if self._refused and found.alone:
            raise self._refuse_old(found.alone)
        if (self._missing or self._refused) and found.waiting:
            raise self._unconfirmed(found.waiting)
        # here the operator has said that nobody has more of those that are waiting or alone
        gone = set(found.alone) - self.kept
        return tuple(map(str, (*found.others_decide, *found.waiting, *gone)))

    def tell(self) -> None:
        """Logs what the start goes on without."""
        if self._missing:
            paths = ", ".join(self._missing.values())
            _log.warning("%s is missing: this broker copies the replicas there from the others", paths)
        for directory in self.old:
            _log.warning(
                "%s has missed a start of this broker: it is an old copy, or was away; %s",
                directory.path,
                "records may be missing that were acknowledged"
                if directory in self._accepted
                else "the replicas there follow those of the others",
            )

    def _in_doubt(self, image: MetadataImage, dead: Iterable[tuple[BrokerId, int]]) -> _InDoubt:
        ended = set(dead)
        alive = {
            node_id
            for node_id, broker in image.brokers.items()
            if not broker.fenced and node_id != self._node_id and (node_id, broker.epoch) not in ended
        }
        found: tuple[list[TopicPartition], dict[TopicPartition, Collection[BrokerId]], list[TopicPartition]] = (
            [],
            {},
            [],
        )
        others_decide, waiting, alone = found
        for tp, partition in self._replicas(image):
            if tp in self._certain:
                continue
            eligible = {*partition.isr, *partition.elr} or {*partition.last_known_elr}
            others = eligible - {self._node_id}
            if not others or partition.replicas == (self._node_id,):
                alone.append(tp)
            elif self._node_id not in eligible or alive.intersection(partition.isr):
                others_decide.append(tp)
            else:
                waiting[tp] = others
        return _InDoubt(others_decide, waiting, alone)

    def _replicas(self, image: MetadataImage) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        for name, topic in image.topics.items():
            for index, partition in enumerate(topic.partitions):
                if self._node_id in partition.replicas:
                    yield TopicPartition(name, index), partition

    def _refuse_old(self, alone: Sequence[TopicPartition]) -> UsageError:
        return UsageError(
            f"log.dirs: {self._names_of_old()}, and nobody else has all records of {some(list(map(str, alone)))}: put "
            f"the newer one back. If there is none, start once with {self._options()}: records that were acknowledged "
            f"may be missing. {_RECOVER}"
        )

    def _unconfirmed(self, waiting: Mapping[TopicPartition, Collection[BrokerId]]) -> UnconfirmedReplicas:
        missing = ", ".join(f"{path} (directory.id {format_topic_id(key)})" for key, path in self._missing.items())
        what = " and ".join(filter(None, (f"{missing} is missing" if missing else "", self._names_of_old())))
        brokers = sorted(set().union(*waiting.values()))
        return UnconfirmedReplicas(
            f"log.dirs: {what}, and nobody who is alive has all records of {some(list(map(str, waiting)))}: this start "
            f"waits for broker {' or '.join(map(str, brokers))}. Mount it or put the newer one back, or start the "
            f"others first. If nobody has more, start once with {self._options()}. {_RECOVER}",
            self._missing,
        )

    def _names_of_old(self) -> str:
        names = ", ".join(f"{each.path} (directory.id {_id_of(each)})" for each in self._refused)
        return f"{names} has missed a start of this broker, as an old copy or a disk that was away" if names else ""

    def _options(self) -> str:
        lost = [f"--lost-dir={format_topic_id(directory_id)}" for directory_id in self._missing]
        return " ".join([*lost, *(f"--accept-old-dir={_id_of(each)}" for each in self._refused)])


def _id_of(directory: DataDirectory) -> str:
    return "" if directory.directory_id is None else format_topic_id(directory.directory_id)


def _registry_is_older(directory: DataDirectory, node_id: BrokerId, last: LastRegistration) -> UsageError:
    return UsageError(
        f"log.dirs: {directory.path} is newer than the registry: broker {node_id} has used it in broker epoch "
        f"{directory.mark.broker_epoch}, and the registry, which was put back from a copy, has given it no epoch after "
        f"{last.broker_epoch}. It would give offsets and producer ids a second time: use the newer one, or stop all "
        "brokers, move this one away and make it anew from the data directories by `barnabas cluster recover`"
    )
