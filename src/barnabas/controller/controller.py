"""The controller: decides by `replication_control` and `configuration_control`, writes to the registry, publishes the
resulting image.

Every broker has one for its own registration and image; the elected one may also change metadata. Calls are plain
functions that wait for the registry. `broker/controller_thread.py` makes them on one thread. With the embedded registry
they take well under a millisecond for one topic, and about 10 ms for a hundred.
"""

import logging
import random
import time
import uuid
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from barnabas.config.broker import BrokerConfig
from barnabas.config.endpoints import Endpoint
from barnabas.config.log_config import LogConfig
from barnabas.controller import (
    auto_topics,
    configuration_control,
    isr_control,
    reassignment_control,
    replication_control,
)
from barnabas.controller.isr_control import GivenUpReplica, IsrRequest
from barnabas.controller.leader_history import Cause, leader_changes
from barnabas.controller.outside_requests import OutsideRequests
from barnabas.controller.placement import Randomness
from barnabas.controller.reassignment_control import Reassignment
from barnabas.controller.requests import (
    ConfigOp,
    ConfigOperation,
    ConfigResource,
    ElectionType,
    PartitionsRequest,
    ResourceType,
    TopicRequest,
)
from barnabas.errors import (
    BrokerIdNotRegistered,
    InvalidRequest,
    KafkaError,
    NotController,
    RequestTimedOut,
)
from barnabas.metadata.delta import MetadataChange, MetadataDelta
from barnabas.metadata.image import (
    EMPTY_IMAGE,
    INTERNAL_TOPICS,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from barnabas.registry.processes import describe_process
from barnabas.registry.registry import (
    BrokerRegistration,
    Change,
    LeaderChange,
    NotWritten,
    Registry,
    RegistryUnavailable,
    RegistryUnreachable,
    RemoveBroker,
    SetBrokerConfig,
    SetFenced,
    SetTopicConfig,
    Superseded,
    node_id_in_use,
    start_with_registry,
)
from barnabas.types import BrokerId

__all__ = [
    "ConfigOp",
    "ConfigOperation",
    "ConfigResource",
    "Controller",
    "ElectionType",
    "MetadataChange",
    "PartitionsRequest",
    "ResourceType",
    "TopicRequest",
]

T = TypeVar("T")
Subscriber = Callable[[MetadataChange], None]

ADMINISTRATOR: Final = "elected by an administrator"

_ATTEMPTS: Final = 3
"""The number of attempts of a decision when another broker's write comes between the image and its own write."""
_REGISTRATIONS: Final = 30
"""The number of attempts of a registration that depends on the state."""


class Controller:
    """A broker's part in the cluster's metadata. Methods raise NotController if another broker decides, and
    RequestTimedOut if the registry does not respond: then it is unknown whether the change was made."""

    def __init__(
        self,
        registry: Registry,
        config: BrokerConfig,
        *,
        randomness: Randomness | None = None,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self._registry = registry
        self._config = config
        self._randomness = randomness if randomness is not None else random.Random()
        self._new_id = new_id
        self._log = logging.getLogger("barnabas.controller")
        self._subscribers: list[Subscriber] = []
        self._image = EMPTY_IMAGE
        self._controller_epoch: int | None = None
        self.broker_epoch = -1
        """The epoch of this broker's registration."""
        self._mended: MetadataImage | None = None
        """The image that needs no change of leaders and ISRs, as the controller has found."""
        self._short_of: dict[str, int] = {}
        """The number of brokers at which was said that there are fewer than this setting demands."""
        self._hinted = False
        self.is_unread = False
        """Whether the last check could not read the registry."""
        self._stands_from = float("-inf")
        """The time from which this broker wants to be the controller."""
        self._is_unwritten = False
        """Whether the last write had no result."""
        self._publishing = False
        self.on_read: Callable[[float], None] = lambda began: None
        """Called, after the subscribers, with the monotonic time of a reading of the registry that has succeeded."""
        self.cordoned: Callable[[], Container[BrokerId]] = tuple
        """Returns the brokers all of whose data directories are cordoned. Called in the controller's thread."""
        self._outside_requests = OutsideRequests(self, registry, lambda: self._config)

    # -- life -------------------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self._image

    @property
    def is_active(self) -> bool:
        return self._controller_epoch is not None

    def start(
        self,
        registration: BrokerRegistration,
        complete: Callable[[BrokerRegistration, MetadataImage], BrokerRegistration] | None = None,
        registered: Callable[[int], None] = lambda epoch: None,
    ) -> None:
        """Registers this broker, becomes the controller if there is none, and loads the image. `complete` completes the
        registration by the very state upon which it is made, or raises an error because of which it is not made.
        `registered` is called with the broker epoch before anything else happens.

        Raises UsageError where the node id belongs to another running broker or the registry cannot be used, NotYet or
        RegistryUnreachable if another start may succeed.
        """
        self._registry.watch(self._on_hint)
        with start_with_registry():
            broker_epoch = self._register(registration, complete)
            if broker_epoch is None:
                other = self._registry.load().image.brokers.get(BrokerId(registration.node_id))
                raise node_id_in_use(registration.node_id, describe_process(other.process if other else ""))
            self.broker_epoch = broker_epoch
            registered(broker_epoch)
            self._controller_epoch = self._registry.elect_controller()
            self._load()
            self._mend()

    def _register(
        self,
        registration: BrokerRegistration,
        complete: Callable[[BrokerRegistration, MetadataImage], BrokerRegistration] | None,
    ) -> int | None:
        if complete is None:
            return self._registry.register_broker(registration)
        image = None
        for _ in range(_REGISTRATIONS):
            image = self._registry.load(image).image
            with suppress(Superseded):
                return self._registry.register_broker(complete(registration, image), upon=image.version)
        raise RegistryUnreachable("the registry changed all the time while this broker registered")

    def stop(self) -> None:
        """Ends this broker's session. Subscribers are not called."""
        self._subscribers.clear()
        self._controller_epoch = None
        try:
            self._registry.end_session()
        except RegistryUnavailable as error:
            self._log.warning("could not end the session in order, the others see that the process ends: %s", error)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls the subscriber with every new image, in order, after `image` shows it."""
        self._subscribers.append(subscriber)

    def check(self, since: float | None = None) -> None:
        """Becomes the controller if there is none. The controller loads what others have written, fences brokers that
        are dead, and carries out what other programs ask for. If the registry does not respond, the next call tries
        again. `since` is the monotonic time of the event for which this is called."""
        try:
            self.refresh(since)
            if self._controller_epoch is not None:
                self._outside_requests.serve(self._controller_epoch)
        except RegistryUnavailable as error:
            self._log.log(
                logging.DEBUG if self.is_unread else logging.WARNING, "the registry cannot be read: %s", error
            )
            self.is_unread = True
        else:
            self.is_unread = False

    def refresh(self, since: float | None = None) -> None:
        """Does what `check` does, except for what other programs ask for. May raise RegistryUnavailable."""
        began = time.monotonic()
        if self._controller_epoch is None:
            if began >= self._stands_from:
                self._controller_epoch = self._registry.elect_controller()
            self._hinted = True  # without the role, others have written since
        self._registry.check()
        if self._hinted:
            self._load()
        self.on_read(began)
        self._mend(since)

    def _on_hint(self) -> None:
        # The hint may come from any thread and during our own write: it is only noted here.
        self._hinted = True

    def _load(self) -> bool:
        """Loads others' changes. Returns whether there were any."""
        self._hinted = False
        change = self._registry.load(self._image)
        if change.image is self._image:
            return False
        self._image = change.image
        if change.image.controller_id != self._config.node_id:
            self._controller_epoch = None
        if change.brokers_configured:
            self._config = self._config.update_dynamic(
                change.image.broker_config(""), change.image.broker_config(str(self._config.node_id))
            )
        assert not self._publishing, "a subscriber must not change metadata while it handles a change"
        self._publishing = True
        try:
            for subscriber in self._subscribers:
                subscriber(change)
        finally:
            self._publishing = False
        return True

    def _mend(self, since: float | None = None) -> None:
        """Fences dead brokers, and adapts leaders and ISRs to the set of live brokers, as the controller."""
        since = time.monotonic() if since is None else since
        for _ in range(_ATTEMPTS):
            if self._controller_epoch is None:
                return
            dead = self._registry.dead_brokers() if len(self._image.brokers) > 1 else ()
            if not dead and self._image is self._mended:
                return
            changes = self._fencing([(node_id, epoch, True) for node_id, epoch in dead])
            if not changes:
                self._mended = self._image
                return
            fenced = {node_id: "its process has ended" for node_id, _ in dead}
            if self._persist(changes, Cause(since, fenced=fenced)):
                return

    def _fencing(self, brokers: Iterable[tuple[BrokerId, int, bool]]) -> list[Change]:
        """Returns the changes that fence brokers, or end that, with those of leaders and ISRs that follow. Brokers that
        have registered again since, or are as they should be, are left out."""
        image, delta = self._image, MetadataDelta(self._image)
        changes: list[Change] = []
        for node_id, epoch, fenced in brokers:
            broker = image.brokers.get(node_id)
            if broker is not None and broker.epoch == epoch and broker.fenced != fenced:
                delta.put_broker(broker._replace(fenced=fenced))
                changes.append(SetFenced(node_id, epoch, fenced))
        following = delta.apply(image.version).image if changes else image
        return changes + replication_control.leaders_after_brokers_changed(following, self._log_config_of)

    # -- brokers ----------------------------------------------------------------------------------------------------

    def fence(self, node_id: BrokerId, epoch: int, reason: str, silent_s: float = 0.0) -> None:
        """Fences a broker, which then leads nothing and is in no ISR. Does nothing if the broker has registered again
        since. `silent_s` is the time for which nothing was heard of it."""
        self._change(
            lambda: (self._fencing([(node_id, epoch, True)]), None), fenced={node_id: reason}, silent_s=silent_s
        )

    def unfence(self, node_id: BrokerId, epoch: int) -> None:
        """Ends the fencing of a broker, which may lead then. Does nothing if the broker has registered again since, or
        has no session with the registry."""

        def decide() -> tuple[list[Change], bool]:
            # Partitions follow the registration first: a broker that has returned leads in a new leader epoch.
            pending = replication_control.leaders_after_brokers_changed(self._image, self._log_config_of)
            return (pending, False) if pending else (self._fencing([(node_id, epoch, False)]), True)

        if not self._has_session(node_id, epoch):
            return  # it would be fenced again at once
        for _ in range(_ATTEMPTS):
            if self._change(decide):
                return
        raise RequestTimedOut(f"the metadata changed {_ATTEMPTS} times while broker {node_id} was to be unfenced")

    def _has_session(self, node_id: BrokerId, epoch: int) -> bool:
        try:
            return self._registry.has_session(node_id, epoch)
        except RegistryUnavailable as error:
            raise RequestTimedOut(str(error)) from None

    def resign(self, hold_s: float) -> None:
        """Gives the role of the controller up, and takes it again only if nobody else has it after so many seconds.
        Raises RequestTimedOut."""
        if self._controller_epoch is None:
            return
        try:
            self._registry.resign()
            self._controller_epoch = None
            self._load()
        except RegistryUnavailable as error:
            raise RequestTimedOut(str(error)) from None
        finally:
            self._stands_from = time.monotonic() + hold_s  # without an answer, too: the role may be free

    def stand_down(self, hold_s: float, reason: str) -> bool:
        """Has others lead in place of this broker and take the role of the controller, because it cannot do either.
        Returns False, and changes nothing, if it has not the role or nobody else is live. Raises RequestTimedOut."""
        own_id = self._config.node_id
        is_followed = any(not each.fenced for node_id, each in self._image.brokers.items() if node_id != own_id)
        if self._controller_epoch is None or not is_followed:
            return False
        self.fence(own_id, self.broker_epoch, reason)
        self.resign(hold_s)
        return True

    def unregister(self, node_id: BrokerId) -> None:
        """Removes the registration of a broker that is not to come back. Partitions keep their replicas on it, to be
        reassigned. Raises BrokerIdNotRegistered, InvalidRequest for a broker that may be running, RequestTimedOut."""

        def decide() -> tuple[list[Change], None]:
            broker = self._image.brokers.get(node_id)
            if broker is None:
                raise BrokerIdNotRegistered(f"Broker ID {node_id} is not currently registered")
            # A fenced one may only stand still, be cut off, or be about to be taken in.
            if not broker.fenced or self._has_session(node_id, broker.epoch):
                raise InvalidRequest(
                    f"broker {node_id} is live or may be, and would go on without a registration: stop it first; the "
                    "session of one that was killed ends by itself"
                )
            return [RemoveBroker(node_id, broker.epoch)], None

        self._change(decide)

    def alter_partitions(
        self, broker_id: BrokerId, broker_epoch: int, requests: Sequence[IsrRequest]
    ) -> list[tuple[IsrRequest, PartitionImage | KafkaError]]:
        """Accepts or refuses the ISRs that a leader proposes. Raises StaleBrokerEpoch."""
        return self._change(
            lambda: isr_control.alter_partitions(self._image, broker_id, broker_epoch, requests, self._log_config_of),
            reason="reassigned",
        )

    def give_up_replicas(self, broker_id: BrokerId, broker_epoch: int, replicas: Sequence[GivenUpReplica]) -> None:
        """Takes a broker out of the ISRs of replicas that it cannot write or read. Raises StaleBrokerEpoch."""

        def decide() -> tuple[list[Change], None]:
            return isr_control.give_up_replicas(
                self._image, broker_id, broker_epoch, replicas, self._log_config_of
            ), None

        is_damaged = any(replica.is_damaged for replica in replicas)
        why = (
            f"the log of broker {broker_id} is damaged"
            if is_damaged
            else f"the disk of broker {broker_id} refuses records"
        )
        self._change(decide, reason=why)

    def set_peer_endpoint(self, endpoint: Endpoint) -> None:
        """Registers the address of this broker for others. May raise RegistryUnavailable."""
        self._registry.set_peer_endpoint(endpoint)

    def renew_leadership(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Elects this broker, as the controller at its start, for these partitions of its own in a new leader epoch,
        because their logs are lost. A client that knows records of the epoch before notices that they are gone.

        Raises UsageError where the registry cannot be used, NotYet or RegistryUnreachable if another start may succeed.
        """
        wanted = list(partitions)
        cause = Cause(time.monotonic(), f"the log of broker {self._config.node_id} was lost")
        with start_with_registry():
            for _ in range(_ATTEMPTS):
                changes = replication_control.renewed_leaders(self._image, self._config.node_id, wanted)
                if not changes or self._controller_epoch is None or self._persist(changes, cause):
                    return

    def _log_config_of(self, topic: str) -> LogConfig:
        return self._config.log_config(self._image.topic_config(topic))

    # -- topics and partitions --------------------------------------------------------------------------------------

    def create_topics(
        self, requests: Sequence[TopicRequest], *, validate_only: bool = False
    ) -> dict[str, TopicImage | KafkaError]:

        def decide() -> tuple[list[Change], dict[str, TopicImage | KafkaError]]:
            return replication_control.create_topics(
                self._image, requests, self._config, self._randomness, self._new_id, self.cordoned()
            )

        return self._change(decide, validate_only)

    def auto_create_topics(self, names: Iterable[str]) -> dict[str, TopicImage | KafkaError]:
        """Creates requested topics with the broker's defaults, and Kafka's internal ones with the settings that they
        need (`auto_topics.py`). Registered brokers count, fenced ones included: those that are to come, however early
        the first client is."""
        registered = len(self._image.brokers) or 1
        wishes = []
        for name in names:
            self._tell_factor(name, auto_topics.factor_of(name, self._config), registered)
            wishes.append(auto_topics.auto_topic_request(name, self._config, registered))
        return self.create_topics(wishes)

    def _tell_factor(self, name: str, factor: auto_topics.Factor, registered: int) -> None:
        """Says, once for each number of brokers, that topics wait for more brokers, or get fewer replicas."""
        if self._short_of.get(factor.setting) == registered or name in self._image.topics:
            return
        if factor.least > registered:
            self._short_of[factor.setting] = registered
            self._log.warning(
                "%s is not made yet: %s=%d, and %d broker(s) are registered: start the others, or lower it",
                *(name, factor.setting, factor.least, registered),
            )
        elif factor.most > registered and name in INTERNAL_TOPICS:
            self._log.info(
                "%s gets %d replica(s), not %d: so many brokers are registered", name, registered, factor.most
            )

    def delete_topics(self, topics: Sequence[str | uuid.UUID]) -> dict[str | uuid.UUID, KafkaError | None]:
        """Deletes topics by name or id. Returns None for each that is deleted, and the error of the others."""
        return self._change(lambda: replication_control.delete_topics(self._image, topics))

    def create_partitions(
        self, requests: Sequence[PartitionsRequest], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Adds partitions to topics. Returns None for each topic that has them, and the error of the others."""
        return self._change(
            lambda: replication_control.create_partitions(self._image, requests, self._randomness, self.cordoned()),
            validate_only,
        )

    def elect_leaders(
        self, election_type: int, partitions: Sequence[tuple[str, int]] | None
    ) -> dict[tuple[str, int], KafkaError | None]:
        """Elects leaders. Returns None for each partition with a new leader, and the error of the others. Without
        partitions all are tried, and those that need no election are left out. Raises InvalidRequest for an unknown
        type of election."""
        return self._change(
            lambda: replication_control.elect_leaders(self._image, election_type, partitions, self._log_config_of),
            reason=ADMINISTRATOR,
        )

    def alter_reassignments(
        self, requests: Sequence[Reassignment], *, allow_replication_factor_change: bool = True
    ) -> dict[tuple[str, int], KafkaError | None]:
        """Begins, replaces or cancels reassignments. Returns None for each partition where that is done, and the error
        of the others."""
        return self._change(
            lambda: reassignment_control.alter_reassignments(
                self._image,
                requests,
                self._log_config_of,
                allow_replication_factor_change=allow_replication_factor_change,
                cordoned=self.cordoned(),
            ),
            reason="reassigned",
        )

    def balance_leaders(self) -> None:
        """Lets preferred leaders that are in sync lead again."""

        def decide() -> tuple[list[Change], int]:
            changes = replication_control.preferred_leaders(self._image, self._log_config_of)
            return changes, len(changes)

        if moved := self._change(decide, reason="the preferred leader is in sync"):
            self._log.info("%d preferred leaders lead again", moved)

    def move_leader(self, topic: str, partition: int, leader: BrokerId) -> None:
        """Has another in-sync replica lead a partition. Raises UnknownTopicOrPartition,
        EligibleLeadersNotAvailable."""
        self._change(
            lambda: ([replication_control.moved_leader(self._image, topic, partition, leader)], None),
            reason=ADMINISTRATOR,
        )

    def leader_changes(self, limit: int) -> list[LeaderChange]:
        """Returns the last changes of leaders, oldest first. Any broker may be asked. Raises RequestTimedOut."""
        try:
            return self._registry.leader_changes(limit)
        except RegistryUnavailable as error:
            raise RequestTimedOut(str(error)) from None

    def registry_space(self) -> tuple[int, int]:
        """Returns the free bytes and the size of the disk under the registry; 0 for both where nobody here knows."""
        return self._registry.space()

    # -- settings ---------------------------------------------------------------------------------------------------

    def alter_configs(
        self,
        requests: Sequence[tuple[ConfigResource, Sequence[tuple[str, str | None]]]],
        *,
        validate_only: bool = False,
    ) -> list[tuple[ConfigResource, KafkaError | None]]:
        """Replaces all settings of each resource. Returns None or an error for each, in the request's order."""
        return self._change(
            lambda: self._configuring(configuration_control.alter_configs(self._image, requests, self._config)),
            validate_only,
        )

    def incremental_alter_configs(
        self,
        requests: Sequence[tuple[ConfigResource, Sequence[ConfigOperation]]],
        *,
        validate_only: bool = False,
    ) -> list[tuple[ConfigResource, KafkaError | None]]:
        """Changes single settings. Returns None or an error for each resource, in the request's order."""
        return self._change(
            lambda: self._configuring(
                configuration_control.incremental_alter_configs(self._image, requests, self._config)
            ),
            validate_only,
        )

    def _configuring(
        self, altered: configuration_control.ConfigChanges
    ) -> tuple[list[Change], list[tuple[ConfigResource, KafkaError | None]]]:
        """Adds the changes of partitions that follow from other settings, to be written at once: a replica must not be
        eligible any more when min.insync.replicas lets the leader commit without it."""
        delta = MetadataDelta(self._image)
        for change in altered.changes:
            if isinstance(change, SetTopicConfig):
                delta.set_topic_config(change.name, change.config)
            elif isinstance(change, SetBrokerConfig):
                delta.set_broker_config(change.name, change.config)
        image = delta.apply(self._image.version).image
        config = self._config.update_dynamic(image.broker_config(""), image.broker_config(str(self._config.node_id)))
        following = replication_control.leaders_after_brokers_changed(
            image, lambda topic: config.log_config(image.topic_config(topic))
        )
        return [*altered.changes, *following], altered.results

    # -- producer ids -----------------------------------------------------------------------------------------------

    def allocate_producer_ids(self) -> range:
        """Returns producer ids that were never used before."""
        try:
            block = self._registry.allocate_producer_ids()
        except RegistryUnavailable as error:
            raise RequestTimedOut(str(error)) from None
        return range(block.first, block.first + block.size)

    # -- from decision to registry ----------------------------------------------------------------------------------

    def _change(
        self,
        decide: Callable[[], tuple[list[Change], T]],
        validate_only: bool = False,
        reason: str = "",
        fenced: Mapping[BrokerId, str] | None = None,
        silent_s: float = 0.0,
    ) -> T:
        """Decides on the current image and writes. Decides again if another broker has written in between. `reason`,
        `fenced` and `silent_s` are those of the `Cause` for which leaders move."""
        cause = Cause(time.monotonic(), reason, fenced or {}, silent_s)
        for _ in range(_ATTEMPTS):
            if self._controller_epoch is None:
                raise NotController(f"broker {self._image.controller_id} is the controller")
            changes, results = decide()
            if validate_only or not changes:
                return results
            try:
                is_written = self._persist(changes, cause)
            except RegistryUnavailable as error:
                level = logging.DEBUG if self._is_unwritten else logging.ERROR
                in_one = len(changes) <= self._registry.max_changes_per_write
                told = "was not" if isinstance(error, NotWritten) and in_one else "may or may not have been"
                self._log.log(level, "a change %s made: %s", told, error)
                self._is_unwritten = True
                raise RequestTimedOut(str(error)) from None
            self._is_unwritten = False
            if is_written:
                return results
        raise RequestTimedOut(f"the metadata changed {_ATTEMPTS} times while this was being decided")

    def _persist(self, changes: Sequence[Change], cause: Cause) -> bool:
        """Writes and publishes the changes, and logs which brokers are fenced or live. Returns False if the registry
        refuses them; the image then shows why."""
        began = time.monotonic()
        moved = leader_changes(self._image, changes, cause, began, time.time_ns() // 1_000_000)
        epoch = self._controller_epoch
        assert epoch is not None
        size = self._registry.max_changes_per_write
        written = True
        for start in range(0, len(changes), size):
            part, last = changes[start : start + size], start + size >= len(changes)
            written = written and self._registry.write(
                part, controller_epoch=epoch, leader_changes=moved if last else ()
            )
        self._load()
        if written:
            took_ms = (time.monotonic() - began) * 1000
            others_lead = sum(row.from_leader != row.to_leader for row in moved)
            for change in changes:
                if isinstance(change, SetFenced):
                    state = f"fenced, because {cause.fenced[change.node_id]}" if change.fenced else "live"
                    self._log.info(
                        "broker %d is %s: %d leaders moved in %.0f ms", change.node_id, state, others_lead, took_ms
                    )
        return written
