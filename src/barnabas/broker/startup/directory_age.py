"""Decides at a start what a broker can believe of its data directories, and who decides about the rest.

A directory that has missed a start of its broker (an old copy, or a disk that was away) may lack records that were
acknowledged, as one that is not mounted lacks all. So may each replica that has no log in a directory that is current,
and one whose log has vanished, as the checkpoints beside it tell. Another replica that is in sync has to take its place
before the broker registers: only the broker of that one, alive, can say so. The ISR alone proves nothing: its members
may be about to start without their disks, too.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.broker.startup.adoption import some
from barnabas.broker.startup.directory_check import refuse_missing
from barnabas.errors import CorruptMessage, DirectoryUnusable, NotYet, UsageError
from barnabas.log.directories.checkpoints import METADATA_COPY, format_topic_id
from barnabas.log.directories.data_directory import DataDirectory
from barnabas.log.directories.registration_mark import REGISTRATION, RegistrationMark
from barnabas.log.holes import Hole
from barnabas.log.log_damage import WAS_MISSING
from barnabas.metadata.image import MetadataImage, PartitionImage
from barnabas.registry.registry import LastRegistration
from barnabas.types import FIRST_OFFSET, BrokerId, TopicPartition

__all__ = ["Age", "DirectoryDoubts", "UnconfirmedReplicas", "age_of"]

_log = logging.getLogger("barnabas.broker")

_FORGOTTEN: Final = {UUID(int=0): "a data directory that the registry has forgotten"}
"""Stands for what a broker must have had of which nothing is recorded, so that the operator can name it."""
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
    registration that are recorded of its broker. Where none are, `last` has at most the epoch of the latter."""
    if mark.broker_epoch > last.broker_epoch >= 0:
        return Age.NEWER
    if not recorded:  # the broker, or all that was known of it, is new
        if 0 <= mark.broker_epoch < last.broker_epoch:
            return Age.OLD
        return Age.CURRENT if logs else Age.NEW
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
    """The doubts that a broker has at a start by its own data directories. Made when these are claimed."""

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
        self._accept = frozenset(accepted)
        registered = image.brokers.get(node_id)
        if not recorded and registered is not None and registered.epoch > 0:
            last = LastRegistration(broker_epoch=registered.epoch)
        present = {directory.directory_id: directory for directory in directories if directory.directory_id is not None}
        missing = {directory_id: path for directory_id, path in recorded.items() if directory_id not in present}
        if not recorded and self._is_forgotten(image, directories):
            missing = _FORGOTTEN
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
        old = [directory for directory in directories if directory.is_old]
        current = [directory for directory in directories if not directory.is_old]
        self.lost_logs: dict[TopicPartition, Hole] = {}
        """The logs that have vanished of partitions without another replica, and what they had. They begin anew."""
        self._vanished = self._vanished_from(image, current)
        suspect = [*old, *self._vanished]
        self._accepted = [each for each in suspect if each.directory_id in accepted]
        self._refused = [each for each in suspect if each not in self._accepted]
        for directory in self._accepted:
            directory.is_accepted = True
        self._is_alone = not image.brokers.keys() - {node_id}
        self.exist = bool(missing or suspect)
        """Whether there is any doubt."""
        self._doubtful: frozenset[TopicPartition] | None = None
        """The replicas in doubt; None for all that are not certain."""
        self._certain: frozenset[TopicPartition] = frozenset()
        if missing or old:
            self._certain = frozenset(tp for directory in current for tp in self._logs_in(image, directory))
        else:
            self._doubtful = frozenset().union(*self._vanished.values())
        self._damaged: dict[DataDirectory, set[TopicPartition]] = {}
        served = (self._vanished.get(each) or self._logs_in(image, each) for each in self._accepted)
        self.kept = frozenset(tp for tps in served for tp in tps) - self._certain
        """The replicas in old directories that the operator has accepted."""

    def note_damaged(self, image: MetadataImage, damaged: Mapping[TopicPartition, DataDirectory]) -> bool:
        """Notes the replicas whose logs were found to lack records when they were opened. Returns whether that is a
        doubt: what nobody else can have is served as it is."""
        doubtful: dict[DataDirectory, set[TopicPartition]] = {}
        for tp, directory in damaged.items():
            partition = image.partition(*tp)
            if partition is not None and _eligible(partition) - {self._node_id}:
                doubtful.setdefault(directory, set()).add(tp)
        for directory, lacking in doubtful.items():
            if directory.directory_id in self._accept:
                self.kept |= lacking
                if directory not in self._accepted:
                    self._accepted.append(directory)
            else:
                self._damaged[directory] = lacking
                if directory not in self._refused:
                    self._refused.append(directory)
        self.exist = self.exist or bool(doubtful)
        return bool(doubtful)

    @property
    def given_up(self) -> Set[TopicPartition]:
        """The replicas with damaged logs that others lead after the registration."""
        return set().union(*self._damaged.values())

    def _is_forgotten(self, image: MetadataImage, directories: Sequence[DataDirectory]) -> bool:
        """Returns whether this broker, of which no directories are recorded, must have had logs that are not there."""
        registered = image.brokers.get(self._node_id)
        if registered is not None and registered.epoch == 0:
            return False  # it has never been there, or `cluster recover` has given its directories up
        logs = {tp for directory in directories for tp in self._logs_in(image, directory)}
        if logs and all(directory.mark.broker_epoch < 0 for directory in directories):
            return False  # a release that records nothing has made them
        return any(
            tp not in logs and self._node_id in (_eligible(partition) or (self._node_id,))
            for tp, partition in self._replicas(image)
        )

    def _logs_in(self, image: MetadataImage, directory: DataDirectory) -> Iterator[TopicPartition]:
        for tp, topic_id in directory.named_logs():
            if image.has_replica(self._node_id, tp.topic, tp.partition, topic_id):
                yield tp

    def _vanished_from(
        self, image: MetadataImage, directories: Sequence[DataDirectory]
    ) -> dict[DataDirectory, frozenset[TopicPartition]]:
        """Returns the replicas that the checkpoints of these directories name, without a log in any of them. The only
        replica of a partition begins anew, which is told: nobody else has its records."""
        named = {tp for directory in directories for tp in directory.log_names()}
        found = {}
        for directory in directories:
            ends = directory.checkpointed_logs()
            gone = {tp for tp in ends.keys() - named if image.has_replica(self._node_id, tp.topic, tp.partition, None)}
            if gone:
                gone -= _of_former_topics(image, directory, gone)
            directory.vanished = {tp: ends[tp] for tp in gone}
            alone = {tp for tp in gone if len(image.topics[tp.topic].partitions[tp.partition].replicas) == 1}
            for tp in alone:
                self.lost_logs[tp] = Hole(FIRST_OFFSET, ends[tp], f"{directory.path}/{tp} {WAS_MISSING}")
            if shared := gone - alone:
                found[directory] = frozenset(shared)
        return found

    def lost_replicas(self, image: MetadataImage, dead: Iterable[tuple[BrokerId, int]]) -> tuple[str, ...]:
        """Returns the replicas with which the broker has to register as lost upon this image: others lead, and it
        copies from them. `dead` are brokers, with their epochs, whose sessions have certainly ended.

        Raises MissingDirectories, UnconfirmedReplicas, UsageError where nobody may be there who has all records. Then
        the broker must not register: who registers as lost is not eligible any more.
        """
        if not self.exist:
            return ()
        found = self._in_doubt(image, dead)
        alone = [tp for tp in found.alone if tp not in self.kept]
        if self._missing and (alone or self._is_alone):
            raise refuse_missing(self._missing)
        if self._refused and alone:
            raise self._refuse_old(alone)
        if (self._missing or self._refused) and found.waiting:
            raise self._unconfirmed(found.waiting)
        # here the operator has said that nobody has more of those that are waiting or alone
        return tuple(map(str, (*found.others_decide, *found.waiting, *alone)))

    def tell(self) -> None:
        """Logs what the start goes on without."""
        if self._missing:
            paths = ", ".join(self._missing.values())
            _log.warning("%s is missing: this broker copies the replicas there from the others", paths)
        for directory in (*self._refused, *self._accepted):
            _log.warning(
                "%s; %s",
                self._what_is_with(directory),
                "records may be missing that were acknowledged"
                if directory in self._accepted
                else "the replicas there follow those of the others",
            )
        for tp, lost in self.lost_logs.items():
            _log.error(
                "%s has lost its records up to offset %d: %s, and no other broker has them. It begins anew, empty. If "
                "there is a copy of that directory, stop this broker and put the copy in the place of the new one",
                *(tp, lost.next_offset - 1, lost.what),
            )

    def _in_doubt(self, image: MetadataImage, dead: Iterable[tuple[BrokerId, int]]) -> _InDoubt:
        ended = set(dead)
        alive = {
            node_id
            for node_id, broker in image.brokers.items()
            if not broker.fenced and node_id != self._node_id and (node_id, broker.epoch) not in ended
        }
        damaged = self.given_up
        others_decide: list[TopicPartition] = []
        waiting: dict[TopicPartition, Collection[BrokerId]] = {}
        alone: list[TopicPartition] = []
        for tp, partition in self._replicas(image):
            is_damaged = tp in damaged
            if not is_damaged and (tp in self._certain or (self._doubtful is not None and tp not in self._doubtful)):
                continue
            eligible = _eligible(partition)
            others = eligible - {self._node_id}
            if not others or partition.replicas == (self._node_id,):
                if not is_damaged:
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

    def _refuse_old(self, alone: Sequence[TopicPartition]) -> DirectoryUnusable:
        return DirectoryUnusable(
            f"log.dirs: {self._whats_wrong()}, and nobody else has all records of {some(sorted(map(str, alone)))}: put "
            f"the newer one back. If there is none, start once with {self._options()}: records that were acknowledged "
            f"may be missing. {_RECOVER}"
        )

    def _unconfirmed(self, waiting: Mapping[TopicPartition, Collection[BrokerId]]) -> UnconfirmedReplicas:
        brokers = sorted(set().union(*waiting.values()))
        return UnconfirmedReplicas(
            f"log.dirs: {self._whats_wrong()}, and nobody who is alive has all records of "
            f"{some(sorted(map(str, waiting)))}: this start waits for broker {' or '.join(map(str, brokers))}. Mount "
            "it or put the newer one back, or start the others first. If they wait for this one as well, or nobody has "
            f"more, start each once with its options, this one with {self._options()}: nothing is lost of what a disk "
            f"of another one still has. {_RECOVER}",
            self._missing,
        )

    def _whats_wrong(self) -> str:
        missing = (f"{path} (directory.id {format_topic_id(key)}) is missing" for key, path in self._missing.items())
        return " and ".join((*missing, *map(self._what_is_with, self._refused)))

    def _what_is_with(self, directory: DataDirectory) -> str:
        name = f"{directory.path} (directory.id {_id_of(directory)})"
        vanished = self._vanished.get(directory)
        if vanished:
            return f"{name} has lost the logs of {some(sorted(map(str, vanished)))}"
        damaged = self._damaged.get(directory)
        if damaged and not directory.is_old:
            return f"{name} has damaged logs, of {some(sorted(map(str, damaged)))}"
        if directory.mark_problem:
            return (
                f"{directory.path}/{REGISTRATION} {directory.mark_problem}, without which {name} counts as an old copy"
            )
        return f"{name} has missed a start of this broker, as an old copy or a disk that was away"

    def _options(self) -> str:
        lost = [f"--lost-dir={format_topic_id(directory_id)}" for directory_id in self._missing]
        return " ".join([*lost, *(f"--accept-old-dir={_id_of(each)}" for each in self._refused)])


