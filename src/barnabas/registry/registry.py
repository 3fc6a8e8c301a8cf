"""The registry's interface: the store that all brokers and the controller trust.

It speaks of brokers, the controller, topics, partitions and settings, not of rows or znodes. Every write has one of
three results: True, it is written; False, another writer was faster or the writer is no longer the controller, and
nothing is written; RegistryUnavailable, it is unknown, or as NotWritten, nothing is.

Methods are plain functions that may wait, for a lock, an fsync or the network, so a broker calls them from one thread
of its own (docs/decisions/0002-registry-interface.md). Calls on one object must not overlap.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from barnabas.config.endpoints import Endpoint
from barnabas.errors import BarnabasError, NotYet, UsageError
from barnabas.metadata.delta import MetadataChange
from barnabas.metadata.image import MetadataImage, PartitionImage
from barnabas.metadata.returned import Returned
from barnabas.registry.outside_requests import OutsideRequest
from barnabas.types import BrokerId

__all__ = [
    "AFTER_LOSS",
    "PRODUCER_IDS_BLOCK",
    "AddPartitions",
    "BrokerRegistration",
    "Change",
    "CreateTopic",
    "DeleteTopic",
    "Evidence",
    "Known",
    "LastRegistration",
    "LeaderChange",
    "NodeIdInUse",
    "NotWritten",
    "ProducerIdBlock",
    "Registry",
    "RegistryOutdated",
    "RegistryUnavailable",
    "RegistryUnreachable",
    "RemoveBroker",
    "SetBrokerConfig",
    "SetFenced",
    "SetPartition",
    "SetTopicConfig",
    "Superseded",
    "how_to_found_anew",
    "node_id_in_use",
    "start_with_registry",
]

AFTER_LOSS: Final = (
    "put the right one back, or stop all brokers, make it anew by `barnabas cluster recover` and start them; none that "
    "ends can start until then"
)
"""The ways out of `Registry.loss`."""

PRODUCER_IDS_BLOCK: Final = 1000


def how_to_found_anew(registry: str, directories: Iterable[str] = (), *, in_zookeeper: bool = False) -> str:
    """Returns the way out where the registry of that name must not be used. Of the data directories, which all have to
    be named, these are known."""
    options = "".join(f" --data-dir {directory}" for directory in directories) or " --data-dir DIR"
    every = "with the data directories of all brokers"
    if not in_zookeeper:
        command = f"barnabas cluster recover --registry {registry}{options}"
        return f"stop all brokers, move it away with its -wal and -shm, and make it anew by `{command}`, {every}"
    return (
        f"stop all brokers, remove what is at that path in ZooKeeper, make the registry anew in a file by "
        f"`barnabas cluster recover --registry FILE{options}`, {every}, and move it by `barnabas cluster "
        f"migrate-registry --from FILE --to {registry}`"
    )


class RegistryUnavailable(BarnabasError):
    """The registry did not respond, so it is unknown whether the write happened. This must not be taken for a
    refusal."""

    may_pass = False
    """Whether the registry may respond later without anybody's work: another program holds it, or its disk is full or
    fails."""


class NotWritten(RegistryUnavailable):
    """The write has certainly not happened: the registry's disk is full, for example."""


class RegistryOutdated(RegistryUnavailable):
    """The registry is certainly older than what is known of it: it was put back from a copy."""


class RegistryUnreachable(RegistryUnavailable):
    """The connection to the registry is lost, or an answer did not come: later it may be there again."""

    may_pass = True


class Superseded(BarnabasError):
    """The registry has changed since the version upon which a broker was to be registered."""


@contextmanager
def start_with_registry(what: str = "") -> Iterator[None]:
    """The context of a part of a start. A registry that refuses is the operator's mistake: raises UsageError, which
    begins with `what`, or NotYet if the registry may take another start. One that is not reached may be there in a
    moment: its error stays."""
    try:
        yield
    except RegistryUnreachable:
        raise
    except RegistryUnavailable as error:
        raise (NotYet if error.may_pass else UsageError)(f"{what}{error}") from None


class Evidence(Enum):
    """The certainty about a broker, as it is seen from here."""

    ENDED = "its process or its session has ended"
    RUNS = "its process runs"
    UNSEEN = "nobody knows from here"


class NodeIdInUse(UsageError):
    """The node id belongs to another process, which may run."""


class NodeIdStillInUse(NodeIdInUse, NotYet):
    """Another start may succeed."""


