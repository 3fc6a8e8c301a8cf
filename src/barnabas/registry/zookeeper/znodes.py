"""The znodes of a cluster: their paths, and the JSON in them.

Kafka's tree is as Kafka 2.4 makes it, so that its tools read it. What Barnabas needs beyond it stands in further fields
of `state`, in the data of a topic's `partitions` node, which Kafka leaves empty, and below `/barnabas`.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.config.endpoints import Endpoint
from barnabas.log.directories.checkpoints import format_topic_id, parse_topic_id
from barnabas.metadata.delta import MetadataChange
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.registry.content import Move
from barnabas.registry.registry import (
    BrokerRegistration,
    LastRegistration,
    LeaderChange,
    RegistryUnavailable,
)
from barnabas.types import BrokerId

__all__ = [
    "BROKERS",
    "BROKER_CONFIGS",
    "BROKER_IDS",
    "BROKER_SEQUENCE",
    "CLUSTER_ID",
    "CONFIG_CHANGE",
    "CONFIG_CHANGES",
    "CONTROLLER",
    "CONTROLLER_EPOCH",
    "DELETE_TOPICS",
    "DIRECTORIES",
    "FEATURE",
    "FEATURES",
    "ISR_CHANGES",
    "LEADER_CHANGES",
    "LOG_DIR_EVENTS",
    "OWN",
    "PARENTS",
    "PERSISTENT",
    "PREFERRED_ELECTION",
    "PRODUCER_IDS",
    "REASSIGN_PARTITIONS",
    "REGISTRATIONS",
    "SECRET",
    "STATE",
    "TOPICS",
    "TOPIC_CONFIGS",
    "State",
    "TopicMarker",
    "Touched",
    "broker_config_name",
    "broker_config_path",
    "broker_path",
    "delete_topic_path",
    "directories_path",
    "directory_places",
    "encode",
    "encode_assignment",
    "encode_cluster_id",
    "encode_config",
    "encode_config_change",
    "encode_controller",
    "encode_directories",
    "encode_leader_changes",
    "encode_live_broker",
    "encode_partition",
    "encode_producer_ids",
    "encode_registration",
    "leader_changes_path",
    "parse",
    "parse_cluster_id",
    "parse_config",
    "parse_directories",
    "parse_epoch",
    "parse_last_registration",
    "parse_leader_changes",
    "parse_leader_changes_name",
    "parse_next_producer_id",
    "parse_partition",
    "parse_places",
    "parse_registration",
    "partition_path",
    "partitions_path",
    "registered",
    "registration_path",
    "state_path",
    "topic_config_path",
    "topic_path",
]

BROKERS: Final = "/brokers"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
BROKER_SEQUENCE: Final = "/brokers/seqid"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE: Final = "/config/changes/config_change_"
"""The notification of changed settings, without its number."""
DELETE_TOPICS: Final = "/admin/delete_topics"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
PRODUCER_IDS: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"
FEATURES: Final = b'{"version":1,"status":1,"features":{}}'
"""The content of FEATURE, as Kafka 2.8 writes it: finalized features are enabled, and there are none."""
OWN: Final = "/barnabas"
"""The parent of what only Barnabas has. It is written whenever CONTROLLER_EPOCH is made anew: the versions of that one
begin anew then, and only both together tell that no other controller has been elected."""
STATE: Final = "/barnabas/state"
"""The version of the image, the controller, and what the last writes have touched. Every write changes it, at the
version at which it was read: so writes come one after the other, and what is read between two equal versions is of one
time."""
SECRET: Final = "/barnabas/secret"
REGISTRATIONS: Final = "/barnabas/brokers"
"""The registrations, which stay after the end of a session."""
DIRECTORIES: Final = "/barnabas/directories"
LEADER_CHANGES: Final = "/barnabas/leader_changes"
"""A node for each write with rows of the history of leaders: its version and the number of rows."""

PERSISTENT: Final = (
    *("/admin", DELETE_TOPICS, BROKERS, BROKER_IDS, BROKER_SEQUENCE, TOPICS, "/cluster"),
    *("/config", BROKER_CONFIGS, CONFIG_CHANGES, "/config/clients", TOPIC_CONFIGS, "/config/users"),
    *("/consumers", ISR_CHANGES, PRODUCER_IDS, LOG_DIR_EVENTS, CONTROLLER_EPOCH),
    *(OWN, REGISTRATIONS, DIRECTORIES, LEADER_CHANGES),
)
"""The nodes that the founder makes first."""
PARENTS: Final = tuple(path for path in PERSISTENT if path not in {PRODUCER_IDS, CONTROLLER_EPOCH, OWN})
"""Those that may be made again when somebody has deleted them: they have no content of their own."""

T = TypeVar("T")

_DEFAULT: Final = "<default>"
_FORMAT: Final = 1
_HISTORY_MAX: Final = 200
_HISTORY_BYTES_MAX: Final = 16 * 1024
"""The bound of the history in STATE, which is written with every change."""


def encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def parse(path: str, data: bytes, build: Callable[[dict[str, Any]], T]) -> T:
    """Returns what `build` makes of the JSON object of a node. Raises RegistryUnavailable for any other content, which
    somebody else has written."""
    try:
        return build(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RegistryUnavailable(
            f"the registry's {path} cannot be read: {error!r:.100} in {data[:100]!r}; write what it had, or make the "
            "registry anew by `barnabas cluster recover`"
        ) from None


# -- state ------------------------------------------------------------------------------------------------------------


class Touched(NamedTuple):
    """The names that a write has touched."""

    topics: frozenset[str] = frozenset()
    topic_configs: frozenset[str] = frozenset()
    broker_configs: frozenset[str] = frozenset()
    brokers: frozenset[BrokerId] = frozenset()

    @classmethod
    def by(cls, change: MetadataChange) -> "Touched":
        return cls(change.topics, change.topics_configured, change.brokers_configured, change.brokers)

    @classmethod
    def everything(cls, image: MetadataImage) -> "Touched":
        """Returns all names in an image."""
        return cls(
            frozenset(image.topics),
            frozenset(image.topic_configs),
            frozenset(image.broker_configs),
            frozenset(image.brokers),
        )

    @classmethod
    def together(cls, others: Iterable["Touched"]) -> "Touched":
        every = tuple(others)
        return cls(
            frozenset().union(*(each.topics for each in every)),
            frozenset().union(*(each.topic_configs for each in every)),
            frozenset().union(*(each.broker_configs for each in every)),
            frozenset().union(*(each.brokers for each in every)),
        )


class State(NamedTuple):
    """The content of STATE."""

    version: int
    controller_id: BrokerId
    controller_broker_epoch: int
    controller_epoch: int
    history: tuple[tuple[int, Touched], ...] = ()
    """The last versions without a gap, up to the present one, with what was touched then."""
    move: Move | None = None
    """The mark of a registry that moves; it stands in the place of the format."""
    topics: int = -1
    """The number of topics, and of brokers that are registered: nodes that others delete are missed. -1 if the last
    writer was of a release that does not tell."""
    brokers: int = -1
    next_producer_id: int = -1
    """The first producer id that was not given out yet, as PRODUCER_IDS has it; -1 if that is not known."""

    def describing(self, image: MetadataImage) -> "State":
        return self._replace(topics=len(image.topics), brokers=len(image.brokers))

    def lacks(self, image: MetadataImage) -> str:
        """Returns which nodes are missing, by an image that was read from all of them; '' if none are."""
        for parent, wanted, found in (
            (TOPICS, self.topics, len(image.topics)),
            (REGISTRATIONS, self.brokers, len(image.brokers)),
        ):
            if wanted >= 0 and found != wanted:
                return f"{wanted} are written below {parent}, and {found} are there"
        return ""

    def touched_since(self, version: int) -> Touched | None:
        """Returns what was touched after a version; None if that is not known."""
        if version < self.version and (not self.history or self.history[0][0] > version + 1):
            return None
        return Touched.together(touched for number, touched in self.history if number > version)

    def following(self, touched: Touched) -> "State":
        return self._replace(version=self.version + 1, history=(*self.history, (self.version + 1, touched)))

    def encoded(self) -> bytes:
        rows: list[bytes] = []
        size = 0
        for number, touched in reversed(self.history[-_HISTORY_MAX:]):
            row = encode([number, *(sorted(names) for names in touched)])
            size += len(row)
            if size > _HISTORY_BYTES_MAX:
                break
            rows.append(row)
        fields = self._asdict()
        move, _ = fields.pop("move"), fields.pop("history")
        head = encode({"format": _FORMAT if move is None else move.encoded(), **fields, "history": None})
        return head.removesuffix(b"null}") + b"[" + b",".join(reversed(rows)) + b"]}"

    @classmethod
    def of_data(cls, data: bytes) -> "State":
        return parse(STATE, data, cls._of)

    @classmethod
    def _of(cls, found: dict[str, Any]) -> "State":
        move = Move.parse(found["format"])
        if move is None and found["format"] != _FORMAT:
            raise ValueError(f"format {found['format']}, and this version reads format {_FORMAT}")
        lists = slice(1, 1 + len(Touched._fields))  # a later release, in the same cluster, may have added more
        return cls(
            found["version"],
            found["controller_id"],
            found["controller_broker_epoch"],
            found["controller_epoch"],
            tuple((row[0], Touched(*map(frozenset, row[lists]))) for row in found["history"]),
            move,
            int(found.get("topics", -1)),
            int(found.get("brokers", -1)),
            int(found.get("next_producer_id", -1)),
        )


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes) -> str:
    return parse(CLUSTER_ID, data, lambda found: str(found["id"]))


def parse_epoch(data: bytes) -> int:
    """Parses CONTROLLER_EPOCH, which is a number in digits."""
    return int(data) if data.isdigit() else 0


# -- brokers ----------------------------------------------------------------------------------------------------------


def broker_path(node_id: int) -> str:
    return f"{BROKER_IDS}/{node_id}"


def registration_path(node_id: int) -> str:
    return f"{REGISTRATIONS}/{node_id}"


def directories_path(node_id: int) -> str:
    return f"{DIRECTORIES}/{node_id}"


def encode_live_broker(broker: BrokerImage, now_ms: int) -> bytes:
    """Returns the content of the ephemeral node, as of Kafka 2.4. Brokers read it in the registration instead."""
    first = broker.endpoints[0] if broker.endpoints else None
    listeners = [*broker.endpoints, *([] if broker.peer_endpoint is None else [broker.peer_endpoint])]
    found: dict[str, object] = {
        "listener_security_protocol_map": {each.name: each.security_protocol for each in listeners},
        "endpoints": [str(each) for each in listeners],
        "jmx_port": -1,
        "host": first.host if first else None,
        "timestamp": str(now_ms),
        "port": first.port if first else -1,
        "version": 4,
        "epoch": broker.epoch,
    }
    if broker.rack is not None:
        found["rack"] = broker.rack
    return encode(found)


def encode_registration(broker: BrokerImage) -> bytes:
    return encode(
        {
            "version": 1,
            "epoch": broker.epoch,
            "endpoints": [each.text for each in broker.endpoints],
            "rack": broker.rack,
            "fenced": broker.fenced,
            "peer_endpoint": None if broker.peer_endpoint is None else broker.peer_endpoint.text,
            "process": broker.process,
            "returned": broker.returned,
        }
    )


def parse_registration(node_id: int, data: bytes) -> BrokerImage:
    def build(found: dict[str, Any]) -> BrokerImage:
        peers = found["peer_endpoint"]
        return BrokerImage(
            BrokerId(node_id),
            int(found["epoch"]),
            tuple(map(Endpoint.of_text, found["endpoints"])),
            found["rack"],
            bool(found["fenced"]),
            None if peers is None else Endpoint.of_text(peers),
            found["process"],
            found["returned"],
        )

    return parse(registration_path(node_id), data, build)


def registered(registration: BrokerRegistration, epoch: int, *, fenced: bool, returned: str) -> BrokerImage:
    """Returns the broker of a registration."""
    return BrokerImage(
        BrokerId(registration.node_id),
        epoch,
        registration.endpoints,
        registration.rack,
        fenced,
        registration.peer_endpoint,
        registration.process,
        returned,
    )


def encode_directories(
    directories: Mapping[uuid.UUID, str], last: LastRegistration, places: Iterable[str] = ()
) -> bytes:
    """Returns the data directories of a broker, and the places (`directory_places`) of those that it has locked."""
    found: dict[str, object] = {"version": 1, "directories": {str(key): path for key, path in directories.items()}}
    return encode({**found, "registration": last.registration_id, "epoch": last.broker_epoch, "places": sorted(places)})


def parse_last_registration(node_id: int, data: bytes) -> LastRegistration:
    """Parses the content of the same node as `parse_directories`. A release without ids writes it without them."""
    return parse(
        directories_path(node_id),
        data,
        lambda found: LastRegistration(found.get("registration", ""), int(found.get("epoch", -1))),
    )


def directory_places(paths: Iterable[str]) -> set[str]:
    """Returns the device and the number of each directory: a copy has others."""
    places = set()
    for path in paths:
        with suppress(OSError):
            found = os.stat(path)
            places.add(f"{found.st_dev}:{found.st_ino}")
    return places


def parse_places(node_id: int, data: bytes) -> set[str]:
    return parse(directories_path(node_id), data, lambda found: set(map(str, found.get("places", ()))))


def parse_directories(node_id: int, data: bytes) -> dict[uuid.UUID, str]:
    def build(found: dict[str, Any]) -> dict[uuid.UUID, str]:
        return {uuid.UUID(key): str(place) for key, place in found["directories"].items()}

    return parse(directories_path(node_id), data, build)


def encode_controller(node_id: int, now_ms: int) -> bytes:
    return encode({"version": 1, "brokerid": node_id, "timestamp": str(now_ms)})


# -- topics -----------------------------------------------------------------------------------------------------------


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions_path(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition_path(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}"


def state_path(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}/state"


def delete_topic_path(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


class TopicMarker(NamedTuple):
    """The data of `partitions`: a topic is there when it has one. The nodes of further partitions are
    not."""

    topic_id: uuid.UUID
    partitions: int

    @classmethod
    def of(cls, topic: TopicImage) -> "TopicMarker":
        return cls(topic.topic_id, len(topic.partitions))

    def encoded(self) -> bytes:
        return encode({"version": 1, "topic_id": format_topic_id(self.topic_id), "partitions": self.partitions})

    @classmethod
    def of_data(cls, name: str, data: bytes) -> "TopicMarker | None":
        """Returns the marker; None if the topic is only being created, or is deleted."""
        if not data:
            return None
        return parse(
            partitions_path(name), data, lambda found: cls(parse_topic_id(found["topic_id"]), int(found["partitions"]))
        )


def encode_assignment(topic: TopicImage) -> bytes:
    """Returns the content of a topic's node, as of Kafka 2.8, which adds the id."""

    def lists(name: str) -> dict[str, Sequence[BrokerId]]:
        return {str(index): ids for index, each in enumerate(topic.partitions) if (ids := getattr(each, name))}

    return encode(
        {
            "version": 3,
            "topic_id": format_topic_id(topic.topic_id),
            "partitions": lists("replicas"),
            "adding_replicas": lists("adding_replicas"),
            "removing_replicas": lists("removing_replicas"),
        }
    )