def _of_former_topics(
    image: MetadataImage, directory: DataDirectory, checkpointed: Iterable[TopicPartition]
) -> set[TopicPartition]:
    """Returns those of the partitions whose topic was deleted and made anew after the checkpoints: the broker was
    killed before it made the new log, and before it wrote a copy of the metadata, which it does more often."""
    from barnabas.broker.cluster.metadata_copy import read_copy

    try:
        known = read_copy(f"{directory.path}/{METADATA_COPY}").topics
    except (OSError, CorruptMessage):
        return set()
    ids = {name: topic.topic_id for name, topic in known.items()}
    return {tp for tp in checkpointed if ids.get(tp.topic) != image.topics[tp.topic].topic_id}


def _eligible(partition: PartitionImage) -> set[BrokerId]:
    """Returns the brokers that the metadata counts on to have all records."""
    return {*partition.isr, *partition.elr} or {*partition.last_known_elr}


def _id_of(directory: DataDirectory) -> str:
    return "" if directory.directory_id is None else format_topic_id(directory.directory_id)


def _registry_is_older(directory: DataDirectory, node_id: BrokerId, last: LastRegistration) -> UsageError:
    return UsageError(
        f"log.dirs: {directory.path} is newer than the registry: broker {node_id} has used it in broker epoch "
        f"{directory.mark.broker_epoch}, and the registry, which was put back from a copy, has given it no epoch after "
        f"{last.broker_epoch}. It would give offsets and producer ids a second time: use the newer one, or stop all "
        "brokers, move this one away and make it anew from the data directories by `barnabas cluster recover`"
    )