def node_id_in_use(node_id: int, process: str, evidence: Evidence = Evidence.RUNS) -> NodeIdInUse:
    """Returns the error of a broker that starts with the node id of another one, or in a copy of its directories.
    `process` says in words which one that is. One that is unseen may have ended: the start may succeed later."""
    if evidence is Evidence.UNSEEN:
        return NodeIdStillInUse(
            f"node.id {node_id} is in use by a broker of this cluster that cannot be seen from here, {process}, and "
            "its session with ZooKeeper goes on: if it runs, stop it, or give this one another node.id; else start "
            "again when its session has ended"
        )
    return NodeIdInUse(
        f"node.id {node_id} is in use by another running broker of this cluster, {process}: stop it, "
        "or give this one another node.id; to look into a copy of its data directories, start that with a copy of the "
        "registry, too"
    )


class BrokerRegistration(NamedTuple):
    """A broker's registration.

    A broker is known by its node id together with the ids of its data directories (`directory.id` in Kafka's
    meta.properties), wherever these are mounted. A copy of a directory has the same id, and a lock of its own: that a
    broker has both does not tell that its former process has ended.
    """

    node_id: int
    directories: Mapping[UUID, str]
    """The path of each data directory by its id. The path is only used in messages."""
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    peer_endpoint: Endpoint | None = None
    """The address for the other brokers of the cluster."""
    process: str = ""
    """The process of the broker, by which the others see that it is dead (`processes.py`)."""
    unclean: bool = False
    """Whether the broker was not stopped in order before, and may have lost records that it had acknowledged."""
    lost_replicas: tuple[str, ...] | None = None
    """The replicas that have no log, such as "orders-3", or one that may lack records; None if that is not known. They
    are lost if data directories of before are missing, or with `lacks_records`."""
    lacks_records: bool = False
    """Whether records may be missing in data directories that are there: old copies, or logs that have vanished."""
    registration_id: str = ""
    """Random text that tells this registration from every other one, also from those of the same epoch that a registry
    gave before it was put back from a copy."""

    def may_replace(self, former: Evidence, recorded: Collection[UUID]) -> bool:
        """Returns whether this broker may take a registration over, by what is certain about its process, and by the
        data directories of the last registration. Where nobody knows, a broker in its own directories may: its process
        before was of a release that knows no locks."""
        if former is Evidence.UNSEEN:
            return not recorded or not self.directories.keys().isdisjoint(recorded)
        return former is Evidence.ENDED

    def returned(self, recorded: Collection[UUID], before: str) -> str:
        """Returns the text for `BrokerImage.returned`, by the data directories of the last registration, and by the
        text of a broker that was not taken in since."""
        is_lost = self.lacks_records or set(recorded) - self.directories.keys()
        lost = self.lost_replicas if is_lost else ()
        return Returned.of(unclean=self.unclean, lost=lost).worse(Returned.parse(before)).text


class LastRegistration(NamedTuple):
    """The memory of a broker's last registration; empty for one that a release without ids has made."""

    registration_id: str = ""
    broker_epoch: int = -1


class CreateTopic(NamedTuple):
    """Creates a topic with all its partitions and settings. Refused if the name is taken."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    config: Mapping[str, str]


class DeleteTopic(NamedTuple):
    """Deletes a topic with its partitions and settings. Refused if the topic of that name has another id."""

    name: str
    topic_id: UUID


class AddPartitions(NamedTuple):
    """Adds partitions, numbered from `first`. Refused if the topic does not have exactly `first` partitions."""

    name: str
    topic_id: UUID
    first: int
    partitions: tuple[PartitionImage, ...]


class SetPartition(NamedTuple):
    """Sets a partition's leader and ISR. Refused if its partition epoch is not the expected one."""

    name: str
    topic_id: UUID
    partition_index: int
    partition: PartitionImage
    expected_partition_epoch: int


class SetTopicConfig(NamedTuple):
    """Sets all settings of a topic. Refused if there is no such topic."""

    name: str
    config: Mapping[str, str]


class SetBrokerConfig(NamedTuple):
    """Sets all dynamic settings of a broker by its number as text; "" for those of all brokers."""

    name: str
    config: Mapping[str, str]


class SetFenced(NamedTuple):
    """Fences a broker, or ends that. Refused if the broker has registered again since `epoch`."""

    node_id: BrokerId
    epoch: int
    fenced: bool