_LISTS: Final = PartitionImage._fields[5:]
"""The lists of brokers that a partition has only at times."""


def encode_partition(partition: PartitionImage, controller_epoch: int) -> bytes:
    found: dict[str, object] = {
        "controller_epoch": controller_epoch,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "replicas": partition.replicas,
        "partition_epoch": partition.partition_epoch,
    }
    found.update((name, ids) for name, ids in zip(_LISTS, partition[5:]) if ids)
    return encode(found)


def parse_partition(path: str, data: bytes) -> PartitionImage:
    return parse(path, data, _partition)


def _partition(found: dict[str, Any]) -> PartitionImage:
    return PartitionImage(
        found["leader"],
        found["leader_epoch"],
        tuple(found["replicas"]),
        tuple(found["isr"]),
        found["partition_epoch"],
        *(tuple(found.get(name, ())) for name in _LISTS),
    )


# -- settings ---------------------------------------------------------------------------------------------------------


def topic_config_path(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config_path(name: str) -> str:
    return f"{BROKER_CONFIGS}/{name or _DEFAULT}"


def broker_config_name(node: str) -> str:
    """Returns the name in the image: "" for all brokers."""
    return "" if node == _DEFAULT else node


def encode_config(config: Mapping[str, str]) -> bytes:
    return encode({"version": 1, "config": dict(config)})


def encode_config_change(path: str, controller_epoch: int) -> bytes:
    """Returns the notification that the settings in a node have changed. Kafka's have no epoch."""
    entity = path.removeprefix("/config/")
    return encode({"version": 2, "entity_path": entity, "controller_epoch": controller_epoch})


def parse_config(path: str, data: bytes) -> dict[str, str]:
    return parse(path, data, lambda found: {str(name): str(value) for name, value in found["config"].items()})


# -- producer ids and the history of leaders --------------------------------------------------------------------------


def encode_producer_ids(node_id: int, first: int, size: int) -> bytes:
    return encode({"version": 1, "broker": node_id, "block_start": str(first), "block_end": str(first + size - 1)})


def parse_next_producer_id(data: bytes) -> int:
    if not data:
        return 0
    return parse(PRODUCER_IDS, data, lambda found: int(found["block_end"]) + 1)


_IN_ROW: Final = LeaderChange._fields.index("noticed_after_ms")
"""The first releases refuse longer rows."""


def leader_changes_path(version: int, count: int) -> str:
    return f"{LEADER_CHANGES}/{version:016d}-{count}"


def parse_leader_changes_name(name: str) -> tuple[str, int]:
    """Returns the path of a node of the history, and its number of rows."""
    count = name.rpartition("-")[2]
    return f"{LEADER_CHANGES}/{name}", int(count) if count.isdecimal() else 0


def encode_leader_changes(rows: Sequence[LeaderChange]) -> bytes:
    silences = [row.noticed_after_ms for row in rows]
    return encode({"version": 1, "rows": [row[:_IN_ROW] for row in rows], "noticed_after_ms": silences})


def parse_leader_changes(path: str, data: bytes) -> list[LeaderChange]:
    def read(found: dict[str, Any]) -> list[LeaderChange]:
        rows = found["rows"]
        silences = found.get("noticed_after_ms") or [0] * len(rows)
        return [LeaderChange._make((*row[:_IN_ROW], silence)) for row, silence in zip(rows, silences, strict=True)]

    return parse(path, data, read)
