"""The znodes of a registry as a whole, for its move to another store or from there."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final
from uuid import UUID

from barnabas.errors import UsageError
from barnabas.metadata.image import NO_CONTROLLER, MetadataImage
from barnabas.registry.content import Move, RegistryContent
from barnabas.registry.migration import RegistryStore, StoredRegistry
from barnabas.registry.processes import is_running
from barnabas.registry.registry import LastRegistration, RegistryUnavailable
from barnabas.registry.zookeeper import znodes
from barnabas.registry.zookeeper.image_nodes import (
    MAX_LEADER_CHANGES,
    Vanished,
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
from barnabas.registry.zookeeper.topic_nodes import batches, topic_operations
from barnabas.registry.zookeeper.znodes import State, Touched
from barnabas.types import BrokerId

__all__ = ["ZooKeeperStore"]

_ATTEMPTS: Final = 3
"""The number of attempts of a read while others write."""
_SETS_AT_A_TIME: Final = 1000
_PARENTS: Final = (
    *(znodes.TOPICS, znodes.TOPIC_CONFIGS, znodes.BROKER_CONFIGS),
    *(znodes.CONFIG_CHANGES, znodes.DELETE_TOPICS, znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS),
    *(znodes.REGISTRATIONS, znodes.DIRECTORIES, znodes.LEADER_CHANGES),
)
"""The nodes below which nothing is when the content is written."""
_LISTS: Final = (znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_ELECTION)


class ZooKeeperStore(RegistryStore):
    """The path of a `zookeeper.connect`, below which nothing need be."""

    max_leader_changes = MAX_LEADER_CHANGES

    def __init__(self, access: ZooKeeperAccess, *, is_running: Callable[[str], bool] = is_running) -> None:
        """Connects. Raises UsageError, RegistryUnreachable."""
        self.name = access.connect
        self._is_running = is_running
        self._session = ZooKeeperSession(access)
        self._state: State | None = None
        self._node_version = -1
        """The version of the node of the state, as it was read or written last."""
        self._producer_ids: Node | None = None
        """The node of the producer ids, as it was read last: brokers take some without a look at the state."""

    # -- reads ------------------------------------------------------------------------------------------------------

    def read(self) -> StoredRegistry | None:
        for _ in range(_ATTEMPTS):
            node, cluster = self._session.read([znodes.STATE, znodes.CLUSTER_ID], sync=True)
            self._state = None if node is None else State.of_data(node.data)
            if node is None or self._state is None:
                self._require_no_kafka()
                return None
            self._node_version = node.version
            try:
                found = self._read(self._state, znodes.parse_cluster_id(_there(znodes.CLUSTER_ID, cluster).data))
            except Vanished:
                continue
            if self._is_unchanged():
                return found
        raise RegistryUnavailable(f"{self.name}: the registry changed all the time while it was read")

    def _require_no_kafka(self) -> None:
        if any(self._session.children([znodes.TOPICS, znodes.BROKER_IDS])):
            raise UsageError(f"{self.name}: is the registry of a cluster of Apache Kafka; choose another path")

    def _is_unchanged(self) -> bool:
        (node,) = self._session.read([znodes.STATE])
        return node is not None and node.version == self._node_version

    def _read(self, state: State, cluster_id: str) -> StoredRegistry:
        session = self._session
        try:
            delta = read_everything(session, cluster_id, strictly=True)
        except Vanished:
            if state.move is None or not state.move.is_target:
                raise
            return StoredRegistry(RegistryContent(MetadataImage(cluster_id)), state.move)  # its removal was interrupted
        paths = (znodes.SECRET, znodes.PRODUCER_IDS, znodes.BROKER_SEQUENCE)
        epoch, *found = session.read([znodes.CONTROLLER_EPOCH, *paths])
        secret, producer_ids, sequence = map(_there, paths, found)
        self._producer_ids = producer_ids
        delta.controller_id = state.controller_id
        delta.controller_epoch = max(state.controller_epoch, 0 if epoch is None else znodes.parse_epoch(epoch.data))
        image = delta.apply(state.version).image
        listed, live = session.children([znodes.DIRECTORIES, znodes.BROKER_IDS])
        directories = dict(self._directories(BrokerId(int(name)) for name in listed if name.isdecimal()))
        content = RegistryContent(
            image,
            znodes.parse_next_producer_id(producer_ids.data),
            secret.data,
            {node_id: found for node_id, (found, _) in directories.items()},
            sequence.version,
            tuple(read_leader_changes(session, self.max_leader_changes)),
            {node_id: last for node_id, (_, last) in directories.items() if last != LastRegistration()},
        )
        alive = [BrokerId(int(name)) for name in live if name.isdecimal() and self._may_live(image, int(name))]
        return StoredRegistry(content, state.move, alive, self._requests(image))

    def _directories(
        self, node_ids: Iterable[BrokerId]
    ) -> Iterator[tuple[BrokerId, tuple[dict[UUID, str], LastRegistration]]]:
        listed = list(node_ids)
        for node_id, node in zip(listed, self._session.read([znodes.directories_path(each) for each in listed])):
            if node is not None and (found := znodes.parse_directories(node_id, node.data)):
                yield node_id, (found, znodes.parse_last_registration(node_id, node.data))

    def _may_live(self, image: MetadataImage, node_id: int) -> bool:
        broker = image.brokers.get(BrokerId(node_id))
        return broker is None or self._is_running(broker.process)

    def _requests(self, image: MetadataImage) -> list[str]:
        requests = RequestNodes(self._session)
        while requests.look(image):
            pass
        return sorted({request.node for request in requests.pending()})

    # -- writes -----------------------------------------------------------------------------------------------------

    def write(self, content: RegistryContent, move: Move) -> None:
        try:
            self._claim(content, move)
            self._remove()
            for part in batches(_operations(content)):
                self._commit(part)
            for start in range(0, content.node_ids, _SETS_AT_A_TIME):
                count = min(_SETS_AT_A_TIME, content.node_ids - start)
                self._commit([Set(znodes.BROKER_SEQUENCE, b"")] * count)
        except Conflict as conflict:
            raise RegistryUnavailable(f"{self.name}: somebody else writes there: {conflict}") from None

    def _claim(self, content: RegistryContent, move: Move) -> None:
        """Writes the mark, so that no broker takes for a registry what is there from now on."""
        image = content.image
        state = State(image.version, NO_CONTROLLER, 0, image.controller_epoch, (), move)
        if self._state is not None:
            self._session.commit([Set(znodes.STATE, state.encoded(), self._node_version)])
            self._node_version += 1
            self._session.make(znodes.PERSISTENT)
        else:
            self._session.make_root()
            self._session.make(znodes.PERSISTENT)
            cluster_id, secret = self._session.read([znodes.CLUSTER_ID, znodes.SECRET])
            operations: list[Operation] = [Create(znodes.STATE, state.encoded())]
            if cluster_id is None:
                operations.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(image.cluster_id)))
            elif (other := znodes.parse_cluster_id(cluster_id.data)) != image.cluster_id:
                raise UsageError(f"{self.name}: has the id of cluster {other}; choose another path")
            if secret is None:
                operations.append(Create(znodes.SECRET, secret=True))
            self._session.commit(operations)
            self._node_version = 0
        self._session.make([znodes.FEATURE], znodes.FEATURES)
        self._state = state

    def _remove(self) -> None:
        """Removes what is left of a registry that was here, or of an interrupted move."""
        found = self._session.all_below(_PARENTS)[len(_PARENTS) :]
        found += [path for path, node in zip(_LISTS, self._session.read(_LISTS)) if node is not None]
        self._session.delete(found, self._condition)
        self._commit([Delete(znodes.BROKER_SEQUENCE), Create(znodes.BROKER_SEQUENCE)])  # it counts its writes

    @property
    def _condition(self) -> Check:
        return Check(znodes.STATE, self._node_version)

    def _commit(self, operations: Iterable[Operation]) -> None:
        self._session.commit([self._condition, *operations])

    def set_move(self, move: Move | None) -> bool:
        assert self._state is not None, "nothing was read"
        assert self._producer_ids is not None, "nothing was read"
        state, ids = self._state._replace(move=move), self._producer_ids
        try:
            self._session.commit(
                [
                    Set(znodes.STATE, state.encoded(), self._node_version),
                    # A broker that is about to take some has to look at the state again.
                    Set(znodes.PRODUCER_IDS, ids.data, ids.version),
                ]
            )
        except Conflict:
            return False
        self._state, self._node_version = state, self._node_version + 1
        return True

    def close(self) -> None:
        self._session.close()


def _operations(content: RegistryContent) -> Iterator[Operation]:
    """Yields the operations that write a content where there is nothing but the state."""
    image = content.image
    yield Set(znodes.SECRET, content.secret)
    yield Set(znodes.CONTROLLER_EPOCH, b"%d" % image.controller_epoch)
    taken = content.next_producer_id
    yield Set(znodes.PRODUCER_IDS, znodes.encode_producer_ids(NO_CONTROLLER, taken - 1, 1) if taken else b"")
    for node_id, broker in image.brokers.items():
        yield Create(znodes.registration_path(node_id), znodes.encode_registration(broker))
    for node_id, directories in content.directories.items():
        last = content.registrations.get(node_id, LastRegistration())
        yield Create(znodes.directories_path(node_id), znodes.encode_directories(directories, last))
    nothing = MetadataImage(image.cluster_id)
    topics = topic_operations(nothing, image, Touched.everything(image), lambda _: False)
    yield from topics.prepared
    yield from topics.decisive
    if rows := content.leader_changes:
        yield Create(znodes.leader_changes_path(image.version, len(rows)), znodes.encode_leader_changes(rows))


def _there(path: str, node: Node | None) -> Node:
    if node is None:
        raise RegistryUnavailable(f"the registry's {path} is gone")
    return node