class RemoveBroker(NamedTuple):
    """Removes the registration of a fenced broker; its data directories are remembered. Refused if the broker is not
    fenced, or has registered again since `epoch`."""

    node_id: BrokerId
    epoch: int


Change: TypeAlias = (
    CreateTopic
    | DeleteTopic
    | AddPartitions
    | SetPartition
    | SetTopicConfig
    | SetBrokerConfig
    | SetFenced
    | RemoveBroker
)


class LeaderChange(NamedTuple):
    """One row of the history of leaders; a leader is -1 if there is none."""

    time_ms: int
    topic: str
    partition: int
    from_leader: BrokerId
    to_leader: BrokerId
    leader_epoch: int
    reason: str
    took_ms: int
    """The time from the event, as the controller was told of it, to the write."""
    noticed_after_ms: int = 0
    """The time before that for which nothing was heard of the former leader's broker; 0 if its end was told at once."""


class ProducerIdBlock(NamedTuple):
    """A block of producer ids from `first` on, which no other broker gets."""

    first: int
    size: int


class Known(NamedTuple):
    """A state that the registry has reached."""

    version: int
    controller_epoch: int

    def or_later(self, version: int, controller_epoch: int) -> "Known":
        return Known(max(self.version, version), max(self.controller_epoch, controller_epoch))

    def is_newer_than(self, version: int, controller_epoch: int) -> bool:
        return self.version > version or self.controller_epoch > controller_epoch


_NOTHING_KNOWN: Final = Known(0, 0)


