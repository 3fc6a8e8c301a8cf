"""The registry in ZooKeeper, with Kafka's znode tree: for brokers on several machines.

Every write is one transaction. It changes `/barnabas/state` at the version at which this session has read it, so writes
come one after the other, and each decides upon the whole present state; the controller's also check the versions of
`/controller_epoch`, and of `/barnabas`, which changes when that one is made anew. `load` reads what the state names as
touched since the image before.

A session is the ephemeral `/brokers/ids/N`. When ZooKeeper has ended it although the broker goes on, because they could
not reach each other, the broker makes it again with its next call, and stays the same registration.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from barnabas.config.endpoints import Endpoint
from barnabas.errors import UsageError
from barnabas.log.directories.data_directory import new_cluster_id
from barnabas.metadata.delta import MetadataChange, MetadataDelta
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.metadata.returned import Returned
from barnabas.registry import processes
from barnabas.registry.image_changes import apply_changes
from barnabas.registry.outside_requests import OutsideRequest
from barnabas.registry.processes import is_of_this_boot, is_running, is_visible
from barnabas.registry.registry import (
    PRODUCER_IDS_BLOCK,
    BrokerRegistration,
    Change,
    Evidence,
    LastRegistration,
    LeaderChange,
    ProducerIdBlock,
    Registry,
    RegistryUnavailable,
    RegistryUnreachable,
    Superseded,
    how_to_found_anew,
    start_with_registry,
)
from barnabas.registry.zookeeper import znodes
from barnabas.registry.zookeeper.deleted_nodes import DeletedNodes, lacking
from barnabas.registry.zookeeper.image_nodes import (
    MAX_LEADER_CHANGES,
    Vanished,
    leader_nodes,
    read_changed,
    read_everything,
    read_leader_changes,
)
from barnabas.registry.zookeeper.request_nodes import RequestNodes
from barnabas.registry.zookeeper.session import (
    Check,
    Conflict,
    Create,
    Delete,
    Node,
    Operation,
    Set,
    ZooKeeperAccess,
    ZooKeeperSession,
)
from barnabas.registry.zookeeper.topic_nodes import (
    TopicOperations,
    batches,
    notifications,
    removal,
    topic_operations,
    uncertain_paths,
)
from barnabas.registry.zookeeper.znodes import State, Touched
from barnabas.types import BrokerId

__all__ = ["ZooKeeperRegistry"]

T = TypeVar("T")

_ATTEMPTS: Final = 10
"""The number of attempts of a write while others write, and of a read while others write."""
_RETURNED_MAX: Final = 256 * 1024
"""The longest list of lost replicas in a registration, for one node has 1 MB at most. More count as all."""
_SECRET_BYTES: Final = 32
_IDS_GAP: Final = 1_000_000
"""A bound on the producer ids that brokers of the release before give out without a word in the state."""
_HISTORY_KEPT: Final = 1000
_NO_BROKER: Final = BrokerId(-1)

_log = logging.getLogger("barnabas.registry")


class _Plan(NamedTuple):
    """A write: the state and image that follow, and the operations."""

    change: MetadataChange
    state: State
    operations: Sequence[Operation]


class ZooKeeperRegistry(Registry):
    """Each broker process makes its own object, with the same `access`."""

    max_changes_per_write = 500
    max_leader_changes = MAX_LEADER_CHANGES

    def __init__(
        self,
        access: ZooKeeperAccess,
        *,
        used_directory: str | None = None,
        is_running: Callable[[str], bool] = is_running,
        boot: str | None = None,
    ) -> None:
        """Connects, and founds the cluster if there is none. `used_directory` is a data directory that belongs to a
        cluster already. `is_running` says whether the process of a registration may be alive. `boot` is another boot
        than that of this machine, for a broker that is to look like one on another machine. Raises UsageError if
        ZooKeeper is not reached, or what is below that path is not the registry of this broker's cluster;
        RegistryUnreachable if the connection is lost again."""
        self._connect = access.connect
        self._is_running = is_running if boot is None else partial(processes.is_running, boot=boot)
        self._boot = boot
        self._watchers: list[Callable[[], None]] = []
        self._registered: BrokerImage | None = None
        """This broker's registration, while it has a session."""
        self._directories = b""
        """The content of the node of its data directories, as this broker's registration has written it."""
        self._live_in = 0
        """The session in which the node of this broker was made."""
        self._is_back = False
        """Whether the connection was lost and is back since the state was read. Set by kazoo's threads."""
        self._seen = -1
        """The version that the last `check` found."""
        self._history: deque[tuple[int, Touched]] = deque(maxlen=_HISTORY_KEPT)
        self._session = ZooKeeperSession(access)
        self._requests = RequestNodes(self._session)
        self._deleted = DeletedNodes(self._session)
        self._session.on_event = self._changed
        try:
            with start_with_registry(f"zookeeper.connect: {access.connect} cannot be used as the registry: "):
                self._prepare(used_directory)
                self._deleted.make_parents()
                paths = [znodes.CLUSTER_ID, znodes.SECRET, znodes.STATE]
                found, secret, state = self._session.read(paths)
                if found is None or secret is None or state is None:
                    raise RegistryUnavailable(f"the registry's {' or '.join(paths)} is gone")
                self._secret = secret.data
                self._image = MetadataImage(znodes.parse_cluster_id(found.data))
                self._state = State(0, _NO_BROKER, 0, 0)
                self._node_version = 0
                self._refresh()
                self._incarnation = f"{state.created_ms:x}"
                if self._session.read([znodes.FEATURE]) == [None]:  # the founder may have been of an older release
                    self._session.make([znodes.FEATURE], znodes.FEATURES)
        except BaseException:
            self._session.close()
            raise

    def _prepare(self, used_directory: str | None) -> None:
        """Founds the cluster, unless somebody has."""
        session = self._session
        state, cluster_id = session.read([znodes.STATE, znodes.CLUSTER_ID], sync=True)
        if state is not None:
            return
        if any(session.children([znodes.TOPICS, znodes.BROKER_IDS])):
            if session.read([znodes.STATE], sync=True) != [None]:
                return  # another broker has founded the cluster and registered meanwhile
            raise UsageError(
                f"zookeeper.connect: {self._connect} has topics, but no state of a registry: it is of a cluster of "
                "Apache Kafka; choose another path. Or somebody has deleted the state; then "
                + how_to_found_anew(self._connect, in_zookeeper=True)
            )
        if used_directory is not None:
            raise UsageError(
                f"zookeeper.connect: {self._connect} has no registry, but brokers have used {used_directory}: name the "
                "one of its cluster"
            )
        session.make_root()
        session.make(znodes.PERSISTENT)
        founding: list[Operation] = [
            Create(znodes.SECRET, os.urandom(_SECRET_BYTES), secret=True),
            Create(znodes.STATE, State(1, _NO_BROKER, 0, 0).encoded()),
        ]
        if cluster_id is None:
            founding.insert(0, Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(new_cluster_id())))
        try:
            session.commit(founding)
        except Conflict:  # another broker was faster
            if session.read([znodes.STATE], sync=True) == [None]:
                raise RegistryUnreachable("another broker founds the cluster") from None

    # -- what is there ----------------------------------------------------------------------------------------------

    def load(self, previous: MetadataImage | None = None) -> MetadataChange:
        self._refresh()
        image = self._image
        is_same = previous is not None and previous.cluster_id == image.cluster_id
        base = previous if previous is not None and is_same else MetadataImage(image.cluster_id)
        if base.version == image.version:
            return MetadataChange(base)
        delta = MetadataDelta(base)
        touched = self._touched_since(base.version)
        if touched is None:
            delta.clear()
            touched = Touched.everything(image)
        _put(delta, image, touched)
        return delta.apply(image.version)

    def _touched_since(self, version: int) -> Touched | None:
        """Returns what was touched after the version of an image that this object has returned."""
        if not version or not self._history or not self._history[0][0] <= version + 1 <= self._image.version + 1:
            return None
        return Touched.together(touched for number, touched in self._history if number > version)

    def _read_state(self, *, sync: bool) -> tuple[State, int]:
        """Returns the state and the version of its node. With `sync` it is not older than what is known."""
        for _ in range(_ATTEMPTS):
            known = self._known()
            (node,) = self._session.read([znodes.STATE], sync=sync)
            if node is None:
                raise RegistryUnavailable(
                    f"the registry's {znodes.STATE} is gone; make it anew by `barnabas cluster recover`"
                )
            state = State.of_data(node.data)
            if state.move is not None:
                raise RegistryUnavailable(state.move.refusal(self._connect))
            if not sync or not known.is_newer_than(state.version, state.controller_epoch):
                return state, node.version
            with suppress(Conflict):
                # A server that was cut off shows an old state, too, until it notices that; but nothing is committed.
                self._session.commit([Check(znodes.STATE, node.version)])
                self._refuse_outdated(self._connect, state.version, state.controller_epoch, known)
        raise RegistryUnreachable("the registry changed all the time while it was read")

    def _refresh(self) -> None:
        """Reads what others have written."""
        vanished = ""
        for _ in range(_ATTEMPTS):
            state, node_version = self._read_state(sync=True)
            self._note_read(state.version, state.controller_epoch)
            if state.version == self._image.version:
                self._node_version = node_version
                return
            known = state.touched_since(self._image.version) if self._image.version else None
            try:
                if known is not None:
                    change = read_changed(self._session, self._image, known)
                else:
                    change = read_everything(self._session, self._image.cluster_id)
            except Vanished as error:
                vanished = str(error)
                continue
            vanished = ""
            if self._read_state(sync=False)[0].version == state.version:
                change.controller_id, change.controller_epoch = state.controller_id, state.controller_epoch
                if known is None:
                    self._history.clear()
                self._history.extend(entry for entry in state.history if entry[0] > self._image.version)
                image = change.apply(state.version).image
                if lack := state.lacks(image):
                    raise lacking(lack)
                self._image, self._state, self._node_version = image, state, node_version
                return
        if vanished:
            raise lacking(f"{vanished} is gone")
        raise RegistryUnreachable("the registry changed all the time while it was read")

    def watch(self, callback: Callable[[], None]) -> None:
        self._watchers.append(callback)

    def _changed(self, path: str) -> None:
        """Called from a thread of kazoo when a node may have changed."""
        if not path:
            self._is_back = True
        self._requests.changed(path)
        self._hint()

    def _hint(self) -> None:
        for callback in self._watchers:
            callback()

    def check(self) -> None:
        self._resume_session()
        self._restore(if_missing=True)
        self._free_role_if_lost()
        state, _ = self._read_state(sync=True)
        if state.version != self._seen:
            self._seen = state.version
            self._hint()

    def cluster_secret(self) -> bytes:
        return self._secret

    @property
    def confirms_controllers(self) -> bool:
        return self._session.is_connected

    def incarnation(self) -> str:
        """Returns when ZooKeeper has made the node of the state, which no broker makes again: a copy of the tree has it
        of a later time."""
        return self._incarnation

    # -- writes -----------------------------------------------------------------------------------------------------

    def _transact(self, plan: Callable[[], _Plan | None]) -> bool:
        """Commits what is planned upon the present state. Returns False if the plan is None."""
        for _ in range(_ATTEMPTS):
            self._require_usable()
            self._refresh_if_back()
            version = self._image.version
            try:
                planned = plan()
                if planned is not None:
                    self._session.commit([self._set_state(planned), *planned.operations])
                    self._took_place(planned)
                    return True
                self._refresh()
                if self._image.version == version:
                    return False
            except Conflict as conflict:
                _log.debug("another write came first: %s", conflict)
                self._refresh()
                if self._image.version == version:  # nobody has written: what the write needs is gone
                    self._deleted.make_parents()
                    self._restore(if_missing=False)
        return False

    def _refresh_if_back(self) -> None:
        """Looks at a ZooKeeper to which the connection was lost: it may be another one by now, put back from a copy,
        whose nodes have the versions that this broker knows."""
        if self._is_back:
            self._is_back = False
            try:
                self._refresh()
            except RegistryUnavailable:
                self._is_back = True
                raise

    def _set_state(self, planned: _Plan) -> Operation:
        return Set(znodes.STATE, planned.state.describing(planned.change.image).encoded(), self._node_version)

    def _took_place(self, planned: _Plan) -> None:
        self._image, self._state = planned.change.image, planned.state
        self._note_read(planned.state.version, planned.state.controller_epoch)
        self._node_version += 1
        self._history.append((planned.state.version, Touched.by(planned.change)))

    def _restore(self, *, if_missing: bool) -> None:
        """Makes again, as the controller, what others have deleted; with `if_missing` only after a look at the
        parents."""
        if not self._has_role() or (if_missing and not self._deleted.are_some_missing(self._image)):
            return
        own, kept = self._session.read([znodes.OWN, znodes.CONTROLLER_EPOCH])
        is_mine = _is_mine(own, kept, self._state.controller_epoch)
        if is_mine:
            with suppress(Conflict):  # others have written, or have the role by now
                self._deleted.restore(self._image, self._secret, [Check(znodes.STATE, self._node_version), *is_mine])

    def _planned(
        self,
        operations: Sequence[Operation],
        brokers: Iterable[BrokerImage] = (),
        *,
        controller: tuple[BrokerId, int, int] | None = None,
    ) -> _Plan:
        """Returns the write that registers brokers as they are given, with these further operations. `controller` is
        its id, the epoch of its registration and its own epoch."""
        state, delta = self._state, MetadataDelta(self._image)
        if controller is not None:
            controller_id, broker_epoch, epoch = controller
            state = state._replace(
                controller_id=controller_id, controller_broker_epoch=broker_epoch, controller_epoch=epoch
            )
        delta.controller_id, delta.controller_epoch = state.controller_id, state.controller_epoch
        for broker in brokers:
            delta.put_broker(broker)
        change = delta.apply(self._image.version + 1)
        return _Plan(change, state.following(Touched.by(change)), [*self._registrations(change), *operations])

    def _registrations(self, change: MetadataChange) -> Iterator[Operation]:
        """Yields the operations of the registrations that a write changes."""
        for node_id in sorted(change.brokers):
            broker, path = change.image.brokers.get(node_id), znodes.registration_path(node_id)
            if broker is None:
                yield Delete(path)
            elif node_id in self._image.brokers:
                yield Set(path, znodes.encode_registration(broker))
            else:
                yield Create(path, znodes.encode_registration(broker))

    # -- sessions ---------------------------------------------------------------------------------------------------

    def next_node_id(self) -> int:
        """Returns a number from 1 on that no broker has got before."""
        return self._session.next_number(znodes.BROKER_SEQUENCE)

    def session(self, node_id: int, directories: Iterable[str] = ()) -> Evidence:
        self._refresh()
        paths = [znodes.broker_path(node_id), znodes.directories_path(node_id)]
        held, recorded = self._session.read(paths, sync=True)
        places = znodes.directory_places(directories)
        return self._evidence(self._image.brokers.get(BrokerId(node_id)), held, recorded, places)

    def _evidence(
        self, broker: BrokerImage | None, held: Node | None, recorded: Node | None, locked: set[str]
    ) -> Evidence:
        """Returns what is certain about a registered broker, by the nodes of its session and of its directories. Below
        the same kernel, the places that this process has `locked` are not those of another one that runs."""
        if broker is None or not self._is_running(broker.process):
            return Evidence.ENDED
        if is_visible(broker.process, self._boot):
            return Evidence.RUNS
        if held is None:
            return Evidence.ENDED
        if recorded is None or not is_of_this_boot(broker.process, self._boot):
            return Evidence.UNSEEN
        is_here = not locked.isdisjoint(znodes.parse_places(broker.node_id, recorded.data))
        return Evidence.ENDED if is_here else Evidence.UNSEEN

    def directories(self, node_id: int) -> Mapping[UUID, str]:
        (node,) = self._session.read([znodes.directories_path(node_id)], sync=True)
        return {} if node is None else znodes.parse_directories(node_id, node.data)

    def last_registration(self, node_id: int) -> LastRegistration:
        (node,) = self._session.read([znodes.directories_path(node_id)], sync=True)
        return LastRegistration() if node is None else znodes.parse_last_registration(node_id, node.data)

    def register_broker(self, registration: BrokerRegistration, *, upon: int | None = None) -> int | None:
        self._registered = None
        node_id = BrokerId(registration.node_id)
        live = znodes.broker_path(node_id)
        places = znodes.directory_places(registration.directories.values())
        registered: BrokerImage | None = None

        def plan() -> _Plan | None:
            nonlocal registered
            if upon is not None and self._image.version != upon:
                raise Superseded
            held, directories = self._session.read([live, znodes.directories_path(node_id)], sync=True)
            former = self._image.brokers.get(node_id)
            recorded = {} if directories is None else znodes.parse_directories(node_id, directories.data)
            is_own = former is not None and former.process == registration.process
            if not is_own and self._evidence(former, held, directories, places) is not Evidence.ENDED:
                return None
            before = former.returned if former is not None and former.fenced else ""
            returned = registration.returned(recorded, before)
            registered = znodes.registered(
                registration,
                self._state.version + 1,
                fenced=bool(self._image.brokers.keys() - {node_id}),
                returned=returned if len(returned) < _RETURNED_MAX else Returned(lost=None).text,
            )
            last = LastRegistration(registration.registration_id, registered.epoch)
            data = self._directories = znodes.encode_directories(registration.directories, last, places)
            path = znodes.directories_path(node_id)
            operations: list[Operation] = [Create(path, data) if directories is None else Set(path, data)]
            if held is not None:
                operations.append(Delete(live, held.version))
            operations.append(self._live(registered))
            return self._planned(operations, [registered])

        if not self._transact(plan):
            return None
        assert registered is not None
        self._registered, self._live_in = registered, self._session.id
        return registered.epoch

    def _live(self, broker: BrokerImage) -> Operation:
        return Create(znodes.broker_path(broker.node_id), znodes.encode_live_broker(broker, _now_ms()), ephemeral=True)

    def _own_registration(self) -> BrokerImage | None:
        """Returns this broker's registration as it is in the image; None if the broker has registered again since, as
        another process."""
        own = self._registered
        found = None if own is None else self._image.brokers.get(own.node_id)
        return found if own is not None and found is not None and found.epoch == own.epoch else None

    def _resume_session(self) -> None:
        """Makes the node of this broker's session again if ZooKeeper has ended that session, or somebody has deleted
        it."""
        if self._registered is None:
            return
        if self._session.watch(path := znodes.directories_path(self._registered.node_id)) is None:
            self._refresh()
            if self._own_registration() is not None:
                self._deleted.make(path, self._directories)
        for _ in range(_ATTEMPTS):
            node = self._session.watch(znodes.broker_path(self._registered.node_id))
            if node is not None and node.owner == self._session.id:
                return
            self._refresh()
            own = self._own_registration()
            if own is None:
                return
            former = [] if node is None else [Delete(znodes.broker_path(own.node_id), node.version)]
            try:
                self._session.commit([Check(znodes.STATE, self._node_version), *former, self._live(own)])
            except Conflict:
                self._deleted.make_parents()
                continue
            if self._session.id == self._live_in:
                _log.warning("somebody has deleted %s in ZooKeeper: made again", znodes.broker_path(own.node_id))
            else:
                _log.info("the session with ZooKeeper had ended: broker %d has a new one", own.node_id)
            self._live_in = self._session.id

    def set_peer_endpoint(self, endpoint: Endpoint) -> None:
        def plan() -> _Plan | None:
            own = self._own_registration()
            return None if own is None else self._planned((), [own._replace(peer_endpoint=endpoint)])

        self._transact(plan)

    def announce_brokers(self, node_ids: Iterable[int]) -> None:
        announced = [BrokerId(node_id) for node_id in node_ids]

        def plan() -> _Plan | None:
            unknown = [node_id for node_id in announced if node_id not in self._image.brokers]
            if not unknown:
                return None
            return self._planned((), [BrokerImage(node_id, 0, (), fenced=True) for node_id in unknown])

        self._transact(plan)

    def dead_brokers(self) -> list[tuple[BrokerId, int]]:
        self._refresh()
        (live,) = self._session.children([znodes.BROKER_IDS])
        return [
            (broker.node_id, broker.epoch)
            for broker in self._image.brokers.values()
            if not broker.fenced and (str(broker.node_id) not in live or not self._is_running(broker.process))
        ]

    def has_session(self, node_id: BrokerId, epoch: int) -> bool:
        self._refresh()
        broker = self._image.brokers.get(node_id)
        if broker is None or broker.epoch != epoch or not self._is_running(broker.process):
            return False
        return self._session.read([znodes.broker_path(node_id)]) != [None]

    def end_session(self) -> None:
        if self._registered is None:
            return
        live = znodes.broker_path(self._registered.node_id)

        def plan() -> _Plan | None:
            own = self._own_registration()
            if own is None:
                return None
            held, controller = self._session.read([live, znodes.CONTROLLER])
            operations: list[Operation] = [] if held is None else [Delete(live, held.version)]
            if self._state.controller_id != own.node_id:
                return self._planned(operations, [own._replace(fenced=True, process="")])
            if controller is not None:
                operations.append(Delete(znodes.CONTROLLER, controller.version))
            free = (_NO_BROKER, 0, self._state.controller_epoch)
            return self._planned(operations, [own._replace(fenced=True, process="")], controller=free)

        try:
            self._transact(plan)
        finally:
            self._registered = None

    # -- controller -------------------------------------------------------------------------------------------------

    def elect_controller(self) -> int | None:
        if self._registered is None:
            return None
        self._resume_session()
        current: int | None = None

        def plan() -> _Plan | None:
            nonlocal current
            own, state = self._own_registration(), self._state
            if own is None:
                return None
            held = self._session.watch(znodes.CONTROLLER)
            if held is not None:
                if self._has_role() and held.owner == self._session.id:
                    current = state.controller_epoch
                    return None
                if state.controller_id not in (_NO_BROKER, own.node_id) and self._may_be_alive(state):
                    return None
            (kept,) = self._session.read([znodes.CONTROLLER_EPOCH])
            epoch = max(state.controller_epoch, 0 if kept is None else znodes.parse_epoch(kept.data)) + 1
            operations: list[Operation]
            if kept is None:
                operations = [Create(znodes.CONTROLLER_EPOCH, b"%d" % epoch), Set(znodes.OWN, b"")]
            else:
                operations = [Set(znodes.CONTROLLER_EPOCH, b"%d" % epoch, kept.version)]
            if held is not None:
                operations.append(Delete(znodes.CONTROLLER, held.version))
            operations.append(
                Create(znodes.CONTROLLER, znodes.encode_controller(own.node_id, _now_ms()), ephemeral=True)
            )
            return self._planned(operations, controller=(own.node_id, own.epoch, epoch))

        self._refresh()
        if not self._transact(plan):
            return current
        self._session.watch(znodes.CONTROLLER)
        return self._state.controller_epoch

    def _may_be_alive(self, state: State) -> bool:
        broker = self._image.brokers.get(state.controller_id)
        return broker is not None and broker.epoch == state.controller_broker_epoch and self._is_running(broker.process)

    def _has_role(self) -> bool:
        """Returns whether this broker is the controller, as far as the present state tells."""
        own, state = self._own_registration(), self._state
        return own is not None and (state.controller_id, state.controller_broker_epoch) == (own.node_id, own.epoch)

    def resign(self) -> None:
        self._free_role(if_lost=False)

    def _free_role_if_lost(self) -> None:
        """Frees the role of the controller if this broker had it, and its node is gone: ZooKeeper has ended the
        session, or somebody has deleted the node to have a controller elected. Also if somebody has set another
        epoch."""
        if self._has_role() and self._free_role(if_lost=True):
            _log.warning(
                "this broker is no longer the controller: its %s is gone, or %s is another",
                *(znodes.CONTROLLER, znodes.CONTROLLER_EPOCH),
            )

    def _free_role(self, *, if_lost: bool) -> bool:
        def plan() -> _Plan | None:
            state = self._state
            held = self._session.watch(znodes.CONTROLLER)
            (kept,) = self._session.read([znodes.CONTROLLER_EPOCH])
            is_held = held is not None and held.owner == self._session.id
            is_epoch = kept is not None and znodes.parse_epoch(kept.data) == state.controller_epoch
            if not self._has_role() or (if_lost and is_held and is_epoch):
                return None
            operations = [Delete(znodes.CONTROLLER, held.version)] if held is not None and is_held else ()
            return self._planned(operations, controller=(_NO_BROKER, 0, state.controller_epoch))

        return self._transact(plan)

    def write(
        self, changes: Sequence[Change], *, controller_epoch: int, leader_changes: Sequence[LeaderChange] = ()
    ) -> bool:
        assert len(changes) <= self.max_changes_per_write, len(changes)
        topics = TopicOperations()
        is_mine: Sequence[Check] = ()

        def plan() -> _Plan | None:
            nonlocal topics, is_mine
            if self._state.controller_epoch != controller_epoch:
                return None
            change = apply_changes(self._image, changes)
            if change is None:
                return None
            touched = Touched.by(change)
            paths = uncertain_paths(self._image, change.image, touched)
            own, kept, *found = self._session.read([znodes.OWN, znodes.CONTROLLER_EPOCH, *paths])
            is_mine = _is_mine(own, kept, controller_epoch)
            if not is_mine:
                return None
            there = {path for path, node in zip(paths, found) if node is not None}
            topics = topic_operations(self._image, change.image, touched, there.__contains__)
            for path in topics.left_over:
                self._session.delete_below(path, *is_mine)
            self._session.delete(self._session.all_below(topics.answered)[len(topics.answered) :], *is_mine)
            decisive = [*self._registrations(change), *topics.decisive, *self._leader_rows(leader_changes)]
            decisive += notifications(self._image, change.image, touched)
            if len(batches(topics.prepared + decisive + topics.descriptive)) == 1:
                decisive = topics.prepared + decisive + topics.descriptive
                topics.descriptive.clear()
            else:
                for part in batches(topics.prepared):
                    self._session.commit([*is_mine, *part])
            return _Plan(change, self._state.following(touched), [*is_mine, *decisive])

        if not self._transact(plan):
            return False
        self._complete(topics, is_mine)
        return True

    def _complete(self, topics: TopicOperations, is_mine: Sequence[Check]) -> None:
        """Does what is left of a write that has taken place, unless another controller has been elected since: what is
        there then may be what that one has made."""
        try:
            for part in batches(topics.descriptive) if topics.descriptive else ():
                self._session.commit([*is_mine, *part])
            for topic in topics.removed:
                try:
                    for part in batches(removal(topic)):
                        self._session.commit([*is_mine, *part])
                except Conflict:  # somebody else has written there
                    self._session.delete_below(znodes.topic_path(topic.name), *is_mine)
            self._requests.forget_changes(_now_ms(), is_mine)
        except (Conflict, RegistryUnavailable) as error:
            _log.warning("ZooKeeper still has nodes of before: %s", error)

    def _leader_rows(self, rows: Sequence[LeaderChange]) -> Iterator[Operation]:
        """Yields the operations that add rows to the history of leaders, and remove the oldest ones."""
        if not rows:
            return
        rows = rows[-self.max_leader_changes :]
        yield Create(znodes.leader_changes_path(self._state.version + 1, len(rows)), znodes.encode_leader_changes(rows))
        kept = len(rows)
        for path, count in leader_nodes(self._session):
            if kept >= self.max_leader_changes:
                yield Delete(path)
            kept += count

    def leader_changes(self, limit: int) -> list[LeaderChange]:
        self._refresh()
        return read_leader_changes(self._session, min(limit, self.max_leader_changes))

    # -- what other programs write ----------------------------------------------------------------------------------

    def outside_requests(self) -> Sequence[OutsideRequest]:
        if self._requests.look(self._image):
            self._hint()
        return self._requests.pending()

    def settle_requests(self, requests: Sequence[OutsideRequest], *, controller_epoch: int) -> bool:
        own, kept = self._session.read([znodes.OWN, znodes.CONTROLLER_EPOCH])
        is_mine = _is_mine(own, kept, controller_epoch)
        if is_mine:
            self._requests.settle(requests, self._image, is_mine)
        return bool(is_mine)

    # -- producer ids -----------------------------------------------------------------------------------------------

    def allocate_producer_ids(self, size: int = PRODUCER_IDS_BLOCK) -> ProducerIdBlock:
        node_id = _NO_BROKER if self._registered is None else self._registered.node_id
        first = 0

        def plan() -> _Plan:
            nonlocal first
            (node,) = self._session.read([znodes.PRODUCER_IDS])
            known = self._state.next_producer_id
            if node is None and known < 0:
                raise RegistryUnavailable(f"the registry's {znodes.PRODUCER_IDS} is gone")
            first = known + _IDS_GAP if node is None else max(known, znodes.parse_next_producer_id(node.data))
            block = znodes.encode_producer_ids(node_id, first, size)
            write = (
                Create(znodes.PRODUCER_IDS, block) if node is None else Set(znodes.PRODUCER_IDS, block, node.version)
            )
            planned = self._planned([write])
            return planned._replace(state=planned.state._replace(next_producer_id=first + size))

        if not self._transact(plan):
            raise RegistryUnavailable("other brokers wrote all the time while producer ids were taken")
        return ProducerIdBlock(first, size)

    def abandon(self) -> None:
        self._watchers.clear()
        self._session.close()


def _is_mine(own: Node | None, kept: Node | None, controller_epoch: int) -> Sequence[Check]:
    """Returns the conditions that no other controller is elected than that of this epoch, by the nodes of the epoch;
    none if there was another one."""
    if own is None or kept is None or znodes.parse_epoch(kept.data) != controller_epoch:
        return ()
    return Check(znodes.OWN, own.version), Check(znodes.CONTROLLER_EPOCH, kept.version)


def _put(delta: MetadataDelta, image: MetadataImage, touched: Touched) -> None:
    """Puts what was touched as it is in an image."""
    delta.controller_id, delta.controller_epoch = image.controller_id, image.controller_epoch
    for node_id in touched.brokers:
        if node_id in image.brokers:
            delta.put_broker(image.brokers[node_id])
        else:
            delta.remove_broker(node_id)
    for name in touched.topics:
        if name in image.topics:
            delta.put_topic(image.topics[name])
        else:
            delta.remove_topic(name)
    for name in touched.topic_configs:
        delta.set_topic_config(name, image.topic_config(name))
    for name in touched.broker_configs:
        delta.set_broker_config(name, image.broker_config(name))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