class Registry(ABC):
    """A broker's session with the registry. Every method may raise RegistryUnavailable."""

    max_changes_per_write: int
    """The largest batch for `write`. The caller splits a larger one if its parts are independent."""
    max_leader_changes: int
    """The number of rows of the history of leaders that are kept."""
    _noted = _read = _NOTHING_KNOWN
    """The state that others know of, and that which was read: each is set by one thread."""
    _outdated = ""
    """The reason for which the registry is not used any more; '' while it is."""

    # -- age --------------------------------------------------------------------------------------------------------

    def note_version(self, version: int, controller_epoch: int) -> None:
        """Notes a version of the state, and the epoch of a controller, that somebody else has read. Called by one
        thread, whichever it is."""
        self._noted = self._noted.or_later(version, controller_epoch)

    def _known(self) -> "Known":
        """Returns what is known. Asked before the state is read that must not be older."""
        self._require_usable()
        return self._noted.or_later(*self._read)

    def _note_read(self, version: int, controller_epoch: int) -> None:
        self._read = self._read.or_later(version, controller_epoch)

    def _require_usable(self) -> None:
        if self._outdated:
            raise RegistryOutdated(f"the registry {self._outdated}")

    def _refuse_outdated(self, name: str, version: int, controller_epoch: int, known: "Known") -> None:
        """Gives up a registry that shows an older state than is known. What it says of later ones could not be trusted
        either: others may go on where it is. Raises RegistryOutdated."""
        self._outdated = (
            f"{name} shows version {version} (controller epoch {controller_epoch}), but version "
            f"{known.version} (controller epoch {known.controller_epoch}) is known: it was put back from a copy"
        )
        self._require_usable()

    # -- what is there ----------------------------------------------------------------------------------------------

    @abstractmethod
    def load(self, previous: MetadataImage | None = None) -> MetadataChange:
        """Returns the current state. With the previous image, only the changes since are read and named, and the same
        image is returned if there are none. Otherwise everything counts as changed."""

    @abstractmethod
    def watch(self, callback: Callable[[], None]) -> None:
        """Calls back, from any thread, when the state may have changed: a hint without content, after which `load`
        returns the changes. Hints may come in bunches or without cause, but none is ever left out."""

    @abstractmethod
    def cluster_secret(self) -> bytes:
        """Returns the 32 random bytes by which the cluster's brokers authenticate to each other. The founder makes
        them, and they never change. Only the brokers' user can read them in the store."""

    @property
    def confirms_controllers(self) -> bool:
        """Whether a broker reads here which controller there is before it believes a new one: a copy of the store's
        disk has its incarnation, and the addresses of the brokers; and the store is connected."""
        return False

    @abstractmethod
    def incarnation(self) -> str:
        """Returns a text that a copy of the store does not share. It stays what it is while a broker runs."""

    # -- sessions ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def session(self, node_id: int, directories: Iterable[str] = ()) -> Evidence:
        """Returns what is certain about the session that another process has begun as this broker. The caller has the
        locks of these data directories."""

    @abstractmethod
    def directories(self, node_id: int) -> Mapping[UUID, str]:
        """Returns the data directories of the broker's last registration, by id, with their paths. They are remembered
        after the end of its session; none if it was never registered."""

    @abstractmethod
    def last_registration(self, node_id: int) -> LastRegistration:
        """Returns the broker's last registration. It is remembered as long as its directories."""

    @abstractmethod
    def register_broker(self, registration: BrokerRegistration, *, upon: int | None = None) -> int | None:
        """Begins a session. Returns the broker's epoch, larger than that of every earlier registration; None if another
        process with the same node id runs or has a session. Raises Superseded if the state has another version than
        `upon`, if that is given.

        A broker that is not the only one in the registry is fenced until the controller ends that. So the controller
        sees each registration before the broker can lead, and elects leaders in a new leader epoch. `BrokerImage.
        returned` tells until then what `BrokerRegistration.returned` gives, also if the broker registers again.
        """

    @abstractmethod
    def set_peer_endpoint(self, endpoint: Endpoint) -> None:
        """Sets the address of this broker for others, which it opened after its registration."""

    @abstractmethod
    def announce_brokers(self, node_ids: Iterable[int]) -> None:
        """Makes brokers known that are to come, fenced, with epoch 0. Those that are known stay as they are."""

    @abstractmethod
    def check(self) -> None:
        """Calls the watchers back if the state has changed."""

    def loss(self) -> str:
        """Returns why brokers that start would not find this registry, which those that run still use, or why it is not
        used any more; '' if all is well. Safe in any thread."""
        return self._outdated

    def space(self) -> tuple[int, int]:
        """Returns the free bytes and the size of the disk under the registry; 0 for both where nobody here knows."""
        return 0, 0

    @abstractmethod
    def dead_brokers(self) -> list[tuple[BrokerId, int]]:
        """Returns node id and epoch of the brokers that are not fenced although their session has certainly ended."""

    @abstractmethod
    def has_session(self, node_id: BrokerId, epoch: int) -> bool:
        """Returns False if the session that began with this registration has certainly ended."""

    @abstractmethod
    def end_session(self) -> None:
        """Ends the session: the broker is fenced, and the role of the controller is free if it had it."""

    # -- controller -------------------------------------------------------------------------------------------------

    @abstractmethod
    def elect_controller(self) -> int | None:
        """Makes this broker the controller if there is none, or if the session of the one that was has certainly ended.
        Returns the controller epoch, larger than every earlier one, or the current one if this broker is the controller
        already; None if another broker is, or without a session."""

    @abstractmethod
    def resign(self) -> None:
        """Frees the role of the controller, if this broker has it. The others can take it, and this broker again."""

    @abstractmethod
    def write(
        self, changes: Sequence[Change], *, controller_epoch: int, leader_changes: Sequence[LeaderChange] = ()
    ) -> bool:
        """Writes all of these changes or none, and with them rows of the history of leaders. Returns False if the epoch
        is not the current controller's, or if a change is refused by the condition in its description."""

    @abstractmethod
    def leader_changes(self, limit: int) -> list[LeaderChange]:
        """Returns the last rows of the history of leaders, oldest first."""

    # -- what other programs write into the store -------------------------------------------------------------------

    def outside_requests(self) -> Sequence[OutsideRequest]:
        """Returns what other programs ask the controller for, until it is settled. Asked by the controller, which is
        hinted when there may be more. Stores that only brokers write have none."""
        return ()

    def settle_requests(self, requests: Sequence[OutsideRequest], *, controller_epoch: int) -> bool:
        """Removes requests that are carried out or refused. What they would have changed stands as the controller has
        it. Returns False if the epoch is not the current controller's."""
        assert not requests, "nobody has asked"
        return True

    # -- producer ids -----------------------------------------------------------------------------------------------

    @abstractmethod
    def allocate_producer_ids(self, size: int = PRODUCER_IDS_BLOCK) -> ProducerIdBlock:
        """Returns the next block of producer ids. That counts as a write: the version of the registry tells of it."""

    def close(self) -> None:
        """Ends the session, if any, and closes the store. No method may be called afterwards."""
        with suppress(RegistryUnavailable):
            self.end_session()
        self.abandon()

    @abstractmethod
    def abandon(self) -> None:
        """Closes the store without telling the others, who notice that the process has ended."""
